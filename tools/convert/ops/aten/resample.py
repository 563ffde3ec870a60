"""Front-end rules of what samples a map anew: the axes of averages, of lines between pixels, of padding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, pair, sides
from microtrain.convert.axis import Axis
from microtrain.convert.lowering import Lowering

from ..bounds import INT32_MAX
from ..table import Aten

RESAMPLE = "resample"
MOST_SIDE, MOST_STORED = 65535, 255  # of a map's pixels and of a weight; of a value less its zero point
NOTHING = -1  # in place of a place: a zero
# What lies around a map, as NumPy calls it.
AROUND = {"reflect": "reflect", "replicate": "edge", "circular": "wrap", "symmetric": "symmetric"}
# Where the places of a larger map lie, as ONNX has it.
HALF_PIXEL, PYTORCH, ALIGNED, ASYMMETRIC = WAYS = (
    *("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"),
)


ONE = 1024  # a step from a place to the next in TensorFlow Lite's integers


def sampled(low: Lowering, call: Call, x: Act, rows: Axis, columns: Axis) -> Act:
    """An image, or a series as one of one column, with its rows and columns mixed anew."""
    if all(axis.terms == chosen(range(axis.inputs), axis.inputs).terms for axis in (rows, columns)):
        return x
    if rows.whole * columns.whole * MOST_STORED > INT32_MAX or max(rows.whole, columns.whole) > MOST_SIDE:
        raise call.error(
            f"{call.op} of {rows.inputs}x{columns.inputs} to {rows.outputs}x{columns.outputs} pixels has "
            "windows of too many sizes; the nearest that is supported: windows of one size, or fewer pixels"
        )
    sizes = rows.outputs, columns.outputs
    dims = (*x.dims[:2], *sizes[: len(x.dims) - 2])
    axes = (rows, columns)
    return low.emit(call, RESAMPLE, (x,), (*sizes, low.shape(x)[2]), dims=dims, axes=axes)


def fits(call: Call, *sizes: int) -> None:
    """Raises where a side is larger than the kernels count."""
    if max(sizes) > MOST_SIDE:
        raise call.error(f"{call.op} makes a side of {max(sizes):,} pixels; {MOST_SIDE:,} are the most")


# ---------------------------------------------------------------- axes


def chosen(places: Iterable[int], inputs: int) -> Axis:
    """Single places, or nothing."""
    return Axis(inputs, tuple(() if place == NOTHING else ((int(place), 1),) for place in places))


def averages(spans: Sequence[range], counts: Sequence[int], inputs: int) -> Axis:
    """Sums over spans, each divided by its own count."""
    whole = math.lcm(*counts)
    shares = (whole // count for count in counts)
    terms = (tuple((at, share) for at in span) for span, share in zip(spans, shares, strict=True))
    return Axis(inputs, tuple(terms), whole)


def adaptive_spans(inputs: int, outputs: int) -> list[range]:
    """What adaptive pooling gives each output: from the floor of its share to the ceiling."""
    return [range(i * inputs // outputs, -(-(i + 1) * inputs // outputs)) for i in range(outputs)]


def between(inputs: int, outputs: int, way: str) -> Axis:
    """Lines between neighbouring places. way: where the places of the result lie"""
    marks = [source(i, inputs, outputs, way) for i in range(outputs)]
    marks = [min(max(mark, Fraction(0)), Fraction(inputs - 1)) for mark in marks]
    whole = math.lcm(*(mark.denominator for mark in marks))
    ends = ((math.floor(mark), int((mark - math.floor(mark)) * whole)) for mark in marks)
    pairs = ([(at, whole - share), (at + 1, share)] for at, share in ends)
    return Axis(inputs, tuple(tuple(pair for pair in each if pair[1]) for each in pairs), whole)


def between_in_1024ths(inputs: int, outputs: int, way: str) -> Axis:
    """The same as integers of TensorFlow Lite have it: resize_bilinear.h of its reference kernels."""
    over, under = (inputs - 1, outputs - 1) if way == ALIGNED and outputs > 1 else (inputs, outputs)
    step = (ONE * over + under // 2) // under
    first = step // 2 - ONE // 2 if way == HALF_PIXEL else 0
    marks = [min(max(i * step + first, 0), ONE * (inputs - 1)) for i in range(outputs)]
    unit = math.gcd(ONE, *marks)
    whole, ends = ONE // unit, (divmod(mark // unit, ONE // unit) for mark in marks)
    pairs = ([(at, whole - share), (at + 1, share)] for at, share in ends)
    return Axis(inputs, tuple(tuple(pair for pair in each if pair[1]) for each in pairs), whole)


def source(i: int, inputs: int, outputs: int, way: str, factor: float | None = None) -> Fraction:
    """Where place i of the result lies among those of the input. factor: None: that of the sizes"""
    step = Fraction(inputs, outputs) if factor is None else 1 / Fraction(factor)
    if way == ALIGNED:
        return Fraction(i * (inputs - 1), max(outputs - 1, 1))
    if way == ASYMMETRIC:
        return i * step
    if way == PYTORCH and outputs == 1:
        return Fraction(0)
    return (i + Fraction(1, 2)) * step - Fraction(1, 2)


def around(inputs: int, before: int, behind: int, mode: str) -> Axis:
    """The places with others around them; fewer than none cut some off, first of all.

    mode  of AROUND, or "constant": zeros
    """
    more = (max(before, 0), max(behind, 0))
    kept = np.arange(max(-before, 0), inputs - max(-behind, 0))
    if mode == "constant":
        places = np.pad(kept, more, constant_values=NOTHING)
    else:
        places = np.pad(kept, more, mode=AROUND[mode])  # type: ignore[call-overload]
    return chosen(places.tolist(), inputs)


# ---------------------------------------------------------------- padding


def padded(low: Lowering, call: Call, x: Act, sides: Sequence[int], mode: str) -> Act:
    """An image or a series with pixels around it. sides: top, left, bottom, right"""
    x = low.image(call, x)
    h, w, _ = low.shape(x)
    top, left, bottom, right = sides
    fits(call, h + abs(top) + abs(bottom), w + abs(left) + abs(right))
    for size, before, behind in ((h, top, bottom), (w, left, right)):
        kept = size + min(before, 0) + min(behind, 0)
        room = {"reflect": kept - 1, "circular": kept, "symmetric": kept}.get(mode)
        if kept < 1:
            raise call.error(f"{call.op} cuts {-min(before, behind)} of {size} pixels off and leaves none")
        if room is not None and max(before, behind) > room:
            raise call.error(
                f"{mode} padding by {max(before, behind)} of {kept} pixels has no pixels to repeat; the "
                f"nearest that is supported: {room} at most, or mode='replicate'"
            )
    return sampled(low, call, x, around(h, top, bottom, mode), around(w, left, right, mode))


def settled(low: Lowering, call: Call) -> Call:
    """A call whose images have what lies around them, which was only noted.

    Each window that a maximum is taken of has pixels of the image, so their own edges are as good as what is
    below all numbers.
    """

    def whole(value: Any) -> Any:
        if isinstance(value, list):
            return [whole(each) for each in value]
        if not isinstance(value, Act) or not value.pad:
            return value
        if call.op.endswith("_"):
            raise call.error(
                f"{call.op} changes an image with zeros around it in place, which is not supported; the "
                f"nearest that is: {call.op[:-1]}"
            )
        of_padding = replace(call, op="pad", args={"self": value})
        if value.lowest and not _covers_pixels(call, value.pad):
            raise of_padding.error(
                f"a padding below all numbers in front of {call.op} is not supported; the nearest that is: "
                "zeros, or in front of a max pooling whose windows are larger than it"
            )
        mode = "replicate" if value.lowest else "constant"
        return padded(low, of_padding, without_padding(value), value.pad, mode)

    return replace(call, args={name: whole(value) for name, value in call.args.items()})


def _covers_pixels(call: Call, around: Sequence[int]) -> bool:
    """Whether each window of a max pooling has pixels of the image within what lies around it."""
    alone = {*numbers(call.get("dilation", 1))} == {1} and "max_pool" in call.op
    kernel, own = pair(call.get("kernel_size", 0)), (*sides(call.get("padding", 0)), 0, 0)
    most = [max(around[axis], around[axis + 2]) for axis in (0, 1)]
    room = [kernel[axis] - own[axis] - max(own[axis + 2], 0) for axis in (0, 1)]
    return alone and all(not wide or wide < left for wide, left in zip(most, room, strict=True))


def without_padding(x: Act) -> Act:
    """The image that zeros were put around."""
    top, left, bottom, right = x.pad or (0, 0, 0, 0)
    n, c, h, w = (*x.dims, 1)[:4]
    dims = (n, c, h - top - bottom, w - left - right)[: len(x.dims)]
    return replace(x, dims=dims, pad=None, lowest=False)


# ---------------------------------------------------------------- lines between pixels


def wanted(call: Call, old: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the result: of a series, one column."""
    given = call.get("output_size", None)
    if given is None:
        scales = numbers(call.get("scale_factors", None))
        given = [int(side * scale) for side, scale in zip(old, scales, strict=False)]
    sizes = [int(side) for side in numbers(given)]
    return (sizes[0], sizes[1] if len(sizes) > 1 else old[1])


def factors_of(call: Call) -> Sequence[float | None]:
    """What rows and columns are multiplied with, where the model says it."""
    scales = [call.args.get("scales_h", call.args.get("scales")), call.args.get("scales_w")]
    return numbers(call.get("scale_factors", scales))


def numbers(given: Any) -> Sequence[Any]:
    return given if isinstance(given, Sequence) else [given]


def lower(low: Lowering, call: Call) -> Act:
    """interpolate(mode="bilinear") of an image and mode="linear" of a series: to a size, or by factors."""
    x = low.image(call, call.x)
    h, w, _ = low.shape(x)
    rows, columns = wanted(call, (h, w))
    fits(call, rows, columns)
    way = ALIGNED if call.get("align_corners", False) else call.get("way", HALF_PIXEL)
    _check_factors(call, (h, w), (rows, columns))
    lines = between_in_1024ths if call.get("in_1024ths", False) else between
    return sampled(low, call, x, lines(h, rows, way), lines(w, columns, way))


def _check_factors(call: Call, old: Sequence[int], new: Sequence[int]) -> None:
    """Sizes that factors give only when they are rounded lie between places that PyTorch takes."""
    for factor, before, after in zip(factors_of(call), old, new, strict=False):
        if factor is not None and before * factor != after:
            raise call.error(
                f"{call.op} of {before} pixels by {factor:g} gives no whole number of them; the nearest that "
                f"is supported: size={after}, or recompute_scale_factor=True"
            )


ATEN: Mapping[str, Aten] = dict.fromkeys(
    ("upsample_bilinear2d", "upsample_linear1d"), Aten("self output_size align_corners scale_factors", lower)
)
