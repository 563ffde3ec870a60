"""How long a piece of a training step can become in the library: at most, in instructions of a core.

Work is what microtrain_step() is given (kernels/pace.h). A piece is one step of the model or a part of one: a
unit, however large, or units of no more work than was given. The coefficients in pieces.json pass all that
was measured (lab/pieces).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .ir import Graph, Node
from .memory.replay import classes, coded_bytes, part_of, record_bytes
from .ops import TABLE, hop
from .ops.stream import resident
from .ops.stream_calls import Call, calls_of, calls_of_slide
from .ops.unit import Unit
from .ops.work import in_one_go, priced

COEFFICIENTS = Path(__file__).with_name("pieces.json")
BEGIN, STREAM, KEEP, RECALL = "begin", "around streams", "keep", "recall"  # beside the ops
# Which cores each bound is of, and how the preprocessor knows them, the first that holds.
CORES = {
    "cortex-m55": ("Cortex-M55", "defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)"),
    "cortex-m4f": (
        "Cortex-M4F, M7 and M33",
        "defined(__ARM_FEATURE_DSP) && defined(__ARM_FP) && !defined(__ARM_FEATURE_MVE)",
    ),
    "cortex-m3": ("Cortex-M3", "defined(__ARM_ARCH_7M__)"),
    "rv32imafc": ("RV32IMAFC", "defined(__riscv_flen) && __riscv_xlen == 32"),
    "rv32imc": ("RV32IMC", "defined(__riscv_mul) && __riscv_xlen == 32 && !defined(__riscv_32e)"),
}
HELIUM = "cortex-m55"
WORK_MOST = 2**32 - 1  # that microtrain_step() can be given
Priced = Mapping[str, float]  # coefficient of each term


@dataclass(frozen=True)
class Model:
    """Of a core.

    prices  by op; and of what is none
    helium  it has the kernels with Helium, some of whose units are larger
    """

    prices: Mapping[str, Priced]
    helium: bool = False

    def __getitem__(self, op: str) -> Priced:
        return self.prices[op]


@dataclass(frozen=True)
class Piece:
    """Of a step of the model: a piece is its largest unit, or smaller ones with so much work in all.

    step  None: what a begin takes
    once  instructions at most, whatever the piece does
    unit  of the largest unit
    rate  of a unit of work
    most  work of the whole step, or of a row where rows arrive
    """

    step: int | None
    once: float
    unit: float = 0.0
    rate: float = 0.0
    most: float = 0.0

    def at(self, work: float) -> int:
        """Instructions at most, where microtrain_step() is given so much work."""
        return math.ceil(self.once + max(self.unit, self.rate * min(work, self.most)))


@dataclass(frozen=True)
class Records:
    """What makes a record, and microtrain_recall_begin: once + each * records instructions at most, with
    memory for so many."""

    once: int
    each: float

    def at(self, records: int) -> int:
        return self.once + math.ceil(self.each * records)


@dataclass(frozen=True)
class Bound:
    """Of a model: no piece is longer than max(least, once + rate * work) instructions, nor than `most`.

    longest  the step that makes `least`; None: a begin
    most     of the longest step, done whole
    records  pieces that grow with the memory for records; None: it has none
    slide    instructions of microtrain_slide at most; 0: its windows do not overlap
    """

    least: int
    once: int
    rate: float
    longest: int | None
    most: int
    records: Records | None = None
    slide: int = 0

    def at(self, work: int) -> int:
        return min(self.most, max(self.least, self.once + math.ceil(self.rate * work)))

    def work(self, instructions: int) -> int:
        """What to give to microtrain_step() for pieces of so many at most; 1 where they can be longer."""
        if instructions >= self.most:
            return WORK_MOST
        return max(1, math.floor((instructions - self.once) / self.rate)) if instructions >= self.least else 1


def read() -> dict[str, dict[str, Priced]]:
    """What lab/pieces wrote, by core."""
    found: dict[str, dict[str, Priced]] = json.loads(COEFFICIENTS.read_text(encoding="utf-8"))
    return found


@cache
def coefficients() -> Mapping[str, Model]:
    return {core: Model(prices, core == HELIUM) for core, prices in read().items()}


def bounds(graph: Graph) -> dict[str, Bound]:
    """Of every core on which all ops of the graph have been measured."""
    needed = {part.op for node in graph.nodes for part in (node.parts or (node,))}
    needed |= {KEEP, RECALL} if graph.record else set()
    return {
        core: bound(graph, coefficients()[core])
        for core in CORES
        if core in coefficients() and needed <= coefficients()[core].prices.keys()
    }


def bound(graph: Graph, model: Model) -> Bound:
    """Of all pieces of a graph."""
    found = pieces(graph, model)
    longest = max(found, key=lambda piece: piece.at(0))
    least = longest.at(0)
    growing = [piece for piece in found if piece.at(math.inf) > least]
    once = max((piece.once for piece in growing), default=0.0)
    rate = max((piece.rate for piece in growing), default=1.0)
    own = records(graph, model) if graph.record else None
    slides = math.ceil(slide(graph, model)) if graph.hop else 0
    most = max(piece.at(math.inf) for piece in found)
    return Bound(least, math.ceil(once), math.ceil(rate * 1000) / 1000, longest.step, most, own, slides)


def records(graph: Graph, model: Model) -> Records:
    """Of a model that has them: places are looked for among all records, and drawn until one fits."""
    keeping, recalling = model[KEEP], model[RECALL]
    once = max(priced(keeping, keep(graph, 0)), priced(recalling, recall(graph, most_draws(0))))
    each = max(keeping.get("records", 0.0), recalling.get("draws", 0.0))
    return Records(math.ceil(once), math.ceil(each * 1000) / 1000)


def pieces(graph: Graph, model: Model) -> list[Piece]:
    """What a begin takes, and each step."""
    return [
        Piece(None, priced(model[BEGIN], begins(graph))),
        *(of_step(graph, i, model) for i in range(len(graph.nodes))),
    ]


def begins(graph: Graph) -> dict[str, float]:
    """What the instructions of a begin grow with: a row is taken in, and a stream starts with the first."""
    _, width, channels = graph.tensors[graph.input.tensor].shape
    found = {"piece": 1.0, "row": width * channels}
    if graph.arriving:
        first = graph.nodes[0]
        found |= {
            "stages": len(first.parts),
            "padding": padding_of(graph, first),
            "expanded": expanded(graph, first),
        }
    return found


def copied(graph: Graph) -> dict[str, float]:
    """What putting a record where it belongs grows with, from or to the arena."""
    part, tensors = part_of(graph), [graph.tensors[name] for name in graph.record]
    coded = [tensor for tensor in tensors if tensor.name in graph.codes]
    codes = sum(coded_bytes(tensor, part) for tensor in coded)
    return {
        "piece": 1.0,
        "copied": record_bytes(graph) - codes,
        "codes": codes,
        "coded": sum(tensor.elements for tensor in coded),
    }


def keep(graph: Graph, most: int) -> dict[str, float]:
    """What the instructions of making a record grow with. most: records that there is room for"""
    return {**copied(graph), "classes": classes(graph), "records": most}


def recall(graph: Graph, draws: int) -> dict[str, float]:
    """What the instructions of microtrain_recall_begin grow with."""
    return {**copied(graph), "draws": draws}


def most_draws(most: int) -> int:
    """Numbers that in_order() of replay.c draws at most for a place among so many records or fewer. Each of
    those that do not fit, of which there are fewer than of the others, comes once."""
    return max(2, most)


def padding_of(graph: Graph, node: Node) -> float:
    """Bytes above the image in the windows of a stream."""
    shapes = [(part.window, graph.tensors[part.inputs[0]].shape) for part in node.parts]
    return sum(window.pad_h * shape[1] * shape[2] for window, shape in shapes if window)


def expanded(graph: Graph, node: Node) -> float:
    """Trained biases of a stream's layers, which are expanded before it begins."""
    layers = [graph.layers[part.layer] for part in node.parts if part.layer]
    return sum(layer.bias.size for layer in layers if layer.bias_trained)


def named(graph: Graph, step: int) -> str:
    """A step of the model as model.c numbers it."""
    node = graph.nodes[step]
    return f"step {step}: {node.op} {node.name}"


def of_step(graph: Graph, step: int, model: Model) -> Piece:
    node = graph.nodes[step]
    if node.parts:
        return of_stream(graph, step, model)
    unit = TABLE[node.op].unit(graph, node, None)
    if unit is None:
        return Piece(step, priced(model[node.op], in_one_go(graph, node)))
    once, rate = priced_unit(model[node.op], unit)
    return Piece(step, once, rate * unit.largest(model.helium), rate, unit.total)


def priced_unit(prices: Priced, unit: Unit) -> tuple[float, float]:
    """Instructions of a piece besides, and of a unit of work."""
    return priced(prices, unit.once), priced(
        prices, {f"rate {name}": each for name, each in unit.rate.items()}
    )


def of_stream(graph: Graph, step: int, model: Model) -> Piece:
    """A piece is of some calls of the stages' kernels, or a part of one; the bound is that of the dearest."""
    node, prices = graph.nodes[step], model[STREAM]
    once, rate, largest = 0.0, 0.0, 0.0
    calls = list(calls_of(graph, node))
    for call in calls:
        own, each = of_call(call, model)
        once = max(once, own + priced(prices, {"moved once": call.moved}))
        each += priced(prices, {"calls": 1 / call.work, "moved": call.moved / call.work})
        rate, largest = max(rate, each), max(largest, each * call.largest(model.helium))
    terms = {"piece": 1.0, "stages": len(node.parts)}
    terms["expanded"] = expanded(graph, node) if resident(graph, node) else 0.0
    terms["padding"] = padding_of(graph, node)
    terms["kept"] = hop.memory_bytes(graph) if graph.arriving and step == 0 else 0
    most = sum(call.work * call.together for call in calls)
    return Piece(step, once + priced(prices, terms), largest, rate, most)


def slide(graph: Graph, model: Model) -> float:
    """Instructions of microtrain_slide at most: a begin, rows that enter anew, and what was kept."""
    once, prices = priced(model[BEGIN], begins(graph)), model[STREAM]
    total = once + priced(prices, {"kept": 2 * hop.memory_bytes(graph)})
    for call in calls_of_slide(graph) if graph.arriving else ():
        own, each = of_call(call, model)
        around = priced(prices, {"piece": 1.0, "calls": 1.0, "moved": call.moved, "moved once": call.moved})
        total += call.times * (own + each * call.work + around)
    return total


def of_call(call: Call, model: Model) -> tuple[float, float]:
    """Of a stage's rows: instructions of a piece besides, and of a unit of work."""
    if call.unit:
        return priced_unit(model[call.op], call.unit)
    whole = sum(priced(model[op], terms) for op, terms in call.whole)
    for op, unit in call.going:
        once, rate = priced_unit(model[op], unit)
        whole += once + rate * unit.total
    return 0.0, whole / call.work
