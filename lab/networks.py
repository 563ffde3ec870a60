"""Quantized networks of random numbers, built without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from microtrain.convert.axis import Axis
from microtrain.convert.ir import (
    FACTOR,
    TERM,
    Codes,
    Graph,
    Input,
    Layer,
    Node,
    Shape,
    Source,
    Tensor,
    Window,
    out_size,
)
from microtrain.convert.ops import coded, mul_add, position, prototypes, recurrent, scale_values, unflatten
from microtrain.convert.ops.aten.pool import CHANNEL_MAXIMUM, CHANNEL_MEAN
from microtrain.convert.ops.aten.resample import RESAMPLE
from microtrain.convert.ops.attention import ATTENTION
from microtrain.convert.ops.functions import SIGMOID
from microtrain.convert.ops.scale import MULTIPLY, PIXELS
from microtrain.convert.ops.upsample import UPSAMPLE

OVER_CHANNELS = (CHANNEL_MEAN, CHANNEL_MAXIMUM)


@dataclass
class Builder:
    """Appends ops to a quantized forward graph; every method returns the name of the tensor it made."""

    rng: np.random.Generator
    shape: tuple[int, int, int]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    layers: dict[str, Layer] = field(default_factory=dict)
    groups: int = 1  # of the convolution that is appended next, and how far apart its taps are
    apart: int = 1

    def __post_init__(self) -> None:
        self.tensors["x"] = Tensor("x", self.shape, "s8", float(np.float32(2 / 255)), -1)

    def _tensor(self, shape: tuple[int, int, int], scale: float, zero: int) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors[name] = Tensor(name, shape, "s8", float(np.float32(scale)), zero)
        return name

    def conv(
        self, x: str, c_out: int, k: int = 1, stride: int = 1, relu: bool = True, pad: int | None = None
    ) -> str:
        return self._conv("conv2d", x, c_out, k, stride, relu, pad)

    def depthwise(self, x: str, k: int = 3, stride: int = 1, relu: bool = True) -> str:
        return self._conv("dwconv2d", x, self.tensors[x].channels, k, stride, relu, None)

    def grouped(
        self, x: str, c_out: int, k: int = 3, stride: int = 1, groups: int = 1, apart: int = 1
    ) -> str:
        """In groups, and with taps `apart` pixels apart."""
        self.groups, self.apart = groups, apart
        y = self._conv("gconv2d", x, c_out, k, stride, True, (k - 1) * apart // 2)
        self.groups = self.apart = 1
        return y

    def _conv(self, op: str, x: str, c_out: int, k: int, stride: int, relu: bool, pad: int | None) -> str:
        h, w, c_in = self.tensors[x].shape
        pad = k // 2 if pad is None else pad
        c_in //= self.groups
        shape = (c_out, k, k) if op == "dwconv2d" else (c_out, k, k, c_in)
        fan_in = k * k * (1 if op == "dwconv2d" else c_in)
        scale = self.rng.uniform(0.3, 3.0, c_out) * 2.0 / (64 * fan_in**0.5)
        bias = (self.rng.normal(0, 0.2, c_out) / (self.tensors[x].scale * scale)).astype(np.int32)
        name = f"layer{len(self.nodes)}"
        weight = self.rng.integers(-127, 128, shape).astype(np.int8)
        self.layers[name] = Layer(
            weight,
            bias,
            Source(f"{name}.weight", f"{name}.bias"),
            scale.astype(np.float32).astype(np.float64),
            np.zeros(c_out, bool),
        )
        k = (k - 1) * self.apart + 1
        window = Window(k, k, stride, stride, pad, pad)
        out = (out_size(h, k, stride, pad), out_size(w, k, stride, pad), c_out)
        y = self._tensor(out, *((2.5 / 255, -128) if relu else (5.0 / 255, int(self.rng.integers(-20, 20)))))
        self.nodes.append(Node(op, name, (x,), (y,), name, window))
        return y

    def add(self, a: str, b: str) -> str:
        y = self._tensor(self.tensors[a].shape, 6.0 / 255, 3)
        self.nodes.append(Node("add", f"add{len(self.nodes)}", (a, b), (y,)))
        return y

    def layer(self, op: str, *inputs: str, factors: tuple[float, ...] = ()) -> str:
        """Any op whose result has the shape of its first input."""
        y = self._tensor(self.tensors[inputs[0]].shape, 3.0 / 255, -60)
        self.nodes.append(Node(op, f"{op}{len(self.nodes)}", inputs, (y,), factors=factors))
        return y

    def position(self, x: str, lead: int) -> str:
        """Pixels as tokens with positions; behind `lead` tokens of the table's own."""
        h, w, c = self.tensors[x].shape
        y = self._tensor((h * w + lead, 1, c) if lead else (h, w, c), 6.0 / 255, -7)
        table = self.rng.normal(0, 0.5, (h * w + lead, c))
        self.nodes.append(position.node_of(f"position{len(self.nodes)}", x, y, lead, table))
        return y

    def scaled(self, x: str) -> str:
        """Times a constant for each number."""
        y = self._tensor(self.tensors[x].shape, 4.0 / 255, -12)
        table = self.rng.normal(0, 0.5, self.tensors[x].shape)
        self.nodes.append(scale_values.node_of(f"scaled{len(self.nodes)}", x, y, table))
        return y

    def mul_add(self, x: str, with_term: bool = True) -> str:
        """Times a constant a channel, and plus another one, as an int8 TFLite file has them."""
        c = self.tensors[x].channels
        w, b = (self.rng.integers(-128, 128, c).astype(np.int8) for _ in range(2))
        w_zero = -128 + int(self.rng.integers(90))
        factor, term = Codes(w, 1.5 / 128, w_zero, FACTOR), Codes(b, 1 / 128, 9, TERM)
        own = mul_add.Constants(factor, term, (4.0 / 255, -9)) if with_term else mul_add.Constants(factor)
        y = self._tensor(self.tensors[x].shape, 4.0 / 255, -12)
        self.nodes.append(mul_add.node_of(f"mul_add{len(self.nodes)}", x, y, own))
        return y

    def attention(self, x: str, heads: int, down: int = 1, across: int = 1) -> str:
        """Of queries, keys and values side by side; among tokens that are so many pixels apart."""
        h, w, c = self.tensors[x].shape
        y = self._tensor((h, w, c // 3), 2.0 / 255, 5)
        factors = ((c / 3 / heads) ** -0.5, float(heads), float(down), float(across))
        self.nodes.append(Node(ATTENTION, f"attention{len(self.nodes)}", (x,), (y,), factors=factors))
        return y

    def recurrent(self, x: str, op: str, units: int) -> str:
        """A cell over the rows of a map, or what its last row leaves."""
        rows, w, c = self.tensors[x].shape
        y = self._tensor((1 if op in recurrent.LAST.values() else rows, 1, units), 2.0 / 255, -3)
        gates, inputs = recurrent.GATES[recurrent.cell_of(op)], w * c
        sizes = (units, gates, inputs), (units, gates, units), (units, 4)
        real = (
            self.rng.normal(0, by, size)
            for by, size in zip((inputs**-0.5, units**-0.5, 0.3), sizes, strict=True)
        )
        self.nodes.append(recurrent.node_of(op, f"{op}{len(self.nodes)}", x, y, recurrent.Real(*real)))
        return y

    def concat(self, *maps: str) -> str:
        h, w, _ = self.tensors[maps[0]].shape
        y = self._tensor((h, w, sum(self.tensors[m].channels for m in maps)), 4.0 / 255, -20)
        self.nodes.append(Node("concat", f"concat{len(self.nodes)}", maps, (y,)))
        return y

    def take(self, x: str, channels: Sequence[int]) -> str:
        h, w, _ = self.tensors[x].shape
        y = self._tensor((h, w, len(channels)), self.tensors[x].scale, self.tensors[x].zero)
        self.nodes.append(Node("take", f"take{len(self.nodes)}", (x,), (y,), channels=tuple(channels)))
        return y

    def gated(self, x: str, c_out: int) -> str:
        """What a convolution makes, times what another one lets through."""
        gate = self.layer(SIGMOID, self.conv(x, c_out, relu=False))
        return self.layer(MULTIPLY, self.conv(x, c_out, relu=False), gate)

    def larger(self, x: str, down: int, across: int) -> str:
        """Each pixel as a block."""
        h, w, c = self.tensors[x].shape
        y = self._tensor((h * down, w * across, c), self.tensors[x].scale, self.tensors[x].zero)
        factors = (float(down), float(across))
        self.nodes.append(Node(UPSAMPLE, f"larger{len(self.nodes)}", (x,), (y,), factors=factors))
        return y

    def map_of(self, x: str, shape: Shape) -> str:
        """The channels of one pixel as a map."""
        y = self._tensor(shape, self.tensors[x].scale, self.tensors[x].zero)
        self.nodes.append(unflatten.node_of(f"map{len(self.nodes)}", x, y, shape))
        return y

    def sampled(self, x: str, rows: Axis, columns: Axis) -> str:
        """Rows and columns mixed anew."""
        about = self.tensors[x]
        y = self._tensor((rows.outputs, columns.outputs, about.channels), about.scale, about.zero)
        self.nodes.append(Node(RESAMPLE, f"sampled{len(self.nodes)}", (x,), (y,), axes=(rows, columns)))
        return y

    def attended_to(self, x: str, op: str | None = SIGMOID, by: Sequence[str] = OVER_CHANNELS) -> str:
        """The map times what the mean and the maximum of its channels say of each pixel, by way of an op."""
        (h, w, _), about, said = self.tensors[x].shape, self.tensors[x], []
        for kind in by:
            said.append(self._tensor((h, w, 1), about.scale, about.zero))
            self.nodes.append(Node(kind, f"{kind}{len(self.nodes)}", (x,), (said[-1],)))
        gate = self.conv(self.concat(*said) if len(said) > 1 else said[0], 1, relu=False)
        return self.layer(PIXELS, x, self.layer(op, gate) if op else gate)

    def less(self, a: str, b: str) -> str:
        """a - b"""
        y = self.add(a, b)
        self.nodes[-1] = replace(self.nodes[-1], factors=(-1.0,))
        return y

    def pool(self, op: str, x: str, k: int, stride: int, pad: int = 0) -> str:
        h, w, c = self.tensors[x].shape
        shape = (out_size(h, k, stride, pad), out_size(w, k, stride, pad), c)
        return self._pooled(op, x, shape, Window(k, k, stride, stride, pad, pad))

    def pool_rows(self, op: str, x: str, k: int) -> str:
        """Of k rows each, as of a series."""
        h, w, c = self.tensors[x].shape
        return self._pooled(op, x, (h // k, w, c), Window(k, 1, k, 1))

    def _pooled(self, op: str, x: str, shape: tuple[int, int, int], window: Window) -> str:
        y = self._tensor(shape, self.tensors[x].scale, self.tensors[x].zero)
        self.nodes.append(Node(op, f"{op}{len(self.nodes)}", (x,), (y,), None, window))
        return y

    def finish(self, x: str, classes: int) -> Graph:
        """Global average pooling and the head."""
        h, w, c = self.tensors[x].shape
        features = self._pooled("avgpool", x, (1, 1, c), Window(h, w, 1, 1, 0, 0)) if h * w > 1 else x
        self.tensors["logits"] = Tensor("logits", (1, 1, classes), "f32")
        weight = self.rng.normal(0, 0.3, (classes, c)).astype(np.float32)
        self.layers["head"] = Layer(weight, np.zeros(classes, np.float32), Source("head.weight", "head.bias"))
        self.nodes.append(Node("head", "head", (features,), ("logits",), "head"))
        channels = self.shape[2]
        pixel = Input("x", (1.0,) * channels, (-128.0,) * channels)
        return Graph("net", pixel, "logits", self.tensors, tuple(self.nodes), self.layers)


def of_open_set(graph: Graph, seed: int = 0) -> Graph:
    """A quantized network with a centre of embeddings, of no samples, for prototypes of its features."""
    shape = graph.tensors[graph.nodes[-1].inputs[0]].shape
    stored = np.random.default_rng(seed).integers(-128, 128, (16, *shape)).astype(np.int8)
    return prototypes.centred(graph, stored)


def with_codes(graph: Graph, seed: int = 0, skip: int = 0) -> Graph:
    """The graph with random codes for the weights of its dense layers, but for the last `skip` of them."""
    rng = np.random.default_rng(seed)
    dense = [n.layer for n in graph.nodes if n.layer and coded.can_be_coded(graph, n)]
    chosen = dense[: len(dense) - skip]
    layers = dict(graph.layers)
    for name in chosen:
        shape = layers[name].weight.shape
        layers[name] = replace(layers[name], weight=coded_weights(rng, shape))
    nodes = tuple(coded.coded(n) if n.layer in chosen else n for n in graph.nodes)
    return graph.replace(layers=layers, nodes=nodes)


def coded_weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Weights [c_out, ...] that random codes stand for."""
    length = int(np.prod(shape[1:]))
    codes = rng.integers(0, coded.CODES, (shape[0], (length + 1) // 2))
    states = np.column_stack([np.zeros(shape[0], int), coded.after(codes[:, :-1])])
    rows = coded.PAIRS[codes, states].reshape(shape[0], -1)
    return np.ascontiguousarray(rows[:, :length]).reshape(shape)


def varied_network(seed: int) -> Graph:
    """A random chain of every op that a small network may have, with odd channel counts and sizes."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(8, 33))
    b = Builder(rng, (size, size, int(rng.choice([1, 3]))))
    x = b.conv("x", int(rng.integers(4, 20)), int(rng.choice([3, 5])), int(rng.integers(1, 3)))
    for stage in rng.permutation(list(_STAGES))[:5]:
        if b.tensors[x].shape[0] >= 4:
            x = _STAGES[stage](b, x, rng)
    return b.finish(b.conv(x, int(rng.integers(8, 64))), int(rng.integers(3, 20)))


def _bottleneck(b: Builder, x: str, rng: np.random.Generator) -> str:
    y = b.depthwise(b.conv(x, int(rng.integers(8, 64))), int(rng.choice([3, 5, 7])), int(rng.integers(1, 3)))
    return b.conv(y, int(rng.integers(6, 30)), relu=False)


def _residual(b: Builder, x: str, rng: np.random.Generator) -> str:
    y = b.depthwise(b.conv(x, int(rng.integers(8, 48))), int(rng.choice([3, 5, 7])))
    return b.add(x, b.conv(y, b.tensors[x].channels, relu=False))


def _dense(b: Builder, x: str, rng: np.random.Generator) -> str:
    return b.conv(x, int(rng.integers(6, 40)), int(rng.choice([2, 3, 5])), int(rng.integers(1, 3)))


def _depthwise(b: Builder, x: str, rng: np.random.Generator) -> str:
    return b.depthwise(x, int(rng.choice([2, 3, 4, 5, 7])), int(rng.integers(1, 3)))


def _pooled(b: Builder, x: str, rng: np.random.Generator) -> str:
    k = int(rng.integers(2, 4))
    return b.pool(str(rng.choice(["maxpool", "avgpool"])), x, k, int(rng.integers(1, k + 1)))


def _activated(b: Builder, x: str, rng: np.random.Generator) -> str:
    return b.layer("hardswish", b.conv(x, int(rng.integers(6, 30)), relu=False))


def _sides(b: Builder, x: str, rng: np.random.Generator) -> str:
    """A map beside itself, and every other channel of that."""
    y = b.concat(x, b.conv(x, int(rng.integers(4, 16))))
    return b.take(y, range(0, b.tensors[y].channels, 2))


_STAGES: dict[str, Callable[[Builder, str, np.random.Generator], str]] = {
    "bottleneck": _bottleneck,
    "residual": _residual,
    "residual again": _residual,
    "dense": _dense,
    "depthwise": _depthwise,
    "pooled": _pooled,
    "activated": _activated,
    "sides": _sides,
}
