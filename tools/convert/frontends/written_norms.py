"""Normalisations that a file writes out, operator by operator, known by what they compute.

Where a variance stands under a root is looked for by its operators. What is made of it is tried with random
maps: so the order of products and sums, and what an exporter has joined into one, make no difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np

from .norm_fits import MAPS, NEAR, Fitted, by_channel, line_of, normal, ways

MOST = 1 << 21  # numbers of a map that is looked at
MOST_PARTS = 32  # operators behind the statistics
MOST_WORK = 1 << 31  # numbers that are made of random maps
ADD, SUB, MUL, MEAN, VIEW = "plus", "minus", "times", "mean", "view"
ROOTS = ("rsqrt", "sqrt")
SQUARE, DISTANCE, VARIANCE = "square", "squared distance", "variance"
KINDS = (ADD, SUB, MUL, MEAN, VIEW, *ROOTS, SQUARE, DISTANCE, VARIANCE, "neg", "div", "reciprocal")
Key = Hashable
CHANGED: Key = ("changed",)
Home = tuple[int, int]
Shapes = Callable[[Key], tuple[int, ...] | None]  # of a tensor, for a batch of one; None: it is not known


@dataclass(frozen=True, eq=False)
class Operation:
    """What an operator of a file is. A tensor is a key.

    kind  one of KINDS, "view" of another shape or type too; "" of all others
    run   what it makes of its inputs, constants too; KeyError or ValueError: nothing
    ends  it carries an activation, behind which nothing goes on
    """

    kind: str
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]
    run: Callable[[Sequence[np.ndarray]], np.ndarray]
    ends: bool = False


@dataclass(frozen=True, eq=False)
class Network:
    """A file's operators, first to last.

    constant  the real numbers of a tensor that is one, else None
    results   what the file returns
    work      how many numbers have been made of random maps
    """

    operations: Sequence[Operation]
    constant: Callable[[Key], np.ndarray | None]
    results: frozenset[Key]
    work: list[int] = field(default_factory=lambda: [0])

    @cached_property
    def makers(self) -> dict[Key, int]:
        return {key: place for place, op in enumerate(self.operations) for key in op.outputs}

    @cached_property
    def readers(self) -> dict[Key, list[int]]:
        found: dict[Key, list[int]] = {}
        for place, op in enumerate(self.operations):
            for key in dict.fromkeys(op.inputs):
                found.setdefault(key, []).append(place)
        return found

    @cached_property
    def constants(self) -> dict[Key, np.ndarray]:
        keys = {key for op in self.operations if op.kind for key in op.inputs if key not in self.makers}
        return {key: value for key in keys if (value := self.constant(key)) is not None}


@dataclass(frozen=True)
class Written:
    """A normalisation.

    given          the tensor that is normalised; axis: where it has its channels
    groups         of channels; 0: each pixel by itself, over all of its channels
    centred        less the mean
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
    """What a root is of. viewed: what is normalised, or a view of it; over: the operator of its variance"""

    viewed: Key
    over: Operation
    epsilon: float
    centred: bool
    inside: frozenset[int]


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
        """What the root is of: a mean of squares, to which a number is added."""
        inside = {self.root}
        add = self._made(self.ops[self.root].inputs[0], inside, ADD)
        if add is None:
            return None
        constants = {key: self.network.constants.get(key) for key in add.inputs}
        numbers = {key: value for key, value in constants.items() if value is not None and value.size == 1}
        variances = [key for key in add.inputs if key not in numbers]
        alone = len(variances) == len(numbers) == 1
        over = self._made(variances[0], inside, MEAN, VARIANCE) if alone else None
        if over is None:
            return None
        epsilon = float(next(iter(numbers.values())).ravel()[0])
        if over.kind == VARIANCE:
            return _Statistics(over.inputs[0], over, epsilon, True, frozenset(inside))
        square = self._made(over.inputs[0], inside, DISTANCE, SQUARE, MUL)
        if square is None:
            return None
        of = square.inputs
        if square.kind != DISTANCE:
            if square.kind == MUL and len(set(of)) > 1:
                return None
            less = self._made(of[0], inside, SUB)
            if less is None:
                return _Statistics(of[0], over, epsilon, False, frozenset(inside))
            of = less.inputs
        mean = self._made(of[1], inside, MEAN)
        if mean is None or mean.inputs[0] != of[0]:
            return None
        return _Statistics(of[0], over, epsilon, True, frozenset(inside))

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
        for axis, groups in ways(shape, statistics, found.centred, pixels):
            wanted = [by_channel(normal(x, axis, groups, found.centred, found.epsilon), axis) for x in maps]
            lines = [by_channel(y.reshape(shape), axis) for y in made]
            weight, bias = line_of(wanted[0], lines[0])
            near = (
                np.abs(y - (weight * x + bias)).max() <= NEAR * max(1.0, np.abs(y).max())
                for x, y in zip(wanted, lines, strict=True)
            )
            homes = None
            if all(near):
                ends = [place for place in parts if place not in found.inside]
                homes = self._homes(Fitted(given, maps[0], wanted[0], axis, parts, ends, weight, bias))
            if homes is not None and self._is_theirs(shape, axis, groups, statistics, homes):
                last = made[0].shape
                return Written(given, axis, groups, found.centred, found.epsilon, inside, *homes, last)
        return None

    def _is_theirs(
        self,
        shape: tuple[int, ...],
        axis: int,
        groups: int,
        statistics: int,
        homes: tuple[Home | None, Home | None],
    ) -> bool:
        """Whether nothing else knows a normalisation: rows of a series may be tokens, and pixels by
        themselves are known but for a scale that is in the factor, one over the deviation."""
        if groups == shape[axis] and len(shape) == 3:
            return axis == len(shape) - 1 or homes != (None, None)
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
        for kind, wanted, none in ((MUL, fitted.weight, 1.0), (ADD, fitted.bias, 0.0)):
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
        weight = other.ravel() if kind == MUL else fitted.weight
        bias = other.ravel() if kind == ADD else fitted.bias
        line = weight * fitted.normal + bias
        found = by_channel(made.reshape(fitted.x.shape), fitted.axis)
        return bool(np.abs(found - line).max() <= NEAR * max(1.0, np.abs(line).max()))
