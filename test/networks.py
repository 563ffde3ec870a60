"""Random quantized networks, built without torch, for tests of the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from microtrain.convert.ir import Graph, Input, Layer, Node, Source, Tensor, Window, out_size


@dataclass
class Builder:
    """Appends ops to a quantized forward graph; every method returns the name of the tensor it made."""

    rng: np.random.Generator
    shape: tuple[int, int, int]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    layers: dict[str, Layer] = field(default_factory=dict)

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

    def _conv(self, op: str, x: str, c_out: int, k: int, stride: int, relu: bool, pad: int | None) -> str:
        h, w, c_in = self.tensors[x].shape
        pad = k // 2 if pad is None else pad
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

    def pool(self, op: str, x: str, k: int, stride: int, pad: int = 0) -> str:
        h, w, c = self.tensors[x].shape
        shape = (out_size(h, k, stride, pad), out_size(w, k, stride, pad), c)
        y = self._tensor(shape, self.tensors[x].scale, self.tensors[x].zero)
        self.nodes.append(
            Node(op, f"{op}{len(self.nodes)}", (x,), (y,), None, Window(k, k, stride, stride, pad, pad))
        )
        return y

    def finish(self, x: str, classes: int) -> Graph:
        """Global average pooling and the head."""
        h, _, c = self.tensors[x].shape
        features = self.pool("avgpool", x, h, 1) if h > 1 else x
        self.tensors["logits"] = Tensor("logits", (1, 1, classes), "f32")
        weight = self.rng.normal(0, 0.3, (classes, c)).astype(np.float32)
        self.layers["head"] = Layer(weight, np.zeros(classes, np.float32), Source("head.weight", "head.bias"))
        self.nodes.append(Node("head", "head", (features,), ("logits",), "head"))
        channels = self.shape[2]
        pixel = Input("x", (1.0,) * channels, (-128.0,) * channels)
        return Graph("net", pixel, "logits", self.tensors, tuple(self.nodes), self.layers)


def residual_network(seed: int = 0, size: int = 12, classes: int = 5) -> Graph:
    """Stem, a stride-2 block, a residual block, a second reader, windowed pooling: every joint there is."""
    b = Builder(np.random.default_rng(seed), (size, size, 3))
    x = b.conv("x", 8, 3, 2)
    x = b.conv(b.depthwise(b.conv(x, 16), 3, 1), 10, relu=False)
    inner = b.conv(b.depthwise(b.conv(x, 24), 5, 1), 10, relu=False)
    x = b.add(inner, x)
    inner = b.conv(b.depthwise(b.conv(x, 20), 3, 1), 10, relu=False)
    x = b.add(x, inner)
    x = b.pool("maxpool", b.conv(x, 13), 3, 1, 1)
    x = b.pool("avgpool", x, 2, 2)
    return b.finish(b.conv(x, 14, 3, 1), classes)


def random_network(seed: int) -> Graph:
    """A random chain of inverted bottlenecks, residual where the shapes allow, with odd channel counts."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(7, 16))
    b = Builder(rng, (size, size, int(rng.choice([1, 3]))))
    x = b.conv("x", int(rng.integers(3, 10)), 3, int(rng.integers(1, 3)))
    for _ in range(int(rng.integers(1, 4))):
        c_out = b.tensors[x].channels if rng.random() < 0.5 else int(rng.integers(3, 14))
        small = b.tensors[x].shape[0] < 4
        stride = 1 if small or c_out == b.tensors[x].channels else int(rng.integers(1, 3))
        y = b.conv(x, int(rng.integers(5, 20)))
        y = b.depthwise(y, int(rng.choice([3, 5])), stride)
        y = b.conv(y, c_out, relu=bool(rng.random() < 0.3))
        x = b.add(x, y) if b.tensors[y].shape == b.tensors[x].shape else y
    return b.finish(x, int(rng.integers(2, 8)))
