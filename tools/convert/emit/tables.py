"""Constant tables and parameter structs of generated code."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from microtrain.convert.ir import Graph, Layer, Node
from microtrain.convert.ops import conv, elementwise, head, pool, stream
from microtrain.convert.ops.bounds import bias_limit
from microtrain.convert.reference import hostlib
from microtrain.convert.trainables import channel_order, split_weight

from .names import Names, identifier, number

COLUMNS = 110
C_TYPES = {"int8_t": "i1", "uint16_t": "<u2", "int32_t": "<i4", "float": "<f4"}


@dataclass(frozen=True, eq=False)
class Table:
    """One constant array. `kind` is weights, biases or tables, as in reports of flash."""

    declaration: str
    values: np.ndarray
    kind: str

    @property
    def name(self) -> str:
        return self.declaration.split()[-1].split("[")[0]

    @property
    def bytes(self) -> bytes:
        """As they lie in flash."""
        return self.values.astype(C_TYPES[self.declaration.split()[-2]]).tobytes()


def collect(graph: Graph) -> list[Table]:
    """All tables of a model in forward order, each once."""
    tables: list[Table] = []
    for node in graph.forward_layers:
        tables += layer_tables(graph, node)
    return tables


def layer_tables(graph: Graph, node: Node) -> Iterator[Table]:
    """The tables of one forward node; only convolutions have any."""
    name = node.layer or ""
    if node.op not in ("conv2d", "dwconv2d"):
        return
    layer, cid = graph.layers[name], identifier(name)
    frozen = split_weight(layer)[0]
    if frozen.size:
        yield Table(f"MODEL_WEIGHTS int8_t w_{cid}[{frozen.size}]", frozen, "weights")
    yield Table(f"MODEL_WEIGHTS int32_t b_{cid}[{len(layer.bias)}]", layer.bias, "biases")
    yield Table(f"const float m_{cid}[{len(layer.bias)}]", conv.multipliers(graph, node), "tables")
    order = channel_order(layer)
    if order:
        yield Table(f"const uint16_t order_{cid}[{len(order)}]", np.array(order, np.uint16), "tables")
        trained = np.array(layer.trained, np.uint16)
        yield Table(f"const uint16_t channels_{cid}[{len(trained)}]", trained, "tables")
    if layer.trained:
        yield Table(f"const float qas_w_{cid}[{len(layer.bias)}]", conv.qas_weights(layer), "tables")
    if layer.bias_trained:
        yield Table(f"const float qas_b_{cid}[{len(layer.bias)}]", conv.qas_biases(graph, name), "tables")


def body(values: np.ndarray) -> str:
    """The values of a table as C text, wrapped."""
    flat = values.reshape(-1)
    texts = [number(float(v)) for v in flat] if flat.dtype.kind == "f" else [str(int(v)) for v in flat]
    lines, line = [], "   "
    for text in texts:
        if len(line) + len(text) + 2 > COLUMNS:
            lines.append(line)
            line = "   "
        line += f" {text},"
    return "\n".join([*lines, line])


def structs(names: Names) -> Iterator[str]:
    """Parameter structs of every layer, then the streams made of them."""
    graph = names.graph
    for node in graph.forward_layers:
        if node.op in ("conv2d", "dwconv2d"):
            yield _conv_structs(names, node)
    steps = {n.name: (i, n) for i, n in enumerate(graph.nodes) if i < len(graph.forward_nodes) or n.again}
    for step, node in steps.values():
        if node.op == "stream":
            yield _stream_structs(replace(names, step=step), node)
        elif node.op in ("avgpool", "maxpool"):
            yield _struct("pool", "pool", node.name, pool.c_struct(names.graph, node))
        elif node.op == "add":
            yield _struct("add", "add", node.name, elementwise.c_struct(names.graph, node))
        elif node.op == "head":
            yield _struct("head", "head", node.layer or "", head.c_struct(names.graph, node))


def _stream_structs(names: Names, node: Node) -> str:
    """The stages and the stream; its residual add has parameters of one row."""
    text, entries = "", []
    for part in stream.stages(node):
        cid, depthwise = identifier(part.layer or ""), int(part.op == "dwconv2d")
        bias, _ = conv.expand_biases(names, part, stream.biases_at(names.graph, node)[part.layer or ""])
        entries.append(f"    {{&conv_{cid}, &weights_{cid}, {bias}, {depthwise}}},")
    add, record, cid = "NULL", stream.row_add(names.graph, node), identifier(node.outputs[0])
    if record is not None:
        text += _struct("add", "row_add", node.parts[-1].name, record)
        add = f"&row_add_{identifier(node.parts[-1].name)}"
    text += f"static const struct stream_stage stages_{cid}[] = {{\n" + "\n".join(entries) + "\n};\n"
    numbers = f"{len(entries)}, {node.rows}, {int(stream.resident(names.graph, node))}"
    return text + f"static const struct stream stream_{cid} = {{stages_{cid}, {add}, {numbers}}};\n"


def _struct(kind: str, variable: str, name: str, fields: hostlib.Record | Mapping[str, object]) -> str:
    """A C definition of the struct; a Record gives its numbers."""
    if isinstance(fields, hostlib.Record):
        fields = _numbers(fields)
    text = ", ".join(f".{key} = {_value(value)}" for key, value in fields.items())
    return f"static const struct {kind} {variable}_{identifier(name)} = {{\n    {text},\n}};\n"


def _numbers(record: hostlib.Record) -> dict[str, object]:
    return {
        field[0]: getattr(record, field[0]) for field in record._fields_ if field[1] is not ctypes.c_void_p
    }


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _conv_structs(names: Names, node: Node) -> str:
    name = node.layer or ""
    fields = _numbers(conv.c_struct(names.graph, node)) | {"m": f"m_{identifier(name)}"}
    text = _struct("conv2d", "conv", name, fields) + _weights_struct(names, name)
    return text + _trained_structs(names, name, names.graph.layers[name])


def _weights_struct(names: Names, name: str) -> str:
    layer, cid = names.graph.layers[name], identifier(name)
    split: dict[str, object] = {
        "frozen": f"w_{cid}" if len(layer.trained) < layer.columns else "NULL",
        "trained": names.trained(name, "weight") or "NULL",
        "order": f"order_{cid}" if channel_order(layer) else "NULL",
        "c_trained": len(layer.trained),
    }
    return _struct("split_weights", "weights", name, split)


def _trained_structs(names: Names, name: str, layer: Layer) -> str:
    """Structs of what the scheme trains."""
    cid, graph = identifier(name), names.graph
    number = conv.weight_id(graph, name)
    text = ""
    if layer.trained:
        fields: dict[str, object] = {
            "w": names.trained(name, "weight"),
            "frac": names.trained(name, "fraction") or "NULL",
            "frac_bits": layer.fraction_bits,
            "qas": f"qas_w_{cid}",
            "id": number,
        }
        text += _struct("trained_weights", "trained", name, fields)
        update = next(n for n in graph.backward_nodes if n.layer == name and n.op.endswith("_bwd_w"))
        x = graph.tensors[update.inputs[1]]
        index = f"channels_{cid}" if update.channels else "NULL"
        text += _struct(
            "saved_input", "saved", name, {"x": names.at(x.name), "index": index, "c_x": x.channels}
        )
    if layer.bias_trained:
        bias: dict[str, object] = {
            "delta": names.trained(name, "bias"),
            "base": names.frozen_bias(name),
            "m": f"m_{cid}",
            "qas": f"qas_b_{cid}",
            "limit": bias_limit(layer),
            "id": number + 1,
        }
        text += _struct("trained_bias", "bias", name, bias)
    return text
