"""The body of a loop in an ONNX file, run on arrays: what of it is constant, what depends on data, and how.

Of what depends on data only analytic functions are taken, and moves of numbers: two of these that agree on
drawn numbers agree everywhere. A comparison, a limit or a choice could wait for numbers that are not drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..cells import MOST
from .constants import FOLDS, folded
from .file import DOUBLE, FLOAT, OnnxGraph, Step

Arrays = Mapping[str, np.ndarray]
ITSELF, SIZE, SPLIT, CAST = "Identity", "Shape", "Split", "Cast"
PRODUCTS = ("MatMul", "Gemm")
OF_SEVERAL = (*PRODUCTS, "Add", "Sub", "Mul", "Sum", "Concat")  # of which any input may depend on data
OF_FIRST = (  # of which only the first may
    *("Sigmoid", "Tanh", "Neg", ITSELF, SPLIT, CAST, "Gather", "Slice", "Squeeze", "Unsqueeze", "Reshape"),
    *("Flatten", "Transpose", "Expand"),
)
MOST_WORK = 1 << 32  # numbers and products of all steps that are run; a step takes as long as A_STEP of them
A_STEP = 1 << 10


@dataclass(frozen=True, eq=False)
class Product:
    """A product with constants, [outputs, inputs]. of: what is multiplied"""

    of: str
    weights: np.ndarray


def is_plain(body: OnnxGraph) -> bool:
    """Whether each name of a body means one thing."""
    names = [*body.inputs, *body.constants, *(o for step in body.steps for o in step.outputs if o)]
    return len(set(names)) == len(names) and "" not in names


def without_idle(body: OnnxGraph) -> OnnxGraph:
    """A body without the steps that nothing reads."""
    steps, needed = list[Step](), set(body.outputs)
    for step in reversed(body.steps):
        if needed & set(step.outputs):
            needed |= set(step.inputs)
            steps.append(step)
    return replace(body, steps=tuple(reversed(steps)))


def unchanged(body: OnnxGraph, name: str) -> str:
    """What a result is, if it is no more than a copy."""
    makers = {o: step for step in body.steps for o in step.outputs}
    for _ in body.steps:  # at most: a damaged file may go round in circles
        step = makers.get(name)
        if step is None or step.op != ITSELF or step.domain:
            break
        name = step.inputs[0]
    return name


def touched(body: OnnxGraph, data: Collection[str]) -> tuple[set[str], str]:
    """What of a body depends on data, and the first op by which it does so as no cell does; "" if there is
    none."""
    found, other = set(data), ""
    for step in body.steps:
        places = [place for place, name in enumerate(step.inputs) if name in found]
        if not places or (step.op == SIZE and not step.domain):
            continue
        found.update(step.outputs)
        taken = step.op in OF_SEVERAL or (step.op in OF_FIRST and places == [0])
        whole = step.op == CAST and step.attributes.get("to") not in (FLOAT, DOUBLE)
        other = other or (step.op if step.domain or whole or not taken else "")
    return found, other


class Run:
    """A body that is run moment by moment. Any exception: it has a step that is that of no cell.

    known  constants, with what is made of constants alone
    steps  the others
    work   how many numbers and products so far
    """

    def __init__(self, body: OnnxGraph, known: Arrays, moving: Collection[str]) -> None:
        """known: constants. moving: names of all else that is given"""
        self.body, self.work = body, 0
        self.known: dict[str, np.ndarray] = {**known, **body.constants}
        self.steps: list[Step] = []
        changing = set(moving)
        for step in body.steps:
            if changing & set(step.inputs):
                changing.update(step.outputs)
                self.steps.append(step)
            else:
                self._make(step, self.known)
        self.known = {n: v.astype(np.float64) if v.dtype.kind == "f" else v for n, v in self.known.items()}

    def of(self, given: Arrays) -> dict[str, np.ndarray]:
        """All that the body makes at one moment."""
        values = {**self.known, **given}
        for step in self.steps:
            self._make(step, values)
        return values

    def _make(self, step: Step, values: dict[str, np.ndarray]) -> None:
        given = [values[name] if name else None for name in step.inputs]
        if step.domain or (step.op not in FOLDS and step.op != SPLIT):
            raise KeyError(step.op)
        made = _split(step, given) if step.op == SPLIT else [folded(step, given)]
        count = sum(v.size for v in made)
        self.work += A_STEP + count * (max(values[step.inputs[1]].shape) if step.op in PRODUCTS else 1)
        if self.work > MOST_WORK or count > MOST:
            raise ValueError("more work than that of a cell")
        values.update(zip(step.outputs, made, strict=True))

    def products(self, data: Collection[str]) -> list[Product]:
        """All of something by constants. data: what depends on data"""
        return [
            Product(step.inputs[0], _weights(step, self.known[step.inputs[1]]))
            for step in self.steps
            if step.op in PRODUCTS and step.inputs[0] in data and step.inputs[1] in self.known
        ]


def _weights(step: Step, values: np.ndarray) -> np.ndarray:
    straight = step.op == "Gemm" and step.attributes.get("transB", 0)
    factor = step.attributes.get("alpha", 1.0) if step.op == "Gemm" else 1.0
    return np.asarray((values if straight else values.T) * factor)


def _split(step: Step, given: list[np.ndarray | None]) -> list[np.ndarray]:
    """Into the sizes that are given, else into equal parts, the last of which may be smaller."""
    x, sizes = given[0], given[1] if len(given) > 1 else None
    assert x is not None
    axis, count = int(step.attributes.get("axis", 0)), len(step.outputs)
    each = -(-x.shape[axis] // count)
    ends = np.cumsum([each] * count if sizes is None else np.ravel(sizes).astype(np.int64))
    if len(ends) != count or (sizes is not None and ends[-1] != x.shape[axis]):
        raise ValueError(f"{count} parts")
    return np.split(x, [int(end) for end in ends[:-1]], axis)
