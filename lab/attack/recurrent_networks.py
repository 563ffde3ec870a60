"""Small TFLite files with recurrent layers, as TensorFlow writes Keras': one operator, or a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .tflite_files import Int8, Writer
from .tflite_networks import Float

KIND, TABLE = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions"
NONE = -1
TANH = 4
Side = tuple[float, int]  # scale and zero point


def over_time(
    net: Float, units: int, clip: float = 10.0, left_out: int | None = None, given: int | None = None
) -> Float:
    """Over an input [1, time, features].

    left_out  a place whose constant is not there
    given     one whose constant is, which few files have
    """
    _, time, features = net.shape
    weights = [net.drawn(units, n) for n in 4 * [features] + 4 * [units]]
    biases = [net.drawn(units) for _ in range(4)]
    states = [net.w.state((1, units), "float32") for _ in range(2)]
    places = [net.x, *weights, *3 * [NONE], *biases, NONE, NONE, *states, *4 * [NONE]]
    if given is not None:
        places[given] = net.drawn(units)
    if left_out is not None:
        places[left_out] = NONE
    return net.op(KIND, places, (1, time, units), TABLE, **options(clip))


def options(clip: float) -> dict[str, Any]:
    return {"FusedActivationFunction": TANH, "CellClip": clip, "TimeMajor": False}


def last_row(net: Float) -> Float:
    """Of [1, time, units]."""
    _, time, units = net.shape
    ends = (net.whole(0, time - 1, 0), net.whole(1, time, units), net.whole(1, 1, 1))
    about = {"BeginMask": 1 | 4, "EndMask": 1 | 4, "ShrinkAxisMask": 2}
    return net.op("STRIDED_SLICE", (net.x, *ends), (1, units), "StridedSliceOptions", **about)


def int8_over_time(
    net: Int8,
    units: int,
    y: Side,
    left: Side,
    read: Side,
    bits: int = 3,
    clip: float = 0.0,
    wide: float = 0.02,
) -> Int8:
    """Over an input [1, time, features].

    y, left, read  scale and zero point of the output, of what a row leaves and of the state that is read
    bits           of the cell in front of its point
    wide           the scale of its weights
    """
    time, features = net.shape
    scales = net.rng.uniform(0.3, 1.0, 8) * wide
    weights = [
        net.w.tensor("w", (units, n), data=net.rng.integers(-127, 128, (units, n)), scale=(float(scale),))
        for n, scale in zip(4 * [features] + 4 * [units], scales, strict=True)
    ]
    biases = [net.w.tensor("b", (units,), "int32", net.rng.integers(-300, 300, units)) for _ in range(4)]
    state = net.w.state((1, units), side=read)
    cell = net.w.state((1, units), "int16", (2.0 ** (bits - 15), 0))
    between = [net.w.tensor(f"between{i}", (0,), "float32") for i in range(4)]
    between.append(net.w.tensor("left", (0,), scale=left[:1], zero=left[1:]))
    made = net.w.tensor("rows", (1, time, units), scale=y[:1], zero=y[1:])
    places = (net.x, *weights, *3 * [NONE], *biases, NONE, NONE, state, cell, *4 * [NONE])
    net.w.op(KIND, places, (made,), TABLE, between=between, **options(clip))
    net.x, net.shape, net.scale, net.zero = made, (time, units), y[0], y[1]
    return net


def int8_last_row(net: Int8) -> Int8:
    time, units = net.shape
    ends = [
        net.w.tensor("at", (3,), "int32", np.array(at))
        for at in ((0, time - 1, 0), (1, time, units), 3 * (1,))
    ]
    made = net.w.tensor("last", (1, units), scale=(net.scale,), zero=(net.zero,))
    about = {"BeginMask": 1 | 4, "EndMask": 1 | 4, "ShrinkAxisMask": 2}
    net.w.op("STRIDED_SLICE", (net.x, *ends), (made,), "StridedSliceOptions", **about)
    net.x, net.shape = made, (units,)
    return net


def one_way() -> Float:
    """Of which the last row is read; cells that never reach where the file cuts them off."""
    return last_row(over_time(Float(6, 5), 7)).linear(3)


def two_layers() -> Float:
    """All rows of the second are read."""
    return over_time(over_time(Float(6, 5), 7), 4).over("MEAN", 1).linear(3)


def both_ways() -> Float:
    net = Float(6, 5)
    x = net.x
    first = last_row(over_time(net, 4)).x
    net.x, net.shape = x, (1, 6, 5)
    net.op("REVERSE_V2", (x, net.whole(1)), (1, 6, 5), "ReverseV2Options")
    second = last_row(over_time(net, 4)).x
    net.op("CONCATENATION", (first, second), (1, 8), "ConcatenationOptions", Axis=1)
    return net.linear(3)


@dataclass
class Inside:
    """A graph that a loop runs, op by op."""

    w: Writer
    rng: np.random.Generator

    def given(self, shape: Sequence[int], dtype: str = "float32") -> int:
        return self.w.tensor("given", shape, dtype)

    def drawn(self, *shape: int) -> int:
        values = self.rng.normal(0, 1.0 / shape[-1] ** 0.5, shape)
        return self.w.tensor("weights", shape, "float32", values.astype(np.float32))

    def whole(self, numbers: Any) -> int:
        return self.w.tensor("numbers", np.shape(numbers), "int32", np.array(numbers))

    def op(
        self, kind: str, inputs: Sequence[int], shape: Sequence[int], dtype: str = "float32", **about: Any
    ) -> int:
        made = self.w.tensor("made", shape, dtype)
        self.w.op(kind, inputs, (made,), **about)
        return made

    def split(self, x: int, parts: int, size: int) -> list[int]:
        made = [self.w.tensor("part", (1, size), "float32") for _ in range(parts)]
        self.w.op("SPLIT", (self.whole(1), x), made, "SplitOptions", NumSplits=parts)
        return made


def _gates(body: Inside, gates: int, units: int, x: int, h: int, cell: int) -> tuple[int, ...]:
    """What a row leaves, h and of an LSTM the cell, as Keras computes it.

    x, h  sums over inputs and over the state, gates * units numbers
    cell  of an LSTM; else the state
    """
    one, size = partial(body.op, shape=(1, units)), gates * units
    if gates == 3:
        (zx, rx, nx), (zh, rh, nh) = (body.split(v, 3, units) for v in (x, h))
        z, r = (one("LOGISTIC", (one("ADD", pair),)) for pair in ((zx, zh), (rx, rh)))
        new = one("TANH", (one("ADD", (nx, one("MUL", (r, nh)))),))
        rest = one("SUB", (body.w.tensor("one", (), "float32", np.ones(())), z))
        return (one("ADD", (one("MUL", (z, cell)), one("MUL", (rest, new)))),)
    sums = body.op("ADD", (x, h), (1, size))
    if gates == 1:
        return (one("TANH", (sums,)),)
    i, f, g, o = body.split(sums, 4, units)
    kept = one("MUL", (one("LOGISTIC", (f,)), cell))
    after = one("ADD", (kept, one("MUL", (one("LOGISTIC", (i,)), one("TANH", (g,))))))
    return one("MUL", (one("LOGISTIC", (o,)), one("TANH", (after,)))), after


def looped(net: Float, units: int, gates: int, backward: bool = False, begin: float = 0.0) -> Float:
    """A loop over an input [1, time, features], which leaves what the last row leaves.

    gates     1 of a plain cell, 3 of a GRU, 4 of an LSTM
    backward  the rows come from the last one on
    begin     of the state's numbers
    """
    _, time, features = net.shape
    body, test = (Inside(net.w.beside(), net.rng) for _ in range(2))
    states = 2 if gates == 4 else 1
    shapes = [(), (), (1, 1, units), *states * [(1, units)], (time, 1, features)]
    taken = [[g.given(shape, "float32" if shape else "int32") for shape in shapes] for g in (test, body)]
    less = [test.op("LESS", (at, test.whole(time)), (), "bool") for at in taken[0][:2]]
    test.w.graph(taken[0], (test.op("LOGICAL_AND", less, (), "bool"),))
    count, moment, _, *before, rows = taken[1]
    row = body.op("GATHER", (rows, moment), (1, features), table="GatherOptions", Axis=0)
    dense, size = {"table": "FullyConnectedOptions"}, gates * units
    x = body.op("FULLY_CONNECTED", (row, body.drawn(size, features), body.drawn(size)), (1, size), **dense)
    h = body.op("FULLY_CONNECTED", (before[0], body.drawn(size, units), NONE), (1, size), **dense)
    h = body.op("ADD", (h, body.drawn(size)), (1, size))
    left = _gates(body, gates, units, x, h, before[-1])
    shown = body.op("RESHAPE", (left[0], body.whole((1, 1, units))), (1, 1, units))
    next_ones = [body.op("ADD", (at, body.whole(1)), (), "int32") for at in (count, moment)]
    body.w.graph(taken[1], (*next_ones, shown, *left, rows))
    net.view(time, 1, features)
    if backward:
        net.op("REVERSE_V2", (net.x, net.whole(0)), net.shape, "ReverseV2Options")
    number = len(net.w.graphs)
    kinds = ["float32" if shape else "int32" for shape in shapes]
    first = [np.full(shape, begin if shape else 0) for shape in shapes[:-1]]
    zeros = [net.w.tensor("zero", v.shape, kind, v) for v, kind in zip(first, kinds, strict=False)]
    made = [net.w.tensor("left", shape, kind) for shape, kind in zip(shapes, kinds, strict=True)]
    net.w.op(
        "WHILE", (*zeros, net.x), made, "WhileOptions", CondSubgraphIndex=number - 1, BodySubgraphIndex=number
    )
    net.x, net.shape = made[2], (1, 1, units)
    return net.view(1, units)


def loop_of_an_lstm() -> Float:
    return looped(Float(6, 5), 7, 4).linear(3)


def loop_of_a_gru() -> Float:
    return looped(Float(6, 5), 7, 3, backward=True).linear(3)


def loop_of_a_plain_cell() -> Float:
    return looped(Float(6, 5), 7, 1).linear(3)


NETWORKS = (one_way, two_layers, both_ways, loop_of_an_lstm, loop_of_a_gru, loop_of_a_plain_cell)
