"""What boards share of their trainables, as one vector of integers.

    weight  int8 and its fraction bits    unit: 2^-bits of the int8 unit, -127 * 2^bits .. 127 * 2^bits
    bias    int16                         unit: the board's own, 2^k of the layer's sum, -32767 .. 32767
    head    float32                       unit: 2^-20, -2^30 .. 2^30

Sums of integers have no order, so an average is the same bits whatever came first.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from microtrain.base.plan import Plan, Trained
from microtrain.device.weights import Arrays, pack, unpack

from .errors import FleetError
from .words import HEAD_KINDS, KEEP

HEAD_BITS = 20
HEAD_LIMIT = 1 << 30
BIAS_LIMIT = 32767
WEIGHT_LIMIT = 127
SHIFT_MOST = 30  # twice a limit of 2^30, shifted, is an int64
FRACTION_BITS = {"u4": 4, "s8": 8}


@dataclass(frozen=True)
class Part:
    """One tensor of the vector.

    start     its first value
    bits      its unit is 2^-bits of the stored one; 0 for biases
    limit     values are -limit..limit
    fraction  the tensor of its fraction bits
    """

    tensor: Trained
    start: int
    size: int
    bits: int
    limit: int
    fraction: Trained | None

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def end(self) -> int:
        return self.start + self.size


class Layout:
    """Which trainables of a model are shared, and where each lies in the vector.

    keep  names of KEEP: what stays on the board
    """

    def __init__(self, plan: Plan, keep: tuple[str, ...] = ()) -> None:
        self.plan, self.keep = plan, keep
        own = {kind for name in keep for kind in KEEP[name]}
        parts: list[Part] = []
        for tensor in plan.trainables.tensors:
            if tensor.kind != "fraction" and tensor.kind not in own:
                parts.append(_part(plan, tensor, parts[-1].end if parts else 0))
        self.parts = tuple(parts)
        self.size = parts[-1].end if parts else 0
        if not self.size:
            raise FleetError(f"{plan.name} shares nothing where a board keeps {' and '.join(keep) or 'all'}.")

    @functools.cached_property
    def limits(self) -> np.ndarray:
        """The largest value of each place, int64 [size]."""
        return np.concatenate([np.full(part.size, part.limit, np.int64) for part in self.parts])

    def read(self, block: bytes) -> np.ndarray:
        """A board's trainables as integers, int64 [size].

        Errors   FleetError where the head holds what is no number, or one beyond its limit; DeviceError where
                 the block is of another size
        """
        arrays = unpack(self.plan, block)
        return np.concatenate([_read(part, arrays) for part in self.parts])

    def write(self, values: np.ndarray, block: bytes) -> bytes:
        """The trainables with these values, and what is not shared as in `block`."""
        arrays = unpack(self.plan, block)
        for part in self.parts:
            _write(part, values[part.start : part.end], arrays)
        return pack(self.plan, arrays)

    def real(self, values: np.ndarray) -> np.ndarray:
        """Values, or differences of them, in the units of the float model, float64 [size]."""
        return np.asarray(values * self.scales)

    @functools.cached_property
    def scales(self) -> np.ndarray:
        """What one is worth at each place in the float model, float64 [size]."""
        return np.concatenate([_scales(part) for part in self.parts])

    @functools.cached_property
    def shifts(self) -> np.ndarray:
        """By how much each value is shifted left so that ones are worth about as much, int64 [size]."""
        worth = [round(math.log2(_scales(part).mean())) for part in self.parts]
        shifts = [min(value - min(worth), SHIFT_MOST) for value in worth]
        return np.repeat(np.array(shifts, np.int64), [part.size for part in self.parts])


def _part(plan: Plan, tensor: Trained, start: int) -> Part:
    size = int(np.prod(tensor.shape))
    if tensor.kind in HEAD_KINDS:
        return Part(tensor, start, size, HEAD_BITS, HEAD_LIMIT, None)
    if tensor.kind == "bias":
        return Part(tensor, start, size, 0, BIAS_LIMIT, None)
    fraction = plan.find(tensor.layer, "fraction")
    bits = FRACTION_BITS[fraction.dtype] if fraction else 0
    return Part(tensor, start, size, bits, WEIGHT_LIMIT << bits, fraction)


def _read(part: Part, arrays: Arrays) -> np.ndarray:
    own = arrays[part.name].reshape(-1)
    if part.tensor.kind in HEAD_KINDS:
        scaled = own.astype(np.float64) * 2.0**part.bits
        if not np.all(np.abs(scaled) <= part.limit):  # NaN is not
            raise FleetError(f"{part.name} holds values that are no numbers or too large: training diverged.")
        return np.rint(scaled).astype(np.int64)
    values = own.astype(np.int64) << part.bits
    if part.fraction is not None:
        values += arrays[part.fraction.name].reshape(-1)
    return values


def _write(part: Part, values: np.ndarray, arrays: Arrays) -> None:
    own = arrays[part.name]
    if part.tensor.kind in HEAD_KINDS:
        arrays[part.name] = (values / 2.0**part.bits).astype(own.dtype).reshape(own.shape)
        return
    stored = (values + (1 << part.bits >> 1)) >> part.bits  # as firmware/src/kernels/update.h rounds
    arrays[part.name] = stored.astype(own.dtype).reshape(own.shape)
    if part.fraction is not None:
        left = values - (stored << part.bits)
        shape = arrays[part.fraction.name].shape
        arrays[part.fraction.name] = left.astype(np.int8).reshape(shape)


def _scales(part: Part) -> np.ndarray:
    unit = 2.0**-part.bits
    if part.tensor.scale is None:
        return np.full(part.size, unit)
    own = np.array(part.tensor.scale, np.float64)
    channels, shape = part.tensor.channels, part.tensor.shape
    if (
        channels is not None and len(shape) == 3 and len(own) != shape[0]
    ):  # depthwise: all channels are listed
        own = own[list(channels)]
    return np.repeat(own * unit, part.size // len(own))
