"""What to use in place of an aten op that is not supported."""

from __future__ import annotations

from .lowering import Call

NO_ACTIVATION = "relu or relu6"
NO_NORM = "a batch norm right after a convolution or linear layer"
NO_RESIZE = "a strided convolution or a pooling to make an image smaller; none makes it larger"
NO_SLICE = "flatten, view or reshape of the whole tensor"
NO_SOFTMAX = "leaving it out, since the loss on the device applies it to the logits"
NO_SCALE = "a residual add; the input's mean and std belong into the file's microtrain.json"
SUPPORTED = (
    "conv2d, batch norm, relu, relu6, leaky_relu, hardswish, hardsigmoid, add, mul, mean, average and max "
    "pooling, flatten, linear, dropout"
)

NEAREST: dict[str, str] = {
    **dict.fromkeys(("sigmoid", "silu", "gelu", "mish", "tanh"), NO_ACTIVATION),
    **dict.fromkeys(("elu", "selu", "celu", "prelu", "softplus", "threshold", "rrelu"), NO_ACTIVATION),
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


def unsupported(call: Call) -> Exception:
    op = call.op.rstrip("_") or call.op
    return call.error(f"the op {op} is not supported; the nearest that is: {NEAREST.get(op, SUPPORTED)}")
