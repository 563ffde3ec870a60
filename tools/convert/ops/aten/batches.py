"""Front-end rules of channels that are seen as a batch: one layer for each sensor by itself.

Of a series [1, sensors, time] x.view(sensors, 1, time) is such a view. A layer of it is one in groups, with
the same weights in each; these are no constants of the model, and stay frozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import Lowering

from ..calls import Natural
from .resample import settled

CONVOLUTIONS = ("conv1d", "conv2d", "convolution", "_convolution")
NORMS = ("batch_norm", "_native_batch_norm_legit_no_training")
POOLINGS = tuple(
    f"{kind}_pool{n}d" for kind in ("avg", "max", "adaptive_avg", "adaptive_max") for n in (1, 2)
)
PADS = ("pad", "constant_pad_nd")
REDUCTIONS = ("mean", "sum", "amax")  # over pixels
OF_CHANNELS = ("weight", "bias", "running_mean", "running_var")


def concerns(low: Lowering, call: Call) -> bool:
    """Whether a call reads an image, or a series, whose channels are several samples of a batch."""
    x = call.x
    if not isinstance(x, Act) or x.dims[0] == 1 or low.batch != 1 or not _is_of_samples(call, x):
        return False
    if x.order is not None or x.factor != 1 or x.half or x.tensor in low.last:
        return False
    h, w, c = low.shape(x)
    above, before, below, behind = x.pad or (0, 0, 0, 0)
    sides = (h + above + below, w + before + behind)
    samples, each, *own = x.dims if len(x.dims) > 2 else (x.dims[0], 1, *x.dims[1:])
    return samples * each == c and (tuple(own) == sides or (tuple(own) == sides[:1] and sides[1] == 1))


def _is_of_samples(call: Call, x: Act) -> bool:
    """Whether a call takes the first dimension of such a view as that of the batch."""
    op, rank, weight = call.op, len(x.dims), call.args.get("weight")
    if op in CONVOLUTIONS:
        ranks = (rank, 4)  # ONNX has a weight of four for a series
        known = isinstance(weight, Param) and weight.value.ndim in ranks
        return rank > 2 and known and not call.get("transposed", False)
    if op in REDUCTIONS:
        given = call.get("dim", None)
        axes = [given] if isinstance(given, int) else given or [0]
        return rank > 2 and min(int(a) % rank for a in axes) > 1
    return (op in (*POOLINGS, *NORMS) and rank in (3, 4)) or (op in PADS and rank < 5)


def lower(low: Lowering, call: Call, natural: Natural) -> Act:
    x, samples = call.x, call.x.dims[0]
    channels = (1, samples * x.dims[1]) if len(x.dims) > 2 else (1, samples)
    own = x.dims[2:] if len(x.dims) > 2 else x.dims[1:]
    key = "self" if "self" in call.args else "input"
    args: dict[str, Any] = {**call.args, key: replace(x, dims=(*channels, *own))}
    if call.op in (*CONVOLUTIONS, *NORMS):
        args |= {name: _each(call.args.get(name), samples) for name in OF_CHANNELS if name in call.args}
    if call.op in CONVOLUTIONS:
        args["groups"] = samples * int(call.get("groups", 1))
    made: Act = natural(low, replace(call, args=args))
    if len(x.dims) == 2:
        made = settled(low, replace(call, builtin=False, args={"self": made})).x
        return replace(made, dims=(samples, *made.dims[2:]))
    return replace(made, dims=_of_samples(made.dims, samples))


def _of_samples(dims: Sequence[int], samples: int) -> tuple[int, ...]:
    return (samples, dims[1] // samples, *dims[2:])


def _each(value: Any, samples: int) -> Any:
    """The constants of a layer as often as there are samples."""
    if not isinstance(value, Param):
        return value
    tiled = np.tile(value.value, (samples, *[1] * (value.value.ndim - 1)))
    return replace(value, value=tiled, origin=None, computed=True, stored=None)
