"""Weights in four bits: a pass over the quantized graph, which layers it takes, and what they lose.

A coded layer is an int8 layer whose weights are few different pairs (ops/coded.py), so nothing behind this
pass knows of it but storage and kernels. Layers are coded one after the other, each for the inputs that the
layers before it leave it. Its biases, and those of the layers behind it, make up for what moves their sums'
means; biases that are trained begin at values that 16 bits hold (struct trained_bias).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from microtrain.base.progress import bar
from microtrain.convert.compression import Compression
from microtrain.convert.execute.batched import batches, int8_node, run_int8, stored_pixels
from microtrain.convert.ir import ConvertError, Graph, Layer, Node
from microtrain.convert.limits import bias_room, prove
from microtrain.convert.ops import coded, forward_op
from microtrain.convert.ops.conv_constants import multipliers
from microtrain.convert.ops.conv_runs import sums
from microtrain.convert.ops.table import Learns, Values
from microtrain.convert.reference.biases import LEAN_SHIFT, bias_shift, lean_bias
from microtrain.convert.reference.windows import centred, columns, taps
from microtrain.convert.scheme import Scheme, apply

from .bias_correction import most_alive
from .fidelity import decibels, energy
from .pair_codes import Inputs, fit

LEAST_SIGNAL = 19.5  # dB of the logits to what 4 bits change of them, that `auto` keeps to
HELD = 4  # one image of so many is kept to judge by
FEW_IMAGES = 8  # with fewer all of them are learned from and judged by
MOST_JUDGED, SENSED = 128, 32  # images
MOST_BYTES = 512 << 20  # of all images' tensors that are alive at once, and of all tensors of those SENSED
MOST_SEEN = 16384  # outputs that a depthwise layer's covariances are of, or one of each batch's images
ROUNDS = 3
LESS_LOST = 0.3  # of what single layers lose when they are coded in haste
MARGIN = 0.25  # dB by which another round aims higher


@dataclass(eq=False)
class Pair:
    """A batch of images on its way through the network as it was and as it becomes: tensors by name."""

    whole: dict[str, np.ndarray]
    coded: dict[str, np.ndarray]


@dataclass(frozen=True)
class Trained:
    """Layers whose weights are to be trained, which stay as they are, and those whose biases are."""

    weights: frozenset[str] = frozenset()
    biases: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be made smaller, and how that is judged.

    images    uint8 [N, h, w, c], to learn from
    judged    the same, to judge by
    expected  logits of those
    """

    graph: Graph
    trained: Trained
    images: np.ndarray
    judged: np.ndarray
    expected: np.ndarray


def compressed(graph: Graph, images: np.ndarray, trained: Trained, every: bool) -> Graph:
    """The quantized graph with weights in four bits.

    images  uint8 [N, h, w, c], typical ones
    every   all other layers that take less flash as codes; False: as many as keep LEAST_SIGNAL
    """
    layers = coded.candidates(graph, trained.weights)
    if not layers:
        raise ConvertError(
            f"{graph.name} has no frozen layer that 4 bits make smaller: convert with --weights-bits 8"
        )
    if len(images) < FEW_IMAGES:
        learned = judged = images
    else:
        held = np.arange(len(images)) % HELD == HELD - 1
        learned, judged = images[~held], images[held][:MOST_JUDGED]
    expected = np.concatenate([run_int8(graph, batch) for batch in batches(graph, judged, "int8 answers")])
    task = Task(graph, trained, learned, judged, expected)
    return _judged(task, layers) if every else _as_many(task, layers)


def trained_by(graph: Graph, scheme: Scheme) -> Trained:
    layers = apply(graph, scheme).layers
    return Trained(
        weights=frozenset(name for name, layer in layers.items() if layer.trained),
        biases=frozenset(name for name, layer in layers.items() if layer.bias_trained),
    )


def without_values(graph: Graph, trained: Trained) -> Graph:
    """The quantized graph with all its candidates in four bits, and trained biases that 16 bits hold: all of
    them zeros, as what they take does not depend on images."""
    chosen, layers = set(coded.candidates(graph, trained.weights)), dict(graph.layers)
    for name in chosen:
        zeros = np.broadcast_to(np.int8(0), layers[name].weight.shape)
        layers[name] = replace(layers[name], weight=zeros)
    for name in trained.biases & layers.keys():
        layers[name] = replace(layers[name], bias=np.zeros_like(layers[name].bias))
    nodes = tuple(coded.coded(node) if node.layer in chosen else node for node in graph.nodes)
    saved = coded.flash_saved([layers[name] for name in chosen])
    said = Compression(tuple(sorted(chosen)), saved, signal=0.0, same=0.0, images=0)
    return graph.replace(nodes=nodes, layers=layers, compression=said)


def _as_many(task: Task, layers: list[str]) -> Graph:
    """The most bytes saved that keep LEAST_SIGNAL: layers in the order of what they lose a byte."""
    graph = task.graph
    lost = _sensitivity(graph, task.images, layers)
    order = sorted(layers, key=lambda name: lost[name] / coded.saved_by(graph.layers[name]))
    together = np.cumsum([lost[name] for name in order])
    best, share, aim = graph, LESS_LOST, LEAST_SIGNAL
    tried: set[int] = set()
    for _ in range(ROUNDS):
        count = int((share * together <= 10 ** (-aim / 10)).sum())
        if count == 0 or count in tried:
            break
        tried.add(count)
        chosen = [name for name in layers if name in order[:count]]
        found = _judged(task, chosen)
        assert found.compression is not None
        share = 10 ** (-found.compression.signal / 10) / together[count - 1]
        if found.compression.signal < LEAST_SIGNAL:
            aim += MARGIN
        elif best.compression is None or found.compression.saved > best.compression.saved:
            best = found
    if best.compression is None:
        raise ConvertError(
            f"{graph.name} loses too much with any layer in 4 bits: convert with --weights-bits 8"
        )
    return best


def _judged(task: Task, layers: Sequence[str]) -> Graph:
    """The graph with some layers as codes, and with what that saves and loses."""
    found = _coded(task, layers)
    answers = batches(found, task.judged, "4-bit answers")
    logits = np.concatenate([run_int8(found, batch) for batch in answers])
    said = Compression(
        layers=tuple(layers),
        saved=coded.flash_saved([task.graph.layers[name] for name in layers]),
        signal=_signal(task.expected, logits),
        same=float((task.expected.argmax(axis=1) == logits.argmax(axis=1)).mean()),
        images=len(task.judged),
    )
    return found.replace(compression=said)


def _signal(expected: np.ndarray, found: np.ndarray) -> float:
    """Decibels between the logits, about each image's mean where there are several, and their change."""
    mean = expected.mean(axis=1, keepdims=True) if expected.shape[1] > 1 else expected.mean()
    return decibels(energy(expected - mean), energy(found - expected))


def _coded(task: Task, layers: Sequence[str]) -> Graph:
    """The graph with some layers as codes."""
    graph, images = task.graph, task.images
    some = images[np.linspace(0, len(images) - 1, _count_images(graph, len(images))).astype(int)]
    entry, found, chosen = graph.input.tensor, graph, set(layers)
    pixels = [stored_pixels(graph, batch) for batch in batches(graph, some, "weights in 4 bits")]
    pairs = [Pair({entry: batch}, {entry: batch}) for batch in pixels]
    with bar("weights in 4 bits, layers", len(chosen)) as advance:
        for step, node in enumerate(graph.nodes):
            found = _coded_behind(task, chosen, found, step, pairs)
            advance(node.layer in chosen)
    return found


def _coded_behind(task: Task, chosen: set[str], found: Graph, step: int, pairs: Sequence[Pair]) -> Graph:
    """One node further: with its weights as codes or its biases made up, and run in both networks."""
    graph, node = task.graph, task.graph.nodes[step]
    name = node.layer or ""
    if name in chosen:
        found = _with_codes(found, graph, node, pairs)
    elif forward_op(node).learns is Learns.COLUMNS and _changed(node, pairs):
        found = _with_biases(found, graph, (node, node), pairs)
    if forward_op(node).learns is Learns.COLUMNS and name in task.trained.biases:
        found = found.replace(layers={**found.layers, name: _lean(found, node)})
    alive = {t for n in graph.nodes[step + 1 :] for t in n.inputs}
    for pair in pairs:
        _advance(graph, found, found.nodes[step], pair, alive)
    return found


def _count_images(graph: Graph, images: int) -> int:
    """How many of so many images fit MOST_BYTES on their way through both networks."""
    return max(1, min(images, MOST_BYTES // (2 * most_alive(graph))))


def _advance(graph: Graph, found: Graph, node: Node, pair: Pair, alive: set[str]) -> None:
    """Run a node in both networks and forget what nothing reads any more."""
    y, old = node.outputs[0], graph.forward_of.get(node.layer or "", node)
    pair.whole[y] = int8_node(graph, old, pair.whole)
    same = found.layers.get(node.layer or "") is graph.layers.get(node.layer or "")
    unchanged = same and not _changed(node, [pair])
    pair.coded[y] = pair.whole[y] if unchanged else int8_node(found, node, pair.coded)
    for values in (pair.whole, pair.coded):
        for name in [n for n in values if n not in alive]:
            del values[name]


def _changed(node: Node, pairs: Sequence[Pair]) -> bool:
    """Whether codes before it change what a node reads."""
    return any(pair.whole[t] is not pair.coded[t] for pair in pairs for t in node.inputs)


def _lean(found: Graph, node: Node) -> Layer:
    """A layer with biases that 16 bits hold, if they can."""
    layer = found.layers[node.layer or ""]
    m = multipliers(found, node)
    rough = lean_bias(layer.bias, m)
    near = np.abs(rough.astype(np.int64) - layer.bias) < 2 ** (LEAN_SHIFT + bias_shift(m))
    return replace(layer, bias=rough) if near.all() else layer


def _with_codes(found: Graph, graph: Graph, node: Node, pairs: Sequence[Pair], quick: bool = False) -> Graph:
    """With the weights of one more layer as codes."""
    name, layer = node.layer or "", graph.layers[node.layer or ""]
    assert layer.weight_scale is not None and node.window is not None
    rows = layer.weight.reshape(len(layer.weight), -1)
    made = fit(rows, (_channel_inputs if layer.depthwise else _inputs)(graph, node, pairs), quick)
    new = coded.coded(node)
    changed = replace(
        layer,
        weight=made.stored.reshape(layer.weight.shape),
        weight_scale=layer.weight_scale / made.factor,
        bias=_biases(made.stored, layer.bias * made.factor),
    )
    nodes = tuple(new if n.layer == name else n for n in found.nodes)
    found = found.replace(nodes=nodes, layers={**found.layers, name: changed})
    return _with_biases(found, graph, (node, new), pairs)


def _with_biases(found: Graph, graph: Graph, nodes: tuple[Node, Node], pairs: Sequence[Pair]) -> Graph:
    """With biases of a layer that keep its sums' means; nodes: it as it was and as it is."""
    name = nodes[0].layer or ""
    old, layer = graph.layers[name], found.layers[name]
    assert old.weight_scale is not None and layer.weight_scale is not None
    stored = layer.weight.reshape(len(layer.bias), -1)
    shift = _shift(graph, found, nodes, pairs, old.weight_scale / layer.weight_scale)
    alive = True if layer.dead is None else ~layer.dead
    bias = np.where(alive, _biases(stored, layer.bias - shift), layer.bias)
    x, y = graph.tensors[nodes[0].inputs[0]], graph.tensors[nodes[0].outputs[0]]
    prove(name, stored, bias.astype(np.int64), layer.weight_scale, x, y)
    return found.replace(layers={**found.layers, name: replace(layer, bias=bias)})


def _biases(stored: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    room = bias_room(stored.shape[1])
    found: np.ndarray = np.clip(np.rint(wanted), -room, room).astype(np.int32)
    return found


def _shift(
    graph: Graph, found: Graph, nodes: tuple[Node, Node], pairs: Sequence[Pair], factor: np.ndarray
) -> np.ndarray:
    """What codes move the mean of each channel's sums by, in units of the sums as they are now."""
    old, new = nodes
    shift, count = np.zeros(len(factor)), 0
    for pair in pairs:
        before = sums(graph, old, pair.whole[old.inputs[0]])
        after = sums(found, new, pair.coded[new.inputs[0]])
        shift += np.sum(after - before * factor, axis=(0, 1, 2), dtype=np.float64)
        count += before.size // len(factor)
    return shift / count


def _inputs(graph: Graph, node: Node, pairs: Sequence[Pair]) -> Inputs:
    """How a layer's inputs vary together, with the layers before it as they were and as they are."""
    assert node.window is not None
    name = node.inputs[0]
    size = graph.layers[node.layer or ""].weight[0].size
    seen, crossed, count = np.zeros((size, size)), np.zeros((size, size)), 0
    means, changed = np.zeros((2, size)), _changed(node, pairs)
    for pair in pairs:
        now = columns(_whole_numbers(graph, name, pair.coded[name]), node.window)
        seen += now.T @ now
        means[0] += now.sum(axis=0)
        count += len(now)
        if changed:
            old = columns(_whole_numbers(graph, name, pair.whole[name]), node.window)
            crossed += old.T @ now
            means[1] += old.sum(axis=0)
    means /= count
    found = seen / count - np.outer(means[0], means[0])
    return Inputs(found, crossed / count - np.outer(means[1], means[0]) if changed else None)


def _whole_numbers(graph: Graph, name: str, stored: np.ndarray) -> np.ndarray:
    """A tensor less its zero, float64: sums of its products are exact there, in whatever order."""
    return centred(stored, graph.tensors[name].zero).astype(np.float64)


def _channel_inputs(graph: Graph, node: Node, pairs: Sequence[Pair]) -> Inputs:
    """The same of each channel of a depthwise layer by itself: of some images, as they are."""
    assert node.window is not None
    name = node.inputs[0]
    outputs = sum(len(pair.coded[name]) for pair in pairs) * graph.tensors[node.outputs[0]].pixels
    step = -(-outputs // MOST_SEEN)
    channels, size = graph.tensors[name].channels, node.window.kh * node.window.kw
    seen, total, count = np.zeros((channels, size, size)), np.zeros((channels, size)), 0
    for pair in pairs:
        x = _whole_numbers(graph, name, pair.coded[name][::step])
        by_tap = np.stack(list(taps(x, node.window, 0.0)))
        rows = by_tap.reshape(len(by_tap), -1, x.shape[-1]).transpose(2, 0, 1)
        seen += rows @ rows.transpose(0, 2, 1)
        total += rows.sum(axis=2)
        count += rows.shape[2]
    mean = total / count
    return Inputs(seen / count - mean[:, :, None] * mean[:, None])


def _sensitivity(graph: Graph, images: np.ndarray, layers: Sequence[str]) -> dict[str, float]:
    """What the codes of one layer alone change of the logits, in parts of their energy."""
    room = MOST_BYTES // sum(t.elements for t in graph.tensors.values())
    some = images[: max(2, min(SENSED, room))]
    values: dict[str, np.ndarray] = {}
    expected = run_int8(graph, some, values.__setitem__)
    lost = {}
    with bar("what 4 bits lose, layers", len(layers)) as advance:
        for name in layers:
            node = graph.forward_of[name]
            found = _with_codes(graph, graph, node, [Pair(values, values)], quick=True)
            lost[name] = 10 ** (-_signal(expected, _rerun(found, values, name)) / 10)
            advance(1)
    return lost


def _rerun(found: Graph, values: Values, changed: str) -> np.ndarray:
    """Logits with another layer, given all tensors as they were without it."""
    fresh: dict[str, np.ndarray] = {}
    for node in found.nodes:
        if node.layer == changed or any(t in fresh for t in node.inputs):
            fresh[node.outputs[0]] = int8_node(found, node, {**values, **fresh})
    logits = fresh[found.output]
    return logits.reshape(len(logits), -1)
