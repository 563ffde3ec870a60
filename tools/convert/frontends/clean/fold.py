"""Passes that turn the raw graph of a reader into the IR's float graph.

Batch norms go into the layer before them, activations into the `act` of the node before them, the last
linear layer becomes the head and all others convolutions. What cannot be folded is an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from microtrain.convert.aten_call import LayerError
from microtrain.convert.ir import WINDOW_MOST, ConvertError, Graph, Layer, Node, Source, Tensor, Window
from microtrain.convert.lowering import NORM, STAND_IN
from microtrain.convert.names import LONGEST, identifier, safe_name
from microtrain.convert.ops import TABLE, ForwardOp, add, conv, functions, head, position
from microtrain.convert.ops.aten import recurrent
from microtrain.convert.ops.table import Folds
from microtrain.convert.raw import Raw

from ..edits import bypass, needed, without
from ..endings import LINEAR, Found, check_end, drop_ending
from ..found import together
from . import coded_norms
from .averages import average_powers, rescale
from .ended import end_rows
from .one_table import one_table
from .ordered import as_returned, order_vectors
from .root_means import root_means
from .shared import MOST_NAMED, mark_shared

TAKES_RELU = (Folds.NORM_AND_RELU, Folds.RELU)


def folds(node: Node) -> Folds:
    """What a node of the raw graph takes in of the layer behind it. A stand-in: what would stand there."""
    if node.op == LINEAR:
        return Folds.NORM_AND_RELU
    if node.op.startswith(STAND_IN):
        return Folds.NORM_AND_RELU if "conv" in node.op or LINEAR in node.op else Folds.RELU
    op = TABLE.get(node.op)
    return op.folds if isinstance(op, ForwardOp) else Folds.NOTHING


def clean(raw: Raw) -> Graph:
    """All passes in order. ConvertError with all that they and the reader have found, if anything."""
    reached = needed(raw.graph, {raw.graph.output})
    idle = {error for tensor, error in raw.stood.items() if tensor not in reached}
    idle -= {error for tensor, error in raw.stood.items() if tensor in reached}
    found = [error for error in raw.found if error not in idle]
    follows = [error for tensor, error in raw.stood.items() if tensor in reached]
    if not found and follows:  # from an error that is not reached
        found = list(raw.found) or follows[:1]
    graph = end_rows(as_returned(raw))
    passes = (
        keep_used,
        drop_ending,
        fold_normalisation,
        root_means,
        fold_batch_norms,
        join_positions,
        order_vectors,
        fuse_activations,
        rescale,
        average_powers,
        one_table,
        check_end,
    )
    for each in passes:
        graph = each(graph, found)
    if found:
        raise together(graph.name, found, raw.weights)
    return check_layers(rename(make_head(mark_shared(graph))))


def keep_used(graph: Graph, found: Found) -> Graph:
    """The graph without nodes whose results the output does not depend on; one warning names their layers."""
    used = needed(graph, {graph.output})
    nodes = tuple(n for n in graph.nodes if used.intersection(n.outputs))
    layers = {n.layer for n in nodes}
    gone = [
        n for n in graph.nodes if n not in nodes and n.op != NORM and (not n.layer or n.layer not in layers)
    ]
    names = list(dict.fromkeys(n.name for n in gone if n.layer or recurrent.is_alone(graph, n)))
    if names:
        said = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
        what = f"the output does not depend on {said}, which {'is' if len(names) == 1 else 'are'} left out"
        warnings.warn(what, stacklevel=4)
    return graph.replace(nodes=nodes, layers={k: v for k, v in graph.layers.items() if k in layers})


def fold_normalisation(graph: Graph, found: Found) -> Graph:
    """Multiply what the model itself does to the image, before any layer, into the graph's input.

    What the image is read without as well, or what leaves nothing of a channel, is a layer.
    """
    while True:
        image = graph.input.tensor
        readers = graph.readers(image)
        node = readers[0] if len(readers) == 1 else None
        if node is None or node.op != NORM or coded_norms.stays(graph, node):
            return graph
        norm = graph.layers[node.layer or ""]
        if not np.all(norm.weight):
            return graph
        graph = _normalised(graph, node, norm)


def _normalised(graph: Graph, node: Node, norm: Layer) -> Graph:
    """The graph whose input does what a node did that alone read the image."""
    made = coded_norms.in_table(graph, node, norm)
    factor, shift = (np.broadcast_to(v, (len(graph.input.gain),)) for v in (norm.weight, norm.bias))
    gain = tuple(float(g * f) for g, f in zip(graph.input.gain, factor, strict=True))
    offset = tuple(float(o * f + s) for o, f, s in zip(graph.input.offset, factor, shift, strict=True))
    changed = made or without(graph, node)
    return changed.replace(input=replace(changed.input, gain=gain, offset=offset))


def fold_batch_norms(graph: Graph, found: Found) -> Graph:
    """Multiply every batch norm into the convolution or linear layer it follows; others are layers.

    So are other scales and shifts of channels.
    """
    return _one_by_one(graph, found, (NORM,), _fold_norm)


def _one_by_one(
    graph: Graph, found: Found, ops: tuple[str, ...], step: Callable[[Graph, Node], Graph]
) -> Graph:
    """The graph after a step for each node of some ops; one that the step refuses is noted and left out."""
    while True:
        node = next((n for n in graph.nodes if n.op in ops), None)
        if node is None:
            return graph
        try:
            graph = step(graph, node)
        except LayerError as error:
            found.append(error)
            graph = without(graph, node)


def _fold_norm(graph: Graph, node: Node) -> Graph:
    """The graph with a batch norm in the layer before it, or as a layer where there is none that takes it."""
    norm = graph.layers[node.layer or ""]
    before = graph.producer(node.inputs[0])
    if before is not None and (made := coded_norms.with_term(graph, node, norm, before)):
        return made
    if made := coded_norms.as_op(graph, node, norm):
        return made
    if before is not None and (shared := _as_share(graph, node, norm, before)):
        return shared
    prefix = norm.source.weight
    if before is None or folds(before) is not Folds.NORM_AND_RELU or len(graph.readers(node.inputs[0])) > 1:
        return _as_layer(graph, node, norm)
    layers = {name: layer for name, layer in graph.layers.items() if name != node.layer}
    if before.layer is not None:  # else a stand-in
        if layers[before.layer].source.bn is not None and norm.source.eps is not None:
            what = f"is followed by two batch norms; merge {prefix} into the first"
            raise LayerError(f"layer {before.layer}", what, " ")
        layers[before.layer] = _folded(layers[before.layer], norm, prefix)
    return bypass(graph, node).replace(layers=layers)


def _as_share(graph: Graph, node: Node, norm: Layer, before: Node) -> Graph | None:
    """The graph with one factor for all in the sum before it; None: it is another scale, or behind no sum."""
    factor, tensor = float(np.ravel(norm.weight)[0]), graph.tensors[node.inputs[0]]
    plain = not np.ptp(norm.weight) and not np.any(norm.bias) and norm.source.eps is None
    sum_ = add.as_share(before, factor) if plain and tensor.given is None else None
    if sum_ is None or len(graph.readers(tensor.name)) > 1:
        return None
    layers = {name: layer for name, layer in graph.layers.items() if name != node.layer}
    nodes = tuple(sum_ if n is before else n for n in graph.nodes)
    return bypass(graph.replace(nodes=nodes, layers=layers), node)


def _as_layer(graph: Graph, node: Node, norm: Layer) -> Graph:
    """The graph with a batch norm as a depthwise convolution of one pixel. It stays frozen."""
    c = graph.tensors[node.inputs[0]].channels
    weight, bias = (np.broadcast_to(v, (c,)).astype(np.float32) for v in (norm.weight, norm.bias))
    layer = Layer(weight.reshape(c, 1, 1).copy(), bias.copy(), Source(""), seen=norm.seen)
    prefix = norm.source.weight
    # Errors of another node have scales of that name.
    beside = any(n.name == prefix for n in graph.nodes if n is not node)
    name = f"{prefix}.factor" if beside else f"{prefix}.scale"
    name = f"{name}{graph.nodes.index(node)}" if name in graph.layers else name
    made = replace(node, op=conv.DEPTHWISE, layer=name, name=name, window=Window(1, 1))
    layers = {own: each for own, each in graph.layers.items() if own != node.layer}
    nodes = tuple(made if n is node else n for n in graph.nodes)
    return graph.replace(nodes=nodes, layers={**layers, name: layer})


def _folded(layer: Layer, norm: Layer, prefix: str) -> Layer:
    """w' = w * factor, b' = b * factor + shift, in double precision."""
    factor = np.broadcast_to(norm.weight, layer.bias.shape).astype(np.float64)
    weight = layer.weight.astype(np.float64) * factor.reshape((-1,) + (1,) * (layer.weight.ndim - 1))
    bias = layer.bias.astype(np.float64) * factor + norm.bias
    source = replace(layer.source, bn=prefix, eps=norm.source.eps)
    plain, bare = (bool((np.asarray(w) == 1).all()) for w in (norm.weight, layer.weight))
    constant = norm.source.bias  # with one number for each channel
    scales = not plain or (bare and not layer.source.weight and not np.any(norm.bias))
    if constant and not scales and layer.source.bias is None:
        source = replace(layer.source, bias=constant)  # what is added is a bias
    elif constant and scales and bare and layer.weight.size == len(layer.weight):
        source = replace(layer.source, weight=constant)  # the scale of a normalisation
    with np.errstate(over="ignore"):
        scale = layer.weight_scale if plain else None
        weight, bias = weight.astype(np.float32), bias.astype(np.float32)
        return replace(layer, weight=weight, bias=bias, source=source, weight_scale=scale, seen=norm.seen)


def join_positions(graph: Graph, found: Found) -> Graph:
    """One table for constants that are added to the same tokens one after the other."""
    for node in graph.nodes:
        before = graph.producer(node.inputs[0])
        if before is None or not before.op == node.op == position.POSITION or position.lead_of(node):
            continue
        if len(graph.readers(before.outputs[0])) == 1:
            both, gone = position.joined(graph, before, node), before.outputs[0]
            nodes = tuple(both if n is node else n for n in graph.nodes if n is not before)
            tensors = {name: tensor for name, tensor in graph.tensors.items() if name != gone}
            graph = graph.replace(nodes=nodes, tensors=tensors)
    return graph


def fuse_activations(graph: Graph, found: Found) -> Graph:
    """Make every relu and relu6 the `act` of the convolution, linear layer or add before it."""
    return _one_by_one(graph, found, ("relu", "relu6"), _fuse)


def _fuse(graph: Graph, node: Node) -> Graph:
    """Fuse one activation; past a max pooling it moves in front of it. One that nothing takes is a table."""
    tensor = node.inputs[0]
    before = graph.producer(tensor)
    while before is not None and folds(before) is Folds.RELU_PASSES and len(graph.readers(tensor)) == 1:
        tensor = before.inputs[0]
        before = graph.producer(tensor)
    given = graph.tensors[node.outputs[0]].given
    if before is None or folds(before) not in TAKES_RELU or len(graph.readers(tensor)) > 1:
        return _by_table(graph, node)
    if given is not None and not _saturates(node.op, *given):
        own = graph.tensors[node.inputs[0]]
        kept = {**graph.tensors, own.name: replace(own, given=own.given or given)}
        return _by_table(graph.replace(tensors=kept), node)
    act = "relu6" if "relu6" in (before.act, node.op) else "relu"
    marked = replace(before, act=act)
    graph = graph.replace(nodes=tuple(marked if n is before else n for n in graph.nodes))
    return bypass(graph, node)


def _by_table(graph: Graph, node: Node) -> Graph:
    """The graph with an activation as an op of its own."""
    clip = replace(node, op=functions.CLIP, factors=(0.0, functions.HIGHEST[node.op]))
    return graph.replace(nodes=tuple(clip if n is node else n for n in graph.nodes))


def _saturates(act: str, scale: float, zero: int) -> bool:
    """Whether int8 of such a scale and zero saturates where the activation does."""
    return zero == -128 and scale * (127 - zero) <= functions.HIGHEST[act] + 0.5 * scale


def check_hidden(nodes: Sequence[Node]) -> None:
    """ConvertError where a linear layer that becomes a convolution reads more than a window of one."""
    for node in nodes:
        k = node.window
        if k is not None and max(k.kh, k.kw) > WINDOW_MOST:
            raise ConvertError(
                f"layer {node.name} reads a map of {k.kh}x{k.kw}; a hidden linear layer reads {WINDOW_MOST} "
                "rows and columns at most: let a pooling or a stride come before it"
            )


def make_head(graph: Graph) -> Graph:
    """The last linear layer becomes the head, every other one a convolution whose window is the whole map.

    A network that ends in a map, or in a vector of something else, has no head.
    """
    last = next(n for n in graph.nodes if graph.output in n.outputs)
    ends = last.op == LINEAR and last.act == "none"
    check_hidden([n for n in graph.nodes if n.op == LINEAR and not (ends and n is last)])
    if not ends:
        body = (replace(n, op=conv.DENSE) if n.op == LINEAR else n for n in graph.nodes)
        return graph.replace(nodes=tuple(body))
    name = last.layer or ""
    layer = graph.layers[name]
    if layer.shares:
        raise ConvertError(
            f"{name} is the last layer, which learns, and the model uses its weights elsewhere too, where "
            "they would stay as they are: give the last layer weights of its own"
        )
    flat = replace(layer, weight=np.ascontiguousarray(layer.weight.reshape(len(layer.weight), -1)))
    nodes = [replace(n, op=conv.DENSE) if n.op == LINEAR else n for n in graph.nodes if n is not last]
    last = replace(last, op=head.HEAD, window=None)
    return graph.replace(nodes=(*nodes, last), layers={**graph.layers, name: flat})


def rename(graph: Graph) -> Graph:
    """Name tensors after the nodes that write them; all names are safe, and unique also as C identifiers."""
    taken: set[str] = set()
    names = {graph.input.tensor: _unique("input", taken)}
    layers = _layer_names(graph)
    nodes = []
    for node in graph.nodes:
        name = layers[node.layer] if node.layer else _unique(safe_name(node.name), taken)
        old = node.outputs[0]
        names[old] = _unique("logits" if node.op == head.HEAD else name, taken) if node.layer else name
        renamed = tuple(names[i] for i in node.inputs)
        layer = layers[node.layer] if node.layer else None
        nodes.append(replace(node, name=name, layer=layer, inputs=renamed, outputs=(names[old],)))
    tensors: dict[str, Tensor] = {}
    for old, new in names.items():
        tensors[new] = replace(graph.tensors[old], name=new)
    entry = replace(graph.input, tensor=names[graph.input.tensor])
    return graph.replace(
        nodes=tuple(nodes),
        tensors=tensors,
        layers={
            layers[old]: replace(layer, shares=layers.get(layer.shares, layer.shares))
            for old, layer in graph.layers.items()
        },
        input=entry,
        output=names[graph.output],
    )


def _layer_names(graph: Graph) -> dict[str, str]:
    """What each layer is called from here on; one warning says which of the file's had another name there."""
    taken: set[str] = set()
    names = {old: _unique(safe_name(old), taken) for old in graph.layers}
    own = (old for old, layer in graph.layers.items() if layer.source.weight)
    changed = [f"{old[:LONGEST]} is called {names[old]}" for old in own if old != names[old]]
    if changed:
        more = f", and {len(changed) - 3} more" if len(changed) > 3 else ""
        warnings.warn(f"layer names made safe: {', '.join(changed[:3])}{more}", stacklevel=4)
    return names


def _unique(name: str, taken: set[str]) -> str:
    """The name, with a number behind it where another one has the same C identifier."""
    result, count = name, 1
    while identifier(result) in taken:
        count += 1
        result = f"{name}_{count}"
    taken.add(identifier(result))
    return result


def check_layers(graph: Graph) -> Graph:
    """The graph unchanged, or an error naming a layer that cannot be used."""
    for name, layer in graph.layers.items():
        if not (np.isfinite(layer.weight).all() and np.isfinite(layer.bias).all()):
            raise ConvertError(
                f"layer {name} has NaN or infinite weights once its batch norm {layer.source.bn} is folded "
                "into it; save the model from before its training diverged"
            )
    return graph
