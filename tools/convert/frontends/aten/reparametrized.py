"""Weights that `forward()` makes of others: normalised, standardised and bounded ones, worked out.

torch.nn.utils.weight_norm and spectral_norm (Miyato et al. 2018), and the same as parametrizations;
torch.renorm, by which EEGNet bounds the norm of each filter (Lawhern et al. 2018); weight standardisation
(Qiao et al. 2019), which PyTorch's batch norm makes of the weights of each channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from microtrain.base import weight_norm
from microtrain.convert.aten_call import Call, Param
from microtrain.convert.ops.aten.lengths import NORMS

LEAST = 1e-7  # what torch.renorm adds to a norm that it divides by
NORMED = ("_weight_norm", "_weight_norm_interface")


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.value if isinstance(value, Param) else value)


def _normed(call: Call) -> np.ndarray:
    return weight_norm.weight(_array(call.args["v"]), _array(call.args["g"]))


def learnable(call: Call) -> Param | None:
    """A weight that goes back as directions and lengths, under the name of its directions; else None."""
    v, g = call.args.get("v"), call.args.get("g")
    if call.op not in NORMED or not isinstance(v, Param) or not isinstance(g, Param):
        return None
    if v.computed or g.computed or weight_norm.beside(v.name) != g.name:
        return None
    return Param(v.name, _normed(call))


def _length(call: Call) -> np.ndarray:
    """The Euclidean norm over some axes, or over all."""
    order = call.get("ord", call.get("p", 2))
    if order not in (2, "fro"):
        raise ValueError(f"a norm of order {order}, not 2")
    given = call.get("dim", None)
    axes = tuple(given) or None if isinstance(given, list) else given
    squares = np.square(_array(call.x), dtype=np.float32)
    return np.asarray(np.sqrt(squares.sum(axis=axes, keepdims=bool(call.get("keepdim", False)))))


def _bounded(call: Call) -> np.ndarray:
    """Each part along an axis, made shorter where its norm is above the most; as torch.renorm has it."""
    values, most, order = _array(call.x), float(call.args["maxnorm"]), float(call.args["p"])
    apart = np.moveaxis(values, int(call.args["dim"]), 0)
    norms = np.linalg.norm(apart.reshape(len(apart), -1).astype(np.float64), order, axis=1)
    factors = np.where(norms > most, most / (norms + LEAST), 1.0)
    made = apart * factors.reshape(-1, *[1] * (values.ndim - 1))
    return np.moveaxis(made, 0, int(call.args["dim"])).astype(values.dtype)


def _product(call: Call) -> np.ndarray:
    other = next(call.args[key] for key in ("vec", "other", "tensor") if key in call.args)
    return np.asarray(_array(call.x) @ _array(other))


def _standardised(call: Call) -> np.ndarray:
    """A batch norm in training mode, by the mean and variance of each channel itself."""
    x = _array(call.args.get("input")).astype(np.float64)
    if not call.get("training", False) or call.args.get("running_mean") is not None:
        raise ValueError("a batch norm of constants by what it has seen in training")
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    gain, shift = (
        other if call.args.get(key) is None else _array(call.args[key]).reshape(1, -1, *[1] * (x.ndim - 2))
        for key, other in (("weight", 1.0), ("bias", 0.0))
    )
    made = (x - mean) / np.sqrt(variance + float(call.get("eps", 1e-5))) * gain + shift
    return np.asarray(made, np.float32)


def _softmax(call: Call) -> np.ndarray:
    x, axis = _array(call.x), int(call.args["dim"])
    found = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(found / found.sum(axis, keepdims=True))


RULES: dict[str, Callable[[Call], Any]] = {
    **dict.fromkeys(NORMED, _normed),
    **dict.fromkeys(NORMS, _length),
    **dict.fromkeys(("mv", "dot", "vdot"), _product),
    "renorm": _bounded,
    **dict.fromkeys(("softmax", "_softmax"), _softmax),
    "batch_norm": _standardised,
    "expand_as": lambda call: np.broadcast_to(_array(call.x), _array(call.args["other"]).shape),
}
ARGUMENTS: dict[str, str] = {  # by position, for files that name none
    **dict.fromkeys(NORMED, "v g dim"),
    "renorm": "self p dim maxnorm",
    "mv": "self vec",
    "dot": "self tensor",
    "vdot": "self other",
}
