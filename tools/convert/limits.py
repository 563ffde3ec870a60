"""What a quantized layer may hold: sums inside int32, usable multipliers, scales that can be trained."""

from __future__ import annotations

import numpy as np

from .ir import ConvertError, Tensor
from .ops.bounds import INT32_MAX, reach

DEAD_SCALE = 1e-6  # weight scale below which a channel cannot be trained: its step would be divided by s_w^2
BIAS_ROOM = 2**30  # |bias| at most: as much again is left for training


def bias_room(taps: int) -> int:
    """|bias| at most of a layer that sums so many products per output."""
    return min(BIAS_ROOM, INT32_MAX - taps * 255 * 128)


def prove(name: str, stored: np.ndarray, biases: np.ndarray, scale: np.ndarray, x: Tensor, y: Tensor) -> None:
    """max |sum| + |bias| < 2^31 and a usable float32 multiplier, for every channel; else ConvertError.

    stored  int8 [channels][taps]; biases  int64 [channels]; scale  of the weights, [channels]
    """
    most = np.abs(stored.astype(np.int64)).sum(axis=1) * reach(x) + np.abs(biases)
    if (most > INT32_MAX).any():
        channel = int(most.argmax())
        raise ConvertError(f"layer {name}: sums of channel {channel} can reach {most[channel]}, beyond int32")
    with np.errstate(over="ignore", under="ignore"):
        m = (x.scale * scale / y.scale).astype(np.float32)
    bad = ~(np.isfinite(m) & (m >= np.finfo(np.float32).tiny))
    if bad.any():
        channel = int(bad.argmax())
        raise ConvertError(
            f"layer {name}: the requantization multiplier of channel {channel} is {m[channel]:g}; "
            "its weights and the ranges of its tensors do not belong together"
        )
