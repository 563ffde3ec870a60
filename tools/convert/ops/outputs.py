"""Scale and zero point of an op's quantized output: the rules that entries choose from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from microtrain.convert.ir import ConvertError, Node, Tensor

FLAT_RANGE = 1e-6  # a narrower range than this is no range


@dataclass(frozen=True)
class Output:
    """What a rule is told.

    tensor  the node's output as the float graph has it
    x       its first input, quantized
    ranges  (least, greatest) of all tensors
    """

    node: Node
    tensor: Tensor
    x: Tensor
    ranges: Mapping[str, tuple[float, float]]


def float32(value: float) -> float:
    """The nearest number that float32 holds."""
    return float(np.float32(value))


def scale_and_zero(low: float, high: float) -> tuple[float, int]:
    """Scale and zero point of an int8 tensor over a range; real zero is always one of its values."""
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low < FLAT_RANGE:
        low, high = 0.0, 1.0
    scale = float32((high - low) / 255.0)
    return scale, int(np.clip(np.rint(-128.0 - low / scale), -128, 127))


def by_range(out: Output) -> Tensor:
    """Those that the model's file gives, else those of the range that calibration saw."""
    name = out.tensor.name
    if out.tensor.given is not None:
        scale, zero = out.tensor.given
        return replace(out.tensor, dtype="s8", scale=scale, zero=zero, given=None)
    low, high = out.ranges.get(name, (math.nan, math.nan))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ConvertError(f"tensor {name} of {out.node.name} has no finite range: calibrate on more images")
    scale, zero = scale_and_zero(low if out.node.act == "none" else 0.0, high)
    return replace(out.tensor, dtype="s8", scale=scale, zero=zero)


def as_input(out: Output) -> Tensor:
    """Those of the input."""
    return replace(out.tensor, dtype="s8", scale=out.x.scale, zero=out.x.zero, given=None)


def stays_float(out: Output) -> Tensor:
    return replace(out.tensor, given=None)
