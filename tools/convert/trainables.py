"""The block of memory that learning changes: what is in it, where, and its bytes before any training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from microtrain.base.plan import guesses

from .ir import ConvertError, Graph, Layer, Node, Source
from .ops import forward_op, saves
from .ops.conv_constants import bias_scale
from .ops.losses import task_of
from .splits import split_weight

HEAD_SEED = 0
HeadStart = str | tuple[int, ...]  # "zeros", "random", "keep", or rows of the model's own head


@dataclass(frozen=True, eq=False)
class Trainable:
    """One tensor of the block.

    kind      weight, fraction, bias, head_weight or head_bias, or one of STATISTICS (base/trained.py)
    dtype     s8, u4 (two fractions a byte), s16 or f32
    channels  trained input channels (depthwise: channels), None: all
    scale     real value per unit, one per channel; None for the float head
    base      real value of 0, one per channel: that of a bias before training; None where it is 0
    dead      output channels that were folded into constants
    data      its bytes before training
    """

    name: str
    layer: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    data: bytes
    channels: tuple[int, ...] | None
    scale: np.ndarray | None
    base: np.ndarray | None
    source: Source
    dead: tuple[int, ...]


def layout(graph: Graph) -> tuple[Trainable, ...]:
    """All trainables of a graph in forward order, 4-byte aligned; those that start as zeros come last."""
    result: list[Trainable] = []
    for layer_name, layer in _in_order(graph).items():
        for kind, dtype, array, scale in _tensors(graph, layer_name, layer):
            data = array.tobytes()
            channels = None
            if kind in ("weight", "fraction") and len(layer.trained) < layer.columns:
                channels = layer.trained
            name = f"{layer_name}.{kind.removeprefix('head_')}"
            result.append(
                Trainable(
                    name=name,
                    layer=layer_name,
                    kind=kind,
                    dtype=dtype,
                    shape=_shape(array, dtype, layer),
                    offset=0,
                    data=data,
                    channels=channels,
                    scale=scale,
                    base=_base(graph, layer_name, layer) if kind == "bias" else None,
                    source=layer.source,
                    dead=() if layer.dead is None else tuple(int(c) for c in np.flatnonzero(layer.dead)),
                )
            )
    for node in graph.forward_layers:
        found = {} if saves(node) else forward_op(node).statistics(graph, node)
        result += [_of_statistics(node, kind, values) for kind, values in found.items()]
    return _placed(sorted(result, key=lambda item: not any(item.data)))


def _of_statistics(node: Node, kind: str, values: np.ndarray) -> Trainable:
    return Trainable(
        name=f"{node.name}.{kind}",
        layer=node.name,
        kind=kind,
        dtype="f32",
        shape=values.shape,
        offset=0,
        data=values.tobytes(),
        channels=None,
        scale=None,
        base=None,
        source=Source(""),
        dead=(),
    )


def _placed(items: list[Trainable]) -> tuple[Trainable, ...]:
    """The items one behind the other."""
    offsets = accumulate((-(-len(item.data) // 4) * 4 for item in items), initial=0)
    return tuple(replace(item, offset=offset) for item, offset in zip(items, offsets, strict=False))


def _shape(array: np.ndarray, dtype: str, layer: Layer) -> tuple[int, ...]:
    return split_weight(layer)[1].shape if dtype == "u4" else array.shape


def guesses_of(graph: Graph) -> int:
    """Classes whose guessing costs as much as a training graph's."""
    kinds = {item.kind for item in layout(graph)}
    return guesses(task_of(graph), kinds, graph.tensors[graph.output].channels)


def front_steps(graph: Graph) -> int:
    """Forward nodes before the first that uses something trained or differs between training and inference.

    What they make of an image never changes.
    """
    trained = {item.layer for item in layout(graph)}
    nodes = graph.forward_nodes
    for step, node in enumerate(nodes):
        learns = any(part.layer in trained for part in (node.parts or (node,)))
        if learns or saves(node) or len(node.outputs) > 1:
            return step
    return len(nodes)


def _in_order(graph: Graph) -> Mapping[str, Layer]:
    return {n.layer: graph.layers[n.layer] for n in graph.forward_layers if n.layer}


def _tensors(graph: Graph, name: str, layer: Layer) -> list[tuple[str, str, np.ndarray, np.ndarray | None]]:
    """(kind, dtype, initial value, scale) of what a layer trains."""
    if layer.weight_scale is None:
        return [("head_weight", "f32", layer.weight, None), ("head_bias", "f32", layer.bias, None)]
    found: list[tuple[str, str, np.ndarray, np.ndarray | None]] = []
    if layer.trained:
        weight = split_weight(layer)[1]
        found.append(("weight", "s8", weight, layer.weight_scale))
        if layer.fraction_bits:
            size = weight.size if layer.fraction_bits == 8 else -(-weight.size // 2)
            dtype = "s8" if layer.fraction_bits == 8 else "u4"
            shape = weight.shape if layer.fraction_bits == 8 else (size,)
            found.append(("fraction", dtype, np.zeros(shape, np.uint8), layer.weight_scale))
    if layer.bias_trained:
        found.append(("bias", "s16", np.zeros(len(layer.bias), "<i2"), bias_scale(graph, name)))
    return found


def _base(graph: Graph, name: str, layer: Layer) -> np.ndarray:
    """Real biases before training, as the model has them."""
    assert layer.weight_scale is not None
    own = layer.bias if layer.folded is None else layer.bias - layer.folded
    return np.asarray(own * layer.weight_scale * input_scale(graph, name))


def input_scale(graph: Graph, layer: str) -> float:
    """Scale of the tensor that a layer reads."""
    node = graph.forward_of[layer]
    return graph.tensors[node.inputs[0]].scale


def block_bytes(items: tuple[Trainable, ...]) -> int:
    return items[-1].offset + -(-len(items[-1].data) // 4) * 4 if items else 0


def initial_block(items: tuple[Trainable, ...]) -> bytes:
    """The whole block before any training."""
    block = bytearray(block_bytes(items))
    for item in items:
        block[item.offset : item.offset + len(item.data)] = item.data
    return bytes(block)


def stored_block(items: tuple[Trainable, ...]) -> bytes:
    """The initial block without the zeros at its end: what the flash holds. At least 4 bytes."""
    block = initial_block(items)
    return block[: max(4, -(-len(block.rstrip(b"\0")) // 4) * 4)]


def new_head(layer: Layer, features: int, classes: int, start: HeadStart) -> Layer:
    """The head for a new task: [classes][features] float32 weights and biases.

    start  "zeros", "random" (uniform +-1/sqrt(features), seeded), "keep" (the model's rows, zeros for more)
           or the rows of the model's own head that the classes start from, in that order
    Errors  ConvertError where there are not as many rows as classes, or the model has no such row
    """
    if isinstance(start, tuple):
        own = _own_rows(layer, classes, start)
        return Layer(layer.weight[own], layer.bias[own], layer.source)
    weight = np.zeros((classes, features), np.float32)
    bias = np.zeros(classes, np.float32)
    if start == "random":
        limit = features**-0.5
        weight = np.random.default_rng(HEAD_SEED).uniform(-limit, limit, weight.shape).astype(np.float32)
    if start == "keep":
        rows = min(classes, len(layer.weight))
        weight[:rows], bias[:rows] = layer.weight[:rows], layer.bias[:rows]
    return Layer(weight, bias, layer.source)


def _own_rows(layer: Layer, classes: int, rows: tuple[int, ...]) -> list[int]:
    """Rows of the model's own head, one for each class of the new one."""
    if len(rows) != classes:
        raise ConvertError(f"the head starts from {len(rows)} rows of the model's own, for {classes} classes")
    last = len(layer.weight) - 1
    if max(rows) > last:
        raise ConvertError(f"row {max(rows)} of the head does not exist: the model has rows 0 to {last}")
    return list(rows)
