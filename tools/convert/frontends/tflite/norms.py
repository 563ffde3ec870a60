"""Layer normalisation in pieces, as Keras and PyTorch's converter (litert-torch) write it into TFLite files:
x times a factor, less its mean times that.

The factor is one over the deviation; Keras has the scale in it, PyTorch's converter the scale and the shift
behind the sum, and the statistics as vectors in between. What stands between x and the last sum is no tensor
of the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Param

from .file import Flatbuffer, Operator
from .tokens import in_order, seen
from .values import Walker

SAME = ("QUANTIZE", "DEQUANTIZE")  # a change of number type


@dataclass(frozen=True)
class Norm:
    """What is normalised over the last axis. scale, shift: operator and input that have it, if one has

    inside  places of the operators that are no more than parts
    """

    given: int
    epsilon: float
    inside: frozenset[int]
    scale: tuple[int, int] | None = None
    shift: tuple[int, int] | None = None


def norms(file: Flatbuffer) -> dict[int, Norm]:
    """Layer normalisations, by the place of the operator that makes their result."""
    graph = _Graph(file)
    roots = [i for i, op in enumerate(file.operators) if op.kind == "RSQRT"]
    return dict(found for found in map(graph.norm, roots) if found is not None)


def normalised(walk: Walker, op: Operator, name: str, norm: Norm) -> Any:
    """The normalisation that ends with an operator."""
    params = constants(walk, name, norm.scale, norm.shift)
    x = seen(walk, Operator(op.kind, (norm.given,), op.outputs), name)
    over = [walk.file.tensors[norm.given].shape[-1]]
    return in_order(walk, "layer_norm", name, input=x, normalized_shape=over, eps=norm.epsilon, **params)


def constants(
    walk: Walker, name: str, scale: tuple[int, int] | None, shift: tuple[int, int] | None
) -> dict[str, Param]:
    """A normalisation's constants, which operators have at these places and inputs, where they have one."""
    params = {}
    for kind, home in (("weight", scale), ("bias", shift)):
        if home is not None:
            step, place = home
            at = walk.file.operators[step]
            given = walk.value(at.inputs[place])
            assert isinstance(given, Param)
            back = partial(np.reshape, shape=given.value.shape)
            own = f"{name}.{kind}"
            params[kind] = walk.at_home(at, place, own, given.value.ravel(), back, step=step)
    return params


@dataclass
class _Graph:
    """Who makes each tensor of a file, and who reads it, changes of number type aside."""

    file: Flatbuffer
    makers: dict[int, int] = field(default_factory=dict)
    readers: dict[int, list[int]] = field(default_factory=dict)
    same: dict[int, int] = field(default_factory=dict)
    changes: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place, op in enumerate(self.file.operators):
            first = self.plain(op.inputs[0]) if op.inputs else -1
            same = op.kind in SAME or self._stands(op)
            if same and self.file.tensors[op.inputs[0]].data is None and first in self.makers:
                self.same[op.outputs[0]] = first
                self.changes.setdefault(first, []).append(place)
                continue
            for tensor in op.outputs:
                self.makers[tensor] = place
            for tensor in dict.fromkeys(map(self.plain, op.inputs)):
                self.readers.setdefault(tensor, []).append(place)

    def _stands(self, op: Operator) -> bool:
        """Whether a vector is only seen as one number for each token."""
        if op.kind != "RESHAPE":
            return False
        before, after = (self.file.tensors[t].shape for t in (op.inputs[0], op.outputs[0]))
        return len(before) == 1 and after == (1, *before, 1)

    def plain(self, tensor: int) -> int:
        return self.same.get(tensor, tensor)

    def inputs(self, place: int) -> list[int]:
        return [self.plain(t) for t in self.file.operators[place].inputs]

    def made(self, tensor: int, *kinds: str) -> int | None:
        """The operator that makes a tensor, if it is of one of these kinds and carries no activation."""
        place = self.makers.get(tensor)
        if place is None or self.file.operators[place].kind not in kinds:
            return None
        return None if self.file.operators[place].options.get("FusedActivationFunction") else place

    def parted(self, place: int) -> Iterator[tuple[int, int]]:
        """Both inputs of an operator of two, each with the place of the other one; nothing of another one."""
        if len(given := self.inputs(place)) == 2:
            yield given[0], 1
            yield given[1], 0

    def norm(self, root: int) -> tuple[int, Norm] | None:
        """The normalisation with this root of a variance."""
        add = self.made(self.inputs(root)[0], "ADD")
        if add is None:
            return None
        numbers = [p for t, p in self.parted(add) if self._number(self.inputs(add)[p]) is not None]
        over = self.made(self.inputs(add)[1 - numbers[0]], "MEAN") if len(numbers) == 1 else None
        square = None if over is None else self.made(self.inputs(over)[0], "SQUARED_DIFFERENCE")
        if over is None or square is None:
            return None
        x, mean = self.inputs(square)
        less = self.made(mean, "MEAN")
        if less is None or self.inputs(less)[0] != x or not all(self._last(p, x) for p in (less, over)):
            return None
        if not self._by_rows(square, x):
            return None
        epsilon = float(self._number(self.inputs(add)[numbers[0]]) or 0.0)
        inside = {root, add, over, square, less}
        return self._ends(root, x, mean, epsilon, inside)

    def _ends(
        self, root: int, x: int, mean: int, epsilon: float, inside: set[int]
    ) -> tuple[int, Norm] | None:
        """What reads the root: a scale, and both products with it, whose sum is the result."""
        factor, scale = self.file.operators[root].outputs[0], None
        readers = self.readers.get(factor, [])
        if len(readers) == 1 and self.made(self._out(readers[0]), "MUL") == readers[0]:
            (at,) = readers
            place = self._beside(at, factor, x)
            if place is not None:
                inside.add(at)
                scale, factor = (at, place), self._out(at)
        negative = [p for p in self.readers.get(mean, []) if self.file.operators[p].kind == "NEG"]
        means = {mean, *(self.file.operators[p].outputs[0] for p in negative)}
        products: dict[int, int] = {}
        for place in self.readers.get(factor, []):
            for tensor, other in self.parted(place):
                if self.inputs(place)[other] == factor and self.made(self._out(place), "MUL") is not None:
                    products[tensor] = place
        of_mean = [t for t in products if t in means]
        if x not in products or len(of_mean) != 1 or len(products) != 2:
            return None
        inside |= {*negative, *products.values()}
        signed = of_mean[0] != mean
        found = self._sum(x, self._out(products[x]), self._out(products[of_mean[0]]), signed, inside)
        if found is None or not all(self._by_rows(place, x) for place in (products[x], found[0])):
            return None
        last, shift = found
        if scale is None and shift is None:
            last, scale, shift = self._behind(last, x, inside)
        inside |= {c for p in inside for c in self.changes.get(self._out(p), [])}
        if self._leaves(inside, last):
            return None
        return last, Norm(x, epsilon, frozenset(inside), scale, shift)

    def _sum(
        self, x: int, first: int, second: int, signed: bool, inside: set[int]
    ) -> tuple[int, tuple[int, int] | None] | None:
        """The operator that adds both, and where its shift is; `signed`: the second is negative already."""
        places = self.readers.get(second, [])
        if len(places) == 1 and self._negates(places[0]):
            inside.add(places[0])
            second, signed = self._out(places[0]), not signed
            places = self.readers.get(second, [])
        if len(places) != 1:
            return None
        (at,) = places
        kind = self.file.operators[at].kind
        if first in self.inputs(at):
            right = kind == "ADD" if signed else kind == "SUB" and self.inputs(at)[0] == first
            return (at, None) if right else None
        place, readers = self._beside(at, second, x), self.readers.get(self._out(at), [])
        right = kind == "ADD" if signed else (kind == "SUB" and place == 0)
        if place is None or not right or self.made(self._out(at), kind) is None or len(readers) != 1:
            return None
        inside.add(at)
        ends = self.file.operators[readers[0]].kind == "ADD" and first in self.inputs(readers[0])
        return (readers[0], (at, place)) if ends else None

    def _behind(
        self, last: int, x: int, inside: set[int]
    ) -> tuple[int, tuple[int, int] | None, tuple[int, int] | None]:
        """The last operator where a scale, a shift or both stand behind the sum, and where they are."""
        homes: list[tuple[int, int] | None] = []
        for kind in ("MUL", "ADD"):
            given, readers = self._out(last), self.readers.get(self._out(last), [])
            alone = len(readers) == 1 and self.made(self._out(readers[0]), kind) == readers[0]
            place = self._beside(readers[0], given, x) if alone else None
            homes.append(None if place is None else (readers[0], place))
            if place is not None:
                inside.add(last)
                last = readers[0]
        return last, homes[0], homes[1]

    def _negates(self, place: int) -> bool:
        """Whether an operator only changes a sign, by itself or as the difference to 0."""
        kind = self.file.operators[place].kind
        return kind == "NEG" or (kind == "SUB" and self._number(self.inputs(place)[0]) == 0)

    def _by_rows(self, place: int, x: int) -> bool:
        """Whether what an operator reads beside x is one number for each token, or for each number of x."""
        shape = self.file.tensors[x].shape
        read = [self.file.tensors[t].shape for t in self.file.operators[place].inputs]
        return all(each in (shape, (*shape[:-1], 1)) for each in read)

    def _beside(self, place: int, tensor: int, x: int) -> int | None:
        """Which input of an operator stands beside a tensor, if it is one number for each channel of x."""
        channels = self.file.tensors[x].shape[-1:]
        for given, other in self.parted(place):
            data = self.file.tensors[self.inputs(place)[other]].data
            if given == tensor and data is not None and data.shape[-1:] == channels == (data.size,):
                return other
        return None

    def _out(self, place: int) -> int:
        return self.file.operators[place].outputs[0]

    def _number(self, tensor: int) -> float | None:
        """A constant of one number, in real units."""
        stored = self.file.tensors[tensor]
        if stored.data is None or stored.data.size != 1:
            return None
        raw, found = float(stored.data.flat[0]), stored.quantized
        return raw if found is None else (raw - float(found.zero[0])) * float(found.scale[0])

    def _last(self, place: int, x: int) -> bool:
        """Whether a mean is over the last axis, and over none beside it but axes of 1."""
        axes, shape = self.file.tensors[self.inputs(place)[1]].data, self.file.tensors[x].shape
        rank = len(shape)
        over = set() if axes is None else {int(a) % rank for a in np.ravel(axes)}
        return rank > 1 and rank - 1 in over and all(shape[a] == 1 for a in over - {rank - 1})

    def _leaves(self, inside: set[int], last: int) -> bool:
        """Whether something else reads a part, or a part is a result of the file."""
        outs = {self._out(p) for p in inside}
        changed = {t for t, of in self.same.items() if of in outs}
        read = any(set(self.readers.get(t, [])) - inside - {last} for t in outs)
        return read or bool((outs | changed) & set(self.file.outputs))
