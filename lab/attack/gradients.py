"""Attacks on the integer sums of gradients: hidden linear layers over large maps, sums that leave int32.

Of all files outside tools/convert/ops this one names ops (lab/house/op_names.py): what it attacks are single
kernels, with values that no entry of the table would give them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lab.golden.check import cosine
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import (
    ConvertError,
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
from microtrain.convert.ops import conv_structs, host, pool_structs
from microtrain.convert.ops.bounds import geometry, guard_bits, reach
from microtrain.convert.pipeline import compile_graph, training_graph
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.biases import Bias, bias_update
from microtrain.convert.reference.kernels import Clamp, Error, Sgd
from microtrain.convert.reference.proofs import multiplier_words
from microtrain.convert.scheme import Scheme

STILL = Sgd(0.0, 0.0, 0.0, 0, 0)
CLASSES = 5
POINT = Window(1, 1)
# Maps in front of a hidden linear layer and its outputs.
MAPS: tuple[tuple[Shape, int], ...] = (
    ((8, 8, 32), 128),
    ((16, 16, 4), 120),
    ((16, 16, 8), 128),
    ((24, 24, 4), 128),
    ((28, 28, 8), 128),
    ((32, 32, 4), 128),
    ((32, 32, 8), 256),
)


def _convolution(rng: np.random.Generator, name: str, x: Tensor, c_out: int, k: Window) -> Layer:
    """A quantized convolution with random weights, whose outputs use their range."""
    fan_in = k.kh * k.kw * x.channels
    scale = rng.uniform(0.3, 3.0, c_out) * 2.0 / (64 * fan_in**0.5)
    bias = (rng.normal(0, 0.2, c_out) / (x.scale * scale)).astype(np.int32)
    weight = rng.integers(-127, 128, (c_out, k.kh, k.kw, x.channels)).astype(np.int8)
    scale = scale.astype(np.float32).astype(np.float64)
    source = Source(f"{name}.weight", f"{name}.bias")
    return Layer(weight, bias, source, scale, np.zeros(c_out, bool))


def hidden_linear(shape: Shape, width: int, seed: int = 0) -> Graph:
    """Image > 1x1 convolution > map of that shape > hidden linear layer > head, quantized, random weights."""
    rng = np.random.default_rng(seed)
    scale = float(np.float32(2.5 / 255))
    image = Tensor("x", (*shape[:2], 3), "s8", float(np.float32(2 / 255)), -1)
    maps, hidden = Tensor("map", shape, "s8", scale, -128), Tensor("hidden", (1, 1, width), "s8", scale, -128)
    tensors = {t.name: t for t in (image, maps, hidden, Tensor("logits", (1, 1, CLASSES)))}
    whole = Window(*shape[:2])
    head = rng.normal(0, 0.3, (CLASSES, width)).astype(np.float32)
    layers = {
        "conv": _convolution(rng, "conv", image, shape[2], POINT),
        "linear": _convolution(rng, "linear", maps, width, whole),
        "head": Layer(head, np.zeros(CLASSES, np.float32), Source("head.weight", "head.bias")),
    }
    nodes = (
        Node("conv2d", "conv", ("x",), ("map",), "conv", POINT),
        Node("conv2d", "linear", ("map",), ("hidden",), "linear", whole),
        Node("head", "head", ("hidden",), ("logits",), "head"),
    )
    return Graph("hidden-linear", Input("x", (1.0,) * 3, (-128.0,) * 3), "logits", tensors, nodes, layers)


EVERYTHING = Scheme("all", -1, {"all": 1.0}, head="random")


def everything_trained(graph: Graph) -> Graph:
    """The training graph of a scheme that trains every weight and bias."""
    return compile_graph(graph, EVERYTHING, CLASSES).graph


def least_cosine(graph: Graph, image: np.ndarray, label: int = 1) -> float:
    """Least cosine of a trained tensor's int8 gradient with that of the same graph in float64.

    graph  a training graph; image  stored, int8 [h, w, c]
    """
    found = []
    for errors in ("int8", "fp32"):
        executor = Executor(graph, errors)
        executor.forward(image)
        executor.backward(label, STILL)
        found.append(executor.env.gradients)
    return min(cosine(found[0][key], found[1][key]) for key in found[1])


def stored_image(graph: Graph, seed: int = 3) -> np.ndarray:
    """A random stored image."""
    shape = graph.tensors[graph.input.tensor].shape
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def min_cosine_hidden_linear(maps: tuple[tuple[Shape, int], ...] = MAPS) -> float:
    """Least cosine of a gradient through a hidden linear layer over these maps with the float64 gradient."""
    graphs = (everything_trained(hidden_linear(*case)) for case in maps)
    return min(least_cosine(graph, stored_image(graph)) for graph in graphs)


# ---- sums at the edge of int32


@dataclass(frozen=True)
class Extreme:
    """A layer of extreme size. op: conv2d, dwconv2d, avgpool, maxpool, or head (flattened features)."""

    op: str
    x: Shape
    c_out: int
    window: Window = POINT
    zero: int = -128


# Small enough, at the limit, and beyond it; the last of each group cannot be right and must be refused.
EXTREMES: tuple[Extreme, ...] = (
    Extreme("conv2d", (7, 9473, 1), 2),
    Extreme("conv2d", (262, 262, 1), 2, zero=0),
    Extreme("conv2d", (300, 300, 1), 1, Window(3, 3, 1, 1, 1, 1), 0),
    Extreme("conv2d", (300, 300, 2), 3, Window(3, 3, 2, 2, 1, 1)),
    Extreme("conv2d", (262, 262, 1), 1),
    Extreme("conv2d", (300, 300, 1), 2, Window(3, 3, 1, 1, 1, 1)),
    Extreme("dwconv2d", (261, 254, 2), 2, Window(3, 3, 1, 1, 1, 1)),
    Extreme("dwconv2d", (64, 64, 1), 1, Window(31, 31, 1, 1, 15, 15)),
    Extreme("dwconv2d", (262, 262, 1), 1, Window(5, 5, 1, 1, 2, 2)),
    Extreme("conv2d", (1, 1, 65535), 2),
    Extreme("conv2d", (2, 2, 16400), 2, Window(2, 2)),
    Extreme("conv2d", (1, 3, 1), 44000, Window(1, 3, 1, 1, 0, 1)),
    Extreme("conv2d", (1, 3, 1), 44100, Window(1, 3, 1, 1, 0, 1)),
    Extreme("conv2d", (5, 5, 4), 516, Window(3, 3, 1, 1, 1, 1)),
    Extreme("conv2d", (32, 32, 8), 256, Window(32, 32)),
    Extreme("conv2d", (300, 300, 1), 4, Window(300, 300)),
    Extreme("avgpool", (300, 300, 1), 1, Window(255, 255, 40, 40)),
    Extreme("avgpool", (300, 300, 1), 1, Window(300, 300)),
    Extreme("maxpool", (64, 64, 1), 1, Window(16, 16, 1, 1)),
    Extreme("maxpool", (64, 64, 1), 1, Window(17, 17, 1, 1)),
    Extreme("head", (255, 257, 1), 1),
    Extreme("head", (300, 300, 1), 1),
)


def extreme_graph(case: Extreme) -> Graph:
    """Image > 1x1 convolution > the layer > poolings down to a small map > head."""
    rng = np.random.default_rng(0)
    relu = float(np.float32(2.5 / 255))
    tensors = {
        "x": Tensor("x", (*case.x[:2], 1), "s8", relu, 0),
        "map": Tensor("map", case.x, "s8", relu, case.zero),
    }
    layers = {"point": _convolution(rng, "point", tensors["x"], case.x[2], POINT)}
    nodes = [Node("conv2d", "point", ("x",), ("map",), "point", POINT)]
    last = "map"
    steps = [(case.op, case.window)] if case.op != "head" else []
    while steps or (case.op != "head" and max(tensors[last].shape[:2]) > 16):
        op, k = steps.pop() if steps else ("avgpool", _shrinking(tensors[last].shape))
        name = f"layer{len(nodes)}"
        last = _append(rng, tensors, layers, nodes, op, name, k, case.c_out)
    features = tensors[last].elements
    tensors["logits"] = Tensor("logits", (1, 1, CLASSES))
    head = rng.normal(0, 0.3, (CLASSES, features)).astype(np.float32)
    layers["head"] = Layer(head, np.zeros(CLASSES, np.float32), Source("head.weight", "head.bias"))
    nodes.append(Node("head", "head", (last,), ("logits",), "head"))
    return Graph("extreme", Input("x", (1.0,), (-128.0,)), "logits", tensors, tuple(nodes), layers)


def _shrinking(shape: Shape) -> Window:
    """A pooling that leaves 16 pixels or fewer a side of what 255 can take away."""
    sides = tuple(min(255, -(-side // 16)) for side in shape[:2])
    return Window(*sides, *sides)


def _append(
    rng: np.random.Generator,
    tensors: dict[str, Tensor],
    layers: dict[str, Layer],
    nodes: list[Node],
    op: str,
    name: str,
    k: Window,
    c_out: int,
) -> str:
    """Adds a layer behind the last one; returns the name of its output."""
    x = tensors[nodes[-1].outputs[0]]
    h, w = out_size(x.shape[0], k.kh, k.stride_h, k.pad_h), out_size(x.shape[1], k.kw, k.stride_w, k.pad_w)
    learns = op in ("conv2d", "dwconv2d")
    channels = c_out if op == "conv2d" else x.channels
    tensors[name] = Tensor(name, (h, w, channels), "s8", x.scale, -128 if learns else x.zero)
    if learns:
        layer = _convolution(rng, name, x, channels, k)
        layers[name] = layer if op == "conv2d" else replace(layer, weight=layer.weight[..., 0])
    nodes.append(Node(op, name, (x.name,), (name,), name if learns else None, k))
    return name


def overflow_cases_wrong(cases: tuple[Extreme, ...] = EXTREMES) -> tuple[int, int]:
    """(wrong ones, cases run) among layers of extreme size with the most extreme values.

    A case is right where conversion refuses the layer with a ConvertError, or where a C kernel with errors of
    127, saturated activations and weights of 127, of either sign, equals sums of 64 bits.
    """
    verdicts = [verdict for case in cases for verdict in _verdicts(case)]
    return verdicts.count(False), len(verdicts)


def _verdicts(case: Extreme) -> Iterator[bool]:
    """Whether each kernel run of a case is right; one True where it is refused."""
    try:
        graph = training_graph(extreme_graph(case), EVERYTHING, CLASSES)
    except ConvertError:
        yield True
        return
    for name, node in graph.forward_of.items():
        for sign in (1, -1) if name != "head" else ():
            yield from _convolution_verdicts(graph, node, sign)
    for node in graph.forward_nodes:
        if node.op in ("avgpool", "maxpool"):
            yield from _pool_verdicts(graph, node)


def _convolution_verdicts(graph: Graph, node: Node, sign: int) -> Iterator[bool]:
    """Forward pass, gradient to the input, to the weights and to the biases of one layer."""
    x, y, k = geometry(graph, node)
    layer = graph.layers[node.layer or ""]
    inputs = np.full(x.shape, 127 if 127 - x.zero == reach(x) else -128, np.int8)
    weight = np.full(layer.weight.shape, 127 * sign, np.int8)
    products = layer.weight[0].size * reach(x) * 127
    m = np.full(y.channels, 100 / products, np.float32)
    p = reference.Conv(x.shape, y.shape, k, x.zero, 0, m, guard_bits(x.shape, y.shape, k))
    error = Error(np.full(y.shape, 127, np.int8), np.ones(y.channels, np.float32))
    kernels = _Kernels(p, layer.depthwise)
    bias = np.full(y.channels, 3 * sign, np.int32)
    yield np.array_equal(
        kernels.forward(inputs, weight, bias), kernels.twin("fwd")(p, inputs, weight, bias)[0]
    )
    want = kernels.twin("bwd_x")(p, error, weight, Clamp())
    found = kernels.backward_x(error, weight)
    yield np.array_equal(found.q, want.q) and np.array_equal(found.scale, want.scale)
    yield kernels.updates_alike(error, inputs, weight, 60 * 65536 / (y.pixels * 127 * reach(x)))
    yield kernels.biases_alike(replace(error, q=error.q * np.int8(sign)))


class _Kernels:
    """The C kernels of one convolution whose weights are all trained, on NumPy arrays."""

    def __init__(self, p: reference.Conv, depthwise: bool) -> None:
        self.p, self.op, self.lib = p, "dwconv2d" if depthwise else "conv2d", host.load()
        self.struct = conv_structs.conv2d_struct(p.x, p.y, p.window, p.x_zero, p.y_zero, p.guard)
        self.words = multiplier_words(p.m, p.y_zero)
        self.struct.m = self.words

    def twin(self, kernel: str) -> Any:
        """The same in NumPy, whose sums have 64 bits."""
        return getattr(reference, f"{self.op}_{kernel}")

    def _run(self, kernel: str, *arguments: object, scratch: tuple[int, ...] = ()) -> None:
        size = hostlib.scratch_bytes(f"{self.op}_{kernel}", self.struct, *scratch)
        getattr(self.lib, f"{self.op}_{kernel}_s8")(
            self.struct, *arguments, np.zeros(size + 4, np.uint8)[: size or 4]
        )

    def _weights(self, weight: np.ndarray) -> conv_structs.SplitWeights:
        return conv_structs.SplitWeights(frozen=None, trained=weight, order=None, c_trained=self.p.x[2])

    def forward(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
        y = np.zeros(self.p.y, np.int8)
        self._run("fwd", x, self._weights(weight), bias, y, None)
        return y

    def backward_x(self, error: Error, weight: np.ndarray) -> Error:
        result = Error(np.zeros(self.p.x, np.int8), np.zeros(self.p.x[2], np.float32))
        self._run(
            "bwd_x", _record(error), self._weights(weight), hostlib.Clamp(mask=None, m=None), _record(result)
        )
        return result

    def updates_alike(self, error: Error, x: np.ndarray, weight: np.ndarray, rate: float) -> bool:
        """Whether one step makes the weights that it makes in NumPy."""
        before = reference.Trained(weight // np.int8(2), None, 0, np.full(self.p.y[2], rate, np.float32), 1)
        sgd, channels = Sgd(1.0, 1.0, 1.0, 1, 2), np.arange(self.p.x[2])
        depthwise = self.op == "dwconv2d"
        want = self.twin("bwd_w")(self.p, error, x, *((channels,) if depthwise else ()), before, sgd).w
        found = before.w.copy()
        step = conv_structs.TrainedWeights(w=found, frac=None, frac_bits=0, qas=before.qas, id=1)
        saved, columns = conv_structs.SavedInput(x=x, index=None, c_x=x.shape[2]), self.p.x[2]
        rows = (None, columns) if depthwise else (columns,)
        self._run("bwd_w", _record(error), saved, *rows, step, hostlib.Sgd(**vars(sgd)), scratch=(columns,))
        return np.array_equal(found, want) and not np.array_equal(want, before.w)

    def biases_alike(self, error: Error) -> bool:
        """Whether one step makes the biases that it makes in NumPy."""
        c, pixels = self.p.y[2], self.p.y[0] * self.p.y[1]
        zeros, qas = np.zeros(c, np.int32), np.full(c, 256 * 1000 / (127 * pixels), np.float32)
        bias, sgd = (
            Bias(zeros, zeros.astype(np.int16), self.p.m, qas, 2**30, 3),
            Sgd(1.0, 1.0, 1.0, 1, 2),
        )
        found = bias.delta.copy()
        record = conv_structs.TrainedBias(delta=found, base=zeros, m=self.words, qas=qas, limit=2**30, id=3)
        self.lib.bias_update_s32(pixels, c, _record(error), record, hostlib.Sgd(**vars(sgd)))
        return np.array_equal(found, bias_update(error, bias, sgd)) and bool(found.all())


def _record(error: Error) -> hostlib.ErrorS8:
    return hostlib.ErrorS8(q=error.q, scale=error.scale)


def _pool_verdicts(graph: Graph, node: Node) -> Iterator[bool]:
    """Forward pass and gradient of one pooling, all values alike."""
    lib, struct = host.load(), pool_structs.c_struct(graph, node)
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    p = reference.Pool(x.shape, y.shape, pool_structs.window_of(node), x.zero)
    none = hostlib.Clamp(mask=None, m=None)
    for value in (127, -127):
        stored, found = np.full(x.shape, value, np.int8), np.zeros(y.shape, np.int8)
        error = Error(np.full(y.shape, value, np.int8), np.ones(y.channels, np.float32))
        back = Error(np.zeros(x.shape, np.int8), np.zeros(x.channels, np.float32))
        if node.op == "avgpool":
            lib.avgpool_fwd_s8(struct, stored, found)
            lib.avgpool_bwd_x_s8(struct, _record(error), none, _record(back), None)
            want, want_back = reference.avgpool_fwd(p, stored), reference.avgpool_bwd_x(p, error, Clamp())
        else:
            stored[...] = np.arange(stored.size).reshape(stored.shape) % 251 - 125
            places = np.zeros(y.shape, np.uint8)
            lib.maxpool_fwd_s8(struct, stored, found, places)
            lib.maxpool_bwd_x_s8(struct, _record(error), places, none, _record(back), None)
            want, arg = reference.maxpool_fwd(p, stored)
            want_back = reference.maxpool_bwd_x(p, error, arg, Clamp())
        yield np.array_equal(found, want)
        yield np.array_equal(back.q, want_back.q) and np.array_equal(back.scale, want_back.scale)
