"""A conversion from the model file to the files of the firmware, as the command line asks for it."""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from microtrain.base.errors import Error
from microtrain.base.plan import FLOAT, TFLITE
from microtrain.base.progress import Bars
from microtrain.base.terminal import console, say
from microtrain.pictures.report import Line

from . import boards, check, defaults, obstacles, tasks
from .default_scheme import beside_records, largest
from .emit.document import flash_total
from .emit.explain import print_waterfall
from .export.write import export, said
from .frontends.endings import LONGER
from .frontends.module import LoadedModel
from .imprinting import compile_imprinting
from .ir import Graph
from .loading import known, load, quantized_with_report
from .memory import replay
from .memory.imprint import Request, features_of
from .ops import hop
from .options import NATIVE, OPEN_SET, TASKS, Wanted
from .outside import place_outside
from .passes.recompute import recomputed
from .pipeline import Compiled, Passes, Room
from .quantize.compress import compressed, trained_by
from .quantize.ptq import Choices, calibration_images, knows_ranges
from .recording import with_buffer
from .scheme import Scheme
from .scheme import find as find_scheme
from .trainables import HeadStart
from .until import ending_at
from .writing import Model, Target, write

NOT_AS_TFLITE = ", sums not rounded as TensorFlow Lite's reference kernels do: answers may differ a little"


def run(model: Path, wanted: Wanted) -> bool:
    """Read, quantize, compile, write, and say what it costs; or only look. False: it does not fit."""
    tasks.refuse(wanted)
    if wanted.check:
        checked = check.check(model, asked_of(model, wanted))
        check.show(checked)
        return checked.fits
    target = target_of(wanted)
    loaded = rounded(loaded_as(model, wanted), wanted)
    classes = classes_of(loaded.graph, wanted)
    too_large = obstacles.before_calibration(known(loaded), target.limits, classes, compresses(wanted))
    obstacles.refuse(f"{loaded.graph.name} does not fit", too_large)
    choices = choices_of(loaded, wanted)
    compared = wanted.compared or wanted.labelled is not None
    images = images_of(loaded, wanted)
    asked = (loaded, choices, compared, wanted.labelled, images)
    quantized, report_files = quantized_with_report(*asked, whole=_beside_blocks(wanted))
    quantized = quantized.replace(gate=wanted.gate or 0.0, saves=not wanted.no_checkpoints)
    quantized = tasks.measured_by(quantized, loaded, wanted)
    compiled = compiled_for(quantized, wanted, target.limits, images)
    write(compiled, Model(model, loaded.kind, said_of(loaded, choices)), target, report_files)
    if wanted.library:
        name = export(wanted.library, target.folder, None)
        say(f"wrote the library with the model {name} to {wanted.library}")
        say(said(target.folder, name))
    if wanted.explain:
        print_waterfall(quantized, compiled, console())
    return True


def _beside_blocks(wanted: Wanted) -> bool:
    """Whether modules learn beside blocks, of whose sizes they are in the model too."""
    return wanted.scheme is not None and find_scheme(wanted.scheme).lite is not None


def rounded(loaded: LoadedModel, wanted: Wanted) -> LoadedModel:
    """The model with what is to become of its sums; the library has one way alone."""
    way = FLOAT if wanted.library else wanted.requantize or loaded.graph.requantize
    if wanted.library and loaded.graph.requantize != FLOAT:
        say(f"int8        scales and zero points of the file{NOT_AS_TFLITE}")
    return replace(loaded, graph=loaded.graph.replace(requantize=way))


def choices_of(loaded: LoadedModel, wanted: Wanted) -> Choices:
    """How the model is quantized. Where it is already, the images are for codes of records or of weights, or
    for the centre of embeddings."""
    learned = replay_of(wanted, False) is not None or compresses(wanted) or wanted.task == OPEN_SET
    for_codes = learned and (loaded.kind == "checkpoint" or knows_ranges(loaded.graph))
    return Choices(None if for_codes else wanted.calibration, wanted.rule, wanted.correct)


def images_of(loaded: LoadedModel, wanted: Wanted) -> np.ndarray | None:
    """Typical images, uint8 [N, h, w, c], where something but the ranges is learned from them."""
    given = wanted.calibration is not None or loaded.calibration is not None
    if not compresses(wanted) and (replay_of(wanted, False) is None or not given):
        return None
    return calibration_images(loaded.graph, loaded.calibration, wanted.calibration)


def compresses(wanted: Wanted) -> bool:
    """Whether frozen weights are to take fewer bits."""
    return wanted.weights_bits != defaults.WEIGHTS_BITS[0]


def said_of(loaded: LoadedModel, choices: Choices) -> tuple[Line, ...]:
    """How pixels are read and ranges were found; nothing for a published checkpoint."""
    if loaded.kind == "checkpoint":
        return ()
    taken = loaded.normal.sentence(loaded.graph.sample_shape)
    if knows_ranges(loaded.graph):
        return (("input", taken), ("int8", f"scales and zero points of the file{_sums_of(loaded)}"))
    images = "the samples in the file" if choices.calibration is None else str(choices.calibration)
    corrected = ", biases corrected" if choices.correct else ""
    return (
        ("input", taken),
        ("int8", f"ranges by {choices.rule} over {images}{corrected}"),
    )


def _sums_of(loaded: LoadedModel) -> str:
    """What is said of the rounding of a quantized file, whose answers depend on it."""
    if loaded.graph.requantize == TFLITE:
        return ", sums rounded as TensorFlow Lite's reference kernels do"
    if loaded.kind == "tflite":
        return NOT_AS_TFLITE
    return ""


def loaded_as(model: Path, wanted: Wanted) -> LoadedModel:
    given = wanted.normalisation, wanted.calibration, wanted.logits
    with warnings.catch_warnings():
        if wanted.task == OPEN_SET:  # whose embeddings have length 1
            warnings.filterwarnings("ignore", re.escape(LONGER))
        loaded = load(model, wanted.trust, wanted.input_shape, *given)
    return tasks.opened(ending_at(loaded, wanted.until) if wanted.until else loaded, wanted)


def asked_of(model: Path, wanted: Wanted) -> check.Asked:
    """What --check looks for."""
    scheme = choose_scheme(wanted.scheme, wanted.fraction_bits) if wanted.scheme else None
    classes, limits = given_classes(wanted), target_of(wanted).limits
    imprint = wanted.imprint.beside(wanted.head_rows or scheme.head) if scheme else Request(0)
    passes = passes_of(wanted, wanted.calibration is not None or model.suffix not in (".pkl", ".tflite"))
    return check.Asked(
        load=lambda: loaded_as(model, wanted),
        limits=limits,
        classes=classes,
        scheme=scheme,
        passes=passes,
        imprint=imprint,
        labels=not tasks.by_targets(wanted),
        compress=compresses(wanted),
    )


def passes_of(wanted: Wanted, images: bool) -> Passes:
    """images: there are some that codes of records can be learned from."""
    return Passes(
        fused=not wanted.whole,
        arriving=not wanted.keep_image,
        replay=replay_of(wanted, images),
        fleet=wanted.fleet,
    )


def replay_of(wanted: Wanted, images: bool) -> replay.Request | None:
    """The replay buffer that there may be, with the codes that its records may have."""
    request = wanted.replay
    if request is None or (request.optional and not may_remember(wanted)):
        return None
    if request.optional and wanted.budget_sram is None:
        request = replace(request, spared=replay.SPARED)
    if wanted.code == 0 or (wanted.code is None and not images):
        return request
    return replace(request, parts=(wanted.code,) if wanted.code else replay.PARTS)


def may_remember(wanted: Wanted) -> bool:
    """Whether a replay buffer that nobody asked for is of use: to a firmware of ours that learns classes by
    itself, on a board, of which some SRAM may be left.

    A head that begins with its own rows has no look, and so no rehearsal. Where windows overlap a buffer may
    cost what a hop spares: first layers do not go on where a record holds what comes in.
    """
    alone = not (wanted.check or wanted.library or wanted.fleet or wanted.hop)
    looks = wanted.task == TASKS[0] and wanted.imprint.group != 0 and not wanted.head_rows
    looks = looks or wanted.task == OPEN_SET
    return alone and looks and wanted.board_name != NATIVE


def target_of(wanted: Wanted) -> Target:
    """The board and what of it may be used; where no budget is given, all that it has."""
    board = None if wanted.board_name == NATIVE else boards.find(wanted.board_name)
    if wanted.no_checkpoints:
        if board is None:
            raise Error("--no-checkpoints: this machine has no flash to be short of; leave the option out.")
        board = board.without_checkpoints
    limits = boards.limits(board, wanted.budget_sram, wanted.budget_flash, wanted.external_flash)
    return Target(wanted.output, limits, asked_for=wanted.scheme is not None)


def classes_of(graph: Graph, wanted: Wanted) -> int:
    """Classes of the new task: those asked for, as many as the head starts from, or the model's own."""
    given = given_classes(wanted)
    if not tasks.by_targets(wanted):
        obstacles.refuse(f"{graph.name} cannot learn", obstacles.one_output(graph, given))
    known = given or graph.tensors[graph.output].channels
    return known + 1 if wanted.task == OPEN_SET else known


def given_classes(wanted: Wanted) -> int | None:
    """Those asked for, or as many as the head starts from; None: neither is said."""
    if wanted.classes or wanted.head_rows:
        return wanted.classes or len(wanted.head_rows or ())
    rows = find_scheme(wanted.scheme).head if wanted.scheme else None
    return len(rows) if isinstance(rows, tuple) else None


def compiled_for(
    quantized: Graph, wanted: Wanted, limits: boards.Limits, images: np.ndarray | None = None
) -> Compiled:
    """With the scheme that was named, or the largest default one that fits; with statistics of features as
    good as there is room for beside it; with its replay buffer; and with frozen weights beside the chip."""
    for strip in hop.strips(quantized):
        compiled = compiled_with(quantized, wanted, limits.with_external, images, strip)
        room = limits.sram_room
        if room is None or (compiled.sram <= room and not recomputed(compiled.graph)):
            break
    return place_outside(compiled, limits)


def compiled_with(
    quantized: Graph, wanted: Wanted, limits: boards.Limits, images: np.ndarray | None, strip: int
) -> Compiled:
    """strip: rows that enter the first layers at once."""
    passes = replace(passes_of(wanted, images is not None), strip=strip)
    if passes.replay and passes.replay.optional:
        compiled = compiled_by(passes, quantized, wanted, limits, images)
        learns = wanted.scheme is not None or compiled.scheme.weights
        if learns and keeps(compiled, limits):
            return compiled
        passes = replace(passes, replay=None)
    return compiled_by(passes, quantized, wanted, limits, images)


def keeps(compiled: Compiled, limits: boards.Limits) -> bool:
    """Whether there is room for the replay buffer that nobody asked for."""
    flash = flash_total(compiled.graph, limits.board_name)
    fits = limits.sram is not None and compiled.sram <= limits.sram and not recomputed(compiled.graph)
    used = compiled.records > 0 and (compiled.graph.imprint > 0 or bool(compiled.graph.centre))
    return fits and used and (limits.flash is None or flash <= limits.flash)


def compiled_by(
    passes: Passes, quantized: Graph, wanted: Wanted, limits: boards.Limits, images: np.ndarray | None
) -> Compiled:
    """By these passes, with the scheme that is wanted and statistics beside it."""
    classes = classes_of(quantized, wanted)
    scheme = choose_scheme(wanted.scheme, wanted.fraction_bits) if wanted.scheme else None
    head = tasks.head_of(wanted, scheme)
    request = Request(0) if tasks.by_targets(wanted) else wanted.imprint.beside(head)
    sram = limits.sram if passes.replay else limits.sram_room  # a buffer leaves what the stack needs itself
    flash = obstacles.room_for_weights(limits)[0] if compresses(wanted) else None
    room = Room(quantized, classes, sys.maxsize if sram is None else sram, flash)
    if scheme is None:
        scheme = default_within(room, passes, head, request.some(features_of(quantized)))
    scheme = tasks.scheme_for(replace(scheme, head=head), wanted, classes)
    if compresses(wanted):
        room = replace(room, quantized=with_codes(quantized, scheme, images, wanted), flash=None)
    compiled = compile_imprinting(room, scheme, passes, request, limits)
    if passes.replay:
        return with_buffer(compiled, passes.replay, limits.sram, images)
    return compiled


def with_codes(quantized: Graph, scheme: Scheme, images: np.ndarray | None, wanted: Wanted) -> Graph:
    """The quantized graph, its weights that the scheme leaves frozen in four bits."""
    assert images is not None
    return compressed(quantized, images, trained_by(quantized, scheme), every=wanted.weights_bits == "4")


def default_within(room: Room, passes: Passes, head: HeadStart, group: int) -> Scheme:
    """The default scheme that leaves room for statistics of features, if there is any such, and for
    records that nobody asked for."""
    with Bars(transient=True) as bars:
        bar = bars.add("choosing what to train, schemes tried")
        looking = replace(passes, imprint=group)
        if passes.replay and passes.replay.optional:
            return beside_records(room, looking, head, bar.advance)
        scheme = largest(room, looking, head, bar.advance)
        if not group or room.holds(scheme, looking):
            return scheme
        return largest(room, passes, head, bar.advance)


def choose_scheme(name: Path, fraction_bits: str | None) -> Scheme:
    """The scheme that was named, with other fraction bits where they are given."""
    scheme = find_scheme(name)
    return scheme if fraction_bits is None else replace(scheme, fraction_bits=int(fraction_bits))
