"""Float TFLite files that are drawn: a few operators with all kinds of options, of sizes that often agree.

A file has a start, the operator that it is drawn for, and some others before and behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lab.attack.tflite_files import Writer
from lab.attack.tflite_networks import Float

COMPUTE = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "LOGISTIC", "MAX_POOL_2D", "BATCH_MATMUL")
MOST = 700  # numbers of a tensor
Shape = tuple[int, ...]
Step = tuple[str, Shape, Shape, str, dict[str, Any]]


class UnfitError(Exception):
    """An operator that cannot read what there is, or a file that says nothing."""


@dataclass
class Noted(Writer):
    """Notes what is written, for a file with the same operators on integers.

    shapes, types, constants  of the tensors
    steps  operators, their inputs and outputs, and options with the name of their table
    """

    shapes: list[Shape] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    constants: dict[int, np.ndarray] = field(default_factory=dict)
    steps: list[tuple[str, tuple[int, ...], tuple[int, ...], str, dict[str, Any]]] = field(
        default_factory=list
    )

    def tensor(
        self, name: str, shape: Sequence[int], dtype: str = "int8", data: Any = None, *more: Any, **about: Any
    ) -> int:
        number = super().tensor(name, shape, dtype, data, *more, **about)
        self.shapes.append(tuple(int(n) for n in shape))
        self.types.append(dtype)
        if data is not None:
            self.constants[number] = np.ascontiguousarray(data, dtype)
        return number

    def op(
        self, kind: str, inputs: Sequence[int], outputs: Sequence[int], table: str = "", **about: Any
    ) -> None:
        self.steps.append((kind, tuple(inputs), tuple(outputs), table, dict(about)))
        super().op(kind, inputs, outputs, table, **about)


class Drawn(Float):
    """A network of random operators.

    earlier  tensors that later operators may read too, with their shapes
    first    the input is in PyTorch's order, and turned before anything else
    """

    w: Noted

    def __init__(self, seed: Sequence[int]) -> None:
        rng = np.random.default_rng(seed)
        sizes = rng.choice([2, 3, 4, 5, 6, 7], rng.integers(1, 4), replace=False)
        rank = int(rng.choice([1, 2, 3, 3, 3]))
        shape = [int(rng.choice(sizes)) for _ in range(rank)]
        super().__init__(*shape)
        self.w = Noted()
        self.x = self.w.tensor("input", (1, *shape), "float32")
        self.rng, self.sizes = rng, [int(n) for n in sizes]
        self.earlier: list[tuple[int, Shape]] = []
        self.kinds: list[str] = []
        self.first = rank > 1 and self.chance(0.12)
        if self.first:
            self.turned(0, *range(2, rank + 1), 1)

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def some(self, most: int) -> int:
        """A number up to this one."""
        return int(self.rng.integers(1, most + 1))

    def size(self) -> int:
        return int(self.pick(*self.sizes, *self.sizes, 1))

    def fit(self, is_so: bool) -> None:
        if not is_so:
            raise UnfitError

    def map(self) -> Shape:
        """The shape of what was made last, which must be a map."""
        self.fit(len(self.shape) == 4 and self.shape[0] == 1)
        return self.shape

    def op(
        self, kind: str, inputs: Sequence[int], shape: Sequence[int], table: str = "", **about: Any
    ) -> Drawn:
        self.fit(math.prod(shape) <= MOST and len(shape) > 0)
        self.kinds.append(kind)
        super().op(kind, inputs, [int(n) for n in shape], table, **about)
        self.earlier.append((self.x, self.shape))
        return self

    def several(
        self, kind: str, inputs: Sequence[int], shapes: Sequence[Sequence[int]], table: str, **about: Any
    ) -> list[int]:
        """Several results of an operator."""
        self.kinds.append(kind)
        parts = [self.w.tensor("part", shape, "float32") for shape in shapes]
        self.w.op(kind, inputs, parts, table, **about)
        self.earlier += [(part, tuple(shape)) for part, shape in zip(parts, shapes, strict=True)]
        return parts

    def at(self, tensor: int, shape: Sequence[int]) -> Drawn:
        """Go on with another tensor."""
        self.x, self.shape = tensor, tuple(int(n) for n in shape)
        return self

    def touched(self) -> bool:
        """Whether there is no more an input that is seen otherwise, scaled or shifted."""
        return bool(set(self.kinds) & set(COMPUTE))

    def like(self) -> int | None:
        """An earlier tensor of the shape of the last one."""
        found = [t for t, shape in self.earlier if shape == self.shape and t != self.x]
        return self.pick(*found) if found else None

    def number(self, value: float) -> int:
        return self.w.tensor("number", self.pick((), (1,)), "float32", np.array(value, np.float32))

    def between(self, shape: Sequence[int], low: float = 0.4, high: float = 1.6) -> int:
        """A constant of numbers that may be divided by."""
        return self.w.tensor("factor", tuple(shape), "float32", self.rng.uniform(low, high, shape))

    def axis(self, least: int = 1) -> int:
        """One of the axes behind the batch."""
        self.fit(len(self.shape) > least)
        return int(self.rng.integers(least, len(self.shape)))

    def said(self, axis: int, rank: int | None = None) -> int:
        """An axis, now and then counted from the end."""
        return axis - (rank or len(self.shape)) if self.chance(0.3) else axis

    def turned(self, *axes: int) -> Drawn:
        shape = [self.shape[a] for a in axes]
        return self.op("TRANSPOSE", (self.x, self.whole(*axes)), shape, "TransposeOptions")

    def squashed(self) -> Drawn:
        """Numbers between 0 and 1, or -1 and 1."""
        return self.op(self.pick("LOGISTIC", "LOGISTIC", "TANH"), (self.x,), self.shape)

    def positive(self) -> Drawn:
        return self.op("LOGISTIC", (self.x,), self.shape)

    def ended(self) -> Drawn:
        """Every number has a weight of its own, mostly; the logits are three."""
        shape = self.shape
        if len(shape) == 4 and shape[0] == 1 and self.chance(0.2):
            return self._last(self.over("MEAN", 1, 2))
        if len(shape) == 3 and shape[0] == 1 and self.chance(0.2):
            return self._last(self.over("MEAN", 1))
        if len(shape) != 2 or shape[0] != 1:
            direct = shape[0] == 1 and self.chance(0.15)
            if direct:
                weights = (self.x, self.drawn(3, math.prod(shape)), self.drawn(3))
                return self.op("FULLY_CONNECTED", weights, (1, 3), "FullyConnectedOptions")
            self.op(
                "RESHAPE", (self.x, self.whole(1, self.pick(-1, math.prod(shape)))), (1, math.prod(shape))
            )
        return self._last(self)

    def _last(self, net: Any) -> Drawn:
        net.linear(3)
        return self


Piece = Callable[[Drawn], object]


def draw(piece: Piece, others: Sequence[Piece], seed: Sequence[int]) -> Drawn:
    """A file that has this piece in its middle. UnfitError: another seed would have to be taken."""
    net = Drawn(seed)
    for _ in range(net.pick(0, 1, 1, 2)):
        _tried(net, _other(net, others))
    before = len(net.kinds)
    piece(net)
    net.fit(len(net.kinds) > before)
    for _ in range(net.pick(0, 0, 1, 1, 2)):
        _tried(net, _other(net, others))
    return net.ended()


def _other(net: Drawn, others: Sequence[Piece]) -> Piece:
    """Now and then one that turns what there is, which all others have to see."""
    turns = [piece for piece in others if piece.__name__ in ("transpose", "view", "around", "unpacked")]
    return net.pick(*turns) if net.chance(0.25) else net.pick(*others)  # type: ignore[no-any-return]


def _tried(net: Drawn, piece: Piece) -> None:
    kept = net.x, net.shape
    try:
        piece(net)
    except UnfitError:
        net.x, net.shape = kept
