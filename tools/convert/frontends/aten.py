"""The aten ops that a model may use, one table: what each becomes in the float graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from microtrain.convert.ir import Layer, Source, Window, out_size

from .lowering import Act, Call, Lowering, Param

SCALAR_FLOAT = 6  # c10::ScalarType::Float

Rule = Callable[[Lowering, Call], Any]

NO_ACTIVATION = "relu or relu6"
NO_NORM = "a batch norm right after a convolution or linear layer"
NO_RESIZE = "a strided convolution or a pooling to make an image smaller; none makes it larger"
NO_SLICE = "flatten, view or reshape of the whole tensor"
NO_SOFTMAX = "leaving it out, since the loss on the device applies it to the logits"
NO_SCALE = "a residual add; the input's mean and std belong into the file's microtrain.json"
SUPPORTED = "conv2d, batch norm, relu, relu6, add, mean, average and max pooling, flatten, linear, dropout"

NEAREST: dict[str, str] = {
    **dict.fromkeys(("sigmoid", "hardsigmoid", "silu", "hardswish", "gelu", "mish", "tanh"), NO_ACTIVATION),
    **dict.fromkeys(
        ("leaky_relu", "elu", "selu", "celu", "prelu", "softplus", "threshold", "rrelu"), NO_ACTIVATION
    ),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "group_norm", "native_group_norm"), NO_NORM),
    **dict.fromkeys(("instance_norm", "rms_norm", "local_response_norm"), NO_NORM),
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), NO_SOFTMAX),
    **dict.fromkeys(("mul", "sub", "rsub", "div", "neg"), NO_SCALE),
    **dict.fromkeys(("slice", "select", "split", "chunk", "permute", "transpose", "t"), NO_SLICE),
    **dict.fromkeys(("upsample_nearest2d", "upsample_bilinear2d", "pixel_shuffle"), NO_RESIZE),
    **dict.fromkeys(("conv_transpose2d", "conv_transpose1d"), NO_RESIZE),
    **dict.fromkeys(("conv1d", "conv3d"), "conv2d"),
    **dict.fromkeys(("cat", "concat", "concatenate", "stack"), "a residual add of two tensors of one shape"),
    **dict.fromkeys(
        ("pad", "constant_pad_nd", "reflection_pad2d"), "the padding argument of the convolution"
    ),
    **dict.fromkeys(
        ("bmm", "einsum", "scaled_dot_product_attention", "lstm", "gru"), "convolutions and linear layers"
    ),
}


def lower(low: Lowering, call: Call) -> Any:
    """Append what one call means to the graph and return its value; an unsupported op is an error."""
    rule = TABLE.get(_entry(call.op))
    if rule is None:
        raise unsupported(call)
    return rule(low, call)


def names_of(op: str, args: Sequence[Any]) -> list[str]:
    """Names of an op's arguments by position, for files that name none of them."""
    if op == "to" and len(args) > 1 and type(args[1]) is not int:
        return ["self", "device", "dtype"]
    return SIGNATURES.get(_entry(op), "self").split()


def _entry(op: str) -> str:
    """The op's name in the tables; the trailing _ says that it works in place."""
    return op.rstrip("_") if op.rstrip("_") in TABLE else op


def unsupported(call: Call) -> Exception:
    op = call.op.rstrip("_") or call.op
    return call.error(f"the op {op} is not supported; the nearest that is: {NEAREST.get(op, SUPPORTED)}")


def pair(value: Any) -> tuple[int, int]:
    """One number or two, as torch takes them for height and width."""
    if isinstance(value, Sequence):
        return (int(value[0]), int(value[-1]))
    return int(value), int(value)


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
    sh, sw = _stride(call, (1, 1))
    ph, pw = _padding(call, kh, kw)
    window = Window(kh, kw, sh, sw, ph, pw)
    values = weight.value[:, 0] if depthwise else weight.value.transpose(0, 2, 3, 1)
    shape = (c_out, kh, kw) if depthwise else (c_out, kh, kw, c_in)
    layer = low.layer(call, weight, values, call.args.get("bias"), shape)
    out = (out_size(h, kh, sh, ph), out_size(w, kw, sw, pw), c_out)
    return low.emit(call, "dwconv2d" if depthwise else "conv2d", (x,), out, layer=layer, window=window)


def _stride(call: Call, default: tuple[int, int]) -> tuple[int, int]:
    stride = pair(call.get("stride", None) or default)
    if min(stride) < 1:
        raise call.error(f"a stride of {stride[0]}x{stride[1]}; 1 is the least")
    return stride


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


def batch_norm(low: Lowering, call: Call) -> Act:
    """y = x * factor + shift a channel, kept as a Layer of that form until it is folded."""
    x = low.activation(call, call.x)
    if call.get("training", False):
        raise call.error("the batch norm is in training mode; call model.eval() before the model is saved")
    mean, var = (low.constant(call, call.args.get(k), k) for k in ("running_mean", "running_var"))
    eps = float(call.get("eps", call.get("epsilon", 1e-5)))
    if var.value.shape != (low.shape(x)[2],):
        raise call.error(
            f"a batch norm of {var.value.size} channels follows {low.shape(x)[2]} channels; use {NO_NORM}"
        )
    variance = var.value.astype(np.float64) + eps
    if (variance <= 0.0).any():
        raise call.error(f"{var.name} + eps is zero or negative; a variance must be positive")
    deviation = np.sqrt(variance)
    gamma, beta = call.args.get("weight"), call.args.get("bias")
    factor = (
        1.0 if gamma is None else low.constant(call, gamma, "weight").value.astype(np.float64)
    ) / deviation
    offset = 0.0 if beta is None else low.constant(call, beta, "bias").value.astype(np.float64)
    shift = offset - mean.value.astype(np.float64) * factor
    prefix = mean.name.removesuffix(".running_mean")
    name = f"bn:{prefix}:{len(low.nodes)}"
    low.layers[name] = Layer(factor, shift, Source(prefix, eps=eps))
    return low.emit(call, "bn", (x,), low.shape(x), dims=x.dims, layer=name)


def relu(low: Lowering, call: Call) -> Act:
    return _clamp(low, call, 0.0, math.inf)


def relu6(low: Lowering, call: Call) -> Act:
    return _clamp(low, call, 0.0, 6.0)


def hardtanh(low: Lowering, call: Call) -> Act:
    return _clamp(low, call, float(call.get("min_val", -1.0)), float(call.get("max_val", 1.0)))


def clamp(low: Lowering, call: Call) -> Act:
    return _clamp(low, call, float(call.get("min", -math.inf)), float(call.get("max", math.inf)))


def _clamp(low: Lowering, call: Call, least: float, most: float) -> Act:
    x = low.activation(call, call.x)
    op = {(0.0, math.inf): "relu", (0.0, 6.0): "relu6"}.get((least, most))
    if op is None:
        raise call.error(
            f"a clamp to {least:g}..{most:g} is not supported; the nearest that is: {NO_ACTIVATION}"
        )
    return low.emit(call, op, (x,), low.shape(x), dims=x.dims)


def add(low: Lowering, call: Call) -> Any:
    a, b = call.x, call.args.get("other")
    if isinstance(a, Param) and call.op.endswith("_"):
        raise call.error(f"{a.name} is changed by forward(); call model.eval() before the model is saved")
    for value in (a, b):
        if not isinstance(value, Act):
            raise call.error("only the sum of two activations is supported, not that with a constant")
    a, b = low.activation(call, a), low.activation(call, b)
    if call.get("alpha", 1) != 1:
        raise call.error("add with alpha is not supported; the nearest that is: a plain sum")
    if a.dims != b.dims or low.shape(a) != low.shape(b):
        raise call.error(
            f"adds tensors of shapes {list(a.dims)} and {list(b.dims)}; they must have one shape"
        )
    if low.tensor_of(a) == low.tensor_of(b):
        raise call.error(
            "adds a tensor to itself; the nearest that is supported: twice the weights before it"
        )
    return low.emit(call, "add", (a, b), low.shape(a), dims=a.dims)


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
    sh, sw = _stride(call, (kh, kw))
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


def view(low: Lowering, call: Call) -> Act:
    """view, reshape: the order of the numbers stays, so only the shape is noted."""
    x = low.activation(call, call.x)
    wanted = [int(d) for d in call.get("size", None) or call.args["shape"]]
    total = math.prod(x.dims)
    known = math.prod(d for d in wanted if d != -1)
    dims = tuple(total // known if d == -1 and known else d for d in wanted)
    if math.prod(dims) != total:
        raise call.error(f"cannot view {list(x.dims)} as {wanted}")
    return Act(x.tensor, dims)


def flatten(low: Lowering, call: Call) -> Act:
    x = low.activation(call, call.x)
    rank = len(x.dims)
    first, last = call.get("start_dim", 0) % rank, call.get("end_dim", -1) % rank
    return Act(x.tensor, (*x.dims[:first], math.prod(x.dims[first : last + 1]), *x.dims[last + 1 :]))


def squeeze(low: Lowering, call: Call) -> Act:
    x = low.activation(call, call.x)
    axes = call.get("dim", None)
    chosen = range(len(x.dims)) if axes is None else [axes] if isinstance(axes, int) else axes
    gone = {a % len(x.dims) for a in chosen}
    return Act(x.tensor, tuple(d for i, d in enumerate(x.dims) if not (i in gone and d == 1)))


def unsqueeze(low: Lowering, call: Call) -> Act:
    x = low.activation(call, call.x)
    at = call.args["dim"] % (len(x.dims) + 1)
    return Act(x.tensor, (*x.dims[:at], 1, *x.dims[at:]))


def turn(low: Lowering, call: Call) -> Param:
    """t, transpose, permute: of a weight matrix only."""
    x = call.x
    swap = call.op == "t" or sorted(int(d) % 2 for d in call.get("dims", (0, 1))) == [0, 1]
    if not isinstance(x, Param) or x.value.ndim != 2 or not swap:
        raise unsupported(call)
    straight = call.op == "permute" and [int(d) % 2 for d in call.args["dims"]] == [0, 1]
    return x if straight else Param(x.name, x.value.T)


def same(low: Lowering, call: Call) -> Any:
    """Ops that change nothing in inference."""
    return call.x


def convert_type(low: Lowering, call: Call) -> Any:
    """.to(...): of an activation only to float, where it changes nothing."""
    if call.args.get("dtype") not in (None, SCALAR_FLOAT):
        raise call.error("a conversion to another number type is not supported; leave it out")
    return call.x


def size(low: Lowering, call: Call) -> Any:
    """size(), size(dim) and dim() of an activation: plain numbers."""
    dims = low.activation(call, call.x).dims
    if call.op == "dim":
        return len(dims)
    at = call.args.get("dim")
    return list(dims) if at is None else dims[at]


def number_type(low: Lowering, call: Call) -> int:
    """dtype of an activation."""
    low.activation(call, call.x)
    return SCALAR_FLOAT


def no(low: Lowering, call: Call) -> bool:
    """Questions about where an activation lies and what it is for: none applies to a deployed model."""
    return False


TABLE: dict[str, Rule] = {
    **dict.fromkeys(("conv2d", "convolution", "_convolution", "_convolution_mode"), conv2d),
    **dict.fromkeys(("mm", "matmul"), matmul),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm"), batch_norm),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit"), batch_norm),
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), max_pool2d),
    **dict.fromkeys(("adaptive_avg_pool2d", "_adaptive_avg_pool2d"), adaptive_avg_pool2d),
    **dict.fromkeys(("view", "reshape", "_unsafe_view"), view),
    **dict.fromkeys(("t", "transpose", "permute"), turn),
    **dict.fromkeys(("dropout", "dropout2d", "feature_dropout", "alpha_dropout", "native_dropout"), same),
    **dict.fromkeys(
        ("contiguous", "clone", "detach", "detach_copy", "alias", "identity", "lift_fresh_copy"), same
    ),
    **dict.fromkeys(("to", "_to_copy", "float"), convert_type),
    **dict.fromkeys(("size", "sym_size", "dim"), size),
    **dict.fromkeys(("requires_grad", "is_cuda", "is_quantized", "is_sparse"), no),
    "dtype": number_type,
    "linear": linear,
    "addmm": addmm,
    "relu": relu,
    "relu6": relu6,
    "hardtanh": hardtanh,
    "clamp": clamp,
    "clamp_min": clamp,
    "add": add,
    "avg_pool2d": avg_pool2d,
    "mean": mean,
    "flatten": flatten,
    "squeeze": squeeze,
    "unsqueeze": unsqueeze,
}

# Arguments by position, as native_functions.yaml has them. An op that is not here takes `self` alone.
_CONVOLUTION = "input weight bias stride padding dilation"
_NORM = "input weight bias running_mean running_var"
SIGNATURES: dict[str, str] = {
    **dict.fromkeys(("conv2d", "_convolution_mode"), f"{_CONVOLUTION} groups"),
    **dict.fromkeys(("convolution", "_convolution"), f"{_CONVOLUTION} transposed output_padding groups"),
    **dict.fromkeys(
        ("batch_norm", "cudnn_batch_norm", "native_batch_norm"), f"{_NORM} training momentum eps"
    ),
    "_native_batch_norm_legit": f"{_NORM} training momentum eps",
    "_native_batch_norm_legit_no_training": f"{_NORM} momentum eps",
    "mm": "self mat2",
    "matmul": "self other",
    "max_pool2d": "self kernel_size stride padding dilation ceil_mode",
    "max_pool2d_with_indices": "self kernel_size stride padding dilation ceil_mode",
    "avg_pool2d": "self kernel_size stride padding ceil_mode count_include_pad divisor_override",
    **dict.fromkeys(("adaptive_avg_pool2d", "_adaptive_avg_pool2d"), "self output_size"),
    **dict.fromkeys(("view", "_unsafe_view"), "self size"),
    "reshape": "self shape",
    "transpose": "self dim0 dim1",
    "permute": "self dims",
    "to": "self dtype",
    **dict.fromkeys(("size", "sym_size", "squeeze", "unsqueeze"), "self dim"),
    "linear": "input weight bias",
    "addmm": "self mat1 mat2",
    "hardtanh": "self min_val max_val",
    "clamp": "self min max",
    "clamp_min": "self min",
    "add": "self other",
    "mean": "self dim keepdim",
    "flatten": "self start_dim end_dim",
}
