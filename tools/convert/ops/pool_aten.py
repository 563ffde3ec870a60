"""Front-end rules of pooling: what calls of aten ops become in the float graph."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

from microtrain.convert.ir import Window
from microtrain.convert.lowering import Act, Call, Lowering, of_series, pair, sides, stride_of
from microtrain.convert.nearest import unsupported

from .table import Aten

MOST_OF_MAXIMUM = 256  # pixels of a window (kernels/pool.h)


def avg_pool2d(low: Lowering, call: Call) -> Act:
    if call.args.get("divisor_override") is not None:
        raise call.error("divisor_override is not supported; the nearest that is: the plain average")
    window = _pool_window(call)
    pads = (window.pad_h, window.pad_w, window.more_h, window.more_w)
    if any(pads) and not call.get("count_include_pad", True):
        raise call.error(
            "count_include_pad=False with padding is not supported; the nearest that is: padding=0"
        )
    return _pool(low, call, "avgpool", window)


def max_pool2d(low: Lowering, call: Call) -> Act:
    if pair(call.get("dilation", 1)) != (1, 1):
        raise call.error("dilation is not supported; the nearest that is: a pooling without")
    return _pool(low, call, "maxpool", _pool_window(call))


def _pool_window(call: Call) -> Window:
    kh, kw = pair(call.args["kernel_size"])
    sh, sw = stride_of(call, (kh, kw))
    return Window(kh, kw, sh, sw, *sides(call.get("padding", 0)))


def _pool(low: Lowering, call: Call, op: str, k: Window) -> Act:
    x = low.image(call, call.x)
    h, w, c = low.shape(x)
    if call.get("ceil_mode", False):
        k = _ceiled(call, op, k, h, w)
    if op == "maxpool":
        return _largest(low, call, x, k)
    return low.emit(call, op, (x,), (*k.outputs(h, w), c), window=k)


def _largest(low: Lowering, call: Call, x: Act, k: Window, dims: tuple[int, ...] | None = None) -> Act:
    """Max pooling; of larger windows than a kernel takes along the rows first, then along the columns."""
    if k.kh * k.kw > MOST_OF_MAXIMUM and min(k.kh, k.kw) > 1:
        x = _largest(low, call, x, Window(1, k.kw, 1, k.stride_w, 0, k.pad_w, 0, k.more_w))
        k = Window(k.kh, 1, k.stride_h, 1, k.pad_h, 0, k.more_h, 0)
    h, w, c = low.shape(x)
    return low.emit(call, "maxpool", (x,), (*k.outputs(h, w), c), dims=dims, window=k)


def _ceiled(call: Call, op: str, k: Window, h: int, w: int) -> Window:
    """The window with as much more padding as torch's ceil_mode adds to the last output of each axis."""
    rows = _ceil_more(h, k.kh, k.stride_h, k.pad_h)
    columns = _ceil_more(w, k.kw, k.stride_w, k.pad_w)
    if (rows or columns) and op == "avgpool":
        raise call.error(
            f"ceil_mode=True of an average over {h}x{w} pixels, whose last windows are cut off, is not "
            "supported; the nearest that is: ceil_mode=False, or a max pooling"
        )
    return replace(k, more_h=k.more_h + rows, more_w=k.more_w + columns)


def _ceil_more(size: int, kernel: int, stride: int, pad: int) -> int:
    """Rows of padding that ceil_mode adds at the end: a window must begin in the image or left of it."""
    rest = (size + 2 * pad - kernel) % stride
    last = size + 2 * pad - kernel - rest + stride  # where the added window would begin
    return stride - rest if rest and last < size + pad else 0


def adaptive_avg_pool2d(low: Lowering, call: Call) -> Act:
    x = low.image(call, call.x)
    h, w, c = low.shape(x)
    rows, columns = pair(call.args["output_size"])
    if h % rows or w % columns:
        raise call.error(
            f"adaptive pooling of {h}x{w} to {rows}x{columns} has windows of different sizes; "
            f"the nearest that is supported: an output size that divides {h}x{w}, such as 1"
        )
    window = Window(h // rows, w // columns, h // rows, w // columns)
    return low.emit(call, "avgpool", (x,), (rows, columns, c), window=window)


def mean(low: Lowering, call: Call) -> Act:
    """Global average: the mean over height and width in one call, or over the width and then the height."""
    x = call.x
    if not isinstance(x, Act):
        raise unsupported(call)
    h, w, c = low.shape(x)
    axes = call.get("dim", None) or range(len(x.dims))
    over = {int(a) % len(x.dims) for a in ([axes] if isinstance(axes, int) else axes)}
    keep = bool(call.get("keepdim", False))
    dims = tuple(1 if i in over else d for i, d in enumerate(x.dims) if keep or i not in over)
    n = low.batch
    whole = over == set(range(2, len(x.dims))) and x.dims[:2] == (n, c) and math.prod(x.dims[2:]) == h * w
    if x.half and over == {2}:
        whole = True
    elif x.dims == (n, c, h, w) and over == {3} and not x.half:
        return Act(x.tensor, dims, half=True)
    if not whole and low.is_stand_in(x):  # how its numbers lie is not known
        return low.unknown(call, dims)
    if not whole:
        raise call.error(
            f"a mean of {list(x.dims)} over {sorted(over)} is not supported; the nearest that "
            "is: over (2, 3), height and width, or over time"
        )
    return low.emit(
        call, "avgpool", (Act(x.tensor, x.dims),), (1, 1, c), dims=dims, window=Window(h, w, h, w)
    )


def adaptive_max_pool2d(low: Lowering, call: Call) -> Act:
    rows, columns = pair(call.args["output_size"])
    if (rows, columns) != (1, 1):
        raise call.error(
            f"adaptive max pooling to {rows}x{columns} is not supported; the nearest that is: to 1, or a max "
            "pooling with windows of one size"
        )
    x = low.image(call, call.x)
    h, w, _ = low.shape(x)
    return _largest(low, call, x, Window(h, w, h, w), (*x.dims[:2], *[1] * (len(x.dims) - 2)))


def maximum(low: Lowering, call: Call) -> Act:
    """amax, and max along one dimension: over a whole map, or over the rows or columns of one."""
    if call.args.get("other") is not None or call.get("dim", None) is None:
        raise unsupported(call)
    x, given = low.image(call, call.x), call.args["dim"]
    rank = len(x.dims)
    over = sorted({int(a) % rank for a in ([given] if isinstance(given, int) else given)})
    if not over or over[0] < 2:
        raise call.error(
            f"a maximum of {list(x.dims)} over {over} is not supported; the nearest that is: over height or "
            "width, or over time"
        )
    keep = bool(call.get("keepdim", False))
    dims = tuple(1 if i in over else d for i, d in enumerate(x.dims) if keep or i not in over)
    h, w, _ = low.shape(x)
    kh, kw = (size if axis in over else 1 for axis, size in ((2, h), (3, w)))
    return _largest(low, call, x, Window(kh, kw, kh, kw), dims)


_ADAPTIVE = Aten("self output_size", adaptive_avg_pool2d)
_LARGEST = Aten("self output_size", adaptive_max_pool2d)
_OVER = Aten("self dim keepdim", maximum)

_MAXIMUM = Aten("self kernel_size stride padding dilation ceil_mode", max_pool2d)
_AVERAGE = Aten("self kernel_size stride padding ceil_mode count_include_pad divisor_override", avg_pool2d)


def _of_series(found: Aten) -> Aten:
    return Aten(found.arguments, partial(of_series, rule=found.rule))


def _with_places(found: Aten) -> Aten:
    """Of calls that also return where the largest numbers stood, which nothing here can read."""
    return Aten(found.arguments, lambda low, call: (found.rule(low, call), None))


def _or_row(found: Aten) -> Aten:
    """Of an image, or of a series that lies as a row (n, c, 1, time), as PyTorch decomposes its poolings."""

    def rule(low: Lowering, call: Call) -> Any:
        x = call.x
        if not isinstance(x, Act) or len(x.dims) != 4 or low.shape(x)[:2] != (x.dims[3], 1) or x.dims[3] == 1:
            return found.rule(low, call)
        args = {k: v[::-1] if isinstance(v, list) else v for k, v in call.args.items()}
        made = found.rule(
            low, replace(call, args={**args, "self": replace(x, dims=(*x.dims[:2], x.dims[3]))})
        )
        return replace(made, dims=(*made.dims[:2], 1, made.dims[2]))

    return Aten(found.arguments, rule)


MAXIMUM = {
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), _or_row(_MAXIMUM)),
    **dict.fromkeys(("max_pool1d", "max_pool1d_with_indices"), _of_series(_MAXIMUM)),
    "adaptive_max_pool2d": _with_places(_LARGEST),
    "adaptive_max_pool1d": _with_places(_of_series(_LARGEST)),
    "amax": _OVER,
    "max": _with_places(_OVER),
}
AVERAGE = {
    "avg_pool2d": _or_row(_AVERAGE),
    "avg_pool1d": _of_series(_AVERAGE),
    "adaptive_avg_pool1d": _of_series(_ADAPTIVE),
    "adaptive_avg_pool2d": _ADAPTIVE,
    "_adaptive_avg_pool2d": _ADAPTIVE,
    "mean": Aten("self dim keepdim", mean),
}
