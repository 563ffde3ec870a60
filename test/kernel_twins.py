"""The compiled kernels with the types of `convert.reference`.

`Twin` calls the C as generated code would: weights split, masks packed, scratch of exactly the announced
size, everything that is written between canaries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from microtrain.base.plan import FIXED, FLOAT, TFLITE
from microtrain.convert.ops import conv_structs, pool_structs
from microtrain.convert.ops.conv_constants import words_of
from microtrain.convert.reference import hostlib
from microtrain.convert.reference.biases import Bias, lean_of
from microtrain.convert.reference.hostlib import HostLib
from microtrain.convert.reference.kernels import Array, Clamp, Conv, Error, Pool, Sgd, Trained

CANARY = 0xA5


class Guarded:
    """Arrays with canaries at both ends, junk inside at first.

    margin  bytes of canaries at each end; 0 under a sanitizer, which watches the ends itself
    filled  False leaves memory as it is allocated, for a checker that knows what was never written
    """

    margin = 32
    filled = True

    def __init__(self) -> None:
        self._buffers: list[Array] = []

    def array(self, shape: tuple[int, ...], dtype: Any) -> Array:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        buffer = np.empty(size + 2 * self.margin, np.uint8)
        buffer[: None if self.filled else 0] = CANARY
        self._buffers.append(buffer)
        result: Array = buffer[self.margin : self.margin + size].view(dtype).reshape(shape)
        return result

    def copy(self, values: Array) -> Array:
        result = self.array(values.shape, values.dtype)
        result[...] = values
        return result

    def check(self) -> None:
        for buffer in self._buffers:
            ends = np.concatenate([buffer[: self.margin], buffer[buffer.size - self.margin :]])
            assert (ends == CANARY).all(), "a kernel wrote outside its arrays"


def pack_mask(mask: Array | None) -> Array | None:
    """bool [h, w, c] -> uint8 [h, w, (c + 7) // 8]."""
    return None if mask is None else np.packbits(mask, axis=-1, bitorder="little")


def pack_fraction(frac: Array | None, bits: int) -> Array | None:
    if frac is None or bits == 8:
        return None if frac is None else frac.reshape(-1).view(np.uint8).copy()
    nibbles = np.append(frac.reshape(-1), np.zeros(frac.size % 2, np.int8)).astype(np.uint8) & 15
    return (nibbles[0::2] | (nibbles[1::2] << 4)).astype(np.uint8)


def unpack_fraction(packed: Array, bits: int, shape: tuple[int, ...]) -> Array:
    if bits == 8:
        return packed.view(np.int8).reshape(shape)
    nibbles = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1)[: int(np.prod(shape))]
    return ((nibbles.astype(np.int16) ^ 8) - 8).astype(np.int8).reshape(shape)


@dataclass(frozen=True)
class Split:
    """Which channels are trained, in the order of the columns; natural: without an order array."""

    channels: tuple[int, ...]
    count: int
    natural: bool = False

    @property
    def order(self) -> Array:
        rest = [i for i in range(self.count) if i not in self.channels]
        return np.array([*rest, *self.channels], np.uint16)


def bias_struct(b: Bias, delta: Array, unit: np.float32 | None) -> conv_structs.TrainedBias:
    """unit: start values are lean, and the scaling is made of this"""
    start = {"base": b.base, "qas": b.qas} if unit is None else {"lean": lean_of(b.base, b.m), "unit": unit}
    words = words_of(b.m, 0, FLOAT)
    return conv_structs.TrainedBias(delta=delta, m=words, limit=b.limit, id=b.tensor_id, **start)


def error_struct(e: Error) -> hostlib.ErrorS8:
    return hostlib.ErrorS8(q=e.q, scale=e.scale)


def clamp_struct(c: Clamp) -> hostlib.Clamp:
    words = None if c.m is None else words_of(c.m, 0, FLOAT)
    return hostlib.Clamp(mask=pack_mask(c.mask), m=words)


def sgd_struct(s: Sgd) -> hostlib.Sgd:
    return hostlib.Sgd(**vars(s))


class Twin:
    """The C kernels with the reference's signatures; `split` and `gathered` only choose the storage."""

    def __init__(self, lib: HostLib) -> None:
        self.lib = lib

    def conv(self, p: Conv) -> conv_structs.Conv2d:
        struct = conv_structs.conv2d_struct(p.x, p.y, p.window, p.x_zero, p.y_zero, p.guard)
        struct.m = words_of(p.m, p.y_zero, FIXED if p.fixed else FLOAT if p.fine is None else TFLITE)
        struct.fine = p.fine
        return struct

    def scratch(self, guard: Guarded, kernel: str, *args: Any) -> Array:
        return guard.array((getattr(self.lib, f"{kernel}_scratch")(*args),), np.uint8)

    @staticmethod
    def _weights(w: Array, split: Split, depthwise: bool) -> conv_structs.SplitWeights:
        axis = 0 if depthwise else -1
        order, trained = split.order, len(split.channels)
        frozen_part = np.ascontiguousarray(w.take(order[: len(order) - trained], axis=axis))
        trained_part = np.ascontiguousarray(w.take(order[len(order) - trained :], axis=axis))
        return conv_structs.SplitWeights(
            frozen=frozen_part if frozen_part.size else None,
            trained=trained_part if trained_part.size else None,
            order=None if split.natural else order,
            c_trained=trained,
        )

    def in_place(self, op: str, p: Conv) -> bool:
        """Whether outputs may begin where the inputs begin."""
        return bool(getattr(self.lib, f"{op}_fwd_in_place")(self.conv(p)))

    def forward(
        self,
        op: str,
        p: Conv,
        x: Array,
        w: Array,
        b: Array,
        split: Split,
        mask: bool,
        *more: Any,
        in_place: bool = False,
    ) -> Any:
        """more: the struct of groups"""
        guard, struct = Guarded(), self.conv(p)
        if in_place:
            x = guard.copy(x)
            y = x.reshape(-1)[: int(np.prod(p.y))].reshape(p.y)
        else:
            y = guard.array(p.y, np.int8)
        bits = guard.array((*p.y[:2], (p.y[2] + 7) // 8), np.uint8) if mask else None
        scratch = self.scratch(guard, f"{op}_fwd", struct, *more)
        weights = self._weights(w, split, op == "dwconv2d")
        getattr(self.lib, f"{op}_fwd_s8")(struct, *more, x, weights, b, y, bits, scratch)
        guard.check()
        return y, bits

    def backward_x(
        self, op: str, p: Conv, ey: Error, w: Array, clamp: Clamp, split: Split, *more: Any
    ) -> Error:
        guard, struct = Guarded(), self.conv(p)
        ex = Error(guard.array(p.x, np.int8), guard.array((p.x[2],), np.float32))
        scratch = self.scratch(guard, f"{op}_bwd_x", struct, *more)
        weights = self._weights(w, split, op == "dwconv2d")
        args = (error_struct(ey), weights, clamp_struct(clamp), error_struct(ex), scratch)
        getattr(self.lib, f"{op}_bwd_x_s8")(struct, *more, *args)
        guard.check()
        return ex

    def backward_w(
        self,
        op: str,
        p: Conv,
        ey: Error,
        saved: Array,
        index: Array | None,
        channels: Array | None,
        w: Trained,
        sgd: Sgd,
        *more: Any,
    ) -> Trained:
        guard, struct = Guarded(), self.conv(p)
        count = w.w.shape[0] if op == "dwconv2d" else w.w.shape[-1]
        packed = pack_fraction(w.frac, w.frac_bits)
        stored = guard.copy(w.w)
        frac = None if packed is None else guard.copy(packed)
        step = conv_structs.TrainedWeights(w=stored, frac=frac, frac_bits=w.frac_bits, qas=w.qas, id=w.id)
        x = conv_structs.SavedInput(x=saved, index=index, c_x=saved.shape[2])
        scratch = self.scratch(guard, f"{op}_bwd_w", struct, *more, count)
        extra = (channels,) if op == "dwconv2d" else ()
        function = getattr(self.lib, f"{op}_bwd_w_s8")
        function(struct, *more, error_struct(ey), x, *extra, count, step, sgd_struct(sgd), scratch)
        guard.check()
        fractions = None if frac is None else unpack_fraction(frac, w.frac_bits, w.w.shape)
        return Trained(stored, fractions, w.frac_bits, w.qas, w.id)

    def bias_update(self, ey: Error, b: Bias, sgd: Sgd, unit: np.float32 | None = None) -> Array:
        guard = Guarded()
        delta = guard.copy(b.delta)
        pixels = ey.q.shape[0] * ey.q.shape[1]
        struct = bias_struct(b, delta, unit)
        self.lib.bias_update_s32(pixels, b.base.size, error_struct(ey), struct, sgd_struct(sgd))
        guard.check()
        return delta

    def bias_expand(self, b: Bias, unit: np.float32 | None = None) -> Array:
        guard = Guarded()
        result = guard.array(b.base.shape, np.int32)
        self.lib.bias_expand_s32(b.base.size, bias_struct(b, b.delta, unit), result)
        guard.check()
        return result

    def pool_backward(self, op: str, p: Pool, ey: Error, arg: Array | None, clamp: Clamp) -> Error:
        guard, struct = Guarded(), pool_structs.pool_struct(p.x, p.y, p.window, p.x_zero)
        ex = Error(guard.array(p.x, np.int8), guard.array((p.x[2],), np.float32))
        scratch = self.scratch(guard, f"{op}_bwd_x", struct)
        extra = (arg,) if op == "maxpool" else ()
        args = (error_struct(ey), *extra, clamp_struct(clamp), error_struct(ex), scratch)
        getattr(self.lib, f"{op}_bwd_x_s8")(struct, *args)
        guard.check()
        return ex
