"""Fits the coefficients of search/instructions.py to what the emulated board counts: `make instructions`.

Each published network is compiled with several schemes, built with PlatformIO and run for one training step;
the entries into kernels that the generated code calls itself tell what each step took. Kinds of steps that no
published network has, or only few, are counted in small networks of random numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import click
import numpy as np
from scipy.optimize import nnls

from lab import notes
from lab.alone import hold
from lab.bench.build import BOARD, build
from lab.bench.cases import CLASSES, SCHEMES
from lab.bench.measure import ENTRIES, KERNEL, after_one_step
from lab.golden.data import find as find_data
from microtrain.base.paths import ROOT
from microtrain.convert.emit.code import generate
from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.convert.ir import Graph, Node
from microtrain.convert.ops import TABLE, coded, conv
from microtrain.convert.ops.work import kind
from microtrain.convert.pipeline import Compiled, compile_graph
from microtrain.convert.scheme import Scheme, find
from microtrain.device.client import Device
from microtrain.emulator import Board, EmulatedPort
from microtrain.emulator.registers import Register
from microtrain.search.instructions import AVERAGE, COEFFICIENTS, OTHERS, Model, estimate

from .others import others

WORK = ROOT / "build/instructions"
BITS = (0, 4, 8)
ENOUGH = 4  # steps of a kind, to fit it
PREPARE = {*conv.EXPAND, *coded.EXPAND}  # what a step calls in front of its kernel
RIVALS = ("head-only", "bias-only", "bias-40", "last-2")


@dataclass(frozen=True, eq=False)
class Counted:
    """A step of a compiled model and its instructions."""

    graph: Graph
    node: Node
    instructions: int


def plans(network: str) -> Iterable[Scheme]:
    """Every published scheme with int8 weights, one with fraction bits, biases alone and the last layers."""
    published = [replace(find(Path(name)), fraction_bits=0) for name in SCHEMES[network]]
    yield from published
    yield from (replace(published[1], fraction_bits=bits) for bits in BITS[1:])
    yield from (find(Path(name)) for name in RIVALS)


def counted(compiled: Compiled, name: str) -> list[Counted]:
    """The steps of a compiled model on the emulated board. name: of the folder it is built in"""
    folder = WORK / name
    (folder / "generated").mkdir(parents=True, exist_ok=True)
    for file, text in generate(compiled, "instructions").files.items():
        (folder / "generated" / file).write_text(text, encoding="utf-8")
    return count(build(folder / "generated", folder, BOARD), compiled.graph)


def count(elf: Path, graph: Graph) -> list[Counted]:
    """Instructions of every step but the last, whose end is not seen."""
    height, width, channels = graph.tensors[graph.input.tensor].shape
    blocks = (-(-height // 8), -(-width // 8), channels)
    image = np.random.default_rng(0).integers(0, 256, blocks).astype(np.uint8)
    image = image.repeat(8, axis=0).repeat(8, axis=1)[:height, :width]
    trained = after_one_step(elf, image, 1)
    board = Board(elf)
    device = Device(EmulatedPort(board))
    device.push(trained)
    entries = watch(board)
    board.watch_calls(["model_take_row"])
    device.train(image, 1)
    found = assigned(graph, entries)
    if graph.arriving:  # most of the first stream runs as the rows come
        rows = board.calls()["model_take_row"].instructions
        found[0] = replace(found[0], instructions=found[0].instructions + rows)
    return found


def watch(board: Board) -> list[tuple[str, int]]:
    """A list that gets the name of each kernel that generated code calls, and the instructions so far."""
    callers = [f for f in board.image.functions if f.name in (*ENTRIES, "forward_front", "forward_rest")]
    spans = [(f.address & ~1, (f.address & ~1) + f.size) for f in callers]
    entries: list[tuple[str, int]] = []
    places = [0]  # of the calls; a kernel that another one ends in returns to where that was called

    def note(name: str) -> None:
        caller = board.register(Register.LR) & ~1
        if any(start <= caller < end for start, end in spans) and caller != places[-1]:
            entries.append((name, board.instructions))
            places.append(caller)

    for function in board.image.functions:
        if KERNEL.fullmatch(function.name) or function.name == "stream_end":
            board.watch(function.name, partial(note, function.name))
    return entries


def assigned(graph: Graph, entries: list[tuple[str, int]]) -> list[Counted]:
    """Each step with the instructions from its first call to the first one of the next step."""
    starts, place = [], 0
    for _ in graph.nodes:
        starts.append(entries[place][1])
        while entries[place][0] in PREPARE:
            place += 1
        place += 1
    if place != len(entries):
        raise click.ClickException(f"{graph.name}: {len(entries)} calls for {len(graph.nodes)} steps.")
    pairs = zip(graph.nodes, pairwise(starts), strict=False)
    return [Counted(graph, node, end - start) for node, (start, end) in pairs]


# By kinds: what a step grows with, and takes.
Rows = Mapping[str, Sequence[tuple[Mapping[str, float], float]]]


def rows_of(steps: Iterable[Counted]) -> Rows:
    rows: dict[str, list[tuple[Mapping[str, float], float]]] = defaultdict(list)
    for step in steps:
        terms = TABLE[step.node.op].work(step.graph, step.node)
        rows[kind(step.graph, step.node)].append((terms, step.instructions))
    return rows


def fit(steps: Iterable[Counted]) -> Model:
    """Non-negative least squares for each kind of step, relative to the root of what it takes."""
    rows = rows_of(steps)
    everything = [
        ({"macs": found["macs"], "out elements": found["out elements"]}, count)
        for own in rows.values()
        for found, count in own
        if "macs" in found
    ]
    return {AVERAGE: fitted(everything), **fitted_kinds(rows, ())}


def fit_others(steps: Iterable[Counted], published: Collection[str]) -> Model:
    """Of kinds of steps that few or no steps of published networks are."""
    return fitted_kinds(rows_of(steps), published)


def fitted_kinds(rows: Rows, known: Collection[str]) -> Model:
    """Of kinds that are not known yet, where enough steps were counted: few would be met by any one term."""
    found = sorted(rows.items())
    return {name: fitted(own) for name, own in found if name not in known and len(own) >= ENOUGH}


def fitted(rows: Sequence[tuple[Mapping[str, float], float]]) -> dict[str, float]:
    """The coefficients that are not 0."""
    names = sorted({name for found, _ in rows for name in found})
    matrix = np.array([[found.get(name, 0.0) for name in names] for found, _ in rows])
    target = np.array([instructions for _, instructions in rows])
    weight = 1.0 / np.sqrt(np.maximum(target, 100.0))
    scale = np.maximum(matrix.max(axis=0), 1e-9)
    solution, _ = nnls(matrix / scale * weight[:, None], target * weight)
    return {name: float(f"{c:.6g}") for name, c in zip(names, solution / scale, strict=True) if c > 0}


def said(steps: Sequence[Counted], model: Model, what: str) -> None:
    found = sum(estimate(s.graph, s.node, model) for s in steps)
    click.echo(
        f"estimate of {what}: {found / sum(s.instructions for s in steps) - 1:+.2%} over {len(steps)} steps"
    )


def of_published() -> Iterator[Counted]:
    for network in SCHEMES:
        graph = read_checkpoint(find_data().checkpoint(network))
        for scheme in plans(network):
            click.echo(f"{network}, {scheme.name}, {scheme.fraction_bits} fraction bits")
            name = f"{graph.name}-{scheme.name}-{scheme.fraction_bits}"
            yield from counted(compile_graph(graph, scheme, CLASSES), name)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--others", "only_others", is_flag=True, help="Leave the coefficients of published networks.")
def main(only_others: bool) -> None:
    """Build, count and fit; tools/search/instructions*.json. Needs the test data and PlatformIO."""
    hold(WORK)
    published: Model = notes.read(COEFFICIENTS, {})
    if not only_others:
        steps = list(of_published())
        published = fit(steps)
        notes.write(COEFFICIENTS, published)
        said(steps, published, "published networks")
    more: list[Counted] = []
    for name, compiled in others():
        click.echo(name)
        more += counted(compiled, name)
    model = fit_others(more, published)
    notes.write(OTHERS, model)
    for each in model:
        said([s for s in more if kind(s.graph, s.node) == each], {**published, **model}, each)
