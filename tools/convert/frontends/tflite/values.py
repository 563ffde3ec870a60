"""What rules of the TFLite front end work with: the file's tensors as activations and constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Home, Homes, Param
from microtrain.convert.ir import FACTOR, LESS, TERM, Codes, ConvertError
from microtrain.convert.lowering import NORM, Lowering
from microtrain.convert.ops.aten import blocks
from microtrain.convert.ops.aten.across import as_image
from microtrain.convert.ops.aten.attention import Scores
from microtrain.convert.ops.aten.resample import settled
from microtrain.convert.ops.aten.squares import Piece
from microtrain.convert.ops.aten.stack import Stacked
from microtrain.convert.ops.tokens import as_map, places

from ..aten.rules import lower
from .file import Flatbuffer, Operator, Stored

APART = {"i1": 0.51 / 127, "<i2": 0.51 / 32767, "<f2": 2.0**-11}  # of the largest number of a constant
Value = Act | Param | Scores | Stacked | Piece


class Walker:
    """Of one file.

    env    tensor of the file -> activation or constant
    homes  where the file has the constants of the layers
    place  of the operator that is being read
    """

    def __init__(self, file: Flatbuffer) -> None:
        self.file = file
        self.low = Lowering(file.name, fixed=True)
        self.env: dict[int, Value] = {}
        self.homes: Homes = {}
        self.place = 0

    def give(self, value: Any, stored: Stored) -> None:
        """Keep the file's scale and zero for an activation."""
        found, side = stored.quantized, side_of(stored)
        if not isinstance(value, Act) or value.pad or stored.dtype not in ("i1", "u1"):
            return
        if found is None or side is None:
            return
        if len(found.scale) != 1:
            raise ConvertError(
                f"{self.file.name}: {stored.name} has a scale for each channel; one is supported"
            )
        if not -128 <= side[1] <= 127:
            raise ConvertError(f"{self.file.name}: {stored.name} has a zero point of {side[1]}, outside int8")
        self.low.give(value, *side)

    def given(self, tensor: int) -> tuple[float, int] | None:
        act = self.env.get(tensor)
        return self.low.tensors[self.low.tensor_of(act)].given if isinstance(act, Act) else None

    def give_inside(self, before: int, stored: Stored) -> None:
        """Parts of what is joined have the scale of all of it. before: nodes before those of the operator"""
        side = side_of(stored)
        for node in self.low.nodes[before:] if side is not None else ():
            made = self.low.tensors[node.outputs[0]]
            self.low.tensors[made.name] = replace(made, given=made.given or side)

    def value(self, tensor: int) -> Value | None:
        """An activation, or a constant as real numbers; None: an input that was left out."""
        if tensor < 0:
            return None
        if tensor not in self.env:
            stored = self.file.tensors[tensor]
            if stored.data is None:
                raise ConvertError(f"{self.file.name} uses {stored.name}, which no operator before makes")
            self.env[tensor] = Param(stored.name, real(stored))
        return self.env[tensor]

    def whole(self, op: Operator, name: str, place: int = 0) -> Value | None:
        """An input of the operator, with the zeros around it, if they were only noted."""
        x = self.value(op.inputs[place])
        if not isinstance(x, Act) or not x.pad:
            return x
        made: Act = settled(self.low, Call(op.kind.lower(), name, False, {"self": x})).x
        return made

    def call(self, word: str, op: Operator, name: str, **args: Any) -> Any:
        """The value of an aten op on the operator's first input."""
        return self.made(word, name, self=self.value(op.inputs[0]), **args)

    def made(self, word: str, name: str, /, **args: Any) -> Any:
        """What an aten op makes of values, as the file has it.

        Of a view that was turned: what is plain to a rule need not lie so in memory.
        """
        call = Call(word, name, True, args)
        made = lower(self.low, call)
        if not isinstance(made, Act) or made.order is not None or all(x.order is None for x in call.acts):
            return made
        if made.pad or made.half or self.low.is_stand_in(made):
            return made
        at = places(self.low, made)
        return held(self.low, made.tensor, np.moveaxis(at, 1, -1) if at.ndim > 2 else at, made.factor)

    def multiplied(self, op: Operator, name: str, made: Any) -> Any:
        """A view times a number, which is only noted, as a map of its own where the file has its integers.

        Their scale is not that of what it is a view of.
        """
        if not isinstance(made, Act) or made.factor == 1 or side_of(self.file.tensors[op.outputs[0]]) is None:
            return made
        (h, w, c), call = self.low.shape(made), Call(op.kind.lower(), name, True, {})
        image = Act(made.tensor, (self.low.batch, c, h, w))
        factors, at = np.full(c, made.factor, np.float32), places(self.low, made)
        scaled = self.low.scaled(call, image, factors, np.zeros(c, np.float32))
        return held(self.low, scaled.tensor, np.moveaxis(at, 1, -1) if at.ndim > 2 else at)

    def image(self, op: Operator, name: str, place: int = 0) -> tuple[Act, bool]:
        """An input of the operator as an image, and whether the IR has it turned: one row of it as a column.

        A series reaches a Conv2D of Keras as one row; here its steps in time are rows, which stream.
        """
        x = self.value(op.inputs[place])
        shape = self.file.tensors[op.inputs[place]].shape
        if not isinstance(x, Act) or len(shape) != 4:
            raise ConvertError(
                f"layer {name}: {op.kind} reads {list(shape)}; it must be an image [n, h, w, c]"
            )
        _, h, w, c = shape
        x = self.straight(op, name, x)
        if (h, c) == (1, 1) and w > 1 and self.low.shape(x) == (1, 1, w) and not self.low.is_input(x):
            return replace(x, dims=(self.low.batch, 1, w, 1)), True  # over the channels of a vector
        above, before, below, behind = x.pad or (0, 0, 0, 0)
        rows, columns, channels = self.low.shape(x)
        own = (above + rows + below, before + columns + behind, channels)
        if own == (h, w, c):
            return x, False
        if h == 1 and own == (w, 1, c):
            return replace(x, dims=(self.low.batch, c, w, 1)), True
        if channels == c and rows * columns == h * w and x.pad is None and x.order is None:
            return replace(x, dims=(self.low.batch, c, h, w)), False  # tokens that are pixels again
        if x.order is not None:
            raise ConvertError(
                f"layer {name}: {op.kind} reads a map whose axes were turned; the nearest that is: of the "
                "input alone, from NCHW to NHWC, and groups of channels that change places"
            )
        raise ConvertError(
            f"layer {name}: {op.kind} reads a map of {own[0]}x{own[1]}x{own[2]} as {h}x{w}x{c}; the nearest "
            "that is: the map as it is, or one that is made of a vector"
        )

    def straight(self, op: Operator, name: str, x: Any) -> Any:
        """A view whose numbers were turned as the map that it is, of blocks, of some channels or of turned
        axes; what is no such map as it is."""
        if not isinstance(x, Act) or x.order is None:
            return x
        call = Call(op.kind.lower(), name, True, {"self": x})
        made = blocks.seen(self.low, call, as_map(self.low, x))
        return as_image(self.low, call, made) if len(made.dims) == 4 and made.order is not None else made

    def at_home(
        self,
        op: Operator,
        place: int,
        name: str,
        value: np.ndarray,
        back: Callable[[np.ndarray], np.ndarray],
        step: int | None = None,
    ) -> Param:
        """An operator's constant in PyTorch's order, under a layer's name; back: into the file's order.

        step  the operator's place, where the constant is one of a sum or a product: the device has other
              integers then
        """
        stored, at = self.file.tensors[op.inputs[place]], self.place if step is None else step
        apart = APART.get(stored.dtype, 0.0)
        if stored.quantized is not None and step is None:
            self.homes[name] = Home(at, place, value, back, stored.quantized.scale)
        else:
            self.homes[name] = Home(at, place, value, back, apart=apart)
        return Param(name, value, op.inputs[place])

    def keep_scale(self, name: str, stored: Stored, sums: str = "") -> None:
        """Keep the file's scales for the weights of a layer, which were int8 or uint8. sums: as of Layer"""
        layer, found = self.low.layers[name], stored.quantized
        if found is None or stored.dtype not in ("i1", "u1"):
            return
        channels = len(layer.weight)
        if len(found.scale) not in (1, channels):
            raise ConvertError(f"layer {name}: {len(found.scale)} scales for {channels} channels of weights")
        self.low.layers[name] = replace(
            layer, weight_scale=np.broadcast_to(found.scale, (channels,)).copy(), sums=sums
        )

    def keep_codes(self, op: Operator, made: Any) -> None:
        """Keep the integers of a constant that a map was multiplied with, or that was added to it."""
        maker = self.low.maker(made.tensor) if isinstance(made, Act) else None
        constants = [self.file.tensors[t] for t in op.inputs[:2] if self.file.tensors[t].data is not None]
        if maker is None or maker.op != NORM or len(constants) != 1 or op.kind not in (FACTOR, TERM, LESS):
            return
        stored = constants[0]
        found, name = stored.quantized, maker.layer or ""
        if stored.data is None or found is None or stored.dtype != "i1" or len(found.scale) != 1:
            return
        values = stored.data.ravel()
        values = values[:1] if (values == values[0]).all() else values  # one for all, whatever its axes
        codes = Codes(values, float(found.scale[0]), int(found.zero[0]), op.kind)
        layer = self.low.layers[name]
        wanted, known = (codes.real, layer.weight) if op.kind == FACTOR else (codes.added, layer.bias)
        if values.size in (1, np.size(known)) and (wanted == np.float32(known)).all():
            self.low.layers[name] = replace(layer, codes=codes)

    def declared(self, x: Act, dims: tuple[int, ...]) -> Act | None:
        """The input, declared anew. x: what is read as it, which may have been scaled and shifted before

        None where more has been done to it than one factor and shift for all
        """
        if self.low.nodes:
            _, c, h, w = (*dims, 1)[:4]
            return replace(x, dims=dims) if self.low.redeclare((h, w, c)) else None
        given = self.low.tensors["input"].given
        made = self.low.input(dims)
        if given:
            self.low.give(made, *given)
        return made


def side_of(stored: Stored) -> tuple[float, int] | None:
    """Scale and zero point of a tensor, as of int8; None where it has none."""
    found, shift = stored.quantized, 128 if stored.dtype == "u1" else 0
    return None if found is None else (float(found.scale[0]), int(found.zero[0]) - shift)


def channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    """NHWC as NCHW, [n, time, c] as [n, c, time]; what has no channels stays."""
    return (shape[0], shape[-1], *shape[1:-1]) if len(shape) > 2 else shape


def channelwise(value: Param, rank: int) -> Param:
    """A constant [..., c] as [1, c, 1, 1], one of rows or columns too as NCHW has it; a number stays.

    rank  of what it is beside
    """
    array = value.value
    if array.size == 1:
        return value
    if array.size == array.shape[-1]:
        return Param(value.name, array.reshape(1, -1, 1, 1))
    full = array.reshape((1,) * (rank - array.ndim) + array.shape)
    return Param(value.name, np.moveaxis(full, -1, 1)) if full.ndim > 2 else value


def real(stored: Stored) -> np.ndarray:
    """A constant in real numbers, float32; integers without a scale stay what they are."""
    assert stored.data is not None
    found = stored.quantized
    if found is None:
        return stored.data.astype(np.float32) if stored.dtype in ("<f2", "<f4") else stored.data
    shape = [1] * len(stored.shape)
    if len(found.scale) > 1:
        shape[found.axis] = len(found.scale)
    zero = found.zero if len(found.zero) == len(found.scale) else np.zeros(len(found.scale), np.int64)
    real = (stored.data.astype(np.float64) - zero.reshape(shape)) * found.scale.reshape(shape)
    return np.asarray(real, np.float32)


def held(low: Lowering, tensor: str, at: np.ndarray, factor: float = 1.0) -> Act:
    """The view with these places of memory, in the file's order of axes.

    Plain where it is the map itself, and where it is flat and nothing is turned.
    """
    h, w, c = low.tensors[tensor].shape
    act = Act(tensor, channels_first(at.shape), factor=factor)
    straight = at.size == h * w * c and np.array_equal(at.ravel(), np.arange(at.size)) and factor == 1
    if straight and (at.ndim < 3 or at.shape[-1] == c or h * w == 1):
        return act
    at = np.moveaxis(at, -1, 1) if at.ndim > 2 else at
    return replace(act, order=at % c * (h * w) + at // c)
