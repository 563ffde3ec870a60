"""nn.RNN as PyTorch's exporter writes it since 2.9: each moment by itself, f(R h + b + (W x + a)[t])."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .file import OnnxGraph, Step
from .parts import Pieces
from .recurrent import ACTIVATIONS

(BENT,) = ACTIVATIONS["RNN"]  # the function f
STARTS = ("Expand", "ConstantOfShape", "Unsqueeze", "Squeeze", "Slice", "Gather", "Reshape")  # of zeros


@dataclass(frozen=True, eq=False)
class Unrolled:
    """Steps of a chain as others, by the name of what they make.

    constants  what these read that the file has not
    inside     what is no more than a part of the chain
    """

    steps: dict[str, Step]
    constants: dict[str, np.ndarray]
    inside: frozenset[str]


@dataclass(frozen=True, eq=False)
class Product:
    """A linear layer: of what, by which matrix [units, features], and its bias; and what it is made of."""

    of: str
    matrix: np.ndarray
    bias: np.ndarray
    inside: frozenset[str]


def unrolled(file: OnnxGraph) -> list[Unrolled]:
    """Every chain of a graph that is one direction of a layer of nn.RNN, as the op RNN of ONNX."""
    graph = _Graph(file)
    firsts = (step for step in file.steps if step.op == BENT and graph.moment(step, 0) is not None)
    return [found for found in map(graph.chain, firsts) if found is not None]


class _Graph(Pieces):
    def whole(self, name: str) -> list[int] | None:
        """A constant list of whole numbers."""
        found = self.held(name)
        return None if found is None else [int(v) for v in np.ravel(found)]

    def product(self, name: str) -> Product | None:
        """What makes a tensor, if it is a linear layer with a bias or without."""
        inside, bias = {name}, np.zeros(1, np.float32)
        if (step := self.made(name, "Add")) is not None:
            held = [self.held(i) for i in step.inputs]
            if [h is None for h in held] != [True, False]:
                return None
            name, bias = step.inputs[0], np.ravel(held[1])  # type: ignore[arg-type]
            inside.add(name)
        product = self.made(name, "MatMul")
        matrix = self.held(product.inputs[1]) if product else None
        if product is None or matrix is None or matrix.ndim != 2 or bias.size not in (1, matrix.shape[1]):
            return None
        return Product(product.inputs[0], matrix.T, np.broadcast_to(bias, matrix.shape[1]), frozenset(inside))

    def moment(self, step: Step, at: int) -> tuple[str, str, frozenset[str]] | None:
        """Of a step f: the series whose moment `at` it reads, what it adds to that, and its parts."""
        added = self.made(step.inputs[0], "Add")
        for place, name in enumerate(added.inputs) if added else ():
            flat = self.made(name, "Squeeze")
            cut = self.made(flat.inputs[0], "Slice") if flat else None
            if flat is None or cut is None or added is None or len(cut.inputs) < 4:
                continue
            where = [self.whole(i) for i in (*flat.inputs[1:], *cut.inputs[1:])]
            if where[:4] == [[0], [at], [at + 1], [0]] and where[4:] in ([], [[1]]):
                inside = frozenset((step.inputs[0], name, cut.outputs[0]))
                return cut.inputs[0], added.inputs[1 - place], inside
        return None

    def chain(self, first: Step) -> Unrolled | None:
        """All moments that begin with one, where together they are all of the series."""
        read = self.moment(first, 0)
        assert read is not None
        series, start, parts = read
        states, inside, again = [first], set(parts), None
        while (step := self.next(states[-1])) is not None:
            read = self.moment(step, len(states))
            found = self.product(read[1]) if read else None
            if read is None or found is None or read[0] != series or found.of != states[-1].outputs[0]:
                break
            if again is not None and not _alike(again, found):
                return None
            again, inside, states = found, inside | read[2] | found.inside, [*states, step]
        flip = self.flipped(series)
        given = self.product(flip or series)
        length = (*self.file.sizes.get(series, ()), None)[0]
        if again is None or given is None or len(states) != length or not self.begins(start, again, inside):
            return None
        inside |= given.inside | {series}
        return self.as_op(states, given, again, frozenset(inside), backward=flip is not None)

    def next(self, step: Step) -> Step | None:
        """The step f of the next moment."""
        name = step.outputs[0]
        for op in ("MatMul", "Add", "Add", BENT):
            found = [s for s in self.readers.get(name, []) if s.op == op and s.inputs[0] == name]
            if len(found) != 1 and not (op == "Add" and not found):
                return None
            name = found[0].outputs[0] if found else name
        return self.makers[name]

    def flipped(self, name: str) -> str | None:
        """What a tensor is, turned round in time."""
        step = self.made(name, "Slice")
        where = [self.whole(i) for i in step.inputs[1:]] if step else []
        if step is None or len(where) != 4 or None in where:
            return None
        starts, ends, axes, by = (each or [0] for each in where)
        return step.inputs[0] if (starts, axes, by) == ([-1], [0], [-1]) and ends[0] < -(1 << 31) else None

    def begins(self, name: str, again: Product, inside: set[str]) -> bool:
        """Whether the first moment adds what a state of zeros makes; that is inside then too."""
        held = self.held(name)
        if held is not None:
            return held.size == again.bias.size and bool((np.ravel(held) == again.bias).all())
        first = self.product(name)
        if first is None or not _alike(first, again) or not self.is_zero(first.of):
            return False
        inside |= first.inside
        return True

    def is_zero(self, name: str) -> bool:
        """Whether a tensor is zeros of some shape."""
        for _ in STARTS:  # at most: a damaged file may go round in circles
            held, step = self.held(name), self.makers.get(name)
            if held is not None:
                return not held.any()
            if step is None or step.op not in STARTS:
                return False
            if step.op == "ConstantOfShape":
                return not np.any(step.attributes.get("value", 0))
            name = step.inputs[0]
        return False

    def as_op(
        self, states: list[Step], given: Product, again: Product, inside: frozenset[str], backward: bool
    ) -> Unrolled | None:
        names = [step.outputs[0] for step in states]
        last, parts = states[-1], inside | set(names)
        outside = {
            s.outputs[0]: s
            for name in parts - {names[-1]}
            for s in self.readers.get(name, [])
            if not parts & set(s.outputs)
        }
        joined = [s for s in outside.values() if _joins(s, names[::-1] if backward else names)]
        if len(joined) < len(outside) or (parts - {names[-1]}) & self.outputs:
            return None
        name = f"{names[-1]}_rnn"
        steps = {s.outputs[0]: _without_directions(s, name) for s in joined}
        about = {"hidden_size": len(again.bias), "direction": "reverse" if backward else "forward"}
        constants = {
            f"{name}_w": given.matrix[None],
            f"{name}_r": again.matrix[None],
            f"{name}_b": np.concatenate((given.bias, again.bias))[None],
        }
        inputs = (given.of, *constants)
        steps[names[-1]] = replace(last, op="RNN", inputs=inputs, outputs=(name, names[-1]), attributes=about)
        return Unrolled(steps, constants, parts - {names[-1]})


def _alike(one: Product, other: Product) -> bool:
    return np.array_equal(one.matrix, other.matrix) and np.array_equal(one.bias, other.bias)


def _joins(step: Step, names: list[str]) -> bool:
    """Whether a step puts all moments one behind the other, in time."""
    return step.op == "Concat" and step.attributes.get("axis") == 0 and list(step.inputs) == names


def _without_directions(step: Step, name: str) -> Step:
    """What RNN makes, [time, directions, batch, units], as [time, batch, units]."""
    return replace(step, op="Squeeze", inputs=(name,), attributes={"axes": [1]})
