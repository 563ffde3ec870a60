"""The aten ops that a model may use: what each becomes in the float graph.

Those that become an op of the IR have their rules in the entries of the op table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, LayerError, Param
from microtrain.convert.ir import Layer, Source
from microtrain.convert.lowering import NO_LIMIT, NORM, SOFTMAX, Lowering
from microtrain.convert.nearest import NO_NORM, unsupported
from microtrain.convert.ops import TABLE
from microtrain.convert.ops.aten import (
    attention,
    batches,
    blocks,
    channels,
    columns,
    composed,
    expanded,
    inside,
    lengths,
    neighbours,
    squares,
    stack,
    tokens,
    unflatten,
)
from microtrain.convert.ops.aten import deviation as deviation_aten
from microtrain.convert.ops.aten.conv import TAKES_PADDING
from microtrain.convert.ops.aten.pool import of_half
from microtrain.convert.ops.aten.resample import settled
from microtrain.convert.ops.functions import CLIP
from microtrain.convert.ops.multiply import glu
from microtrain.convert.ops.table import Aten, ForwardOp

from . import affine, constant_rules, constants, in_place, spelling

SCALAR_FLOAT = 6  # c10::ScalarType::Float
REAL = (5, SCALAR_FLOAT, 7, 15)  # Half, Float, Double, BFloat16: here all are float32


def lower(low: Lowering, call: Call) -> Any:
    """Append what one call means to the graph and return its value; an unsupported op is an error."""
    call = spelling.plain(call)
    try:
        return in_place.watched(low, call, _lower)
    except LayerError as error:
        error.follows = _entry(call.op) is not None and low.reads_stand_in(call)
        raise


def _lower(low: Lowering, call: Call) -> Any:
    call = inside.settled(low, spelling.plain(call), _lower)
    if columns.concerns(call):
        return columns.lower(low, call, _lower)
    if constants.concerns(call):
        return constants.made(low, call)
    if neighbours.concerns(low, call):
        return neighbours.lower(low, call, _lower)
    if lengths.concerns(call):
        return lengths.lower(low, call)
    if squares.concerns(low, call):
        return squares.lower(low, call, _lower)
    if composed.concerns(low, call):
        return composed.lower(low, call, _lower)
    if deviation_aten.concerns(call):
        return deviation_aten.lower(low, call, _lower)
    if expanded.concerns(low, call):
        return expanded.lower(low, call, _lower)
    if stack.concerns(low, call):
        return stack.lower(low, call, _lower)
    if batches.concerns(low, call):
        return batches.lower(low, call, _lower)
    if _reads(call):
        call = of_half(low, call if call.op in TAKES_PADDING else settled(low, call))
    call = unflatten.made(low, call)
    if tokens.concerns(low, call):
        return tokens.lower(low, call, _lower)
    if affine.normalises(low, call):
        return affine.normalise(low, call)
    found = _entry(call.op)
    if found is None:
        raise unsupported(call)
    return found.rule(low, call)


def _reads(call: Call) -> bool:
    """Whether a call needs in memory what was only noted of an image.

    Convolutions have their own way with the zeros around it.
    """
    found = _entry(call.op)
    return found is None or found.rule not in (same, convert_type, size)


def names_of(op: str, args: Sequence[Any]) -> list[str]:
    """Names of an op's arguments by position, for files that name none of them."""
    if op == "to" and len(args) > 1 and type(args[1]) is not int:
        return ["self", "device", "dtype"]
    if op == "arange" and sum(type(each) in (int, float) for each in args) > 1:
        return ["start", "end", "step"]
    if op in ("max", "min") and len(args) == 2 and type(args[1]) is not int:
        return ["self", "other"]
    found = _entry(op)
    return found.arguments.split() if found else ["self"]


def _entry(op: str) -> Aten | None:
    """The rule of a call; the trailing _ of its name says that it works in place."""
    known = (entry.aten for entry in TABLE.values() if isinstance(entry, ForwardOp))
    rules = [RULES, *known, OF_CONSTANTS]
    return next((r[name] for name in (op.rstrip("_"), op) for r in rules if name in r), None)


def batch_norm(low: Lowering, call: Call) -> Act | columns.Columns:
    """y = x * factor + shift a channel, kept as a Layer of that form until it is folded."""
    x = low.activation(call, call.x)
    low.declare_anew(x)
    if call.get("training", False):
        raise call.error("the batch norm is in training mode; call model.eval() before the model is saved")
    mean, var = (low.constant(call, call.args.get(k), k) for k in ("running_mean", "running_var"))
    if var.value.shape != (low.shape(x)[2],):
        x = blocks.bands(low, call, x)
    eps = float(call.get("eps", call.get("epsilon", 1e-5)))
    by_channel = var.value.shape == (low.shape(x)[2],) and low.has_channels(x)
    by_column = var.value.size == low.tensors[x.tensor].elements and x.dims == (low.batch, var.value.size)
    if not by_channel and not by_column:
        c = low.shape(x)[2]
        after = f"{c} channels" if c != var.value.size else f"a view {list(x.dims)}"
        raise call.error(f"a batch norm of {var.value.size} channels follows {after}; use {NO_NORM}")
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
    if not by_channel:
        return columns.Columns(x, *(np.broadcast_to(v, var.value.shape) for v in (factor, shift)))
    prefix = mean.name.removesuffix(".running_mean")
    name = f"bn:{prefix}:{len(low.nodes)}"
    seen = (
        np.broadcast_to(offset, mean.value.shape),
        np.abs(np.broadcast_to(factor * deviation, mean.value.shape)),
    )
    low.layers[name] = Layer(factor, shift, Source(prefix, eps=eps), seen=seen)
    return low.emit(call, NORM, (x,), low.shape(x), dims=x.dims, layer=name)


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
    if op is not None:
        return low.emit(call, op, (x,), low.shape(x), dims=x.dims)
    limits = (max(least, -NO_LIMIT), min(most, NO_LIMIT))
    return low.emit(call, CLIP, (x,), low.shape(x), dims=x.dims, factors=limits)


def softmax(low: Lowering, call: Call) -> Act:
    """At the end of a network it is left out; inside, over channels or a whole map, it is written out."""
    x = low.activation(call, call.x)
    if low.is_stand_in(x):  # it may be that of attention
        return low.unknown(call, x.dims)
    factors = inside.over(low, call, x)
    return low.emit(call, SOFTMAX, (x,), low.shape(x), dims=x.dims, factors=factors)


def unfold(low: Lowering, call: Call) -> Act:
    """Windows along the last axis that lie side by side are a view."""
    x = low.activation(call, call.x)
    size, step, along = (int(call.args[key]) for key in ("size", "step", "dimension"))
    if along % len(x.dims) != len(x.dims) - 1 or size != step or size < 1 or x.dims[-1] % size:
        raise call.error(
            f"windows of {size} every {step} along dimension {along} of {list(x.dims)} are not supported; "
            "the nearest that is: along the last one, side by side, or a convolution with a stride"
        )
    dims = [*x.dims[:-1], x.dims[-1] // size, size]
    return view(low, replace(call, op="view", args={"self": x, "size": dims}))


def view(low: Lowering, call: Call) -> Act:
    """view, reshape: the order of the numbers stays, so only the shape is noted."""
    x = low.activation(call, call.x)
    wanted = [int(d) for d in call.get("size", None) or call.args["shape"]]
    total = math.prod(x.dims)
    known = math.prod(d for d in wanted if d != -1)
    dims = tuple(total // known if d == -1 and known else d for d in wanted)
    if math.prod(dims) != total:
        raise call.error(f"cannot view {list(x.dims)} as {wanted}")
    return blocks.joined(low, call, x, dims) or Act(x.tensor, dims)


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


def turn(low: Lowering, call: Call) -> Act:
    """t, transpose, permute of an image's groups of channels."""
    x = low.activation(call, call.x)
    shuffled = channels.swapped(low, call, x, tokens.axes_of(call, len(x.dims)))
    if not shuffled:
        raise unsupported(call)
    return shuffled


def same(low: Lowering, call: Call) -> Any:
    """Ops that change nothing in inference."""
    return call.x


def convert_type(low: Lowering, call: Call) -> Any:
    """.to(...): of an activation only to real numbers, where it changes nothing but their digits."""
    if call.args.get("dtype") not in (None, *REAL):
        raise call.error("a conversion to another number type is not supported; leave it out")
    return call.x


def size(low: Lowering, call: Call) -> Any:
    """size(), size(dim) and dim() of an activation or a constant: plain numbers."""
    if not isinstance(call.x, Act | Param):
        raise unsupported(call)
    dims = call.x.value.shape if isinstance(call.x, Param) else call.x.dims
    if call.op == "dim":
        return len(dims)
    at = call.args.get("dim")
    return list(dims) if at is None else dims[at]


def number_type(low: Lowering, call: Call) -> int:
    """dtype of an activation or a constant."""
    return SCALAR_FLOAT


def nowhere(low: Lowering, call: Call) -> None:
    """device of a tensor: nothing depends on it."""


def no(low: Lowering, call: Call) -> bool:
    """Questions about where an activation lies and what it is for: none applies to a deployed model."""
    return False


def refused(low: Lowering, call: Call) -> Any:
    """Arithmetic that is supported only on constants and on the image."""
    raise unsupported(call)


def yes(low: Lowering, call: Call) -> bool:
    """Is it float? What a model takes is."""
    return True


_NORM = "input weight bias running_mean running_var"
_BATCH_NORM = Aten(f"{_NORM} training momentum eps", batch_norm)
_SAME, _NO = Aten("self", same), Aten("self", no)
_SIZE = Aten("self dim", size)

# Calls that change no number, or are folded into the layer before them. All others are in the op table.
RULES: dict[str, Aten] = {
    **dict.fromkeys(("batch_norm", "cudnn_batch_norm", "native_batch_norm"), _BATCH_NORM),
    "_native_batch_norm_legit": _BATCH_NORM,
    "_native_batch_norm_legit_no_training": Aten(f"{_NORM} momentum eps", batch_norm),
    **dict.fromkeys(("view", "_unsafe_view"), Aten("self size", view)),
    "unfold": Aten("self dimension size step", unfold),
    "reshape": Aten("self shape", view),
    "t": Aten("self", turn),
    "transpose": Aten("self dim0 dim1", turn),
    "permute": Aten("self dims", turn),
    **dict.fromkeys(("dropout", "dropout2d", "feature_dropout"), _SAME),
    **dict.fromkeys(("alpha_dropout", "feature_alpha_dropout", "native_dropout"), _SAME),
    **dict.fromkeys(("contiguous", "clone", "detach", "detach_copy", "alias", "identity"), _SAME),
    "lift_fresh_copy": _SAME,
    "to": Aten("self dtype", convert_type),
    "type_as": Aten("self other", same),
    **dict.fromkeys(("_to_copy", "float", "half", "double", "bfloat16"), Aten("self", convert_type)),
    **dict.fromkeys(("size", "sym_size"), _SIZE),
    "dim": Aten("self", size),
    **dict.fromkeys(("requires_grad", "is_cuda", "is_quantized", "is_sparse"), _NO),
    "dtype": Aten("self", number_type),
    "is_floating_point": Aten("self", yes),
    "device": Aten("self", nowhere),
    **{name: Aten(arguments, refused) for name, arguments in attention.ARGUMENTS.items()},
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), Aten("self dim", softmax)),
    "relu": Aten("self", relu),
    "relu6": Aten("self", relu6),
    "hardtanh": Aten("self min_val max_val", hardtanh),
    **dict.fromkeys(("clamp", CLIP), Aten("self min max", clamp)),
    "clamp_min": Aten("self min", clamp),
    "glu": Aten("self dim", lambda low, call: glu(low, call, _lower)),
    "flatten": Aten("self start_dim end_dim", flatten),
    "squeeze": Aten("self dim", squeeze),
    "unsqueeze": Aten("self dim", unsqueeze),
}

_NAMES = constant_rules.ARGUMENTS | spelling.ARGUMENTS | lengths.ARGUMENTS | squares.ARGUMENTS
_NAMES |= deviation_aten.ARGUMENTS | composed.ARGUMENTS | neighbours.ARGUMENTS
OF_CONSTANTS = {name: Aten(arguments, refused) for name, arguments in _NAMES.items()}
