"""Normalisations that a file writes out, operator by operator, known by what they compute.

Where a variance stands under a root is looked for by its operators. What is made of it is tried with random
maps: so the order of products and sums, and what an exporter has joined into one, make no difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

import numpy as np

from .norm_fits import MAPS, NEAR, Fitted, by_channel, fits, ways
from .operations import (
    ADD,
    DEVIATION,
    DISTANCE,
    DIV,
    MEAN,
    MUL,
    ROOTS,
    SQUARE,
    SUB,
    VARIANCE,
    VIEW,
    Key,
    Network,
    Operation,
)

MOST = 1 << 21  # numbers of a map that is looked at
MOST_PARTS = 32  # operators behind the statistics
MOST_WORK = 1 << 31  # numbers that are made of random maps
CHANGED: Key = ("changed",)
Home = tuple[int, int]
Shapes = Callable[[Key], tuple[int, ...] | None]  # of a tensor, for a batch of one; None: it is not known


@dataclass(frozen=True)
class Written:
    """A normalisation.

    given          the tensor that is normalised; axis: where it has its channels
    groups         of channels; 0: each pixel by itself, over all of its channels
    centred        less the mean
    gain           times this: below 1 where the variance is that of a sample, through one less
    inside         places of the operators that are no more than parts
    weight, bias   place of an operator and of its input that has it, if one has
    made           shape of the result
    """

    given: Key
    axis: int
    groups: int
    centred: bool
    epsilon: float
    inside: frozenset[int]
    weight: Home | None
    bias: Home | None
    made: tuple[int, ...]
    gain: float = 1.0


def written_norms(network: Network, shape: Shapes) -> dict[int, Written]:
    """Normalisations of groups, by the place of the operator that makes their result."""
    found = {}
    for root in roots(network):
        found.update(norm_of(network, root, shape, pixels=False))
    return found


def roots(network: Network) -> dict[int, int]:
    """Places of the roots of variances, each with the first operator of what may be a normalisation."""
    means = [(place, op.inputs[0]) for place, op in enumerate(network.operations) if op.kind == MEAN]
    regions = (_Region(network, place) for place, op in enumerate(network.operations) if op.kind in ROOTS)
    found = ((region.root, region.statistics()) for region in regions)
    return {
        root: min(of.inside.union(place for place, key in means if key == of.viewed))
        for root, of in found
        if of is not None
    }


def norm_of(network: Network, root: int, shape: Shapes, pixels: bool) -> dict[int, Written]:
    """The normalisation with this root, by the place of its last operator; nothing where there is none.

    pixels  one of each pixel of a map [1, ., ., .] as well
    """
    return _Region(network, root, shape).norm(pixels)


@dataclass(frozen=True)
class _Statistics:
    """What a root is of.

    viewed   what is normalised, or a view of it; over: the operator of its variance
    epsilon  that is added to the variance; outside: to the root
    """

    viewed: Key
    over: Operation
    epsilon: float
    centred: bool
    inside: frozenset[int]
    outside: float = 0.0


class _Region:
    """What is made of the root of a variance."""

    def __init__(self, network: Network, root: int, shape: Shapes = lambda key: None) -> None:
        self.network, self.ops, self.root, self.shape = network, network.operations, root, shape
        self.sizes: dict[Key, int] = {}  # of what was made of the last map

    def norm(self, pixels: bool) -> dict[int, Written]:
        """The last operator of a normalisation, and what it is; nothing where there is none."""
        found = self.statistics()
        if found is None:
            return {}
        for given in reversed(self._views(found.viewed)):
            made = self._goes_on(given, found.inside)
            for last in reversed(made):
                norm = self._ended(given, found, {*found.inside, *made}, last, pixels)
                if norm is not None:
                    return {last: norm}
        return {}

    def statistics(self) -> _Statistics | None:
        """What the root is of: a variance, or a mean of squares, to which a number may be added."""
        root, inside = self.ops[self.root], {self.root}
        if root.kind == DEVIATION:
            return _Statistics(root.inputs[0], root, 0.0, True, frozenset(inside), self._outside())
        key, epsilon = self._less_numbers(root.inputs[0], inside)
        outside = 0.0 if epsilon else self._outside()
        over = self._made(key, inside, MEAN, VARIANCE)
        if over is None:
            return None
        if over.kind == VARIANCE:
            return _Statistics(over.inputs[0], over, epsilon, True, frozenset(inside), outside)
        square = self._made(over.inputs[0], inside, DISTANCE, SQUARE, MUL)
        if square is None:
            return None
        of = square.inputs
        if square.kind != DISTANCE:
            if square.kind == MUL and len(set(of)) > 1:
                return None
            less = self._made(of[0], inside, SUB)
            if less is None:
                return _Statistics(of[0], over, epsilon, False, frozenset(inside), outside)
            of = less.inputs
        mean = self._made(of[1], inside, MEAN)
        if mean is None or mean.inputs[0] != of[0]:
            return None
        return _Statistics(of[0], over, epsilon, True, frozenset(inside), outside)

    def _less_numbers(self, key: Key, inside: set[int]) -> tuple[Key, float]:
        """What stands in front of a factor and of a number that is added; and that number."""
        added = 0.0
        for _ in range(3):  # times as many as there are, through one less, and one added
            seen = self._views(key)
            found = self._number(self.network.makers.get(seen[-1]), (ADD, MUL, DIV))
            if found is None:
                break
            place, key, number = found
            inside.update(self.network.makers[k] for k in seen)
            added += number if self.ops[place].kind == ADD else 0.0
        return key, added

    def _outside(self) -> float:
        """The number that is added to the root."""
        readers = self.network.readers.get(self.ops[self.root].outputs[0], [])
        found = self._number(readers[0], (ADD,)) if len(readers) == 1 else None
        return found[2] if found else 0.0

    def _number(self, place: int | None, kinds: tuple[str, ...]) -> tuple[int, Key, float] | None:
        """An operator of a number and something else: its place, the other input and the number."""
        op = None if place is None else self.ops[place]
        if place is None or op is None or op.kind not in kinds or op.ends or len(op.inputs) != 2:
            return None
        constants = {
            i: value for i, k in enumerate(op.inputs) if (value := self.network.constants.get(k)) is not None
        }
        numbers = {i: float(value.ravel()[0]) for i, value in constants.items() if value.size == 1}
        if len(numbers) != 1:
            return None
        ((which, number),) = numbers.items()
        return place, op.inputs[1 - which], number

    def _made(self, key: Key, inside: set[int], *kinds: str) -> Operation | None:
        """The operator of one of these kinds that makes a tensor, or what it is a view of.

        It joins those inside, and so do the views, where there is one.
        """
        keys = self._views(key)
        places = [place for k in keys if (place := self.network.makers.get(k)) is not None]
        last = self.ops[places[-1]] if len(places) == len(keys) else None
        if last is None or last.kind not in kinds or last.ends:
            return None
        inside.update(places)
        return last

    def _views(self, key: Key) -> list[Key]:
        """A tensor, and what it is a view of."""
        found = [key]
        while (place := self.network.makers.get(key)) is not None and self.ops[place].kind == VIEW:
            key = self.ops[place].inputs[0]
            if key in found:  # a damaged file may go round in circles
                break
            found.append(key)
        return found

    def _goes_on(self, given: Key, inside: frozenset[int]) -> list[int]:
        """Operators that read nothing but what is given, what is inside, constants and one another."""
        known = {given, *(key for place in inside for key in self.ops[place].outputs)}
        found = list[int]()
        left = [place for key in known for place in self.network.readers.get(key, ())]
        heapify(left)
        while left and len(found) < MOST_PARTS:
            place = heappop(left)
            op = self.ops[place]
            if place in inside or place in found or not op.kind or not op.inputs:
                continue
            reads = {key for key in op.inputs if key not in self.network.constants}
            if reads <= known and (reads - {given} or op.kind in (MEAN, VIEW)):
                found.append(place)
                for key in () if op.ends else op.outputs:
                    known.add(key)
                    for reader in self.network.readers.get(key, ()):
                        heappush(left, reader)
        return sorted(found)

    def _ended(
        self, given: Key, found: _Statistics, among: set[int], last: int, pixels: bool
    ) -> Written | None:
        """The normalisation of what is given that ends with an operator, if one does."""
        parts = self._parts(given, last, among)
        inside = frozenset(parts - {last} - self._only_views(given, parts))
        if self.root not in inside or self._leaves(inside, last):
            return None
        return self._as_norm(given, found, inside, sorted(parts), pixels)

    def _parts(self, given: Key, last: int, among: set[int]) -> set[int]:
        """The operators that a result is made by, out of what is given."""
        found, left = set[int](), [last]
        while left:
            place = left.pop()
            if place not in found:
                found.add(place)
                makers = (self.network.makers.get(key) for key in self.ops[place].inputs if key != given)
                left += [maker for maker in makers if maker in among]
        return found

    def _only_views(self, given: Key, parts: set[int]) -> set[int]:
        """The parts that only see what is given, in another shape or type."""
        found, seen = set[int](), {given}
        for place in sorted(parts):
            op = self.ops[place]
            if op.kind == VIEW and op.inputs[0] in seen:
                found.add(place)
                seen.update(op.outputs)
        return found

    def _leaves(self, inside: frozenset[int], last: int) -> bool:
        """Whether something else reads what is made inside, or it is a result of the file."""
        outs = {key for place in inside for key in self.ops[place].outputs}
        read = any(
            place not in inside and place != last for k in outs for place in self.network.readers.get(k, ())
        )
        return read or bool(outs & self.network.results)

    def _as_norm(
        self, given: Key, found: _Statistics, inside: frozenset[int], parts: Sequence[int], pixels: bool
    ) -> Written | None:
        """What the operators compute, first to last, if it is a normalisation."""
        shape = self.shape(given)
        if shape is None or len(shape) not in (2, 3, 4) or shape[0] != 1 or math.prod(shape) > MOST:
            return None
        rng, viewed = np.random.default_rng(0), self.shape(found.viewed)
        maps, made = [rng.normal(mean, spread, shape) for spread, mean in MAPS], list[np.ndarray]()
        try:
            for x in maps:
                made.append(self._computed(given, x, parts))
                if made[-1].size != x.size or not np.isfinite(made[-1]).all():
                    return None
            statistics = self._run(found.over, {found.over.inputs[0]: np.zeros(viewed or shape)}).size
        except (ValueError, IndexError, TypeError, KeyError):
            return None
        added = (found.epsilon, found.outside)
        axes = dict.fromkeys((1, len(shape) - 1) if self.network.first else (len(shape) - 1, 1))
        found_ways = ways(shape, axes, statistics, found.centred, pixels)
        for fit in fits(maps, made, found_ways, found.centred, added):
            ends = [place for place in parts if place not in found.inside]
            homes = self._homes(Fitted(given, maps[0], parts, ends, fit))
            rows = len(shape) == 3 and fit.axis == 1 and fit.groups == shape[1] and homes == (None, None)
            if homes is None or (rows and self._has_weights(parts)):
                continue
            if self._is_theirs(fit.groups, statistics, homes):
                last = made[0].shape
                about = (fit.axis, fit.groups, found.centred, fit.epsilon)
                return Written(given, *about, inside, *homes, last, fit.gain)
        return None

    def _has_weights(self, parts: Sequence[int]) -> bool:
        """Whether rows have weights that are not theirs, ones and zeros too.

        Such rows are tokens, whose layer norms have patterns of their own.
        """
        behind = (place for key in self.ops[parts[-1]].outputs for place in self.network.readers.get(key, ()))
        steps = (self.ops[place] for place in (*parts, *behind))
        values = (
            self.network.constants.get(key) for op in steps if op.kind in (ADD, MUL) for key in op.inputs
        )
        return any(value is not None and value.size > 1 for value in values)

    def _is_theirs(self, groups: int, statistics: int, homes: tuple[Home | None, Home | None]) -> bool:
        """Whether nothing else knows a normalisation: pixels by themselves are known but for a scale that is
        in the factor, one over the deviation."""
        if groups or homes[0] is None:
            return bool(groups)
        place, which = homes[0]
        others = [key for i, key in enumerate(self.ops[place].inputs) if i != which]
        return self.sizes.get(others[0], 0) == statistics

    def _computed(
        self, given: Key, x: np.ndarray, parts: Sequence[int], other: tuple[Home, np.ndarray] | None = None
    ) -> np.ndarray:
        """What operators make of a map, in real numbers, but for an activation that the last one carries.

        other  numbers in the place of a constant, for one operator
        """
        known = {given: x}
        for place in parts:
            op = self.ops[place]
            if other is not None and other[0][0] == place:
                changed = tuple(CHANGED if i == other[0][1] else key for i, key in enumerate(op.inputs))
                op, known[CHANGED] = replace(op, inputs=changed), other[1]
            known[op.outputs[0]] = self._run(op, known)
        self.sizes = {key: value.size for key, value in known.items()}
        return known[self.ops[parts[-1]].outputs[0]]

    def _run(self, op: Operation, known: dict[Key, np.ndarray]) -> np.ndarray:
        """ValueError, KeyError: it cannot be run, or too much has been"""
        values = [known[k] if k in known else self.network.constants[k] for k in op.inputs]
        sizes = (
            np.broadcast_shapes(*(v.shape for v in values)) if op.kind in (ADD, SUB, MUL, DISTANCE) else ()
        )
        self.network.work[0] += max(math.prod(sizes), *(v.size for v in values))
        if math.prod(sizes) > 2 * MOST or self.network.work[0] > MOST_WORK:
            raise ValueError(op.kind)
        with np.errstate(all="ignore"):
            return op.run(values)

    def _homes(self, fitted: Fitted) -> tuple[Home | None, Home | None] | None:
        """Where the file has weights and biases; None of 1 and of 0. Nothing where it does not have them."""
        homes: list[Home | None] = []
        for kind, wanted, none in ((MUL, fitted.fit.weight, 1.0), (ADD, fitted.fit.bias, 0.0)):
            home = next(self._places_of(fitted, kind, wanted), None)
            if home is None and np.abs(wanted - none).max() > NEAR:
                return None
            homes.append(home)
        return homes[0], homes[1]

    def _places_of(self, fitted: Fitted, kind: str, wanted: np.ndarray) -> Iterator[Home]:
        """Operators of a kind and inputs that are these numbers, one a channel."""
        near = NEAR * max(1.0, float(np.abs(wanted).max()))
        for place in (place for place in fitted.ends if self.ops[place].kind == kind):
            for which, key in enumerate(self.ops[place].inputs):
                value = self.network.constants.get(key)
                if value is None or value.dtype.kind != "f" or value.size != wanted.size:
                    continue
                if np.abs(np.ravel(value) - wanted).max() <= near and self._follows(
                    fitted, kind, (place, which)
                ):
                    yield place, which

    def _follows(self, fitted: Fitted, kind: str, home: Home) -> bool:
        """Whether other numbers in a constant's place are what channels are multiplied with, or get."""
        key = self.ops[home[0]].inputs[home[1]]
        other = np.random.default_rng(1).normal(0, 1, self.network.constants[key].shape)
        try:
            made = self._computed(fitted.given, fitted.x, fitted.parts, (home, other))
        except (ValueError, IndexError, TypeError, KeyError):
            return False
        fit = fitted.fit
        weight = other.ravel() if kind == MUL else fit.weight
        bias = other.ravel() if kind == ADD else fit.bias
        line = weight * fit.normal + bias
        found = by_channel(made.reshape(fitted.x.shape), fit.axis)
        return bool(np.abs(found - line).max() <= (NEAR + fit.slack) * max(1.0, np.abs(line).max()))
