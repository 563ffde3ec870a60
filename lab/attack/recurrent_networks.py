"""Small TFLite files with UNIDIRECTIONAL_SEQUENCE_LSTM, as TensorFlow writes Keras' LSTM up to 2.15."""

from __future__ import annotations

from typing import Any

import numpy as np

from .tflite_files import Int8
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


NETWORKS = (one_way, two_layers, both_ways)
