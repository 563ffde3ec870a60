"""Layer normalisation as exporters write it before opset 17: x less its mean, over its deviation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .constants import constant_of
from .file import OnnxGraph, Step
from .parts import Pieces


@dataclass(frozen=True)
class Norm:
    """What is normalised, from an axis on.

    affine  the steps that multiply with a scale and add a shift, each with the place of its constant
    inside  outputs of the steps that are no more than parts
    """

    given: str
    axis: int
    epsilon: float
    affine: tuple[tuple[Step, int], ...]
    inside: frozenset[str]

    def step(self, last: Step) -> Step:
        """The op that ONNX has for it since opset 17. last: the step that makes its result"""
        constants = (step.inputs[place] for step, place in self.affine)
        parts = dict(enumerate(self.affine, 1))
        settings = {"axis": self.axis, "epsilon": self.epsilon}
        name = self.affine[0][0].name.rpartition("/")[0] if self.affine else ""
        return replace(last, op="LayerNormalization", name=name or last.name, inputs=(self.given, *constants),
                       attributes=settings, parts=parts)  # fmt: skip


def norms(file: OnnxGraph) -> dict[str, Norm]:
    """What is a layer normalisation in a graph, with its scale and shift, by the name of its result."""
    pieces = Pieces(file)
    found = (_norm(file, pieces, step) for step in file.steps if step.op == "Div" and len(step.inputs) == 2)
    return dict(each for each in found if each is not None)


def _norm(file: OnnxGraph, pieces: Pieces, last: Step) -> tuple[str, Norm] | None:
    """The normalisation that ends with a quotient."""
    centred, root = last.inputs
    less, squares, chain = pieces.made(centred, "Sub"), root, list[Step]()
    for op in ("Sqrt", "Add", "ReduceMean"):
        step = pieces.made(squares, op)
        known = [name for name in step.inputs[:2] if name not in pieces.numbers] if step else []
        if step is None or not known or (op == "Add" and len(known) != 1):
            return None
        chain.append(step)
        squares = known[0]
    square = pieces.makers.get(squares)
    mean = pieces.made(less.inputs[1], "ReduceMean") if less else None
    if less is None or mean is None or square is None or not _squares(pieces, square, centred):
        return None
    axis, steps = _axis(file, mean), (mean, less, square, *chain)
    inside = frozenset(name for step in steps for name in step.outputs)
    alone = all(_is_part(r, inside, last) for name in inside for r in pieces.readers.get(name, ()))
    same = mean.inputs[0] == less.inputs[0] and axis == _axis(file, chain[-1])
    if axis is None or not same or not alone or inside & pieces.outputs:
        return None
    epsilon = next(pieces.numbers[name] for name in chain[1].inputs if name in pieces.numbers)
    affine, made, names = _affine(file, pieces, last.outputs[0], -axis), last.outputs[0], set(inside)
    for step, _ in affine:
        names.add(made)
        made = step.outputs[0]
    return made, Norm(less.inputs[0], axis, epsilon, affine, frozenset(names))


def _affine(file: OnnxGraph, pieces: Pieces, name: str, rank: int) -> tuple[tuple[Step, int], ...]:
    """What alone reads a result and multiplies it with a constant of so many axes, and what then adds one."""
    found: list[tuple[Step, int]] = []
    for op in ("Mul", "Add"):
        readers = pieces.readers.get(name, [])
        step = readers[0] if len(readers) == 1 and readers[0].op == op else None
        held = {i: _constant(file, pieces, n) for i, n in enumerate(step.inputs)} if step else {}
        places = [i for i, value in held.items() if value is not None and value.ndim == rank]
        if step is None or len(places) != 1 or name in pieces.outputs:
            break
        found.append((step, places[0]))
        name = step.outputs[0]
    return tuple(found)


def _constant(file: OnnxGraph, pieces: Pieces, name: str) -> np.ndarray | None:
    """A constant, or a copy of one: PyTorch has constants of equal numbers once."""
    while (step := pieces.made(name, "Identity")) is not None:
        name = step.inputs[0]
    return file.constants.get(name)


def _is_part(step: Step, inside: frozenset[str], last: Step) -> bool:
    return step is last or set(step.outputs) <= inside


def _squares(pieces: Pieces, step: Step, name: str) -> bool:
    """x ** 2 or x * x."""
    if step.op == "Mul":
        return step.inputs == (name, name)
    return step.op == "Pow" and step.inputs[0] == name and pieces.numbers.get(step.inputs[1]) == 2.0


def _axis(file: OnnxGraph, step: Step) -> int | None:
    """The first of the last axes that a mean is over, counted from the end; None where it is over others."""
    axes = step.attributes.get("axes")
    if len(step.inputs) > 1:
        maker = next((s for s in file.steps if step.inputs[1] in s.outputs), None)
        held = file.constants.get(step.inputs[1]) if maker is None else constant_of(maker)
        axes = None if held is None else [int(a) for a in np.ravel(held)]
    rank = len(file.sizes.get(step.inputs[0], ()) or file.sizes.get(step.outputs[0], ()))
    if not axes or not step.attributes.get("keepdims", 1) or (not rank and max(axes) >= 0):
        return None
    found = sorted(a - rank if a >= 0 else a for a in axes)
    return found[0] if found == list(range(-len(found), 0)) else None
