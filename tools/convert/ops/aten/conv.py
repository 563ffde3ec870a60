"""Front-end rules of convolutions and linear layers: what calls of aten ops become in the float graph."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param, pair, sides, stride_of
from microtrain.convert.ir import Source, Window
from microtrain.convert.lowering import Lowering, of_series
from microtrain.convert.nearest import no_matrix, unsupported

from ..table import Aten
from . import beside, blocks, resample, transposed


def convolution(low: Lowering, call: Call) -> Act:
    """Of an image, or of a series."""
    if call.get("transposed", False):
        return transposed.convolution(low, call)
    weight = call.args.get("weight")
    if isinstance(weight, Param) and weight.value.ndim == 3:
        return of_series(low, call, conv2d)
    return conv2d(low, call)


def conv2d(low: Lowering, call: Call) -> Act:
    given = call.x
    if isinstance(given, Act) and _is_vector_in_a_row(low, given) and not low.is_input(given):
        return _over_channels(low, call, given)
    if isinstance(given, Act) and given.lowest:
        given = resample.settled(low, replace(call, args={"self": given})).x
    around = (given.pad if isinstance(given, Act) else None) or (0, 0, 0, 0)
    x = low.image(call, resample.without_padding(given) if any(around) else given)
    weight = low.constant(call, call.args.get("weight"), "weight")
    if weight.value.ndim != 4:
        raise call.error("only convolutions of images and series are supported")
    h, w, c_in = low.shape(x)
    c_out, per_group, kh, kw = weight.value.shape
    groups, apart = int(call.get("groups", 1)), pair(call.get("dilation", 1))
    if groups < 1 or c_out % groups or min(apart) < 1:
        raise call.error(
            f"{c_out} channels in {groups} groups with a dilation of {apart[0]}x{apart[1]} are no "
            "convolution: each group makes as many channels, and 1 is the least dilation"
        )
    if per_group * groups != c_in:
        raise call.error(f"the convolution wants {per_group * groups} input channels and gets {c_in}")
    side_h, side_w = ((taps - 1) * step + 1 for taps, step in zip((kh, kw), apart, strict=True))
    dense = groups == 1 and (side_h, side_w) == (kh, kw)
    depthwise = 1 < groups == c_in == c_out and (side_h, side_w) == (kh, kw)
    sh, sw = stride_of(call, (1, 1))
    ph, pw, more_h, more_w = (*_padding(call, side_h, side_w), 0, 0)[:4]
    top, left, bottom, right = around
    window = Window(side_h, side_w, sh, sw, ph + top, pw + left, more_h + bottom - top, more_w + right - left)
    values = weight.value[:, 0] if depthwise else weight.value.transpose(0, 2, 3, 1)
    shape = (c_out, kh, kw) if depthwise else (c_out, kh, kw, per_group)
    layer = low.layer(call, weight, values, call.args.get("bias"), shape)
    out = (*window.outputs(h, w), c_out)
    op = "conv2d" if dense else "dwconv2d" if depthwise else "gconv2d"
    return low.emit(call, op, (x,), out, layer=layer, window=window)


def _is_vector_in_a_row(low: Lowering, x: Act) -> bool:
    """True for a vector [n, c] that was viewed as a series of one channel, as ECA does (Wang et al. 2020)."""
    h, w, c = low.shape(x)
    return (
        (h, w) == (1, 1) and c > 1 and x.pad is None and x.dims in ((low.batch, 1, c), (low.batch, 1, c, 1))
    )


def _over_channels(low: Lowering, call: Call, x: Act) -> Act:
    """A convolution over the channels of a vector: a linear layer of a few weights, which stays frozen."""
    weight, bias = low.constant(call, call.args.get("weight"), "weight"), call.args.get("bias")
    c, (taps, across), step = low.shape(x)[2], weight.value.shape[2:], pair(call.get("dilation", 1))[0]
    before, _, more, _ = (*_padding(call, (taps - 1) * step + 1, across), 0, 0)[:4]
    made = c + 2 * before + more - (taps - 1) * step
    if weight.value.shape[:2] != (1, 1) or across != 1 or stride_of(call, (1, 1))[0] != 1 or made < 1:
        raise call.error(
            f"a convolution of {list(weight.value.shape)} over the channels of a vector is not supported; "
            "the nearest that is: one of one channel without a stride, or a linear layer"
        )
    matrix = np.zeros((made, c), np.float32)
    for tap in range(taps):
        places = np.arange(made) + tap * step - before
        inside = (places >= 0) & (places < c)
        matrix[np.flatnonzero(inside), places[inside]] = weight.value[0, 0, tap, 0]
    if bias is not None:
        own = low.constant(call, bias, "bias")
        bias = replace(own, value=np.full(made, own.value.ravel()[0], np.float32))
    whole = Param(weight.name, matrix, origin=weight.place)
    flat = _linear(low, call, replace(x, dims=(low.batch, c)), whole, bias)
    name = low.nodes[-1].layer or ""
    low.layers[name] = replace(low.layers[name], source=Source(""))
    warnings.warn(
        f"layer {name}: a convolution over the channels of a vector is a matrix of {made}x{c} weights here, "
        "and stays frozen",
        stacklevel=2,
    )
    return replace(flat, dims=(low.batch, 1, made, *x.dims[3:]))


def pad(low: Lowering, call: Call) -> Act:
    """Pixels around an image or a series. Zeros are noted, and taken by a convolution behind them.

    Channels before and behind those of it, or of a vector, are made at once.
    """
    x = call.x
    if not isinstance(x, Act):
        raise unsupported(call)
    widths, mode = [int(p) for p in call.get("pad", None) or call.args["padding"]], mode_of(call)
    if not any(widths):
        return x
    sides = 2 * (len(x.dims) - 2)
    if len(x.dims) in (2, 3, 4) and any(widths[sides:]) and not any(widths[sides + 2 :]) and not x.half:
        if any(widths[:sides]):
            x = pad(low, replace(call, builtin=False, args={**call.args, "pad": widths[:sides]}))
        x = resample.settled(low, replace(call, builtin=False, args={"self": x})).x
        more = (widths[sides], widths[sides + 1])
        return beside.beside(low, call, x, more, mode, float(call.get("value", None) or 0.0))
    if len(x.dims) not in (3, 4) or any(widths[sides:]) or len(widths) % 2 or x.half:
        raise call.error(
            f"padding of {list(x.dims)} by {widths} is not supported; the nearest that is: above, below and "
            "beside an image, before and behind a series, or channels"
        )
    left, right, top, bottom = (*widths, 0, 0, 0, 0)[:4] if sides == 4 else (0, 0, *widths[:2])
    if mode == "constant" and min(widths) < 0 < max(widths) and float(call.get("value", None) or 0.0):
        about = replace(call, builtin=False)
        x = pad(low, replace(about, args={**call.args, "self": x, "pad": [min(w, 0) for w in widths]}))
        return pad(low, replace(about, args={**call.args, "self": x, "pad": [max(w, 0) for w in widths]}))
    if mode != "constant" or min(widths) < 0:
        x = resample.settled(low, call).x
        return resample.padded(low, call, x, (top, left, bottom, right), mode)
    value = float(call.get("value", 0))
    if value != 0 and value > LOWEST:
        raise call.error(
            f"padding with {call.args['value']:g} is not supported; the nearest that is: zeros, or pixels of "
            "the image, mode='replicate' or 'reflect'"
        )
    if x.pad and x.lowest != (value <= LOWEST):
        x = low.activation(call, resample.settled(low, replace(call, args={"self": x})).x)
    above, before, below, behind = x.pad or (0, 0, 0, 0)
    n, c, h, w = (*x.dims, 1)[:4]
    dims = (n, c, h + top + bottom, w + left + right)[: len(x.dims)]
    pads = (above + top, before + left, below + bottom, behind + right)
    return replace(x, dims=dims, pad=pads, lowest=value <= LOWEST)


def mode_of(call: Call) -> str:
    """What a padding puts there: it is an argument, or the op's own name says it."""
    word = call.op.partition("_")[0]
    own = {"reflection": "reflect", "replication": "replicate"}.get(word)
    mode: str = own or call.get("mode", "constant")
    if mode != "constant" and mode not in resample.AROUND:
        raise call.error(
            f"padding with mode={mode!r} is not supported; the nearest that is: {', '.join(resample.AROUND)}"
        )
    return mode


def _padding(call: Call, kh: int, kw: int) -> tuple[int, ...]:
    """Padding at the top and left, and how much more there is at the bottom and right."""
    padding = call.get("padding", 0)
    if padding == "valid":
        return 0, 0
    if padding == "same":
        return (kh - 1) // 2, (kw - 1) // 2, (kh - 1) % 2, (kw - 1) % 2
    return sides(padding)


def linear(low: Lowering, call: Call) -> Act:
    return _linear(low, call, call.x, call.args.get("weight"), call.args.get("bias"))


def addmm(low: Lowering, call: Call) -> Act:
    if call.get("alpha", 1) != 1 or call.get("beta", 1) != 1:
        raise unsupported(call)
    return _linear(low, call, call.args["mat1"], _turned(call, call.args["mat2"]), call.x)


def matmul(low: Lowering, call: Call) -> Act:
    other = call.args["mat2"] if "mat2" in call.args else call.args.get("other")
    if not isinstance(other, Param):
        raise no_matrix(call, both=isinstance(call.x, Act))
    if other.value.ndim != 2:
        raise call.error(
            f"a product with a constant of shape {list(other.value.shape)} is not supported; the nearest "
            "that is: a matrix [features, classes]"
        )
    return _linear(low, call, call.x, _turned(call, other), None)


def _turned(call: Call, value: Any) -> Any:
    return value.t if isinstance(value, Param) and value.value.ndim == 2 else value


def _linear(low: Lowering, call: Call, value: Any, weight: Any, bias: Any) -> Act:
    """A linear layer over a map: a convolution whose window is the whole map; its columns go CHW to HWC."""
    x = low.activation(call, value)
    param = low.constant(call, weight, "weight")
    h, w, c = low.shape(x)
    classes, features = param.value.shape
    if x.dims not in ((low.batch, h * w * c), (h * w * c,)):
        raise call.error(
            f"a linear layer reads a tensor of shape {list(x.dims)}; flatten the image before it"
        )
    if features != h * w * c:
        raise call.error(f"the linear layer wants {features} features and gets {h * w * c}")
    values = param.value.reshape(classes, c, h, w).transpose(0, 2, 3, 1)
    layer = low.layer(call, param, values, bias, (classes, h, w, c))
    dims = (*x.dims[:-1], classes)
    return low.emit(call, "linear", (x,), (1, 1, classes), dims=dims, layer=layer, window=Window(h, w))


LOWEST = -1e30  # a padding of this, or less, is one that no maximum takes
PADDED = tuple(f"{word}_pad{n}d" for word in ("reflection", "replication") for n in (1, 2))
TAKES_PADDING = (
    *("pad", "constant_pad_nd", "conv1d", "conv2d", "convolution", "_convolution", "_convolution_mode"),
    *PADDED,
)
_CONVOLUTION = "input weight bias stride padding dilation"
_CONVOLUTION_OF = Aten(f"{_CONVOLUTION} transposed output_padding groups", convolution)
_CONVOLUTION_BY = Aten(f"{_CONVOLUTION} groups", convolution)

RULES = {
    "pad": Aten("self pad mode value", pad),
    "constant_pad_nd": Aten("self pad value", pad),
    **dict.fromkeys(PADDED, Aten("self padding", pad)),
    **dict.fromkeys(("conv1d", "conv2d", "_convolution_mode"), _CONVOLUTION_BY),
    "convolution": _CONVOLUTION_OF,
    "_convolution": _CONVOLUTION_OF,
    **transposed.RULES,
    **blocks.ATEN,
    "linear": Aten("input weight bias", linear),
    "addmm": Aten("self mat1 mat2", addmm),
    "mm": Aten("self mat2", matmul),
    "matmul": Aten("self other", matmul),
}
