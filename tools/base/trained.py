"""The trainables, as plan.json has them: what each is, where it lies, and what of the model it comes from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated

from .schema import OPTIONAL, AtLeast, OneOf

Count = Annotated[int, AtLeast(0)]
Floats = tuple[float, ...]
Shape = tuple[Count, ...]
SCORES = "normal"  # a kind of trainable: which scores of an autoencoder are (kernels/reconstruct.h)
SUMS, DISTANCES = PROTOTYPES = ("sums", "distances")  # of embeddings (kernels/prototypes.h)
STATISTICS = (SCORES, *PROTOTYPES)  # kinds of trainables that no gradient moves
HWC, TURNED = "hwc", "io"  # orders of a matrix: of its columns, of its axes
MIRRORED = "iohw"  # of a transposed convolution's weights


@dataclass(frozen=True)
class LeftOut:
    """Channels of a layer of the model that the device does not have, by their numbers there, ascending."""

    outputs: tuple[Count, ...]
    inputs: tuple[Count, ...]

    def beside(self, more: LeftOut) -> LeftOut:
        """Both; of one side no two say something."""
        return LeftOut(self.outputs + more.outputs, self.inputs + more.inputs)


NOTHING_LEFT_OUT = LeftOut((), ())


def kept(count: int, gone: Collection[int]) -> tuple[int, ...]:
    """Numbers in the model of the `count` channels that the device has of a layer, where others are gone."""
    return tuple(sorted(set(range(count + len(gone))) - set(gone)))


@dataclass(frozen=True)
class Source:
    """Names in the model's state dict that a layer was made from, None where it has none.

    eps      of the batch norm, which a state dict does not hold
    columns  "hwc" where those of a linear layer over a map are in that order, "io" where the matrix is
             [inputs, outputs], "iohw" where the layer is a transposed convolution, whose weights are
             [c_in, c_out / groups, kh, kw] with the last tap first (base/mirrored.py); None: CHW
    rows     (h, w, c) of the map that the outputs become, where the layer's rows are in the order of its
             pixels and those of the file in that of its channels (base/rows.py)
    left_out  channels that never change; None: the device has all. All else that is said of a trained tensor
              is of the device's: its shape, numbers of channels, scales
    """

    weight: str
    bias: str | None
    bn: str | None
    eps: float | None = None
    columns: Annotated[str, OneOf((HWC, TURNED, MIRRORED))] | None = field(default=None, metadata=OPTIONAL)
    rows: tuple[Count, Count, Count] | None = field(default=None, metadata=OPTIONAL)
    left_out: LeftOut | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class Trained:
    """One tensor of the trainables.

    dtype     u4: two in a byte, the even index in the low nibble, signed
    offset    bytes from the start of the trainables
    channels  trained input channels (depthwise: channels); None: all
    scale     real value of a unit, one for each output channel; None for floats
    base      real value of 0, one for each output channel: of a bias before training; None: 0
    dead      output channels that conversion folded into constants
    """

    name: str
    layer: str
    kind: Annotated[str, OneOf(("weight", "fraction", "bias", "head_weight", "head_bias", *STATISTICS))]
    dtype: Annotated[str, OneOf(("s8", "u4", "s16", "f32"))]
    shape: Shape
    offset: Count
    bytes: Count
    channels: tuple[Count, ...] | None
    scale: Floats | None
    base: Floats | None
    source: Source
    dead: tuple[Count, ...] = ()


@dataclass(frozen=True)
class Trainables:
    bytes: Count
    tensors: tuple[Trained, ...]
