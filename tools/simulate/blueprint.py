"""What a simulation needs of plan.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from microtrain.base.plan import IMPRINT, Input, Plan, Scheme, Sram, Tensor, read_plan
from microtrain.native.model import Regions
from microtrain.samples.kind import told
from microtrain.samples.stored import stored


@dataclass(frozen=True)
class Blueprint:
    """A generated model, as its plan.json describes it.

    folder   where model.c, model.h and model_weights.c lie
    scheme   as it was resolved
    shape    (height, width, channels) of an image
    input    how a pixel is stored
    rates    learning rates of weights, biases and head
    front    forward steps that use nothing trained; where records are codes, those before what they hold
    regions  bytes of the arena that are alive behind these: what is recorded of an image
    kept     tensor -> where it begins in the record, and its shape
    memory   bytes of SRAM: arena and trainables
    records  of the replay buffer; 0: none
    coded    bytes of a record that holds codes; 0: it holds what they would be of
    held     bytes of the arena that a record with codes is made of
    imprint  features of which the covariance is kept together; 0: no statistics
    gate     loss below which a step learns nothing; 0: every step is taken
    guesses  classes whose guessing costs as much as the model's
    known    classes of an open set that there is room for; 0: it is none
    """

    folder: Path
    name: str
    model_id: str
    scheme: Scheme
    shape: tuple[int, int, int]
    classes: int
    input: Input
    rates: tuple[float, float, float]
    front: int
    regions: Regions
    kept: dict[str, tuple[int, tuple[int, ...]]]
    memory: Sram
    records: int
    coded: int
    held: Regions
    imprint: int
    gate: float
    guesses: int
    known: int = 0

    @property
    def looks(self) -> bool:
        """Whether one look at each sample tells it something: for a head, or for prototypes."""
        return self.imprint > 0 or self.known > 0

    def absolute(self, factor: float) -> float:
        """The learning rate that a factor on the scheme's makes; the largest where it has several."""
        return factor * max(self.rates)

    def stored(self, pixels: np.ndarray) -> np.ndarray:
        """uint8 [h][w][c] as the model takes it, int8."""
        return stored(pixels, self.input)


def load_blueprint(path: Path) -> Blueprint:
    """Read the plan of a generated folder, or the plan.json itself.

    Errors   FileError where it is missing or no plan
    """
    file = path if path.suffix == ".json" else path / "plan.json"
    return blueprint(read_plan(file, "`microtrain convert MODEL.pt -o FOLDER` writes it."))


def blueprint(plan: Plan) -> Blueprint:
    replay = plan.replay
    coded = replay if replay is not None and replay.part > 1 else None
    front = coded.step if coded else plan.front
    regions = alive(plan.tensors, front)
    image = tuple((t.offset, t.bytes) for t in plan.tensors if coded and t.name in coded.tensors)
    return Blueprint(
        folder=plan.path.parent,
        name=plan.name,
        model_id=plan.model_id,
        scheme=plan.scheme,
        shape=told(plan.input.shape, plan.input.sound, plan.input.units),
        classes=plan.classes,
        input=plan.input,
        rates=plan.scheme.learning_rate.all,
        front=front,
        regions=regions,
        kept=placed(plan.tensors, regions),
        memory=plan.sram,
        records=replay.records if replay else 0,
        coded=coded.record_bytes if coded else 0,
        held=regions if front else image,
        imprint=plan.imprint.group if plan.imprint else 0,
        gate=plan.gate or 0.0,
        guesses=plan.guesses,
        known=plan.known,
    )


def alive(tensors: Sequence[Tensor], step: int) -> Regions:
    """(offset, bytes) of what was made before a step and is used from it on, neighbours joined."""
    joined: list[tuple[int, int]] = []
    kept = [t for t in tensors if t.birth < step <= t.death and t.kind != IMPRINT]
    for start, size in sorted((t.offset, t.bytes) for t in kept):
        if joined and start <= sum(joined[-1]):
            first, before = joined.pop()
            joined.append((first, max(before, start + size - first)))
        else:
            joined.append((start, size))
    return tuple(joined)


def placed(tensors: Sequence[Tensor], regions: Regions) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Where each tensor that lies in the regions begins in a record of them, and its shape."""
    places, before = {}, 0
    for start, size in regions:
        for t in tensors:
            if start <= t.offset and t.end <= start + size:
                places[t.name] = before + t.offset - start, t.shape
        before += size
    return places
