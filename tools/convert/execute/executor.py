"""Runs a training graph in NumPy: the oracle of generated code.

With int8 errors it does what the device does, bit for bit, update included. With real errors ("fp32") it
runs the same graph with unrounded float64 gradients and updates nothing: those are compared with autograd.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from microtrain.base.trained import STATISTICS
from microtrain.convert.ir import Graph, Layer
from microtrain.convert.ops import TABLE, forward_op, saves
from microtrain.convert.ops.environment import Env, State
from microtrain.convert.reference.kernels import Sgd
from microtrain.convert.splits import split_weight
from microtrain.convert.trainables import layout

Array = np.ndarray
# Training may leave float32: numeric.h says what comes of it.
OVERFLOW: dict[str, Any] = {"over": "ignore", "invalid": "ignore", "divide": "ignore"}


class Executor:
    """One model in training. Images are stored int8 [h, w, c]."""

    def __init__(self, graph: Graph, errors: str = "int8") -> None:
        assert errors in ("int8", "fp32"), errors
        self.env = Env(
            graph, {name: _initial(layer) for name, layer in graph.layers.items()}, errors == "fp32"
        )
        for node in graph.forward_nodes:
            if not saves(node) and not node.parts:
                self.env.statistics |= forward_op(node).statistics(graph, node)

    @np.errstate(**OVERFLOW)
    def forward(self, image: Array) -> Array:
        """Float32 logits of an image; keeps what `backward` needs."""
        env = self.env
        env.values = {env.graph.input.tensor: image}
        for node in env.graph.forward_nodes:
            TABLE[node.op].run(env, node)
        return np.asarray(env.values[env.graph.output])

    @np.errstate(**OVERFLOW)
    def backward(self, label: int | Array, sgd: Sgd) -> float:
        """Loss of the last image; runs the backward pass and (int8 errors) the update.

        label  or the target, float32 [targets]
        """
        env = self.env
        env.label, env.sgd, env.gradients = label, sgd, {}
        loss, *rest = env.graph.backward_nodes
        TABLE[loss.op].run(env, loss)
        if env.loss < np.float32(env.graph.gate):
            return env.loss
        for node in rest:
            TABLE[node.op].run(env, node)
        return env.loss

    def trainables(self) -> bytes:
        """The block of trainables, as it lies in the device's memory."""
        env = self.env
        block = bytearray()
        for item in layout(env.graph):
            block += b"\0" * (item.offset - len(block)) + _stored(env, item.layer, item.kind)
        return bytes(block) + b"\0" * (-len(block) % 4)


def _initial(layer: Layer) -> State:
    fraction = np.zeros(split_weight(layer)[1].shape, np.int8) if layer.fraction_bits else None
    return State(layer.weight.copy(), fraction, layer.bias.copy(), np.zeros(len(layer.bias), np.int16))


def _stored(env: Env, layer: str, kind: str) -> bytes:
    if kind in STATISTICS:
        return env.statistics[kind].tobytes()
    state = env.state[layer]
    if kind == "weight":
        return env.trained_columns(layer).tobytes()
    if kind == "fraction":
        assert state.fraction is not None
        return pack_fraction(state.fraction, env.graph.layers[layer].fraction_bits)
    if kind == "bias":
        return state.delta.astype("<i2").tobytes()
    return (state.weight if kind == "head_weight" else state.bias).astype("<f4").tobytes()


def pack_fraction(fraction: Array, bits: int) -> bytes:
    """Fractions as stored: 8 bits per byte, or two per byte with the even element in the low nibble."""
    flat = fraction.reshape(-1).view(np.uint8)
    if bits == 8:
        return flat.tobytes()
    even = np.append(flat, np.zeros(flat.size % 2, np.uint8)) & 15
    return (even[0::2] | even[1::2] << 4).astype(np.uint8).tobytes()
