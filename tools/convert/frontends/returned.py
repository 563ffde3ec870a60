"""What a model returns, as tensors of the network: views of some of the numbers are made.

A linear layer over all tokens of which one result is returned, as `fc(y)[:, -1]` behind an LSTM, reads that
token alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.ir import Node, Window
from microtrain.convert.lowering import NORM, Lowering
from microtrain.convert.ops.aten.channels import TAKE, take
from microtrain.convert.ops.conv import DENSE
from microtrain.convert.ops.tokens import places, settled, view_of, whole

from .endings import LINEAR


def returned(low: Lowering, outputs: Sequence[Any]) -> list[Any]:
    """The outputs; what is no activation as it is."""
    acts = [out.tensor for out in outputs if isinstance(out, Act)]
    return [
        _made(low, out, acts.count(out.tensor) == 1) if isinstance(out, Act) and _is_view(low, out) else out
        for out in outputs
    ]


def _is_view(low: Lowering, act: Act) -> bool:
    """Whether some numbers of a tensor are returned, or scaled ones, or a vector in another order."""
    if act.order is None or low.is_stand_in(act):
        return False
    elements = low.tensors[low.tensor_of(act)].elements
    return act.order.size < elements or act.factor != 1 or max(act.dims) == elements


def _made(low: Lowering, act: Act, alone: bool) -> Act:
    maker, at, c = low.maker(act.tensor), places(low, act).ravel(), low.shape(act)[2]
    name = maker.name if maker is not None else "output"
    pixels, linear = np.unique(at // c), _linear(low, act.tensor) if alone and act.factor == 1 else []
    if linear and pixels.size == 1:
        found, at = _of_one_token(low, linear, int(pixels[0])), at % c
    else:
        found = settled(low, Call("select", name, True, {}), act)
        at = places(low, found).ravel()
    if low.shape(found)[:2] != (1, 1) or at.size != low.shape(found)[2]:
        return found
    return take(low, Call(TAKE, f"{name}.order", True, {}), whole(low, found), at.tolist())


def _linear(low: Lowering, tensor: str) -> list[Node]:
    """The linear layer over tokens that makes a tensor, and what is added, if nothing else reads them."""
    found = list[Node]()
    while (maker := low.maker(tensor)) is not None and len(maker.inputs) == 1:
        readers = [node for node in low.nodes if tensor in node.inputs]
        if readers != found[:1]:
            return []
        found.insert(0, maker)
        if maker.op != NORM:
            return found if maker.op == DENSE and maker.window == Window(1, 1) else []
        tensor = maker.inputs[0]
    return []


def _of_one_token(low: Lowering, linear: list[Node], pixel: int) -> Act:
    """What a linear layer makes of one token; of all of them nothing reads it, so that it is left out."""
    c, name = low.tensors[linear[0].inputs[0]].channels, linear[0].name
    token = view_of(low, linear[0].inputs[0], pixel * c + np.arange(c))
    made = [low.tensors[node.outputs[0]].channels for node in linear]
    x = whole(low, settled(low, Call("select", f"{name}.token", True, {}), token))
    for node, channels in zip(linear, made, strict=True):
        op, window = (LINEAR, Window(1, 1)) if node.op == DENSE else (NORM, None)
        dims, call = (low.batch, channels), Call(op, node.name, True, {})
        x = low.emit(call, op, (x,), (1, 1, channels), dims=dims, layer=node.layer, window=window)
    return x
