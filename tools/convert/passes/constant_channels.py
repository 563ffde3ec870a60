"""Channels that are the same whatever comes in, left out of a network.

Training with weight decay ends with channels whose weights are 0, or whose sums never leave the flat part of
a ReLU. Of the MobileNet of MLPerf Tiny's visual wake words they are two of three in its later layers. What
such a channel adds to the sums behind it is a constant too, which becomes part of the biases; so the layers
before and behind lose its weights, and all others compute what they did, bit for bit.

What a convolution makes, and what depthwise layers, poolings and activations make of that channel by channel,
is a chain: of each of its tensors the same channels are left out. A chain ends with what reads all channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from microtrain.base.trained import NOTHING_LEFT_OUT, LeftOut
from microtrain.convert.ir import Graph, Layer, Node, Source
from microtrain.convert.ops import forward_op
from microtrain.convert.ops.conv_runs import unclamped
from microtrain.convert.ops.functions import ACTIVATIONS
from microtrain.convert.ops.stage import WindowStage
from microtrain.convert.ops.table import Learns

LEAST, MOST = -128, 127
WORD = 4  # channels that a kernel reads at once; it takes as long for fewer

Range = tuple[np.ndarray, np.ndarray]  # least and greatest stored value of each channel, int64 [c]


@dataclass(eq=False)
class Chain:
    """Tensors whose channels are left out together.

    nodes    those that make them; the first is a dense layer
    readers  what reads all channels of one of them
    closed   something else reads one of them
    """

    nodes: list[Node] = field(default_factory=list)
    readers: list[Node] = field(default_factory=list)
    closed: bool = False

    @property
    def tensors(self) -> set[str]:
        return {n.outputs[0] for n in self.nodes}


def without_constants(graph: Graph) -> Graph:
    """A quantized forward graph without channels that no input changes, and no training would."""
    ranges, result = ranges_of(graph), graph
    for chain in _chains(graph):
        kept = _kept(graph, chain, ranges)
        if not kept.all():
            result = _narrowed(result, chain, kept, ranges)
    return result


def left_out(before: Graph, after: Graph) -> Mapping[str, int]:
    """Layer -> how many output channels it has lost; those that lost some."""
    lost = {name: len(layer.bias) - len(after.layers[name].bias) for name, layer in before.layers.items()}
    return {name: count for name, count in lost.items() if count}


def ranges_of(graph: Graph) -> Mapping[str, Range]:
    """The stored values that each channel of the int8 tensors can have, whatever comes in and is learned.

    They are one where that is certain; a constant that training could bring to life has all there are.
    """
    found: dict[str, Range] = {}
    for node in graph.nodes:
        x, y = node.inputs[0], graph.tensors[node.outputs[0]]
        if y.dtype != "s8":
            continue
        before = found.get(x, _any(graph.tensors[x].channels))
        if _dense(graph, node) or _depthwise(graph, node):
            found[y.name] = _range_of_layer(graph, node, before)
        elif _apart(graph, node):
            found[y.name] = _range_apart(graph, node, before)
        else:
            found[y.name] = _any(y.channels)
    return found


def _any(channels: int) -> Range:
    return np.full(channels, LEAST), np.full(channels, MOST)


def _range_of_layer(graph: Graph, node: Node, before: Range) -> Range:
    """Of a convolution: an output only grows with its sum.

    It stays constant where it is made of constants, where its weights are 0, or where it saturates always, so
    that no gradient passes; not where only a step of what is stored is too large for what it does.
    """
    sums = _sums(graph, node, before)
    least, most = unclamped(graph, node, sums)
    low, high = np.clip(least, LEAST, MOST), np.clip(most, LEAST, MOST)
    alive = (low == high) & (sums[0] != sums[1]) & (most >= LEAST) & (least <= MOST)
    return np.where(alive, LEAST, low), np.where(alive, MOST, high)


def _sums(graph: Graph, node: Node, before: Range) -> np.ndarray:
    """The least and the greatest sum of each output channel, bias included, int64 [2][c_out]."""
    layer, x = graph.layers[node.layer or ""], graph.tensors[node.inputs[0]]
    low, high = (values - x.zero for values in before)
    if _padded(node):  # with what is stored as 0
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    shape = (-1, 1, 1) if layer.depthwise else (-1,)
    ends = (
        layer.weight.astype(np.int64) * low.reshape(shape),
        layer.weight.astype(np.int64) * high.reshape(shape),
    )
    axes = tuple(range(1, layer.weight.ndim))
    least, most = np.minimum(*ends).sum(axis=axes), np.maximum(*ends).sum(axis=axes)
    return np.stack([least, most]) + layer.bias.astype(np.int64)


def _range_apart(graph: Graph, node: Node, before: Range) -> Range:
    """Of a node without weights that works channel by channel: what it makes of the constant ones."""
    low, high = before
    constant = low == high
    if not constant.any():
        return _any(len(low))
    x = graph.tensors[node.inputs[0]]
    image = np.broadcast_to(np.where(constant, low, 0).astype(np.int8), (1, *x.shape))
    made = forward_op(node).int8_run(graph, node, {x.name: image}).astype(np.int64)
    least, most = made.min(axis=(0, 1, 2)), made.max(axis=(0, 1, 2))
    return np.where(constant, least, LEAST), np.where(constant, most, MOST)


def _padded(node: Node) -> bool:
    k = node.window
    return k is not None and max(k.pad_h, k.pad_w, k.pad_h + k.more_h, k.pad_w + k.more_w) > 0


def _plain(graph: Graph, node: Node) -> bool:
    """A convolution with weights of its own, of one input, whose outputs are the channels of its map."""
    if forward_op(node).learns is not Learns.COLUMNS or len(node.inputs) != 1:
        return False
    layer = graph.layers[node.layer or ""]
    return graph.tensors[node.outputs[0]].channels == len(layer.weight) and not layer.shares


def _dense(graph: Graph, node: Node) -> bool:
    layer, x = graph.layers.get(node.layer or ""), graph.tensors[node.inputs[0]]
    return _plain(graph, node) and layer is not None and layer.weight.shape[3:] == (x.channels,)


def _depthwise(graph: Graph, node: Node) -> bool:
    return _plain(graph, node) and graph.layers[node.layer or ""].depthwise


def _apart(graph: Graph, node: Node) -> bool:
    """Whether a node makes each channel of the input's of that number alone, and has no constants of any."""
    if node.layer is not None or len(node.inputs) != 1:
        return False
    stage = forward_op(node).stage
    shapes = (graph.tensors[t].channels for t in (node.inputs[0], node.outputs[0]))
    alone = isinstance(stage, WindowStage) and not stage.mixes
    return len(set(shapes)) == 1 and (alone or node.op in ACTIVATIONS)


def _chains(graph: Graph) -> Iterator[Chain]:
    """The chains of a graph that nothing else reads."""
    chains: dict[str, Chain] = {}
    for node in graph.nodes:
        for tensor in dict.fromkeys(t for t in node.reads if t in chains):
            chain = chains[tensor]
            if _depthwise(graph, node) or _apart(graph, node):
                chain.nodes.append(node)
                chains[node.outputs[0]] = chain
            elif _dense(graph, node) or forward_op(node).learns is Learns.HEAD:
                chain.readers.append(node)
            else:
                chain.closed = True
        if _dense(graph, node):
            chains[node.outputs[0]] = Chain([node])
    for chain in dict.fromkeys(chains.values()):
        if chain.readers and not chain.closed and graph.output not in chain.tensors:
            yield chain


def _kept(graph: Graph, chain: Chain, ranges: Mapping[str, Range]) -> np.ndarray:
    """Channels of a chain that stay, bool [c]: so many that kernels read whole words."""
    channels = graph.tensors[chain.nodes[0].outputs[0]].channels
    spared = np.ones(channels, bool)
    for node in chain.readers:
        spared &= _still(graph, node, ranges)
    fewest = -(-max(channels - int(spared.sum()), 1) // WORD) * WORD
    kept = ~spared
    kept[np.flatnonzero(spared)[: max(0, fewest - int(kept.sum()))]] = True
    return kept


def _still(graph: Graph, node: Node, ranges: Mapping[str, Range]) -> np.ndarray:
    """Channels of a reader's input that add the same everywhere: whose value is constant, and 0 where some
    pixels read padding in its place, or where sums are floats."""
    x = graph.tensors[node.inputs[0]]
    low, high = ranges[x.name]
    same = low == high
    exact = not _padded(node) and forward_op(node).learns is Learns.COLUMNS
    result: np.ndarray = same if exact else same & (low == x.zero)
    return result


def _narrowed(graph: Graph, chain: Chain, kept: np.ndarray, ranges: Mapping[str, Range]) -> Graph:
    """The graph with the channels of a chain that are kept."""
    layers = dict(graph.layers)
    for node in chain.nodes:
        if node.layer:
            layers[node.layer] = _with_outputs(layers[node.layer], kept)
    for node in chain.readers:
        x, name = graph.tensors[node.inputs[0]], node.layer or ""
        layers[name] = _with_inputs(layers[name], kept, ranges[x.name][0] - x.zero, x.pixels)
    made = {t for n in chain.nodes for t in n.outputs}
    tensors = {
        name: replace(t, shape=(*t.shape[:2], int(kept.sum()))) if name in made else t
        for name, t in graph.tensors.items()
    }
    return graph.replace(layers=layers, tensors=tensors)


def _with_outputs(layer: Layer, kept: np.ndarray) -> Layer:
    """A layer with the output channels that are kept."""
    gone = LeftOut(_numbers(~kept), ())

    def of(values: np.ndarray | None) -> np.ndarray | None:
        return None if values is None else np.ascontiguousarray(values[kept])

    seen = None if layer.seen is None else (layer.seen[0][kept], layer.seen[1][kept])
    return replace(
        layer,
        weight=np.ascontiguousarray(layer.weight[kept]),
        bias=np.ascontiguousarray(layer.bias[kept]),
        weight_scale=of(layer.weight_scale),
        dead=of(layer.dead),
        folded=of(layer.folded),
        seen=seen,
        source=_without(layer.source, gone),
    )


def _with_inputs(layer: Layer, kept: np.ndarray, values: np.ndarray, pixels: int) -> Layer:
    """A layer with the input channels that are kept, and in its biases what the others add to its sums.

    values  of each channel less the zero point; those that are not kept are constant
    pixels  of the input, each of which a head has weights for
    """
    source = _without(layer.source, LeftOut((), _numbers(~kept)))
    if layer.weight.ndim == 2:  # a head
        columns = layer.weight.reshape(len(layer.weight), pixels, -1)[..., kept]
        return replace(layer, weight=columns.reshape(len(layer.weight), -1), source=source)
    added = (layer.weight[..., ~kept].astype(np.int64) * values[~kept]).sum(axis=(1, 2, 3)).astype(np.int32)
    return replace(
        layer,
        weight=np.ascontiguousarray(layer.weight[..., kept]),
        bias=layer.bias + added,
        folded=added if layer.folded is None else layer.folded + added,
        source=source,
    )


def _numbers(channels: np.ndarray) -> tuple[int, ...]:
    return tuple(map(int, np.flatnonzero(channels)))


def _without(source: Source, gone: LeftOut) -> Source:
    return replace(source, left_out=(source.left_out or NOTHING_LEFT_OUT).beside(gone))
