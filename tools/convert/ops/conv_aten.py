"""Front-end rules of convolutions and linear layers: what calls of aten ops become in the float graph."""

from __future__ import annotations

from typing import Any

from microtrain.convert.ir import Window, out_size
from microtrain.convert.lowering import Act, Call, Lowering, Param, pair, stride_of
from microtrain.convert.nearest import NO_RESIZE, unsupported

from .table import Aten


def conv2d(low: Lowering, call: Call) -> Act:
    x = low.image(call, call.x)
    weight = low.constant(call, call.args.get("weight"), "weight")
    if call.get("transposed", False):
        raise call.error(f"a transposed convolution is not supported; the nearest that is: {NO_RESIZE}")
    if weight.value.ndim != 4:
        raise call.error("only two-dimensional convolutions are supported")
    if pair(call.get("dilation", 1)) != (1, 1):
        raise call.error("dilation is not supported; the nearest that is: a larger kernel, such as 5x5")
    h, w, c_in = low.shape(x)
    c_out, per_group, kh, kw = weight.value.shape
    groups = int(call.get("groups", 1))
    depthwise = groups > 1 and groups == c_in == c_out
    if groups != 1 and not depthwise:
        raise call.error(
            f"a convolution of {c_in} to {c_out} channels in {groups} groups is not supported; "
            f"the nearest that is: groups=1, or depthwise (groups={c_in}, {c_in} to {c_in} channels)"
        )
    if per_group * groups != c_in:
        raise call.error(f"the convolution wants {per_group * groups} input channels and gets {c_in}")
    sh, sw = stride_of(call, (1, 1))
    ph, pw = _padding(call, kh, kw)
    window = Window(kh, kw, sh, sw, ph, pw)
    values = weight.value[:, 0] if depthwise else weight.value.transpose(0, 2, 3, 1)
    shape = (c_out, kh, kw) if depthwise else (c_out, kh, kw, c_in)
    layer = low.layer(call, weight, values, call.args.get("bias"), shape)
    out = (out_size(h, kh, sh, ph), out_size(w, kw, sw, pw), c_out)
    return low.emit(call, "dwconv2d" if depthwise else "conv2d", (x,), out, layer=layer, window=window)


def _padding(call: Call, kh: int, kw: int) -> tuple[int, int]:
    padding = call.get("padding", 0)
    if padding == "valid":
        return 0, 0
    if padding == "same":
        if kh % 2 == 0 or kw % 2 == 0:
            raise call.error(
                f'padding="same" of a {kh}x{kw} kernel pads more on one side; '
                "the nearest that is supported: an odd kernel, or padding as a number"
            )
        return kh // 2, kw // 2
    return pair(padding)


def linear(low: Lowering, call: Call) -> Act:
    return _linear(low, call, call.x, call.args.get("weight"), call.args.get("bias"))


def addmm(low: Lowering, call: Call) -> Act:
    if call.get("alpha", 1) != 1 or call.get("beta", 1) != 1:
        raise unsupported(call)
    return _linear(low, call, call.args["mat1"], _turned(call, call.args["mat2"]), call.x)


def matmul(low: Lowering, call: Call) -> Act:
    other = call.args["mat2"] if "mat2" in call.args else call.args.get("other")
    if not isinstance(other, Param):
        raise call.error("a product of two activations is not supported; the nearest that is: a linear layer")
    return _linear(low, call, call.x, _turned(call, other), None)


def _turned(call: Call, value: Any) -> Any:
    return Param(value.name, value.value.T) if isinstance(value, Param) and value.value.ndim == 2 else value


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


_CONVOLUTION = "input weight bias stride padding dilation"
_CONVOLUTION_OF = Aten(f"{_CONVOLUTION} transposed output_padding groups", conv2d)

RULES = {
    "conv2d": Aten(f"{_CONVOLUTION} groups", conv2d),
    "_convolution_mode": Aten(f"{_CONVOLUTION} groups", conv2d),
    "convolution": _CONVOLUTION_OF,
    "_convolution": _CONVOLUTION_OF,
    "linear": Aten("input weight bias", linear),
    "addmm": Aten("self mat1 mat2", addmm),
    "mm": Aten("self mat2", matmul),
    "matmul": Aten("self other", matmul),
}
