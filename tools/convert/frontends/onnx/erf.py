"""GELU as exporters write it before opset 20: sums and products around an Erf or a Tanh.

Which sums and in which order does not matter: their numbers are compared with those of the function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from .file import OnnxGraph, Step
from .parts import Pieces

SAMPLES = np.linspace(-6.0, 6.0, 49)
CLOSE = 1e-4
MOST_STEPS = 24  # of one function
MOST_DEPTH = 16  # of its sums and products
ERF = np.vectorize(math.erf, otypes=[np.float64])
OPS: Mapping[str, Callable[..., np.ndarray]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Erf": ERF,
    "Tanh": np.tanh,
}
FUNCTIONS = ("Erf", "Tanh")
AS_IT_IS = ("QuantizeLinear", "DequantizeLinear")  # of a number, but for a rounding
FORMS = {
    "none": 0.5 * SAMPLES * (1 + ERF(SAMPLES / math.sqrt(2))),
    "tanh": 0.5 * SAMPLES * (1 + np.tanh(math.sqrt(2 / math.pi) * (SAMPLES + 0.044715 * SAMPLES**3))),
}


@dataclass(frozen=True)
class Gelu:
    """approximate: as PyTorch calls it; inside: the outputs of the steps that are no more than parts of it"""

    given: str
    approximate: str
    inside: frozenset[str]

    def step(self, last: Step) -> Step:
        """The function as one step. last: the one that makes its result"""
        return replace(last, op="Gelu", inputs=(self.given,), attributes={"approximate": self.approximate})


def gelus(file: OnnxGraph) -> dict[str, Gelu]:
    """What is a GELU in a graph, by the name of its result."""
    found: dict[str, Gelu] = {}
    graph = _Graph(file)
    for step in file.steps:
        if step.op in FUNCTIONS:
            for given in graph.behind(step.inputs[0]):
                made = graph.gelu(step, given)
                if made is not None:
                    found[made[0]] = made[1]
                    break
    return found


class _Graph(Pieces):
    def behind(self, name: str) -> list[str]:
        """Tensors that a tensor may be a function of, the nearest first."""
        found = [name]
        for each in found:
            step = self.makers.get(each)
            if step is not None and step.op in (*OPS, *AS_IT_IS) and len(found) < MOST_STEPS:
                read = step.inputs[:1] if step.op in AS_IT_IS else step.inputs
                found += [i for i in read if i not in self.numbers and i not in found]
        return found

    def gelu(self, step: Step, given: str) -> tuple[str, Gelu] | None:
        """The function around an Erf or a Tanh, if it is one of a tensor, and its result's name."""
        values: dict[str, np.ndarray] = {given: SAMPLES}
        name = step.outputs[0]
        for _ in range(MOST_STEPS):
            made = self.value(name, values)
            if made is None:
                return None
            form = next((f for f, wanted in FORMS.items() if np.abs(made - wanted).max() < CLOSE), None)
            inside = frozenset(values) - {given, name}
            if form is not None:
                alone = all(set(s.outputs) <= values.keys() for i in inside for s in self.readers.get(i, ()))
                return (name, Gelu(given, form, inside)) if alone and not inside & self.outputs else None
            readers = self.readers.get(name, [])
            if len(readers) != 1:
                return None
            name = readers[0].outputs[0]
        return None

    def value(self, name: str, values: dict[str, np.ndarray], depth: int = MOST_DEPTH) -> np.ndarray | None:
        """What a tensor is at the samples; None where it is no function of what is known, or far from it."""
        if name in self.numbers:
            return np.asarray(self.numbers[name])
        step = self.makers.get(name)
        if name in values or step is None or step.op not in (*OPS, *AS_IT_IS) or not depth:
            return values.get(name)
        if step.op in AS_IT_IS:
            same = self.value(step.inputs[0], values, depth - 1)
            if same is not None:
                values[name] = same
            return same
        if len(step.inputs) != (1 if step.op in FUNCTIONS else 2):
            return None
        given: list[np.ndarray] = []
        for each in step.inputs:
            found = self.value(each, values, depth - 1)
            if found is None:
                return None
            given.append(found)
        with np.errstate(all="ignore"):
            values[name] = np.broadcast_to(OPS[step.op](*given), SAMPLES.shape)
        return values[name]
