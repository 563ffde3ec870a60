"""Random cases of convolutions whose weights are codes, for kernel_cases.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_twins import Guarded, Twin, clamp_struct, error_struct

from microtrain.convert.ops import coded
from microtrain.convert.reference.kernels import Array, Clamp, Conv, Error


def weights_struct(guard: Guarded, w: Array) -> coded.CodedWeights:
    """Codes and pairs between canaries: nothing but them is read."""
    pairs = coded.PAIRS.view("<u2").reshape(-1)
    return coded.CodedWeights(codes=guard.copy(coded.codes_of(w)), pairs=guard.copy(pairs))


def expanded(twin: Twin, w: Array) -> Array:
    """Weights [c, ...] by way of their codes."""
    guard, rows = Guarded(), w.reshape(len(w), -1)
    found = guard.array((w.size + rows.shape[1] % 2,), np.int8)
    twin.lib.codes_expand_s8(*rows.shape, weights_struct(guard, w), found)
    guard.check()
    return found[: w.size].reshape(w.shape)


def forward(twin: Twin, p: Conv, x: Array, w: Array, b: Array, mask: bool) -> tuple[Array, Array | None]:
    guard, struct = Guarded(), twin.conv(p)
    y = guard.array(p.y, np.int8)
    bits = guard.array((*p.y[:2], (p.y[2] + 7) // 8), np.uint8) if mask else None
    scratch = twin.scratch(guard, "cconv2d_fwd", struct)
    twin.lib.cconv2d_fwd_s8(struct, weights_struct(guard, w), x, b, y, bits, scratch)
    guard.check()
    return y, bits


def backward_x(twin: Twin, p: Conv, ey: Error, w: Array, clamp: Clamp) -> Error:
    guard, struct = Guarded(), twin.conv(p)
    ex = Error(guard.array(p.x, np.int8), guard.array((p.x[2],), np.float32))
    scratch = twin.scratch(guard, "cconv2d_bwd_x", struct)
    args: tuple[Any, ...] = (error_struct(ey), clamp_struct(clamp), error_struct(ex), scratch)
    twin.lib.cconv2d_bwd_x_s8(struct, weights_struct(guard, w), *args)
    guard.check()
    return ex
