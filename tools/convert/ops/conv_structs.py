"""The parameter structs of convolutions: ctypes records, and their text in generated code."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import ClassVar

from microtrain.convert.ir import Graph, Layer, Node, Shape, Window
from microtrain.convert.names import Names, identifier
from microtrain.convert.reference.hostlib import F32, S8, S16, S32, U8, U16, Record
from microtrain.convert.splits import channel_order

from .bounds import bias_limit, geometry, layer_guard
from .conv_constants import fine, is_lean, qas_unit, weight_id
from .ctext import numbers, struct


class Conv2d(Record):
    _fields_ = (
        *((n, ctypes.c_uint16) for n in ("h_in", "w_in", "c_in", "h_out", "w_out", "c_out")),
        *((n, ctypes.c_uint8) for n in ("kh", "kw", "stride_h", "stride_w", "pad_h", "pad_w")),
        ("x_zero", ctypes.c_int16),
        ("y_zero", ctypes.c_int16),
        ("guard", ctypes.c_uint8),
        ("m", ctypes.c_void_p),
        ("fine", ctypes.c_void_p),  # of kernels that round as TensorFlow Lite does; others have no such field
    )
    _arrays_: ClassVar = {"m": S32, "fine": S32}


class SplitWeights(Record):
    _fields_ = (
        ("frozen", ctypes.c_void_p),
        ("trained", ctypes.c_void_p),
        ("order", ctypes.c_void_p),
        ("c_trained", ctypes.c_uint16),
    )
    _arrays_: ClassVar = {"frozen": S8, "trained": S8, "order": U16}


class TrainedWeights(Record):
    _fields_ = (
        ("w", ctypes.c_void_p),
        ("frac", ctypes.c_void_p),
        ("frac_bits", ctypes.c_uint8),
        ("qas", ctypes.c_void_p),
        ("id", ctypes.c_uint32),
    )
    _arrays_: ClassVar = {"w": S8, "frac": U8, "qas": F32}


class SavedInput(Record):
    _fields_ = (("x", ctypes.c_void_p), ("index", ctypes.c_void_p), ("c_x", ctypes.c_uint16))
    _arrays_: ClassVar = {"x": S8, "index": U16}


class TrainedBias(Record):
    _fields_ = (
        *((n, ctypes.c_void_p) for n in ("delta", "base", "m", "qas", "lean")),
        ("unit", ctypes.c_float),
        ("limit", ctypes.c_int32),
        ("id", ctypes.c_uint32),
    )
    _arrays_: ClassVar = {"delta": S16, "base": S32, "m": S32, "qas": F32, "lean": S16}


def conv2d_struct(x: Shape, y: Shape, window: Window, x_zero: int, y_zero: int, guard: int) -> Conv2d:
    """Parameters of a convolution from x to y, without its table of multipliers (assign `.m` for a call)."""
    values = dict(zip(("h_in", "w_in", "c_in", "h_out", "w_out", "c_out"), (*x, *y), strict=True))
    return Conv2d(**values, **window.fields, x_zero=x_zero, y_zero=y_zero, guard=guard)


def c_struct(graph: Graph, node: Node) -> Conv2d:
    """The kernels' parameter struct of a node's layer, without its table of multipliers."""
    x, y, k = geometry(graph, node)
    return conv2d_struct(x.shape, y.shape, k, x.zero, y.zero, layer_guard(graph, node))


def structs(names: Names, node: Node) -> Iterator[str]:
    """The structs of a layer, as one text."""
    yield constants(names, node, _weights_struct(names, node.layer or ""))


def constants(names: Names, node: Node, weights: str = "") -> str:
    """Geometry and what the scheme trains. weights: the structs of the weights, between the two"""
    name = node.layer or ""
    fields = numbers(c_struct(names.graph, node)) | {"m": f"m_{identifier(name)}"}
    if fine(names.graph, node) is not None:
        fields["fine"] = f"fine_{identifier(name)}"
    text = struct("conv2d", "conv", name, fields) + weights
    return text + _trained_structs(names, node, names.graph.layers[name])


def _weights_struct(names: Names, name: str) -> str:
    layer, cid = names.graph.layers[name], identifier(name)
    split: dict[str, object] = {
        "frozen": names.frozen_weights(name) if len(layer.trained) < layer.columns else "NULL",
        "trained": names.trained(name, "weight") or "NULL",
        "order": f"order_{cid}" if channel_order(layer) else "NULL",
        "c_trained": len(layer.trained),
    }
    return struct("split_weights", "weights", name, split)


def _trained_structs(names: Names, node: Node, layer: Layer) -> str:
    """Structs of what the scheme trains."""
    name = node.layer or ""
    cid, number = identifier(name), weight_id(names.graph, name)
    text = ""
    if layer.trained:
        fields: dict[str, object] = {
            "w": names.trained(name, "weight"),
            "frac": names.trained(name, "fraction") or "NULL",
            "frac_bits": layer.fraction_bits,
            "qas": f"qas_w_{cid}",
            "id": number,
        }
        text += struct("trained_weights", "trained", name, fields) + _saved_struct(names, node)
    if layer.bias_trained:
        bias: dict[str, object] = {
            "delta": names.trained(name, "bias"),
            "m": f"m_{cid}",
            **_start_of_biases(names, node),
            "limit": bias_limit(layer),
            "id": number + 1,
        }
        text += struct("trained_bias", "bias", name, bias)
    return text


def _start_of_biases(names: Names, node: Node) -> dict[str, object]:
    """Where trained biases begin and how far they step; of compressed models both take less."""
    name, cid = node.layer or "", identifier(node.layer or "")
    if is_lean(names.graph, name):
        return {"lean": f"lean_{cid}", "unit": float(qas_unit(names.graph, node))}
    return {"base": names.frozen_bias(name), "qas": f"qas_b_{cid}"}


def _saved_struct(names: Names, node: Node) -> str:
    """What the update of the weights reads of the layer's input."""
    graph, name = names.graph, node.layer or ""
    update = next(n for n in graph.backward_nodes if n.layer == name and n.op == f"{node.op}_bwd_w")
    x = graph.tensors[update.inputs[1]]
    index = names.channels(node) if update.channels else "NULL"
    return struct("saved_input", "saved", name, {"x": names.at(x.name), "index": index, "c_x": x.channels})
