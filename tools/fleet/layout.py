"""Which trainables of a model a federation shares, and how they are read and written (base/parts.py)."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from microtrain.base import parts
from microtrain.base.parts import FLOATS
from microtrain.base.plan import Plan
from microtrain.base.trained import Trained
from microtrain.device.weights import Arrays, pack, unpack

from .errors import FleetError
from .words import KEEP

Part = parts.Part[Trained]


class Layout:
    """Which trainables of a model are shared, and where each lies in the vector.

    keep  names of KEEP: what stays on the board
    """

    def __init__(self, plan: Plan, keep: tuple[str, ...] = ()) -> None:
        self.plan, self.keep = plan, keep
        own = {kind for name in keep for kind in KEEP[name]}
        every = parts.parts(plan.trainables.tensors)
        shared, shifts, start = [], [], 0
        for part, shift in zip(every, parts.shifts(every), strict=True):
            if part.tensor.kind not in own:
                shared.append(replace(part, start=start))
                shifts.append(shift)
                start += part.size
        self.parts: tuple[Part, ...] = tuple(shared)
        self.size = start
        self._shifts = tuple(shifts)
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
        return np.concatenate([parts.scales(part) for part in self.parts])

    @functools.cached_property
    def shifts(self) -> np.ndarray:
        """By how much each value is shifted left so that ones are worth about as much, int64 [size]."""
        return np.repeat(np.array(self._shifts, np.int64), [part.size for part in self.parts])


def _read(part: Part, arrays: Arrays) -> np.ndarray:
    own = arrays[part.name].reshape(-1)
    if part.tensor.kind in FLOATS:
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
    if part.tensor.kind in FLOATS:
        arrays[part.name] = (values / 2.0**part.bits).astype(own.dtype).reshape(own.shape)
        return
    stored = (values + (1 << part.bits >> 1)) >> part.bits  # as firmware/src/kernels/update.h rounds
    arrays[part.name] = stored.astype(own.dtype).reshape(own.shape)
    if part.fraction is not None:
        left = values - (stored << part.bits)
        shape = arrays[part.fraction.name].shape
        arrays[part.fraction.name] = left.astype(np.int8).reshape(shape)
