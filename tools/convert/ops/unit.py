"""What a piece of a step is made of, where the library takes it in pieces (kernels/pace.h).

A kernel stops between two units of its outermost loops and counts the work of each. What is here says of the
kernels' C how much that is at most, and which numbers the instructions of a unit grow with, beside its work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from microtrain.convert.ir import Graph, Node

from .conv_structs import Conv2d
from .work import STRIP, TILE, Terms

OUTPUT = 16  # WORK_OUTPUT of kernels/pace.h
FEW, MANY = 4, 512  # lanes of a tile where there are few or long ones: kernels/dense.h
AT_ONCE = 16  # output channels of a dense unit: conv2d.c
CHUNK = 256  # pixels whose errors make up a tile
PLANES = 4  # channels of a depthwise unit: planes.h


@dataclass(frozen=True)
class Unit:
    """Of a step.

    work    of the largest unit, as pace.h counts it
    total   of all units
    rate    what the instructions of so much work grow with, for each of it
    once    what those of a piece grow with besides
    helium  work of the largest unit on a core with Helium; 0: of the others' largest
    """

    work: float
    total: float
    rate: Terms
    once: Terms
    helium: float = 0.0

    def largest(self, helium: bool) -> float:
        """Work of the largest unit."""
        return self.helium if helium and self.helium else self.work


Units = Callable[
    [Graph, Node, Conv2d | None], "Unit | None"
]  # the last: of some rows in a stream; None: of all


def whole(graph: Graph, node: Node, strip: Conv2d | None) -> Unit | None:
    """Of a kernel that cannot stop on its way: the step is one piece."""
    return None


def lanes(count: int, values: int) -> tuple[int, float]:
    """Lanes of a span, and how many of them are summed for one that counts as work."""
    usual = TILE if count >= TILE and values <= MANY else FEW
    return usual, max(1.0, FEW / count)


def _unit(
    work: float, count: float, idle: float, rate: Mapping[str, float], once: Mapping[str, float]
) -> Unit:
    """count: of such units at most, in all; idle: how often what counts as work is done."""
    return Unit(
        work,
        work * count,
        {"work": idle, **{name: idle * each for name, each in rate.items()}},
        {"piece": 1, **once},
    )


def dense(p: Conv2d, masked: bool, split: bool) -> Unit:
    """Output channels of a span of pixels, whose inputs are packed before the first of them.

    split  some of the input channels are trained, and some are not
    """
    k = p.kh * p.kw * p.c_in
    tile, idle = lanes(p.h_out * p.w_out, k)
    value, kept = k + OUTPUT, masked or split or k < FEW  # sums are kept before they are rounded
    rate = {
        "outputs": 1 / p.c_out,
        "gathered from windows": (k > p.c_in) / p.c_out,
        "values": 1 / value,
        "rows": p.kh / (p.c_out * value),
        "masked": masked / value,
        "masked odd": masked * (p.c_out % 8) / (p.c_out * value),
        "narrow": (k < FEW) / value,
        "kept span": kept / (min(p.c_out, AT_ONCE) * value),
        "split": split / value,
        "gathered": split / p.c_out,
        "span": 1 / (min(p.c_out, AT_ONCE) * value),
    }
    once = {"packed": tile * k, "channels": p.c_in + p.c_out}
    pixels, channels = p.h_out * p.w_out, min(p.c_out, AT_ONCE)
    units = -(-p.c_out // AT_ONCE) * -(-pixels // tile)
    found = _unit(channels * min(tile, pixels) * value, units, idle, rate, once)
    return replace(found, helium=channels * min(TILE, pixels) * value)


def coded(p: Conv2d, masked: bool, split: bool) -> Unit:
    """Rows of weights that are decoded for some spans of pixels."""
    k, pixels = p.kh * p.kw * p.c_in, p.h_out * p.w_out
    tile, idle = lanes(pixels, k)
    bytes_of_tile = 2 * tile * -(-k // 4) * 4
    tiles = min(max(9216 // bytes_of_tile, 1), -(-pixels // tile), 6)
    rows = min(max((max(k + 1, 768) + 2) // k, 8), p.c_out)
    value = k + OUTPUT
    rate = {
        "outputs": 1 / p.c_out,
        "values": 1 / value,
        "rows": p.kh / (p.c_out * value),
        "decoded": 1 / min(tiles * tile, pixels),
        "span": 1 / (min(p.c_out, 8) * value),
    }
    once = {"packed": tiles * tile * k, "channels": p.c_in + p.c_out}
    units = -(-p.c_out // min(rows, 8)) * -(-pixels // (tiles * tile))
    return _unit(rows * tiles * tile * value, units, idle, rate, once)


def depthwise(p: Conv2d, masked: bool, split: bool) -> Unit:
    """Four channels of a tile."""
    high, low, wide, narrow = tiles(p.h_out, p.w_out, p.stride_h, p.stride_w)
    value = p.kh * p.kw + OUTPUT
    seen = ((low - 1) * p.stride_h + p.kh) * ((narrow - 1) * p.stride_w + p.kw)
    cleared = ((high - 1) * p.stride_h + p.kh) * (40 if wide > 16 else 24)
    mask = p.h_out * p.w_out * -(-p.c_out // 8) if masked else 0
    rate = {
        "plain": (not fast(p.kh, p.kw, p.stride_h, p.stride_w)) * p.kh * p.kw / value,
        "rounded": (narrow + -narrow % 4) * p.kh * p.kw / (narrow * value),
        "seen": seen / (low * narrow * value),
        "tile": 1 / (low * narrow * value),
        "cleared": cleared / (p.c_in * low * narrow * value),
        "values": 1 / value,
        "masked": masked / value,
    }
    once = {
        "channels": p.c_in,
        "plane": cleared,
        "mask": mask,
        "tiles": -(-p.h_out // high) * -(-p.w_out // wide),
    }
    return _unit(PLANES * high * wide * value, -(-p.c_in // PLANES) * once["tiles"], 1, rate, once)


def fast(kh: int, kw: int, stride_h: int, stride_w: int) -> bool:
    """Whether a core with DSP sums such windows in assembly: planes.c."""
    return kh == kw and kw in (3, 5, 7) and stride_h == stride_w and stride_w <= 2


def tiles(h: int, w: int, stride_h: int, stride_w: int) -> tuple[int, int, int, int]:
    """Rows of the highest and of the lowest tile, columns of the widest and of the narrowest."""
    flat = w * stride_w > 16 and h * stride_h <= 4
    wide = min(w, 32 if flat else 16)
    high = min(h, 4 if stride_h > 1 else 8)
    if stride_w > 1 and not flat:
        wide = min(wide, 8)
    return high, h % high or high, wide, w % wide or wide


def of_forward(
    kernel: Callable[[Conv2d, bool, bool], Unit], geometry: Callable[[Graph, Node], Conv2d]
) -> Units:
    """Of a layer whose trained biases are expanded in every piece."""

    def unit(graph: Graph, node: Node, strip: Conv2d | None) -> Unit:
        layer, p = graph.layers[node.layer or ""], strip or geometry(graph, node)
        return with_biases_expanded(
            kernel(p, len(node.outputs) > 1, 0 < len(layer.trained) < layer.columns), graph, node
        )

    return unit


def with_biases_expanded(unit: Unit, graph: Graph, node: Node) -> Unit:
    layer = graph.layers[node.layer or ""]
    return replace(unit, once={**unit.once, "expanded": layer.bias.size if layer.bias_trained else 0})


def parts_of(graph: Graph, node: Node) -> tuple[int, int]:
    """Columns of the frozen and of the trained weights."""
    layer = graph.layers[node.layer or ""]
    return layer.columns - len(layer.trained), len(layer.trained)


def input_errors(p: Conv2d, parts: tuple[int, ...]) -> Unit:
    """Errors of some input channels: sums over all outputs, then the rounding.

    parts  columns of the frozen and of the trained weights
    """
    pixels, outputs, taps = p.h_in * p.w_in, p.h_out * p.w_out, p.kh * p.kw
    twice = 1 + (pixels > STRIP)
    value = twice * outputs * p.c_out * taps + pixels * OUTPUT
    spans = [lanes(count, p.c_out) for count in parts if count]
    live = max(min(tile, count) for (tile, _), count in zip(spans, filter(None, parts), strict=True))
    idle = max(found for _, found in spans)
    strips = -(-pixels // STRIP) * twice
    rate = {
        "packed": strips * taps * p.c_out / value,
        "pixels": pixels / value,
        "rows": (taps > 1) * strips * taps * p.h_out / value,
        "slow": (min(filter(None, parts)) < FEW) * pixels / value,
        "spread": (p.stride_w > 1) * twice * outputs * taps / value,
        "sums": (taps > 1) * twice * outputs * taps / value,
        "ordered": (len(parts) > 1 and parts[1] > 0 and parts[0] > 0) * pixels / value,
        "values": 1 / value,
    }
    return _unit(live * value, p.c_in / live + 2, idle, rate, {"channels": p.c_out})


def weights(p: Conv2d, c_trained: int, bits: int) -> Unit:
    """Weights of a tap, of some trained channels and outputs; the saved inputs are laid out before."""
    outputs = p.h_out * p.w_out
    rows = 2048 // outputs
    count = min(2 if rows < 3 else min(rows - 1, 32), c_trained)
    tile, idle = lanes(p.c_out, 0)
    value = outputs + OUTPUT
    last = c_trained % count or count
    rate = {
        "outputs": 1 / p.c_out,
        "strided": (p.kh * p.kw > 1) / p.c_out,
        "values": 1 / value,
        "bits": (bits > 0) / value,
        "errors": 1 / last,
        "span": 1 / (last * value),
    }
    saved, windows = count * outputs, p.kh * p.kw > 1 or p.stride_w > 1
    once = {"saved": saved, "saved from windows": windows * saved, "channels": p.c_out}
    units = p.kh * p.kw * -(-c_trained // count) * -(-p.c_out // min(tile, p.c_out))
    return _unit(min(tile, p.c_out) * count * value, units, idle, rate, once)


def depthwise_errors(p: Conv2d) -> Unit:
    """Four channels of the whole input."""
    high, _, wide, _ = tiles(p.h_in, p.w_in, 1, 1)
    pixels, taps = p.h_in * p.w_in, p.kh * p.kw
    twice = 1 + (pixels > STRIP)
    count = -(-p.h_in // high) * -(-p.w_in // wide) * twice
    value = pixels * (twice * taps + 2 * OUTPUT)
    plane = (high + p.kh - 1) * (40 if wide > 16 else 24)
    rate = {
        "plain": (not fast(p.kh, p.kw, 1, 1)) * twice * pixels * taps / value,
        "rounded": p.h_in * (p.w_in + -p.w_in % 4) * twice * taps / value,
        "pixels": pixels / value,
        "again": (twice - 1) * pixels / value,
        "cleared": count * plane / value,
        "tile": count / value,
        "spread": (p.stride_h * p.stride_w > 1) * twice * p.h_out * p.w_out / value,
    }
    return _unit(PLANES * value, -(-p.c_in // PLANES), 1, rate, {"plane": plane, "tiles": count})


def depthwise_weights(p: Conv2d, c_trained: int) -> Unit:
    """All taps of a trained channel."""
    high, _, wide, _ = tiles(p.h_out, p.w_out, p.stride_h, p.stride_w)
    pixels, taps = p.h_out * p.w_out, p.kh * p.kw
    count = -(-p.h_out // high) * -(-p.w_out // wide)
    plane = ((high - 1) * p.stride_h + p.kh) * (40 if wide > 16 else 24)
    value = pixels * (taps + OUTPUT)
    rate = {
        "cleared": count * plane / value,
        "rows": p.h_out * -(-p.w_out // wide) * p.kh / value,
        "strided": (p.stride_w > 1) * pixels * taps / value,
        "taps": taps / value,
        "tile": count / value,
    }
    return _unit(value, c_trained, 1, rate, {"plane": plane})


def biases(pixels: int, channels: int) -> Unit:
    value = 4 * (pixels + OUTPUT)
    rate = {"values": 4 / value, "few": (channels % 4 > 0) * pixels / value}
    return replace(_unit(value, -(-channels // 4), 1, rate, {}), helium=2 * value)


def sums_of_errors(pixels: int, channels: int) -> Unit:
    value = 8 * pixels * OUTPUT
    return _unit(value, -(-channels // 4), 1, {"values": 4 / value, "few": (channels % 4 > 0)}, {})


def in_groups(p: Conv2d, groups: int, taps: int, masked: bool) -> Unit:
    """All outputs of a group."""
    pixels, inputs, outputs = p.h_out * p.w_out, p.c_in // groups, p.c_out // groups
    _, idle = lanes(pixels, 0)
    value = taps * inputs + OUTPUT
    rate = {
        "outputs": 1 / outputs,
        "taps": taps / (outputs * value),
        "values": 1 / value,
        "span": 1 / (outputs * value),
        "group": 1 / (pixels * outputs * value),
    }
    mask = pixels * -(-p.c_out // 8) if masked else 0
    return _unit(pixels * outputs * value, groups, idle, rate, {"mask": mask, "channels": p.c_in + p.c_out})


def input_errors_in_groups(p: Conv2d, groups: int, taps: int, parts: tuple[int, ...]) -> Unit:
    """All input channels of a group."""
    pixels, outputs = p.h_in * p.w_in, p.c_out // groups
    twice = 1 + (pixels > STRIP)
    value = twice * (p.h_out * p.w_out * outputs * taps + pixels * OUTPUT)
    idle = max(lanes(count, 0)[1] for count in parts if count)
    rate = {
        "packed": twice * -(-pixels // STRIP) * taps * outputs / value,
        "sums": twice * taps * p.h_out * p.w_out / value,
        "pixels": pixels / value,
        "values": 1 / value,
    }
    return _unit(p.c_in // groups * value, groups, idle, rate, {"channels": p.c_in + p.c_out})


def weights_in_groups(p: Conv2d, groups: int, taps: int, c_trained: int) -> Unit:
    """All trained weights of a group."""
    pixels, outputs = p.h_out * p.w_out, p.c_out // groups
    rows = 2048 // pixels
    count = min(2 if rows < 3 else min(rows - 1, 16), c_trained)
    _, idle = lanes(outputs, 0)
    value = pixels + OUTPUT
    rate = {
        "outputs": 1 / outputs,
        "values": 1 / value,
        "errors": 1 / (c_trained % count or count),
        "span": 1 / (outputs * value),
    }
    return _unit(outputs * taps * c_trained * value, groups, idle, rate, {"channels": p.c_out})
