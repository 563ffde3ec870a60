"""plan.json, all of it: what `convert` says about a model that it generated (docs/plan.md).

`convert` writes it with text(), every other tool reads it with read_plan(): both are of these dataclasses.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from .errors import FileError, short
from .reading import reading
from .schema import NOT_IN_FILE, OPTIONAL, AtLeast, Matches, OneOf, decode, encode, key
from .sound import LogMel
from .trained import SCORES, SUMS, Count, Floats, Shape, Trainables, Trained
from .units import Units

FORMAT = 1
REQUANTIZE = FLOAT, FIXED, TFLITE = ("float", "fixed", "tflite")  # how sums of convolutions become int8
REGRESSION, MULTILABEL = "regression", "multilabel"  # tasks that learn from targets
TARGET_LOSSES = {"huber": REGRESSION, "squares": REGRESSION, "labels": MULTILABEL}
GUESSES = {REGRESSION: 65535, MULTILABEL: 2}  # classes whose guessing costs as much (guard.h)
HIGH = 65535  # the same of an autoencoder: scores of another machine are high before they are learned
OWN_HEAD = "until.head"  # the layer that `convert --until` adds: no part of the model's file
LITE = ".lite_residual."  # in the names of what a module beside a block is made of
MADE_BY = "`microtrain convert MODEL.pt` writes it; --plan names it."

Image = tuple[Count, Count, Count]  # height, width, channels


@dataclass(frozen=True)
class Origin:
    """The model file that was converted.

    sha256  of the file; "" where there was none
    kind    exported, torchscript, module, checkpoint, ...
    """

    file: str
    sha256: str
    kind: str


@dataclass(frozen=True)
class Input:
    """stored = sat8(rint(pixel * gain + offset)), by channel.

    table  of what is stored for each of the 256 pixels, of each channel or of all; None: there is none
    sound  what makes its rows, None: nothing
    units  of numbers that become its bytes, None: pixels
    hop    rows by which windows move on, None: each comes whole
    """

    shape: Image
    gain: Floats
    offset: Floats
    table: tuple[tuple[int, ...], ...] | None = field(default=None, metadata=OPTIONAL)
    sound: LogMel | None = field(default=None, metadata=OPTIONAL)
    units: Units | None = field(default=None, metadata=OPTIONAL)
    hop: Count | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class Rates:
    weight: float
    bias: float
    head: float

    @property
    def all(self) -> tuple[float, float, float]:
        """Of weights, biases and head."""
        return self.weight, self.bias, self.head


@dataclass(frozen=True)
class HeadRows:
    """The head starts from these rows of the model's own."""

    rows: tuple[Count, ...]


def block_of(layer: str) -> str | None:
    """The block beside which the lite residual module stands that a layer is part of, if it is one's."""
    block, found, _ = layer.partition(LITE)
    return block if found else None


@dataclass(frozen=True)
class LiteResiduals:
    """Modules beside blocks: their names or places, or how many of the last ones."""

    blocks: tuple[str | int, ...] | Count
    groups: Count
    kernel: Count
    reduce: Count
    rate: float


@dataclass(frozen=True)
class Scheme:
    """What is trained and how, as it was resolved (docs/schemes.md)."""

    name: str
    biases: int | str
    weights: dict[str, float | tuple[Count, ...]]
    select: str
    fraction_bits: Count
    loss: str
    learning_rate: Rates
    head: str | HeadRows
    lite_residuals: LiteResiduals | None = field(default=None, metadata=OPTIONAL)

    @property
    def task(self) -> str:
        """What is learned from targets, numbers in the place of a label; "": labels it is."""
        return TARGET_LOSSES.get(self.loss, "")


def guesses(task: str, kinds: Collection[str], classes: int) -> int:
    """Classes whose guessing costs as much as that of a model with trainables of these kinds (guard.h)."""
    return HIGH if SCORES in kinds else GUESSES.get(task, classes)


@dataclass(frozen=True)
class Budget:
    """Bytes that the board has."""

    sram: Count
    flash: Count


@dataclass(frozen=True)
class Arena:
    """bytes: of its memory. lower_bound: bytes alive at the worst step, peak_step."""

    bytes: Count
    lower_bound: Count
    peak_step: int


@dataclass(frozen=True)
class Tensor:
    """A range of the arena that is in use from step `birth` to step `death`, inclusive."""

    name: str
    kind: str
    bytes: Count
    offset: Count
    birth: int
    death: int
    shape: Shape
    dtype: str

    @property
    def end(self) -> int:
        return self.offset + self.bytes

    def alive(self, step: int) -> bool:
        return self.birth <= step <= self.death


@dataclass(frozen=True)
class Step:
    """One kernel call. text: its line in model.c"""

    index: Count
    phase: Annotated[str, OneOf(("forward", "backward"))]
    op: str
    layer: str
    macs: Count
    text: str


IMPRINT = "imprint"  # kind of the one tensor that outlives an inference


@dataclass(frozen=True)
class Imprint:
    """Statistics of features, of which the device makes its head after one look at each sample.

    group  features of which the covariance is kept together
    bytes  in the arena, while nothing is being trained
    """

    group: Annotated[int, AtLeast(1)]
    bytes: Count


@dataclass(frozen=True)
class Fleet:
    """A board that makes its updates in a fleet itself.

    room   bytes of the largest one
    bytes  of SRAM, and of each checkpoint, for what is held back
    """

    room: Count
    bytes: Count


@dataclass(frozen=True)
class Compression:
    """Weights in four bits.

    layers  whose weights are codes
    saved   bytes of flash
    signal  decibels between the logits and what that changes of them
    same    share of images that are answered as before
    images  how many of them, which were not learned from
    """

    layers: tuple[str, ...]
    saved: Count
    signal: float
    same: float
    images: Count


@dataclass(frozen=True)
class External:
    """Frozen weights in flash beside the chip.

    region  its name, as the board has it
    bytes   of it
    layers  whose weights they are
    """

    region: str
    bytes: Count
    layers: tuple[str, ...]


@dataclass(frozen=True)
class Replay:
    """The replay buffer.

    part         values of a record that share a byte; 1: they are kept as they are
    all_in_sram  estimate of all SRAM: arena, trainables, buffer, the firmware's own
    tensors      what a record holds of the arena
    step         at which a replayed record begins
    """

    records: Count
    record_bytes: Count
    part: Annotated[int, AtLeast(1)]
    bytes: Count
    all_in_sram: Count
    tensors: tuple[str, ...]
    step: Count


@dataclass(frozen=True)
class Layer:
    """A row of the table that convert prints; bytes by where they lie.

    trained  "-", "bias", "weight 12/24 + bias", "all"
    """

    layer: str
    op: str
    input: Image = field(metadata=key("in"))
    output: Image = field(metadata=key("out"))
    kernel: tuple[Count, Count] | None
    stride: tuple[Count, Count] | None
    macs: Count
    trained: str
    flash_bytes: Count
    trainable_bytes: Count
    saved_bytes: Count
    mask_bytes: Count


@dataclass(frozen=True)
class Flash:
    """Bytes of the model in the chip's flash by kind; the firmware's own code is not in it."""

    weights: Count
    biases: Count
    tables: Count
    trainables_init: Count


@dataclass(frozen=True)
class Sram:
    arena: Count
    trainables: Count


@dataclass(frozen=True)
class Plan:
    """A generated model.

    model_id  64 hex digits; a device prints the first 8 as id_text() has them
    budget    None: for the host, which has none
    tensors   of the arena
    front     forward steps before the first that uses something trained
    replay    None: no replay buffer
    imprint   None: no statistics of features
    fleet     None: a gateway makes the board's updates
    compression  None: all weights are int8
    external  None: all weights lie in the chip's own flash
    requantize   of convolutions; None: by float32 multipliers
    gate      loss below which a step learns nothing; None: every step is taken
    layers    in forward order
    path      the file it was read from
    """

    format: int
    name: str
    model_id: Annotated[str, Matches("[0-9a-f]{64}")]
    source: Origin
    input: Input
    classes: Count
    scheme: Scheme
    budget: Budget | None
    arena: Arena
    trainables: Trainables
    tensors: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    front: Count
    replay: Replay | None = field(metadata=OPTIONAL)
    imprint: Imprint | None = field(metadata=OPTIONAL)
    fleet: Fleet | None = field(metadata=OPTIONAL)
    compression: Compression | None = field(metadata=OPTIONAL)
    requantize: Annotated[str, OneOf((FIXED, TFLITE))] | None = field(metadata=OPTIONAL)
    gate: float | None = field(metadata=OPTIONAL)
    external: External | None = field(metadata=OPTIONAL)
    layers: tuple[Layer, ...]
    flash: Flash
    sram: Sram
    path: Path = field(default=Path("plan.json"), metadata=NOT_IN_FILE, compare=False)

    @property
    def id(self) -> int:
        """The model id as the firmware holds it: its first four bytes, little-endian (model_api.h)."""
        return int(short_id(self.model_id), 16)

    @property
    def guesses(self) -> int:
        """Classes whose guessing costs as much as the model's."""
        return guesses(self.scheme.task, {t.kind for t in self.trainables.tensors}, self.classes)

    @property
    def known(self) -> int:
        """Classes of an open set that there is room for, beside 0, which is none of them; 0: it is none."""
        return self.classes - 1 if any(t.kind == SUMS for t in self.trainables.tensors) else 0

    def alive(self, step: int) -> list[Tensor]:
        """Tensors in use at a step, the largest first."""
        return sorted((t for t in self.tensors if t.alive(step)), key=lambda t: (-t.bytes, t.name))

    def find(self, layer: str, kind: str) -> Trained | None:
        """What is trained of a layer."""
        return next((t for t in self.trainables.tensors if (t.layer, t.kind) == (layer, kind)), None)


def short_id(model_id: str) -> str:
    """A model id as a device prints it: its first four bytes as a little-endian number, 8 hex digits."""
    return f"{int.from_bytes(bytes.fromhex(model_id[:8]), 'little'):08x}"


def text(plan: Plan) -> str:
    """The content of plan.json."""
    return json.dumps(encode(plan), indent=1) + "\n"


def read_plan(path: Path, hint: str = MADE_BY) -> Plan:
    """Read a plan.json.

    hint    says where a plan comes from
    Errors  FileError where it is missing, of another format, or a key is missing or wrong
    """
    if not path.exists():
        raise FileError(f"no such plan: {path}. {hint}")
    wrong = f"{path} is not a plan.json that microtrain convert wrote"
    with reading(FileError, lambda why: f"{wrong} ({why}): convert again."):
        document = json.loads(path.read_text(encoding="utf-8"))
        said = document.get("format", FORMAT) if isinstance(document, dict) else FORMAT
        if said != FORMAT:
            raise FileError(
                f"{path} has plan format {short(said)}, this version reads {FORMAT}: convert again."
            )
        return replace(decode(Plan, document), path=path)
