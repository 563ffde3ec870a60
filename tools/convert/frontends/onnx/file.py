"""Reads an ONNX file into plain records: nodes, constants, inputs, outputs. Nothing in it is trusted.

Only the message is parsed, by the package `onnx`; constants are decoded here, since its helpers follow the
file's word on sizes and paths. Weights beside the file are read where they are plain files in its folder.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.base.archive import reason
from microtrain.base.errors import one_line, short
from microtrain.base.shapes import by
from microtrain.convert.ir import ConvertError

from .qoperators import in_numbers

MOST_BYTES = 1 << 28  # of a file, or of the weights beside it: a hundred times what any board holds
MOST_NODES = 1 << 14
MOST_ELEMENTS = 1 << 26  # of a constant
OPSETS = range(13, 23)
OLDER = range(7, 13)  # of files that the package onnx makes newer
FLOAT, UINT8, INT8, INT32, INT64, TEXT, BOOL, HALF, DOUBLE, BFLOAT16 = 1, 2, 3, 6, 7, 8, 9, 10, 11, 16
DTYPES = {
    FLOAT: "<f4",
    UINT8: "u1",
    INT8: "i1",
    INT32: "<i4",
    INT64: "<i8",
    BOOL: "?",
    HALF: "<f2",
    DOUBLE: "<f8",
    BFLOAT16: "<u2",
}
FIELDS = {FLOAT: "float_data", DOUBLE: "double_data", INT64: "int64_data"}  # others lie in int32_data
OTHER_CODES = {4: "uint16", 5: "int16", 17: "float8", 19: "float8", 21: "uint4", 22: "int4", 23: "float4"}
BYTES = (
    "only int8 and uint8 with a scale for each tensor, or of weights for each channel, are supported: "
    "quantize the model so, or convert the float model, which becomes int8 here"
)
RESIZE, WITH_WAYS = "Resize", 11  # the opset from which on it says how places are found
OLD_WAYS = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}  # as ONNX Runtime has it
LOOP, BODY = "Loop", "body"
HINT = "export the model again"
SCOPES = "pkg.torch.onnx.name_scopes"


@dataclass(frozen=True, eq=False)
class Step:
    """One node: op without its domain, which is given apart; attributes as Python values and arrays.

    parts   of one that stands for several: input -> the node that has it in the file, and which of its inputs
    module  path of the PyTorch module that it is of, where the exporter says so
    around  what the body of a loop reads of the graph around it, which stands behind its own inputs
    """

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    parts: Mapping[int, tuple[Step, int]] = field(default_factory=dict)
    module: str = ""
    around: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    """One graph: a file's, or the body of a loop.

    sizes      of tensors that the file says, by name; None where a size may vary
    bytes      inputs in uint8
    functions  of the file's own, by domain and name, which nodes call as if they were operators
    """

    name: str
    steps: tuple[Step, ...]
    constants: Mapping[str, np.ndarray]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sizes: Mapping[str, tuple[int | None, ...]]
    bytes: frozenset[str] = frozenset()
    functions: frozenset[tuple[str, str]] = frozenset()


def read_onnx_file(path: Path) -> OnnxGraph:
    """The graph of a .onnx file. ConvertError for what is no such file, or more than a file can be."""
    return graph_of(path, parsed(path))


def graph_of(path: Path, model: Any) -> OnnxGraph:
    """The graph of a message that parsed() has read from a file."""
    read = _graph(path, model.graph)
    return replace(
        read,
        inputs=tuple(name for name in read.inputs if name not in read.constants),
        functions=frozenset((one_line(f.domain), one_line(f.name)) for f in model.functions),
    )


def parsed(path: Path) -> Any:
    """The message of a file, onnx.ModelProto, of one of OPSETS. ConvertError as of read_onnx_file()."""
    if path.stat().st_size > MOST_BYTES:
        raise ConvertError(
            f"{path.name} is larger than {MOST_BYTES >> 20} MB: no board could hold its weights"
        )
    onnx = _package(path.name)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf's own classes
        raise ConvertError(f"{path.name} is no ONNX file, or is cut short; {HINT}") from error
    if not model.opset_import or not model.graph.node:
        raise ConvertError(f"{path.name} is no ONNX file, or holds no graph; {HINT}")
    version = _opset(model)
    if version not in (*OLDER, *OPSETS):
        raise _wrong_opset(path.name, version)
    count = _nodes(model.graph)
    if count > MOST_NODES:
        raise ConvertError(f"{path.name} declares {count:,} nodes; {MOST_NODES:,} are the most")
    model = model if version in OPSETS else _newer(onnx, path.name, model)
    return in_numbers(path.name, model, lambda tensor: _array(path, tensor))


def _opset(model: Any) -> int:
    return max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)


def _wrong_opset(name: str, version: int, why: str = "") -> ConvertError:
    return ConvertError(
        f"{name} is of opset {version}{why}; {OPSETS[0]} to {OPSETS[-1]} are supported: export it with "
        "opset_version=20 (skl2onnx: target_opset=17)"
    )


def _newer(onnx: Any, name: str, model: Any) -> Any:
    """A model of the first of OPSETS, as onnx's own converter of versions makes it."""
    from onnx import shape_inference, version_converter

    version, apart = _opset(model), any(t.data_location == t.EXTERNAL for t in model.graph.initializer)
    if apart:
        raise _wrong_opset(name, version, " and has weights in a file beside it")
    try:
        known = shape_inference.infer_shapes(model)  # of results too, which the checker asks for
        onnx.checker.check_model(known)  # what is broken could break the converter
        made = version_converter.convert_version(known, OPSETS[0])
    except Exception as error:  # of the package's C++, by many names
        raise _wrong_opset(name, version, f", and cannot be made newer ({reason(error)})") from error
    if version < WITH_WAYS:
        for node in made.graph.node:
            if node.op_type == RESIZE:
                said = {a.name for a in node.attribute}
                node.attribute.extend(
                    onnx.helper.make_attribute(key, way) for key, way in OLD_WAYS.items() if key not in said
                )
    warnings.warn(f"{name} is of opset {version}; it is read as one of {OPSETS[0]}", stacklevel=2)
    return made


def _nodes(graph: Any) -> int:
    """How many nodes a graph has, with those of the bodies of its loops."""
    return len(graph.node) + sum(
        _nodes(a.g) for node in graph.node for a in node.attribute if _is_body(node, a)
    )


def _is_body(node: Any, attribute: Any) -> bool:
    return bool(attribute.type == attribute.GRAPH and (node.op_type, attribute.name) == (LOOP, BODY))


def _graph(path: Path, graph: Any) -> OnnxGraph:
    constants = {t.name: _array(path, t) for t in graph.initializer}
    if graph.sparse_initializer:
        raise ConvertError(f"{path.name} holds sparse weights, which are not supported; make them dense")
    infos = [*graph.input, *graph.output, *graph.value_info]
    return OnnxGraph(
        path.stem,
        tuple(_step(path, node, place) for place, node in enumerate(graph.node)),
        constants,
        tuple(i.name for i in graph.input),
        tuple(o.name for o in graph.output),
        {info.name: _sizes(info) for info in infos if info.type.HasField("tensor_type")},
        frozenset(i.name for i in graph.input if i.type.tensor_type.elem_type == UINT8),
    )


def _package(name: str) -> Any:
    try:
        import onnx
    except ImportError as error:
        raise ConvertError(
            f"{name} is an ONNX model: to read it, pip install 'microtrain[onnx]' (the package onnx)"
        ) from error
    return onnx


def _sizes(info: Any) -> tuple[int | None, ...]:
    dims = info.type.tensor_type.shape.dim
    return tuple(int(d.dim_value) if d.HasField("dim_value") else None for d in dims)


def _step(path: Path, node: Any, place: int) -> Step:
    attributes = {a.name: _attribute(path, node, a) for a in node.attribute}
    name = one_line(node.name) or f"{one_line(node.op_type)}_{place}"
    domain = "" if node.domain == "ai.onnx" else node.domain
    kind, body = (one_line(node.op_type), one_line(domain)), attributes.get(BODY)
    around = _around(body) if isinstance(body, OnnxGraph) else ()
    ends = ((*node.input, *around), tuple(node.output))
    return Step(*kind, name, *ends, attributes, module=_module(node), around=around)


def _around(body: OnnxGraph) -> tuple[str, ...]:
    """What a body reads that is not its own."""
    own = {"", *body.inputs, *body.constants, *(o for step in body.steps for o in step.outputs)}
    read = (name for names in (*(step.inputs for step in body.steps), body.outputs) for name in names)
    return tuple(name for name in dict.fromkeys(read) if name not in own)


def _module(node: Any) -> str:
    """The module of a node by torch.onnx's metadata, the scopes around it: ['', 'proj', 'linear']."""
    said = next((p.value for p in node.metadata_props if p.key == SCOPES), "")
    scopes = re.findall("'([^']*)'", said)
    return one_line(scopes[-2]) if len(scopes) > 1 else ""


def _attribute(path: Path, node: Any, attribute: Any) -> Any:
    """A number, text, a list of either or an array, the body of a loop; None for graphs of other ops."""
    kind = attribute.type
    if _is_body(node, attribute):
        return _graph(path, attribute.g)
    if kind == attribute.FLOAT:
        return float(attribute.f)
    if kind == attribute.INT:
        return int(attribute.i)
    if kind == attribute.STRING:
        return attribute.s.decode("utf-8", "replace")
    if kind == attribute.TENSOR:
        return _array(path, attribute.t)
    if kind == attribute.INTS:
        return [int(i) for i in attribute.ints]
    if kind == attribute.FLOATS:
        return [float(f) for f in attribute.floats]
    if kind == attribute.STRINGS:
        return [text.decode("utf-8", "replace") for text in attribute.strings]
    return None


def _array(path: Path, tensor: Any) -> np.ndarray:
    """A constant, in its shape; bfloat16 is widened."""
    shape = tuple(int(d) for d in tensor.dims)
    kind = tensor.data_type
    if kind == TEXT and len(shape) == 1 and shape[0] == len(tensor.string_data):  # names of classes
        return np.array([text.decode("utf-8", "replace") for text in tensor.string_data])
    if any(d < 0 for d in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise ConvertError(f"{path.name}: {one_line(tensor.name)} is declared as {by(shape)}, more than fits")
    if kind not in DTYPES:
        code = OTHER_CODES.get(kind)
        what = f"{code} numbers; {BYTES}" if code else "numbers of a type that is not supported; use float32"
        raise ConvertError(f"{path.name}: {one_line(tensor.name)} holds {what}")
    data = _bytes(path, tensor, kind)
    dtype = np.dtype(DTYPES[kind])
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ConvertError(
            f"{path.name}: {one_line(tensor.name)} is {by(shape)} but {len(data):,} B are there: "
            f"the file is cut short or damaged; {HINT}"
        )
    values = np.frombuffer(data, dtype).reshape(shape)
    return (values.astype(np.uint32) << 16).view(np.float32) if kind == BFLOAT16 else values


def _bytes(path: Path, tensor: Any, kind: int) -> bytes:
    """The bytes of a constant, wherever the file keeps them."""
    if tensor.data_location == tensor.EXTERNAL:
        return _beside(path, tensor)
    if tensor.raw_data:
        return bytes(tensor.raw_data)
    listed = np.array(getattr(tensor, FIELDS.get(kind, "int32_data")))
    width = np.dtype(DTYPES[kind])
    if kind in (HALF, BFLOAT16):
        width = np.dtype("<u2")
    return listed.astype(width).tobytes()


def _beside(path: Path, tensor: Any) -> bytes:
    """Weights that lie in a file beside the model's."""
    said = {e.key: e.value for e in tensor.external_data}
    name = said.get("location", "")
    if not name or Path(name).name != name or name in (".", ".."):
        raise ConvertError(
            f"{path.name} wants weights from {short(name)}, which is not a file in its own folder"
        )
    file = path.parent / name
    if not file.is_file() or file.is_symlink():
        raise ConvertError(
            f"{path.name} keeps its weights in {one_line(name)}, which is not beside it; copy both, or save "
            "the model as one file: onnx.save(onnx.load(path), path)"
        )
    offset, length = (int(said.get(key, 0)) for key in ("offset", "length"))
    size = file.stat().st_size
    length = length or size - offset
    if offset < 0 or length < 0 or offset + length > size or length > MOST_BYTES:
        raise ConvertError(
            f"{path.name}: {one_line(tensor.name)} is not all there in {one_line(name)}; copy it anew"
        )
    with file.open("rb") as stream:
        stream.seek(offset)
        found: bytes = stream.read(length)
        return found
