"""Boards that run another scheme of the same network: which of their values are the federation's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from microtrain.base.plan import Plan
from microtrain.base.trained import Trained

from .errors import FleetError
from .layout import Layout, Part


@dataclass(frozen=True)
class Sharing:
    """Two layouts side by side: value at_own[i] of a board is value at_all[i] of the federation.

    shift  fraction bits that the federation has more, by value
    """

    all: Layout
    own: Layout
    at_all: np.ndarray
    at_own: np.ndarray
    shift: np.ndarray

    def to_board(self, values: np.ndarray, own: np.ndarray) -> np.ndarray:
        """The board's values `own` with those of the federation in their places, int64 [own.size].

        What a board keeps fewer fraction bits of is rounded half up, as it rounds itself.
        """
        taken = own.copy()
        half = np.where(self.shift > 0, 1 << np.maximum(self.shift - 1, 0), 0)
        taken[self.at_own] = (values[self.at_all] + half) >> self.shift
        return taken

    def to_all(self, change: np.ndarray) -> np.ndarray:
        """A board's change in the federation's units, 0 where it has no say, int64 [all.size]."""
        result = np.zeros(self.all.size, np.int64)
        result[self.at_all] = change[self.at_own] << self.shift
        return result

    def say(self) -> np.ndarray:
        """1 where the board has a value, 0 elsewhere, int64 [all.size]."""
        result = np.zeros(self.all.size, np.int64)
        result[self.at_all] = 1
        return result


def share(all_: Layout, own: Layout) -> Sharing:
    """How a board's layout goes with the federation's.

    Errors   FleetError where they are not of one network, or a value has more fraction bits on the board
    """
    if own.plan.model_id != all_.plan.model_id:
        _check_same_network(all_.plan, own.plan)
    places = {(part.tensor.layer, part.tensor.kind): part for part in all_.parts}
    pairs = [(places[key], part) for part in own.parts if (key := _key(part)) in places]
    if not pairs:
        raise FleetError(f"{own.plan.name} and {all_.plan.name} train nothing together.")
    found = [_matched(a, b, own.plan) for a, b in pairs]
    at_all, at_own, shift = (np.concatenate(each) for each in zip(*found, strict=True))
    return Sharing(all_, own, at_all, at_own, shift)


def _key(part: Part) -> tuple[str, str]:
    return part.tensor.layer, part.tensor.kind


def _check_same_network(all_: Plan, own: Plan) -> None:
    if not own.source.sha256 or own.source.sha256 != all_.source.sha256:
        raise FleetError(
            f"{own.path} was converted from another model than {all_.path}: "
            "boards of a federation run schemes of one network."
        )


def _matched(all_: Part, own: Part, plan: Plan) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(places in all, places in own, shifts) of a tensor that both have."""
    shift = all_.bits - own.bits
    if shift < 0:
        raise FleetError(
            f"{own.name} has {own.bits} fraction bits in {plan.name}, {all_.bits} in the federation: "
            "lead it with the scheme that has most."
        )
    if (all_.tensor.scale, all_.tensor.base) != (own.tensor.scale, own.tensor.base):
        raise FleetError(
            f"{own.name} has other units in {plan.name} than in the federation: "
            "convert both with the same calibration samples."
        )
    rows_all, rows_own = _by_channel(all_), _by_channel(own)
    both = sorted(rows_all.keys() & rows_own.keys())
    sizes = {(rows_all[c].size, rows_own[c].size) for c in both}
    if any(a != b for a, b in sizes):
        raise FleetError(f"{own.name} has another size in {plan.name} than in the federation.")
    if not both:
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    at_all = np.concatenate([rows_all[c] for c in both]) + all_.start
    at_own = np.concatenate([rows_own[c] for c in both]) + own.start
    return at_all, at_own, np.full(at_all.size, shift, np.int64)


def _by_channel(part: Part) -> dict[int, np.ndarray]:
    """Places of the values of each trained channel; of anything but weights there is one."""
    tensor: Trained = part.tensor
    places = np.arange(part.size).reshape(tensor.shape)
    if tensor.kind != "weight":
        return {0: places.reshape(-1)}
    axis = 3 if len(tensor.shape) == 4 else 0  # a depthwise layer's channels come first
    channels = tensor.channels if tensor.channels is not None else range(tensor.shape[axis])
    return {c: places.take(i, axis).reshape(-1) for i, c in enumerate(channels)}
