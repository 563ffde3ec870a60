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
from .ops import TABLE
from .ops.stream import resident
from .ops.stream_calls import Call, calls_of
from .ops.unit import Unit
from .ops.work import in_one_go

COEFFICIENTS = Path(__file__).with_name("pieces.json")
BEGIN, STREAM = "begin", "around streams"
# Which cores each bound is of, and how the preprocessor knows them, the first that holds.
CORES = {
    "cortex-m55": ("Cortex-M55", "defined(__ARM_FEATURE_MVE)"),
    "cortex-m4f": (
        "Cortex-M4F, M7 and M33",
        "defined(__ARM_FEATURE_DSP) && defined(__ARM_FP) && !defined(__ARM_FEATURE_MVE)",
    ),
    "cortex-m3": ("Cortex-M3", "defined(__ARM_ARCH_7M__)"),
    "rv32imafc": ("RV32IMAFC", "defined(__riscv_flen) && __riscv_xlen == 32"),
    "rv32imc": ("RV32IMC", "defined(__riscv_mul) && __riscv_xlen == 32"),
}
Priced = Mapping[str, float]  # coefficient of each term
Model = Mapping[str, Priced]  # by op


@dataclass(frozen=True)
class Piece:
    """Of a step of the model: a piece is its largest unit, or smaller ones with so much work in all.

    step  None: what a begin takes
    once  instructions at most, whatever the piece does
    unit  of the largest unit
    rate  of a unit of work
    most  work of the whole step
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
class Bound:
    """Of a model: no piece is longer than max(least, once + rate * work) instructions.

    longest  the step that makes `least`; None: a begin
    """

    least: int
    once: int
    rate: float
    longest: int | None

    def at(self, work: int) -> int:
        return max(self.least, self.once + math.ceil(self.rate * work))

    def work(self, instructions: int) -> int:
        """What to give to microtrain_step() for pieces of so many at most; 1 where they can be longer."""
        return max(1, math.floor((instructions - self.once) / self.rate)) if instructions >= self.least else 1


@cache
def coefficients() -> Mapping[str, Model]:
    """What lab/pieces wrote, by core."""
    found: Mapping[str, Model] = json.loads(COEFFICIENTS.read_text(encoding="utf-8"))
    return found


def bounds(graph: Graph) -> dict[str, Bound]:
    """Of every core on which all ops of the graph have been measured; none for windows that overlap, of
    which more is kept than was measured."""
    if graph.hop:
        return {}
    needed = {part.op for node in graph.nodes for part in (node.parts or (node,))}
    return {
        core: bound(graph, coefficients()[core])
        for core in CORES
        if core in coefficients() and needed <= coefficients()[core].keys()
    }


def bound(graph: Graph, model: Model) -> Bound:
    """Of all pieces of a graph."""
    found = pieces(graph, model)
    longest = max(found, key=lambda piece: piece.at(0))
    least = longest.at(0)
    growing = [piece for piece in found if piece.at(math.inf) > least]
    once = max((piece.once for piece in growing), default=0.0)
    rate = max((piece.rate for piece in growing), default=1.0)
    return Bound(least, math.ceil(once), math.ceil(rate * 1000) / 1000, longest.step)


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
    return Piece(step, once, rate * unit.work, rate, unit.total)


def priced_unit(prices: Priced, unit: Unit) -> tuple[float, float]:
    """Instructions of a piece besides, and of a unit of work."""
    return priced(prices, unit.once), priced(
        prices, {f"rate {name}": each for name, each in unit.rate.items()}
    )


def priced(prices: Priced, terms: Mapping[str, float]) -> float:
    return sum(prices.get(name, 0.0) * value for name, value in terms.items())


def of_stream(graph: Graph, step: int, model: Model) -> Piece:
    """A piece is of some calls of the stages' kernels, or a part of one; the bound is that of the dearest."""
    node, prices = graph.nodes[step], model[STREAM]
    once, rate, largest = 0.0, 0.0, 0.0
    calls = list(calls_of(graph, node))
    for call in calls:
        own, each = of_call(call, model)
        once = max(once, own + priced(prices, {"moved once": call.moved}))
        each += priced(prices, {"calls": 1 / call.work, "moved": call.moved / call.work})
        rate, largest = max(rate, each), max(largest, each * call.least)
    terms = {"piece": 1.0, "stages": len(node.parts)}
    terms["expanded"] = expanded(graph, node) if resident(graph, node) else 0.0
    terms["padding"] = padding_of(graph, node)
    most = sum(call.work * call.times for call in calls)
    return Piece(step, once + priced(prices, terms), largest, rate, most)


def of_call(call: Call, model: Model) -> tuple[float, float]:
    """Of a stage's rows: instructions of a piece besides, and of a unit of work."""
    if call.unit:
        return priced_unit(model[call.op], call.unit)
    whole = sum(priced(model[op], terms) for op, terms in call.whole)
    for op, unit in call.going:
        once, rate = priced_unit(model[op], unit)
        whole += once + rate * unit.total
    return 0.0, whole / call.work
