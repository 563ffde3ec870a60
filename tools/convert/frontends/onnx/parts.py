"""Who makes and who reads the tensors of an ONNX graph, for what looks for several steps that are one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .constants import constant_of
from .file import OnnxGraph, Step


class Pieces:
    """Who makes and who reads the tensors of a graph, and which are single numbers."""

    def __init__(self, file: OnnxGraph) -> None:
        self.file = file
        self.makers = {o: s for s in file.steps for o in s.outputs}
        self.readers: dict[str, list[Step]] = {}
        for step in file.steps:
            for name in set(step.inputs):
                self.readers.setdefault(name, []).append(step)
        self.numbers = {
            name: float(value.reshape(())) for name, value in file.constants.items() if value.size == 1
        }
        for step in file.steps:
            value = constant_of(step) if step.op == "Constant" else None
            if value is not None and value.size == 1 and value.dtype.kind in "fi":
                self.numbers[step.outputs[0]] = float(value.reshape(()))
            elif step.op == "DequantizeLinear" and step.inputs[0] in self.numbers:
                stored, scale, *zero = (self.numbers.get(name, 0.0) for name in step.inputs)
                self.numbers[step.outputs[0]] = (stored - sum(zero)) * scale
        self.outputs = set(file.outputs)

    def made(self, name: str, op: str) -> Step | None:
        """What makes a tensor, if it is of that op."""
        step = self.makers.get(name)
        return step if step is not None and step.op == op else None

    def held(self, name: str) -> np.ndarray | None:
        """A constant, or one that was turned or copied."""
        turns, behind = list[Step](), set[str]()
        while (step := self.makers.get(name)) is not None and step.op in ("Transpose", "Identity"):
            if name in behind:  # a damaged file may go round in circles
                return None
            behind.add(name)
            turns += [step] if step.op == "Transpose" else []
            name = step.inputs[0]
        if step is not None and step.op != "Constant":
            return None
        found = self.file.constants.get(name) if step is None else constant_of(step)
        for turn in reversed(turns):
            found = None if found is None else found.transpose(turn.attributes.get("perm"))
        return found

    def alone(self, inside: frozenset[str], readers: Sequence[Step]) -> bool:
        """Whether nothing else reads what is inside some steps."""
        known = {id(step) for step in readers}
        return not inside & self.outputs and all(
            id(step) in known for name in inside for step in self.readers.get(name, ())
        )
