"""Front-end rules of pooling: what calls of aten ops become in the float graph."""

from __future__ import annotations

from microtrain.convert.ir import Window, out_size
from microtrain.convert.lowering import Act, Call, Lowering, pair, stride_of
from microtrain.convert.nearest import unsupported

from .table import Aten


def avg_pool2d(low: Lowering, call: Call) -> Act:
    if call.args.get("divisor_override") is not None:
        raise call.error("divisor_override is not supported; the nearest that is: the plain average")
    window = _pool_window(call)
    if (window.pad_h or window.pad_w) and not call.get("count_include_pad", True):
        raise call.error(
            "count_include_pad=False with padding is not supported; the nearest that is: padding=0"
        )
    return _pool(low, call, "avgpool", window)


def max_pool2d(low: Lowering, call: Call) -> Act:
    if pair(call.get("dilation", 1)) != (1, 1):
        raise call.error("dilation is not supported; the nearest that is: a pooling without")
    window = _pool_window(call)
    if window.kh * window.kw > 256:
        raise call.error(
            f"a max pooling over {window.kh}x{window.kw} pixels is too large; 256 pixels are the most"
        )
    return _pool(low, call, "maxpool", window)


def _pool_window(call: Call) -> Window:
    kh, kw = pair(call.args["kernel_size"])
    sh, sw = stride_of(call, (kh, kw))
    return Window(kh, kw, sh, sw, *pair(call.get("padding", 0)))


def _pool(low: Lowering, call: Call, op: str, k: Window) -> Act:
    x = low.image(call, call.x)
    h, w, c = low.shape(x)
    shape = (out_size(h, k.kh, k.stride_h, k.pad_h), out_size(w, k.kw, k.stride_w, k.pad_w), c)
    rest = ((h + 2 * k.pad_h - k.kh) % k.stride_h, (w + 2 * k.pad_w - k.kw) % k.stride_w)
    if call.get("ceil_mode", False) and rest != (0, 0):
        raise call.error("ceil_mode=True is not supported; the nearest that is: ceil_mode=False")
    return low.emit(call, op, (x,), shape, window=k)


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
    whole = (x.dims == (n, c, h, w) and over == {2, 3}) or (x.dims == (n, c, h * w) and over == {2})
    if x.half and over == {2}:
        whole = True
    elif x.dims == (n, c, h, w) and over == {3} and not x.half:
        return Act(x.tensor, dims, half=True)
    if not whole:
        raise call.error(
            f"a mean of {list(x.dims)} over {sorted(over)} is not supported; take the mean over (2, 3)"
        )
    return low.emit(
        call, "avgpool", (Act(x.tensor, x.dims),), (1, 1, c), dims=dims, window=Window(h, w, h, w)
    )


_MAXIMUM = Aten("self kernel_size stride padding dilation ceil_mode", max_pool2d)
_ADAPTIVE = Aten("self output_size", adaptive_avg_pool2d)

MAXIMUM = {"max_pool2d": _MAXIMUM, "max_pool2d_with_indices": _MAXIMUM}
AVERAGE = {
    "avg_pool2d": Aten(
        "self kernel_size stride padding ceil_mode count_include_pad divisor_override", avg_pool2d
    ),
    "adaptive_avg_pool2d": _ADAPTIVE,
    "_adaptive_avg_pool2d": _ADAPTIVE,
    "mean": Aten("self dim keepdim", mean),
}
