"""A conversion from the model file to the files of the firmware, as the command line asks for it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from microtrain.base.plan import Budget

from . import boards
from .cli import KB, NATIVE, Wanted
from .default_scheme import default_scheme
from .emit.explain import print_waterfall
from .ir import Graph
from .loading import load, quantized_with_report, screen
from .pipeline import Compiled, Passes, compile_within, with_buffer
from .quantize.ptq import Choices
from .scheme import Scheme
from .scheme import find as find_scheme
from .writing import Model, Target, write


def run(model: Path, wanted: Wanted) -> None:
    """Read, quantize, compile, write, and say what it costs."""
    target = target_of(wanted)
    loaded = load(model, wanted.trust, wanted.input_shape)
    choices = Choices(wanted.calibration, wanted.rule, wanted.correct)
    compared = wanted.compared or wanted.labelled is not None
    quantized, report_files = quantized_with_report(loaded, choices, compared, wanted.labelled)
    compiled = compiled_for(quantized, wanted, target.budget)
    write(compiled, Model(model, loaded.kind), target, report_files)
    if wanted.explain:
        print_waterfall(quantized, compiled, screen())


def target_of(wanted: Wanted) -> Target:
    """The board and what of it may be used; where no budget is given, all that it has."""
    if wanted.board_name == NATIVE:
        return Target(wanted.output, None, None)
    board = boards.find(wanted.board_name)
    budget = Budget(
        sram=board.sram if wanted.budget_sram is None else wanted.budget_sram * KB,
        flash=board.flash if wanted.budget_flash is None else wanted.budget_flash * KB,
    )
    return Target(wanted.output, board, budget)


def compiled_for(quantized: Graph, wanted: Wanted, budget: Budget | None) -> Compiled:
    """With the scheme that was named, or the largest default one that fits; and with its replay buffer."""
    passes = Passes(fused=not wanted.whole, arriving=not wanted.keep_image, replay=wanted.replay)
    room = budget.sram if budget else sys.maxsize
    scheme = choose_scheme(wanted.scheme, wanted.fraction_bits) if wanted.scheme else None
    compiled = compile_for(quantized, scheme, wanted.classes, wanted.head_rows, room, passes)
    if wanted.replay:
        return with_buffer(compiled, wanted.replay, budget.sram if budget else None)
    return compiled


def choose_scheme(name: Path, fraction_bits: str | None) -> Scheme:
    """The scheme that was named, with other fraction bits where they are given."""
    scheme = find_scheme(name)
    return scheme if fraction_bits is None else replace(scheme, fraction_bits=int(fraction_bits))


def compile_for(
    quantized: Graph,
    scheme: Scheme | None,
    classes: int | None,
    head_rows: tuple[int, ...] | None,
    budget_sram: int,
    passes: Passes,
) -> Compiled:
    """Compile with the given scheme, or the largest default one, to fit `budget_sram` bytes.

    classes    None: as many as the head has rows to start from, or the model's own
    head_rows  rows of the model's own head, in place of what the scheme says; None: the scheme's
    """
    head = head_rows or (scheme.head if scheme else "zeros")
    wanted = classes or (
        len(head) if isinstance(head, tuple) else quantized.tensors[quantized.output].channels
    )
    if scheme is None:
        return default_scheme(quantized, wanted, budget_sram, passes, head)
    return compile_within(quantized, replace(scheme, head=head), wanted, budget_sram, passes)
