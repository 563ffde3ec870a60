"""What a device has learned, with the channels that it was spared: as large as the model's own layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microtrain.base.plan import Image, Layer, Plan
from microtrain.base.trained import NOTHING_LEFT_OUT, LeftOut, Trained, kept

from .weights import Arrays

WEIGHTS = ("weight", "fraction")
DEPTHWISE_RANK = 3  # of trained weights [channels, kh, kw]


def whole(plan: Plan, arrays: Arrays) -> tuple[Plan, Arrays]:
    """The plan and the arrays as they were if the device had all channels of the model's layers.

    What it does not have is dead, or none of the trained channels, so nothing of it is written anywhere. A
    head has zeros for it: there it was 0.
    """
    tensors = plan.trainables.tensors
    gone = {t.layer: t.source.left_out for t in tensors if t.source.left_out}
    if not gone:
        return plan, arrays
    pixels = {row.layer: row.input[0] * row.input[1] for row in plan.layers}
    found = {t.name: _values(t, arrays[t.name], pixels.get(t.layer, 1)) for t in tensors if t.name in arrays}
    trainables = replace(plan.trainables, tensors=tuple(_described(t) for t in tensors))
    return replace(plan, trainables=trainables, layers=_rows(plan.layers, gone)), arrays | found


def _values(t: Trained, values: np.ndarray, pixels: int) -> np.ndarray:
    """A tensor with zeros for output channels that are left out; a head's for its inputs, at each pixel."""
    gone = t.source.left_out or NOTHING_LEFT_OUT
    if t.kind == "head_weight":
        each = values.reshape(len(values), pixels, -1)
        return _spread(each, gone.inputs, 2).reshape(len(values), -1)
    if t.kind == "bias" or (t.kind in WEIGHTS and values.ndim != DEPTHWISE_RANK):
        return _spread(values, gone.outputs, 0)
    return values


def _spread(values: np.ndarray, gone: tuple[int, ...], axis: int) -> np.ndarray:
    """With zeros where channels are left out."""
    count = values.shape[axis]
    shape = (*values.shape[:axis], count + len(gone), *values.shape[axis + 1 :])
    result = np.zeros(shape, values.dtype)
    result[(slice(None),) * axis + (list(kept(count, gone)),)] = values
    return result


def _described(t: Trained) -> Trained:
    """What the plan says of a tensor, with all channels of the model."""
    gone = t.source.left_out or NOTHING_LEFT_OUT
    source = replace(t.source, left_out=None)
    if t.kind not in (*WEIGHTS, "bias"):
        return replace(t, source=source)
    outputs = kept(len(t.scale or ()), gone.outputs)
    depthwise = t.kind in WEIGHTS and len(t.shape) == DEPTHWISE_RANK
    rows = t.shape[:1] if depthwise else (t.shape[0] + len(gone.outputs),)
    return replace(
        t,
        shape=(*rows, *t.shape[1:]),
        channels=_channels(t, gone, depthwise),
        scale=_numbers(t.scale, gone.outputs, 1.0),
        base=_numbers(t.base, gone.outputs, 0.0),
        dead=tuple(sorted((*(outputs[c] for c in t.dead), *gone.outputs))),
        source=source,
    )


def _channels(t: Trained, gone: LeftOut, depthwise: bool) -> tuple[int, ...] | None:
    """Trained channels by their numbers in the model."""
    missing = gone.outputs if depthwise else gone.inputs
    if t.kind == "bias" or not missing:
        return t.channels
    own = t.channels or range(t.shape[0 if depthwise else -1])
    numbers = kept(max(own) + 1, missing)
    return tuple(numbers[c] for c in own)


def _numbers(
    values: tuple[float, ...] | None, gone: tuple[int, ...], other: float
) -> tuple[float, ...] | None:
    """A number for each output channel, with another for those that are left out."""
    if values is None:
        return None
    found = dict(zip(kept(len(values), gone), values, strict=True))
    return tuple(found.get(c, other) for c in range(len(values) + len(gone)))


def _rows(rows: tuple[Layer, ...], gone: dict[str, LeftOut]) -> tuple[Layer, ...]:
    """The layers with their channels in the model: what one of them reads, the one before it makes."""
    found = list(rows)
    for at, row in enumerate(rows):
        left = gone.get(row.layer, NOTHING_LEFT_OUT)
        read, made = _wider(row.input, left.inputs), _wider(row.output, left.outputs)
        found[at] = replace(row, input=read, output=made)
        if at and left.inputs and rows[at - 1].output == row.input:
            found[at - 1] = replace(found[at - 1], output=read)
    return tuple(found)


def _wider(shape: Image, gone: tuple[int, ...]) -> Image:
    return (*shape[:2], shape[2] + len(gone))
