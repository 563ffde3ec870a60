"""Float networks and schemes that hypothesis draws: small, odd shapes, every op of a front end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from microtrain.convert.axis import Axis
from microtrain.convert.ir import (
    FACTOR,
    LESS,
    Codes,
    Graph,
    Input,
    Layer,
    Node,
    Source,
    Tensor,
    Window,
    out_size,
)
from microtrain.convert.ops import position, recurrent, scale_values, unflatten
from microtrain.convert.ops.aten.channels import CONCAT, TAKE
from microtrain.convert.ops.aten.pool import CHANNEL_MAXIMUM, CHANNEL_MEAN, DOWN
from microtrain.convert.ops.aten.resample import (
    RESAMPLE,
    WAYS,
    adaptive_spans,
    around,
    averages,
    between,
    chosen,
)
from microtrain.convert.ops.aten.transposed import spread
from microtrain.convert.ops.aten.upsample import ROUNDINGS, of_onnx
from microtrain.convert.ops.attention import ATTENTION
from microtrain.convert.ops.functions import CLIP, SIGMOID, SILU
from microtrain.convert.ops.mul_add import MUL_ADD, Constants, node_of
from microtrain.convert.ops.normalise import GROUP_NORM
from microtrain.convert.ops.recurrent import cell_of
from microtrain.convert.ops.recurrent_cell import GATES, Real
from microtrain.convert.ops.scale import MULTIPLY, PIXELS, SCALE
from microtrain.convert.ops.tokens import LAST
from microtrain.convert.ops.upsample import UPSAMPLE
from microtrain.convert.scheme import Scheme, convolutions

CLASSES = 3
ACTS = ("none", "relu", "relu6")
TABLES: tuple[tuple[str, tuple[float, ...]], ...] = ((SILU, ()), (SIGMOID, ()), (CLIP, (-0.5, 0.7)))


@dataclass
class FloatBuilder:
    """Appends float nodes; every method returns the name of the tensor it made."""

    rng: np.random.Generator
    shape: tuple[int, int, int]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    layers: dict[str, Layer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tensors["x"] = Tensor("x", self.shape)

    def conv(self, x: str, c_out: int, window: Window, act: str, depthwise: bool = False) -> str:
        """A convolution whose channels differ in size by a factor of up to 30."""
        c_in = self.tensors[x].channels
        c_out = c_in if depthwise else c_out
        shape = (c_out, window.kh, window.kw) if depthwise else (c_out, window.kh, window.kw, c_in)
        fan_in = window.kh * window.kw * (1 if depthwise else c_in)
        size = self.rng.uniform(0.1, 3.0, c_out) / fan_in**0.5
        weight = self.rng.normal(0, 1, shape) * size.reshape(-1, *[1] * (len(shape) - 1))
        name = f"layer{len(self.nodes)}"
        bias = self.rng.normal(0, 0.3, c_out)
        self.layers[name] = Layer(
            weight.astype(np.float32), bias.astype(np.float32), Source(f"{name}.weight", f"{name}.bias")
        )
        op = "dwconv2d" if depthwise else "conv2d"
        return self._append(Node(op, name, (x,), (), name, window, act), c_out)

    def grouped(self, x: str, each: int, window: Window, apart: tuple[int, int], act: str) -> str:
        """As many channels for each of its groups; its taps lie apart."""
        c_in = self.tensors[x].channels
        groups = next(n for n in (3, 2, c_in) if c_in % n == 0)
        shape = (groups * each, window.kh, window.kw, c_in // groups)
        weight = self.rng.normal(0, 1, shape) / np.sqrt(shape[1] * shape[2] * shape[3])
        name = f"layer{len(self.nodes)}"
        bias = self.rng.normal(0, 0.3, shape[0]).astype(np.float32)
        source = Source(f"{name}.weight", f"{name}.bias")
        self.layers[name] = Layer(weight.astype(np.float32), bias, source)
        kh, kw = ((n - 1) * step + 1 for n, step in zip((window.kh, window.kw), apart, strict=True))
        window = Window(kh, kw, window.stride_h, window.stride_w, *apart)
        return self._append(Node("gconv2d", name, (x,), (), name, window, act), shape[0])

    def pool(self, op: str, x: str, window: Window) -> str:
        return self._append(
            Node(op, f"{op}{len(self.nodes)}", (x,), (), None, window), self.tensors[x].channels
        )

    def lying(self, op: str, x: str) -> str:
        """A pooling of whole columns, laid down as a series over the width."""
        (h, w, c), y = self.tensors[x].shape, self._name()
        self.tensors[y] = Tensor(y, (w, 1, c))
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(Node(op, name, (x,), (y,), window=Window(h, 1, h, 1), factors=DOWN))
        return y

    def norm(self, x: str, groups: int, apart: bool, act: str) -> str:
        """A normalisation, and its scale and shift."""
        y = self._name()
        self.tensors[y] = Tensor(y, self.tensors[x].shape)
        factors = (1e-5, float(groups), float(apart))
        self.nodes.append(Node(GROUP_NORM, f"norm{len(self.nodes)}", (x,), (y,), factors=factors))
        return self.conv(y, 0, Window(1, 1), act, depthwise=True)

    def table(self, x: str, op: str, factors: tuple[float, ...] = ()) -> str:
        """An activation of one stored value."""
        y = self._name()
        self.tensors[y] = Tensor(y, self.tensors[x].shape)
        self.nodes.append(Node(op, f"{op}{len(self.nodes)}", (x,), (y,), factors=factors))
        return y

    def excited(self, x: str, squeezed: int) -> str:
        """The map times what its mean says of each channel."""
        h, w, c = self.tensors[x].shape
        mean = self.pool("avgpool", x, Window(h, w)) if h * w > 1 else x
        down = self.conv(mean, squeezed, Window(1, 1), "relu")
        factor = self.table(self.conv(down, c, Window(1, 1), "none"), SIGMOID)
        y = self._name()
        self.tensors[y] = Tensor(y, self.tensors[x].shape)
        self.nodes.append(Node(SCALE, f"scale{len(self.nodes)}", (x, factor), (y,)))
        return y

    def gated(self, x: str, c_out: int, act: str) -> str:
        """What a convolution makes, times what another one lets through."""
        made, gate = (self.conv(x, c_out, Window(1, 1), "none") for _ in range(2))
        gate = self.table(gate, SIGMOID)
        y = self._name()
        self.tensors[y] = Tensor(y, self.tensors[made].shape)
        self.nodes.append(Node(MULTIPLY, f"gate{len(self.nodes)}", (made, gate), (y,), act=act))
        return y

    def larger(self, x: str, down: int, across: int) -> str:
        (h, w, c), y = self.tensors[x].shape, self._name()
        self.tensors[y] = Tensor(y, (h * down, w * across, c))
        factors = (float(down), float(across))
        self.nodes.append(Node(UPSAMPLE, f"larger{len(self.nodes)}", (x,), (y,), factors=factors))
        return y

    def bottleneck(self, x: str, units: int, shape: tuple[int, int, int], act: str) -> str:
        """A vector of the whole map, and a map of that."""
        h, w, _ = self.tensors[x].shape
        vector = self.conv(self.conv(x, units, Window(h, w), "relu"), math.prod(shape), Window(1, 1), act)
        y = self._name()
        self.tensors[y] = Tensor(y, shape)
        self.nodes.append(unflatten.node_of(f"map{len(self.nodes)}", vector, y, shape))
        return y

    def sampled(self, x: str, rows: Axis, columns: Axis) -> str:
        y = self._name()
        self.tensors[y] = Tensor(y, (rows.outputs, columns.outputs, self.tensors[x].channels))
        self.nodes.append(Node(RESAMPLE, f"sampled{len(self.nodes)}", (x,), (y,), axes=(rows, columns)))
        return y

    def windowed(self, x: str) -> str:
        """Times a constant for each number; of some it is 0."""
        y, shape = self._name(), self.tensors[x].shape
        self.tensors[y] = Tensor(y, shape)
        table = self.rng.normal(0, 0.7, shape) * (self.rng.random(shape) < 0.8)
        self.nodes.append(scale_values.node_of(f"windowed{len(self.nodes)}", x, y, table))
        return y

    def multiplied(self, x: str, with_term: bool) -> str:
        """Times a constant a channel, and plus another one, as int8 TFLite files have them."""
        y, c = self._name(), self.tensors[x].channels
        self.tensors[y] = Tensor(y, self.tensors[x].shape)
        w, b = (self.rng.integers(-128, 128, c).astype(np.int8) for _ in range(2))
        own = Constants(Codes(w, 1.5 / 128, 7, FACTOR), Codes(b, 1 / 128, -20, LESS), (16 / 255, -9))
        own = own if with_term else Constants(own.factor)
        self.nodes.append(node_of(f"multiplied{len(self.nodes)}", x, y, own))
        return y

    def attended_to(self, x: str) -> str:
        """The map times what the mean and the maximum of its channels say of each pixel."""
        (h, w, c), said = self.tensors[x].shape, [self._name()]
        self.tensors[said[0]] = Tensor(said[0], (h, w, 1))
        self.nodes.append(Node(CHANNEL_MEAN, f"mean{len(self.nodes)}", (x,), (said[0],)))
        said.append(self._name())
        self.tensors[said[1]] = Tensor(said[1], (h, w, 1))
        self.nodes.append(Node(CHANNEL_MAXIMUM, f"most{len(self.nodes)}", (x,), (said[1],)))
        both = self._name()
        self.tensors[both] = Tensor(both, (h, w, 2))
        self.nodes.append(Node(CONCAT, f"concat{len(self.nodes)}", tuple(said), (both,)))
        gate = self.table(self.conv(both, 1, Window(1, 1), "none"), SIGMOID)
        y = self._name()
        self.tensors[y] = Tensor(y, (h, w, c))
        self.nodes.append(Node(PIXELS, f"gate{len(self.nodes)}", (x, gate), (y,)))
        return y

    def shuffled(self, x: str) -> str:
        """Some channels worked on, put behind the others, and two groups of them shuffled."""
        h, w, c = self.tensors[x].shape
        kept, rest = self.take(x, range(c // 2)), self.take(x, range(c // 2, c))
        worked = self.conv(rest, c - c // 2, Window(1, 1), "relu")
        y = self._name()
        self.tensors[y] = Tensor(y, (h, w, c))
        self.nodes.append(Node(CONCAT, f"concat{len(self.nodes)}", (kept, worked), (y,)))
        return self.take(y, np.random.default_rng(c).permutation(c).tolist())

    def attended(self, x: str, heads: int, steps: tuple[int, int], lead: int) -> str:
        """Positions, with tokens in front or without, attention to all or some, and a residual add."""
        h, w, c = self.tensors[x].shape
        tokens, table = self._name(), self.rng.normal(0, 0.5, (lead + h * w, c))
        self.tensors[tokens] = Tensor(tokens, (lead + h * w, 1, c) if lead else (h, w, c))
        self.nodes.append(position.node_of(f"position{len(self.nodes)}", x, tokens, lead, table))
        parts = self.conv(tokens, 3 * 2 * heads, Window(1, 1), "none")
        y = self._name()
        self.tensors[y] = Tensor(y, (*self.tensors[tokens].shape[:2], 2 * heads))
        down, across = (1, 1) if lead else steps
        factors = (0.7, float(heads), float(down), float(across))
        self.nodes.append(Node(ATTENTION, f"attention{len(self.nodes)}", (parts,), (y,), factors=factors))
        return self.add(self.conv(y, c, Window(1, 1), "none"), tokens, "none")

    def recurrent(self, x: str, op: str, units: int) -> str:
        """A cell over the rows, or what its last row leaves: nothing before it learns."""
        rows, w, c = self.tensors[x].shape
        y, gates = self._name(), GATES[cell_of(op)]
        self.tensors[y] = Tensor(y, (1 if op in LAST.values() else rows, 1, units))
        sizes = (units, gates, w * c), (units, gates, units), (units, 4)
        real = Real(*(self.rng.normal(0, 0.5, size) for size in sizes))
        self.nodes.append(recurrent.node_of(op, f"{op}{len(self.nodes)}", x, y, real))
        return y

    def take(self, x: str, channels: Sequence[int]) -> str:
        h, w, _ = self.tensors[x].shape
        y = self._name()
        self.tensors[y] = Tensor(y, (h, w, len(channels)))
        self.nodes.append(Node(TAKE, f"take{len(self.nodes)}", (x,), (y,), channels=tuple(channels)))
        return y

    def add(self, a: str, b: str, act: str, times: float = 1.0) -> str:
        """a + times * b"""
        name, factors = self._name(), () if times == 1.0 else (times,)
        self.tensors[name] = Tensor(name, self.tensors[a].shape)
        self.nodes.append(Node("add", f"add{len(self.nodes)}", (a, b), (name,), act=act, factors=factors))
        return name

    def finish(self, x: str) -> Graph:
        """Global average pooling and the head."""
        h, w, c = self.tensors[x].shape
        x = self.pool("avgpool", x, Window(h, w)) if h * w > 1 else x
        self.tensors["logits"] = Tensor("logits", (1, 1, CLASSES))
        weight = self.rng.normal(0, 0.3, (CLASSES, c)).astype(np.float32)
        self.layers["head"] = Layer(weight, np.zeros(CLASSES, np.float32), Source("head.weight", "head.bias"))
        self.nodes.append(Node("head", "head", (x,), ("logits",), "head"))
        channels = self.shape[2]
        pixel = Input("x", (1 / 64,) * channels, (-2.0,) * channels)
        return Graph("net", pixel, "logits", self.tensors, tuple(self.nodes), self.layers)

    def _append(self, node: Node, channels: int) -> str:
        h, w, _ = self.tensors[node.inputs[0]].shape
        k = node.window
        assert k is not None
        shape = (out_size(h, k.kh, k.stride_h, k.pad_h), out_size(w, k.kw, k.stride_w, k.pad_w), channels)
        name = self._name()
        self.tensors[name] = Tensor(name, shape)
        self.nodes.append(Node(node.op, node.name, node.inputs, (name,), node.layer, k, node.act))
        return name

    def _name(self) -> str:
        return f"t{len(self.tensors)}"


@st.composite
def windows(draw: st.DrawFn, shape: tuple[int, int, int], most: int = 3, strides: int = 2) -> Window:
    """A window that fits: kernel, stride and padding of each axis by themselves."""
    axes = []
    for size in shape[:2]:
        kernel = draw(st.integers(1, min(size, most)))
        axes.append((kernel, draw(st.integers(1, strides)), draw(st.integers(0, kernel // 2))))
    (kh, sh, ph), (kw, sw, pw) = axes
    return Window(kh, kw, sh, sw, ph, pw)


@st.composite
def axes(draw: st.DrawFn, size: int) -> Axis:
    """Windows of different sizes, lines between pixels, nearest ones, repeated ones, zeros between them."""
    kinds = ("mean", "line", "around", "nearest", "spread")
    kind, outputs = draw(st.sampled_from(kinds)), draw(st.integers(1, size + 3))
    if kind == "mean":
        spans = adaptive_spans(size, outputs)
        return averages(spans, [len(span) for span in spans], size)
    if kind == "line":
        return between(size, outputs, draw(st.sampled_from(WAYS)))
    if kind == "nearest":
        places = of_onnx(draw(st.sampled_from(WAYS)), draw(st.sampled_from(tuple(ROUNDINGS))))
        return chosen(places(size, outputs, None), size)
    if kind == "spread":
        return chosen(spread(size, draw(st.integers(1, 3))), size)
    before, behind = (draw(st.integers(0, 2)) for _ in range(2))
    room = max(before, behind)
    modes = [
        "constant",
        "replicate",
        *(["circular"] if room <= size else []),
        *(["reflect"] if room < size else []),
    ]
    return around(size, before, behind, draw(st.sampled_from(modes)))


@st.composite
def float_networks(draw: st.DrawFn) -> Graph:
    """One to five stages: convolutions, poolings, inverted bottlenecks with their residual add."""
    shape = (draw(st.integers(3, 9)), draw(st.integers(3, 9)), draw(st.sampled_from((1, 3))))
    b = FloatBuilder(np.random.default_rng(draw(st.integers(0, 2**16))), shape)
    acts, channels = st.sampled_from(ACTS), st.integers(1, 7)
    x = b.conv("x", draw(channels), draw(windows(shape)), draw(acts))
    kinds = st.sampled_from(
        (
            "conv",
            "dw",
            "grouped",
            "block",
            "maxpool",
            "avgpool",
            "lying",
            "norm",
            "table",
            "excited",
            "gated",
            "larger",
            "sampled",
            "bottleneck",
            "attended_to",
            MUL_ADD,
            "windowed",
            "shuffled",
            "attended",
            *LAST,
            *LAST.values(),
        )
    )
    for kind in draw(st.lists(kinds, max_size=4)):
        window = draw(windows(b.tensors[x].shape))
        if kind in ("maxpool", "avgpool"):
            x = b.pool(kind, x, window)
        elif kind == "lying":
            x = b.lying(draw(st.sampled_from(("maxpool", "avgpool"))), x)
        elif kind == "grouped":
            down, across = (draw(st.integers(1, 2)) if n > 1 else 1 for n in (window.kh, window.kw))
            x = b.grouped(x, draw(st.integers(1, 3)), window, (down, across), draw(acts))
        elif kind == "norm":
            c = b.tensors[x].channels
            groups = draw(st.sampled_from([g for g in range(1, c + 1) if c % g == 0]))
            x = b.norm(x, groups, draw(st.booleans()), draw(acts))
        elif kind == "table":
            x = b.table(x, *draw(st.sampled_from(TABLES)))
        elif kind == "excited":
            x = b.excited(x, draw(st.integers(1, 4)))
        elif kind == "gated":
            x = b.gated(x, draw(channels), draw(acts))
        elif kind == "larger":
            x = b.larger(x, draw(st.integers(1, 3)), draw(st.integers(1, 2)))
        elif kind == "sampled":
            x = b.sampled(x, *(draw(axes(side)) for side in b.tensors[x].shape[:2]))
        elif kind == "bottleneck":
            sizes = (draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(channels))
            x = b.bottleneck(x, draw(st.integers(1, 6)), sizes, draw(acts))
        elif kind == "attended_to":
            x = b.attended_to(x)
        elif kind == MUL_ADD:
            x = b.multiplied(x, draw(st.booleans()))
        elif kind == "windowed":
            x = b.windowed(x)
        elif kind == "attended":
            h, w, _ = b.tensors[x].shape
            steps = tuple(
                draw(st.sampled_from([n for n in range(1, side + 1) if side % n == 0])) for side in (h, w)
            )
            x = b.attended(x, draw(st.integers(1, 3)), (steps[0], steps[1]), draw(st.integers(0, 2)))
        elif kind in (*LAST, *LAST.values()):
            x = b.recurrent(x, kind, draw(st.integers(1, 9)))
        elif kind == "shuffled" and b.tensors[x].channels > 1:
            x = b.shuffled(x)
        elif kind == "block":
            middle = b.conv(x, draw(st.integers(2, 9)), Window(1, 1), draw(acts))
            middle = b.conv(middle, 0, Window(3, 3, 1, 1, 1, 1), draw(acts), depthwise=True)
            made, times = (
                b.conv(middle, b.tensors[x].channels, Window(1, 1), "none"),
                st.sampled_from((1.0, -1.0, 0.5)),
            )
            x = b.add(x, made, "none", draw(times))
        else:
            x = b.conv(x, draw(channels), window, draw(acts), depthwise=kind == "dw")
    return b.finish(x)


@st.composite
def schemes(draw: st.DrawFn, graph: Graph) -> Scheme:
    """Any biases, any columns of any layers, each number of fraction bits, both losses."""
    layers = [(name, graph.layers[name].columns) for name in convolutions(graph)]
    chosen = draw(st.lists(st.sampled_from(layers), unique=True, max_size=4)) if layers else []
    weights: dict[str | int, float | tuple[int, ...]] = {}
    for name, columns in chosen:
        some = st.sets(st.integers(0, columns - 1), min_size=1).map(lambda s: tuple(sorted(s)))
        weights[name] = draw(st.one_of(st.just(1.0), some))
    return Scheme(
        "drawn",
        draw(st.integers(-1, len(layers))),
        weights,
        fraction_bits=draw(st.sampled_from((0, 4, 8))),
        loss=draw(st.sampled_from(("cross_entropy", "mse"))),
        head=draw(st.sampled_from(("zeros", "random", "keep"))),
    )
