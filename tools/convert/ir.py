"""The compiler's one intermediate representation: a graph of frozen dataclasses.

A pass is a pure function Graph -> Graph. The same classes hold the float graph that a front end builds,
the quantized forward graph and the training graph with its backward half; `verify.py` states what must
hold after each pass.

Shapes are (h, w, c); a vector is (1, 1, c). Weights are (c_out, kh, kw, c_in), depthwise (c, kh, kw).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from microtrain.base.errors import Error
from microtrain.base.plan import FLOAT
from microtrain.base.sound import LogMel
from microtrain.base.trained import LeftOut
from microtrain.base.units import Units
from microtrain.samples.kind import told

from .axis import Axis
from .compression import Code, Compression

Shape = tuple[int, int, int]


class ConvertError(Error):
    """Something the user can mend: one sentence that names the thing and the way out."""


@dataclass(frozen=True)
class Tensor:
    """A value that lives in the arena.

    dtype   f32   float
            s8    int8, real = scale * (q - zero)
            error int8 q [h*w][c] and one float scale per channel (two buffers)
            bits  clamp mask, (c + 7) // 8 bytes per pixel
            u8    position of a maximum in its pooling window

    given   scale and zero to which the model's file quantizes it; only in float graphs
    """

    name: str
    shape: Shape
    dtype: str = "f32"
    scale: float = 1.0
    zero: int = 0
    given: tuple[float, int] | None = None

    @property
    def pixels(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def channels(self) -> int:
        return self.shape[2]

    @property
    def elements(self) -> int:
        return self.pixels * self.channels


SIDE_MOST = 65535  # of a map: the kernels keep heights, widths and channels in 16 bits
WINDOW_MOST = 255  # of the window of a convolution, or of a stage of a stream: they are kept in bytes


@dataclass(frozen=True)
class Window:
    """Geometry of a convolution or a pooling window; pads are those at the top and left.

    more_h, more_w  padding at the bottom and right beyond those; negative where the last pixels are not read
    """

    kh: int
    kw: int
    stride_h: int = 1
    stride_w: int = 1
    pad_h: int = 0
    pad_w: int = 0
    more_h: int = 0
    more_w: int = 0

    def outputs(self, h: int, w: int) -> tuple[int, int]:
        """Height and width of what the window makes of an image, PyTorch's floor rule."""
        return (
            out_size(h + self.more_h, self.kh, self.stride_h, self.pad_h),
            out_size(w + self.more_w, self.kw, self.stride_w, self.pad_w),
        )

    @property
    def fields(self) -> dict[str, int]:
        """What the kernels' structs hold of it; the rest follows from the size of the output."""
        return {name: size for name, size in vars(self).items() if not name.startswith("more")}


@dataclass(frozen=True)
class Source:
    """Names in the model's state dict that a layer was made from; None where it has none.

    weight   "" for a layer that conversion made of something else; nothing of it is trained
    eps      of the batch norm, which a state dict does not hold
    columns  "hwc" where those of a linear layer over a map are in that order, "io" where the matrix is
             [inputs, outputs], "iohw" where it is a transposed convolution's (base/mirrored.py); None: CHW
    rows     (h, w, c) of the map that the outputs become, where the layer's rows are in the order of its
             pixels and those of the file in that of its channels (base/rows.py)
    left_out  channels that never change (passes/constant_channels.py)
    """

    weight: str
    bias: str | None = None
    bn: str | None = None
    eps: float | None = None
    columns: str | None = None
    rows: Shape | None = None
    left_out: LeftOut | None = None


ONCE, MEAN = "once", "mean"
FACTOR, TERM, LESS = "MUL", "ADD", "SUB"


@dataclass(frozen=True, eq=False)
class Codes:
    """A constant of an int8 file: int8 values, of each channel or one for all.

    Its real values are scale * (values - zero).
    means  FACTOR, TERM, or LESS: what is subtracted
    """

    values: np.ndarray
    scale: float
    zero: int
    means: str

    @property
    def real(self) -> np.ndarray:
        result: np.ndarray = np.float32(self.scale) * (self.values.astype(np.float32) - self.zero)
        return result

    @property
    def added(self) -> np.ndarray:
        return -self.real if self.means == LESS else self.real


@dataclass(frozen=True, eq=False)
class Layer:
    """Constants of one convolution, linear layer or head, and what of it is trained.

    weight        float32 before quantization, then int8 in -127..127 (published checkpoints: -128)
    bias          float32 [c_out], then int32 in units of s_x * s_w
    weight_scale  float64 [c_out], None before quantization and for the head, which stays float
    dead          bool [c_out]: channels whose scale is too small to train (folded to a constant)
    trained       trained input channels (depthwise: channels), sorted; () = frozen
    rate          what the learning rate of its weights is multiplied with
    seen          mean and deviation [c_out] that the folded batch norm gave its output in training; else None
    shares        the layer that uses its weights first in the model, itself maybe; "": no other one does.
                  What is shared stays frozen
    sums          of a TFLite file: ONCE or MEAN, where its reference kernels do not round as those of a
                  convolution (conv_constants.fine)
    codes         of one that is a factor or a term alone, of an int8 TFLite file: the constant as it is there
    folded        int32 [c_out]: of the bias, what inputs that are left out add to the sums; None: nothing
    """

    weight: np.ndarray
    bias: np.ndarray
    source: Source
    weight_scale: np.ndarray | None = None
    dead: np.ndarray | None = None
    trained: tuple[int, ...] = ()
    bias_trained: bool = False
    fraction_bits: int = 0
    rate: float = 1.0
    seen: tuple[np.ndarray, np.ndarray] | None = None
    shares: str = ""
    sums: str = ""
    codes: Codes | None = None
    folded: np.ndarray | None = None

    @property
    def depthwise(self) -> bool:
        return self.weight.ndim == 3

    @property
    def columns(self) -> int:
        """How many channels the choice of `trained` is made from."""
        result: int = self.weight.shape[0] if self.depthwise else self.weight.shape[-1]
        return result


@dataclass(frozen=True)
class Clamp:
    """What an error passes on its way from a stored tensor to the sum behind it.

    mask   name of the bits tensor, or None where nothing can saturate
    layer  layer whose multipliers m[c] = d(stored) / d(sum) apply, or None (1)
    """

    mask: str | None = None
    layer: str | None = None


@dataclass(frozen=True)
class Node:
    """One step.

    op       key of the op table
    name     the layer or module it belongs to, for messages and comments
    inputs   tensors read; outputs: tensors written, each by one node only
    layer    key of Graph.layers whose constants it uses
    act      "none" | "relu" | "relu6": folded into the clamp by quantization
    clamp    error ops: applied to the result
    factors  error ops: what each input is multiplied with; activations and poolings: their own parameters
    channels gather: the channels kept; bwd_w: positions of the trained channels in the saved input
    axes     of a map that is sampled anew: its rows and its columns
    parts    stream: the nodes it runs row by row; the tensors between them are never whole
    rows     stream: rows of its input that enter at once
    again    name of the segment of recomputed nodes that this one belongs to; "" for all others
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layer: str | None = None
    window: Window | None = None
    act: str = "none"
    clamp: Clamp | None = None
    factors: tuple[float, ...] = ()
    channels: tuple[int, ...] | None = None
    axes: tuple[Axis, ...] = ()
    parts: tuple[Node, ...] = ()
    rows: int = 1
    again: str = ""

    @property
    def owner(self) -> str:
        """Whose constants and trainables it uses: its layer's, or its own where it has none."""
        return self.layer or self.name

    @property
    def reads(self) -> tuple[str, ...]:
        """Every tensor that must be alive: the inputs and the mask of the clamp."""
        mask = self.clamp.mask if self.clamp else None
        return (*self.inputs, mask) if mask else self.inputs


@dataclass(frozen=True)
class Input:
    """How a pixel 0..255 becomes the stored input: sat8(rint(pixel * gain[c] + offset[c])).

    table   where there is one, the stored input of each of the 256 pixels, of each channel or of all
    stored  scale and zero point of what a table makes
    """

    tensor: str
    gain: tuple[float, ...]
    offset: tuple[float, ...]
    table: tuple[tuple[int, ...], ...] = ()
    stored: tuple[float, int] = (1.0, 0)

    @property
    def untouched(self) -> bool:
        """Whether nothing that a file does to its input is in here."""
        return not self.table and set(self.gain) == {1.0} and set(self.offset) == {0.0}


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in execution order. The first `forward` of them are the forward pass (-1: all).

    arriving  the image is never whole: its rows enter the first node, a stream, as they come
    record    frozen layers' results that a replayed step goes on from, in order of birth; () without replay
    codes     how a record keeps its tensors; without an entry as they are
    imprint   features of which the covariance is kept together (memory/imprint.py); 0: no statistics
    sound     the front end that makes the input's rows of sound; None: they come as they are
    units     of numbers that become the input's bytes; None: pixels
    fleet     bytes of an update that the board makes itself (memory/fleet.py); 0: its gateway does
    compression  of the weights of frozen layers (quantize/compress.py); None: all are int8
    gate      loss of a sample below which a training step ends there, with nothing learned; 0: none does
    outside   layers whose frozen weights lie in flash beside the chip (outside.py)
    saves     the board keeps checkpoints; else their flash may hold weights
    requantize  how sums of convolutions become int8: in float32, in fixed point (numeric.fixed_outputs), or
                as TensorFlow Lite's reference kernels do (reference/tflite.py)
    ending    op at the end of the network that was left out, as a loss applies it: "softmax", say; ""
    hop       rows by which a window moves on, keeping the others (ops/hop.py); 0: each comes whole
    centre    of an open set: that of embeddings, in 16ths of stored units (reference/prototypes.py); (): none
    """

    name: str
    input: Input
    output: str
    tensors: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    layers: Mapping[str, Layer]
    forward: int = -1
    arriving: bool = False
    record: tuple[str, ...] = ()
    codes: Mapping[str, Code] = field(default_factory=dict)
    imprint: int = 0
    classes: tuple[str, ...] = field(default=())
    sound: LogMel | None = None
    units: Units | None = None
    ending: str = ""
    hop: int = 0
    centre: tuple[int, ...] = ()
    fleet: int = 0
    compression: Compression | None = None
    saves: bool = True
    requantize: str = FLOAT
    gate: float = 0.0
    outside: tuple[str, ...] = ()

    def producer(self, tensor: str) -> Node | None:
        return next((n for n in self.nodes if tensor in n.outputs), None)

    @property
    def sample_shape(self) -> Shape:
        """Of the input, with the front end where samples may be sounds, and the units of numbers."""
        return told(self.tensors[self.input.tensor].shape, self.sound, self.units)

    @property
    def stored_input(self) -> tuple[str, ...]:
        """The image's tensor where it is whole in memory, else nothing."""
        return () if self.arriving else (self.input.tensor,)

    def readers(self, tensor: str) -> tuple[Node, ...]:
        return self._readers.get(tensor, ())

    @cached_property
    def _readers(self) -> Mapping[str, tuple[Node, ...]]:
        found: dict[str, tuple[Node, ...]] = {}
        for node in self.nodes:
            for tensor in dict.fromkeys(node.reads):
                found[tensor] = (*found.get(tensor, ()), node)
        return found

    @property
    def forward_nodes(self) -> tuple[Node, ...]:
        return self.nodes if self.forward < 0 else self.nodes[: self.forward]

    @cached_property
    def forward_layers(self) -> tuple[Node, ...]:
        """The forward nodes with every stream taken apart: one node per layer."""
        return tuple(part for n in self.forward_nodes for part in (n.parts or (n,)))

    @cached_property
    def forward_of(self) -> Mapping[str, Node]:
        """Layer -> the forward node that runs it."""
        return {n.layer: n for n in reversed(self.forward_layers) if n.layer is not None}

    def forward_named(self, name: str, ops: Collection[str]) -> Node:
        """The forward node of a name that is one of these ops: of them no two have one name."""
        return next(n for n in self.forward_layers if n.name == name and n.op in ops)

    @cached_property
    def copies(self) -> Mapping[str, str]:
        """Layer -> an earlier one whose weights are its own too, so that flash holds them once."""
        found: dict[str, str] = {}
        shared = {name: layer for name, layer in self.layers.items() if layer.shares}
        for name, layer in shared.items():
            for other in shared:
                one = self.layers[other]
                if other == name:
                    break
                if one.shares == layer.shares and np.array_equal(one.weight, layer.weight):
                    found[name] = found.get(other, other)
                    break
        return found

    @property
    def cut(self) -> int:
        """Forward nodes that a replayed step leaves out: up to the one that completes the record."""
        made = [i for i, n in enumerate(self.forward_nodes, 1) if set(n.outputs) & set(self.record)]
        return max(made, default=0)

    @property
    def backward_nodes(self) -> tuple[Node, ...]:
        return () if self.forward < 0 else self.nodes[self.forward :]

    def replace(self, **changes: object) -> Graph:
        return replace(self, **changes)  # type: ignore[arg-type]


def out_size(size: int, kernel: int, stride: int, pad: int) -> int:
    """Pixels of a window's output along one axis, PyTorch's floor rule."""
    return (size + 2 * pad - kernel) // stride + 1
