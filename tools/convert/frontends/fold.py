"""Passes that turn the raw graph of a reader into the IR's float graph.

Batch norms go into the layer before them, activations into the `act` of the node before them, the last
linear layer becomes the head and all others convolutions. What cannot be folded is an error.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from microtrain.convert.emit.names import LONGEST, identifier, safe_name
from microtrain.convert.ir import ConvertError, Graph, Layer, Node, Source, Tensor
from microtrain.convert.ops import TABLE, ForwardOp, conv, head
from microtrain.convert.ops.table import Folds

TAKES_RELU = (Folds.NORM_AND_RELU, Folds.RELU)
LINEAR = "linear"  # of the raw graph alone: it becomes the head or a convolution


def folds(node: Node) -> Folds:
    """What a node of the raw graph takes in of the layer behind it."""
    if node.op == LINEAR:
        return Folds.NORM_AND_RELU
    op = TABLE.get(node.op)
    return op.folds if isinstance(op, ForwardOp) else Folds.NOTHING


def clean(graph: Graph) -> Graph:
    """All passes in order."""
    return check_layers(rename(make_head(fuse_activations(fold_batch_norms(check_used(graph))))))


def check_used(graph: Graph) -> Graph:
    """The graph unchanged, or an error naming a node whose result the output does not depend on."""
    needed = {graph.output}
    for node in reversed(graph.nodes):
        if node.outputs[0] not in needed:
            raise ConvertError(
                f"layer {node.name} ({node.op}) has no part in the output; remove it from forward()"
            )
        needed.update(node.inputs)
    return graph


def fold_batch_norms(graph: Graph) -> Graph:
    """Multiply every batch norm into the convolution or linear layer it follows."""
    layers = {name: layer for name, layer in graph.layers.items() if not name.startswith("bn:")}
    for node in [n for n in graph.nodes if n.op == "bn"]:
        norm = graph.layers[node.layer or ""]
        before = graph.producer(node.inputs[0])
        prefix = norm.source.weight
        if (
            before is None
            or folds(before) is not Folds.NORM_AND_RELU
            or len(graph.readers(node.inputs[0])) > 1
        ):
            raise ConvertError(
                f"the batch norm {prefix} does not follow a convolution or linear layer of its own; "
                "the nearest that is supported: one right behind such a layer"
            )
        name = before.layer or ""
        if layers[name].source.bn is not None:
            raise ConvertError(f"layer {name} is followed by two batch norms; merge {prefix} into the first")
        layers[name] = _folded(layers[name], norm, prefix)
        graph = _bypass(graph, node)
    return graph.replace(layers=layers)


def _folded(layer: Layer, norm: Layer, prefix: str) -> Layer:
    """w' = w * factor, b' = b * factor + shift, in double precision."""
    factor = np.broadcast_to(norm.weight, layer.bias.shape).astype(np.float64)
    weight = layer.weight.astype(np.float64) * factor.reshape((-1,) + (1,) * (layer.weight.ndim - 1))
    bias = layer.bias.astype(np.float64) * factor + norm.bias
    source = Source(layer.source.weight, layer.source.bias, prefix, norm.source.eps)
    with np.errstate(over="ignore"):
        return Layer(weight.astype(np.float32), bias.astype(np.float32), source)


def _bypass(graph: Graph, node: Node, act: str | None = None) -> Graph:
    """Remove a node; the one before it writes its output instead, with the given activation."""
    gone, kept = node.inputs[0], node.outputs[0]
    nodes = []
    for n in graph.nodes:
        if n is node:
            continue
        if n.outputs[0] == gone:
            n = replace(n, outputs=(kept,), act=act or n.act)
        nodes.append(n)
    tensors = {name: t for name, t in graph.tensors.items() if name != gone}
    return graph.replace(nodes=tuple(nodes), tensors=tensors)


def fuse_activations(graph: Graph) -> Graph:
    """Make every relu and relu6 the `act` of the convolution, linear layer or add before it."""
    while True:
        node = next((n for n in graph.nodes if n.op in ("relu", "relu6")), None)
        if node is None:
            return graph
        graph = _fuse(graph, node)


def _fuse(graph: Graph, node: Node) -> Graph:
    """Fuse one activation; past a max pooling it is moved in front of it."""
    tensor = node.inputs[0]
    before = graph.producer(tensor)
    while before is not None and folds(before) is Folds.RELU_PASSES and len(graph.readers(tensor)) == 1:
        tensor = before.inputs[0]
        before = graph.producer(tensor)
    if before is None or folds(before) not in TAKES_RELU or len(graph.readers(tensor)) > 1:
        behind = "the input" if before is None else f"{before.name} ({before.op})"
        raise ConvertError(
            f"layer {node.name}: {node.op} of {behind} is not supported; the nearest that is: "
            f"{node.op} right behind a convolution, linear layer or add, as the only reader of its result"
        )
    act = "relu6" if "relu6" in (before.act, node.op) else "relu"
    marked = replace(before, act=act)
    graph = graph.replace(nodes=tuple(marked if n is before else n for n in graph.nodes))
    return _bypass(graph, node)


def make_head(graph: Graph) -> Graph:
    """The last linear layer becomes the head, every other one a convolution whose window is the whole map."""
    last = graph.producer(graph.output)
    if last is None or last.op != LINEAR or last.act != "none":
        end = "its input" if last is None else f"{last.name} ({last.act if last.act != 'none' else last.op})"
        raise ConvertError(
            f"{graph.name} ends with {end}; it must end with a linear layer, one logit a class (nn.Linear)"
        )
    if graph.readers(graph.output):
        raise ConvertError(
            f"{graph.name}: the logits of {last.name} are read again; they must be the only output"
        )
    name = last.layer or ""
    layer = graph.layers[name]
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
        layers={layers[old]: layer for old, layer in graph.layers.items()},
        input=entry,
        output=names[graph.output],
    )


def _layer_names(graph: Graph) -> dict[str, str]:
    """What each layer is called from here on; one warning says which had another name in the file."""
    taken: set[str] = set()
    names = {old: _unique(safe_name(old), taken) for old in graph.layers}
    changed = [f"{old[:LONGEST]} is called {new}" for old, new in names.items() if old != new]
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
