"""Sets the trained channels of a layer's input aside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microtrain.convert.ir import Graph, Node, Shape, Tensor
from microtrain.convert.names import Names
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.hostlib import NUMBER, S8, U16

from . import bounds
from .environment import Env
from .table import Op, SavingOp, no_macs, no_scratch, not_in_place
from .unit import whole
from .work import by_size, one_way


def gathered(layer: Node, x: Tensor, channels: tuple[int, ...]) -> tuple[Node, Tensor]:
    """The node that saves channels of a layer's input x, and the tensor that it makes."""
    h, w, _ = x.shape
    saved = replace(x, name=f"saved:{layer.name}", shape=(h, w, len(channels)))
    node = Node("gather", layer.name, (x.name,), (saved.name,), layer=layer.layer, channels=channels)
    return node, saved


def _shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    h, w, _ = graph.tensors[node.inputs[0]].shape
    return ((h, w, len(node.channels or ())),)


def _call(names: Names, node: Node) -> str:
    x = names.graph.tensors[node.inputs[0]]
    kept, out = len(node.channels or ()), names.at(node.outputs[0])
    return f"gather_s8({x.pixels}, {x.channels}, {names.at(x.name)}, {names.channels(node)}, {kept}, {out});"


def _run(env: Env, node: Node) -> None:
    env.values[node.outputs[0]] = reference.gather(env.values[node.inputs[0]], np.array(node.channels))


OPS: tuple[Op, ...] = (
    SavingOp(
        "gather",
        shapes=_shape,
        run=_run,
        call=_call,
        accumulators=bounds.no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=not_in_place,
        kernels={"gather_s8": (None, (NUMBER, NUMBER, S8, U16, NUMBER, S8))},
        header="conv2d",
    ),
)
