"""Front-end rules of nearest neighbours: which pixel each place of a larger or a smaller map takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.lowering import Lowering

from ..table import Aten
from .resample import (
    ALIGNED,
    ASYMMETRIC,
    HALF_PIXEL,
    PYTORCH,
    chosen,
    factors_of,
    fits,
    sampled,
    source,
    wanted,
)

UPSAMPLE = "upsample"
f32 = np.float32
Places = Callable[[int, int, float | None], Sequence[int]]  # of inputs, outputs, and the factor between them

ROUNDINGS: dict[str, Callable[[Fraction], int]] = {  # as ONNX calls them
    "round_prefer_floor": lambda mark: math.ceil(mark - Fraction(1, 2)),
    "round_prefer_ceil": lambda mark: math.floor(mark + Fraction(1, 2)),
    "floor": math.floor,
    "ceil": math.ceil,
}


def lower(low: Lowering, call: Call) -> Act:
    """interpolate(mode="nearest") and its kin, to a size or by factors.

    What makes blocks of one size is an op of its own; anything else copies single pixels.
    """
    x = low.image(call, call.x)
    h, w, c = low.shape(x)
    size = wanted(call, (h, w))
    fits(call, *size)
    if size == (h, w):
        return x
    factors = [*factors_of(call), None, None]
    places = call.get("places", exact if "exact" in call.op else floored)
    taken = [places(*sides) for sides in zip((h, w), size, factors, strict=False)]
    blocks = [_block(each, old) for each, old in zip(taken, (h, w), strict=True)]
    if all(blocks):
        dims = (*x.dims[:2], *(size if len(x.dims) == 4 else size[: len(x.dims) - 2]))
        return low.emit(call, UPSAMPLE, (x,), (*size, c), dims=dims, factors=tuple(map(float, blocks)))
    rows, columns = (chosen(each, old) for each, old in zip(taken, (h, w), strict=True))
    return sampled(low, call, x, rows, columns)


def _block(places: Sequence[int], inputs: int) -> int:
    """How often each pixel stands there, if they are as many of each, in their order; else 0."""
    size = len(places) // inputs
    return size if list(places) == [at for at in range(inputs) for _ in range(size)] else 0


def floored(inputs: int, outputs: int, factor: float | None) -> list[int]:
    """PyTorch's mode "nearest", in its own float32."""
    marks = np.arange(outputs, dtype=f32) * _step(inputs, outputs, factor)
    return [min(int(mark), inputs - 1) for mark in marks.tolist()]


def exact(inputs: int, outputs: int, factor: float | None) -> list[int]:
    """PyTorch's mode "nearest-exact": from the middle of a pixel, by a fused multiply-add."""
    middles = np.arange(outputs) + 0.5
    marks = (middles * float(_step(inputs, outputs, factor)) - 0.5).astype(f32)
    return [min(int(mark), inputs - 1) for mark in np.floor(marks + f32(0.5)).tolist()]


def _step(inputs: int, outputs: int, factor: float | None) -> np.float32:
    return f32(inputs) / f32(outputs) if factor is None else f32(1.0 / factor)


def of_onnx(way: str, rounding: str) -> Places:
    """ONNX: where the places lie, and how that becomes a pixel; in the float32 of ONNX Runtime."""

    def places(inputs: int, outputs: int, factor: float | None) -> list[int]:
        scale = f32(outputs) / f32(inputs) if factor is None else f32(factor)
        half = f32(0.0 if way == ASYMMETRIC else 0.5)
        marks = (np.arange(outputs, dtype=f32) + half) / scale - half
        if way == ALIGNED or (way == PYTORCH and outputs == 1):
            marks = np.array([source(i, inputs, outputs, way, factor) for i in range(outputs)], f32)
        return [min(max(ROUNDINGS[rounding](Fraction(mark)), 0), inputs - 1) for mark in marks.tolist()]

    return places


def of_tflite(way: str) -> Places:
    """TFLite, in its own float32."""

    def places(inputs: int, outputs: int, factor: float | None) -> list[int]:
        aligned = way == ALIGNED and outputs > 1
        step = f32(inputs - aligned) / f32(outputs - aligned)
        marks = (np.arange(outputs, dtype=f32) + f32(0.5 * (way == HALF_PIXEL))) * step
        whole = np.floor(marks + f32(0.5)) if way == ALIGNED else np.floor(marks)
        return [min(int(at), inputs - 1) for at in whole.tolist()]

    return places


NAMES = ("upsample_nearest2d", "upsample_nearest1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact1d")
ATEN: Mapping[str, Aten] = dict.fromkeys(NAMES, Aten("self output_size scale_factors", lower))
