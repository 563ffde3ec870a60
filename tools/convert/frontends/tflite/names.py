"""Words of TFLite: which of its operators are calls of aten ops, and how layers are called."""

from __future__ import annotations

from typing import Any

from microtrain.convert.ops.recurrent_cell import LSTM

# ActivationFunctionType of the schema -> the aten op
FUSED: dict[int, tuple[str, dict[str, Any]]] = {
    1: ("relu", {}),
    3: ("relu6", {}),
    2: ("hardtanh", {}),
}
OTHERS = {4: "TANH", 5: "SIGN_BIT", **{code: word.upper() for code, (word, _) in FUSED.items()}}
GELU = {False: "none", True: "tanh"}  # whether it is approximated -> how
# What is one call of an aten op on the first input, without other arguments.
UNARY = {
    "LOGISTIC": "sigmoid",
    "RELU": "relu",
    "RELU6": "relu6",
    "RELU_N1_TO_1": "hardtanh",
    "TANH": "tanh",
    "NEG": "neg",
    "ELU": "elu",
    "HARD_SWISH": "hardswish",
    "ABS": "abs",
    "EXP": "exp",
    "LOG": "log",
    "SQRT": "sqrt",
    "SQUARE": "square",
    "RSQRT": "rsqrt",
    "SIN": "sin",
    "COS": "cos",
    "SIGN": "sign",
    "FLOOR": "floor",
    "CEIL": "ceil",
    "ROUND": "round",
}
WORDS = {  # how layers are called
    "CONV_2D": "conv",
    "DEPTHWISE_CONV_2D": "dwconv",
    "TRANSPOSE_CONV": "deconv",
    "FULLY_CONNECTED": "fc",
    "AVERAGE_POOL_2D": "avgpool",
    "MAX_POOL_2D": "maxpool",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": LSTM,
}


def axis_first(axis: int, rank: int) -> int:
    """An axis of a tensor that has its channels last, where they come behind the batch."""
    axis %= max(rank, 1)
    return axis if rank < 3 or not axis else 1 if axis == rank - 1 else axis + 1
