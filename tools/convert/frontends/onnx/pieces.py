"""What exporters write out in an ONNX graph, as the steps that it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .erf import gelus
from .file import OnnxGraph, Step
from .norm_pieces import norms
from .places import listed
from .unrolled import unrolled
from .values import Walker
from .windows import windows
from .written import Pending


class _Whole(Protocol):
    """What several steps are. inside: results of those that are no more than parts of it"""

    @property
    def inside(self) -> frozenset[str]: ...

    def step(self, last: Step, /) -> Step: ...


@dataclass(frozen=True)
class Wholes:
    """Steps that stand for several.

    steps      by their results
    inside     results of those that are parts of them
    constants  what they read that the file has not
    pending    what may be such a step
    """

    steps: dict[str, Step]
    inside: set[str]
    constants: dict[str, np.ndarray]
    pending: Pending

    def settle(self, walk: Walker, place: int) -> None:
        """Add the normalisations that begin at a step."""
        for name, norm in self.pending.settled(walk, place).items():
            if not (norm.inside | {name}) & (self.inside | set(self.steps)):
                self.steps[name] = norm.step(self.pending.pieces.makers[name])
                self.inside.update(norm.inside)


def in_pieces(file: OnnxGraph) -> Wholes:
    """What a file writes out, as the steps that it is."""
    steps = {name: step for step in file.steps for name in step.outputs[:1]}
    found, inside, constants = dict[str, Step](), set[str](), dict[str, np.ndarray]()
    wholes: dict[str, _Whole] = {**gelus(file), **norms(file)}
    for name, whole in wholes.items():
        found[name] = whole.step(steps[name])
        inside |= whole.inside
    for name, (step, parts) in (listed(file) | windows(file)).items():
        found[name] = step
        inside |= parts
    for cells in unrolled(file):
        found |= cells.steps
        inside |= cells.inside
        constants |= cells.constants
    return Wholes(found, inside, constants, Pending(file))
