"""Reads a TFLite flatbuffer into plain records: tensors, operators, constants. Nothing in it is trusted.

Every count and offset that the file declares is held against its size first, so reading takes time and
memory in proportion to the file. Format: tensorflow/lite/schema/schema.fbs, by the package `tflite`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.base.errors import one_line
from microtrain.convert.ir import ConvertError

MAGIC = b"TFL3"  # at byte 4
MOST_BYTES = 1 << 28  # of a file: a hundred times what any board holds
CODE = 10  # where the table of an operator code says where its newer field is
MOST_GRAPHS = 256
MOST_TENSORS = 1 << 14
MOST_OPERATORS = 1 << 13
MOST_INPUTS = 64
MOST_ELEMENTS = 1 << 28  # of a tensor
DTYPES = {0: "<f4", 1: "<f2", 2: "<i4", 3: "u1", 4: "<i8", 6: "?", 7: "<i2", 9: "i1"}
OF_ONE = "a batch of one is keras.Input(shape, batch_size=1)"
STATE = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "SVDF")
COMPOSITE = "STABLEHLO_COMPOSITE"
HINT = "convert it again with the TFLite converter, or take another copy of it"


@dataclass(frozen=True, eq=False)
class Quantization:
    """real = scale * (stored - zero); one of each, or one a channel along an axis."""

    scale: np.ndarray
    zero: np.ndarray
    axis: int


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor of the file. data: of a constant, in its shape; None: it is computed.

    open  another size than that of the batch may vary; the shape has a 1 for it
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray | None
    quantized: Quantization | None
    open: bool = False


@dataclass(frozen=True, eq=False)
class Operator:
    """One step. kind: BuiltinOperator, or the name of a custom one; options: fields of its table, by name."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Flatbuffer:
    """One graph; inputs and outputs are numbers of tensors. graphs: of a file, those that its loops run."""

    name: str
    tensors: tuple[Stored, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    graphs: tuple[Flatbuffer, ...] = ()

    def readers(self) -> dict[int, list[int]]:
        """By tensors: places of the operators that read each, in order; twice of one that reads it twice."""
        found: dict[int, list[int]] = {}
        for place, op in enumerate(self.operators):
            for tensor in op.inputs:
                found.setdefault(tensor, []).append(place)
        return found


def read_flatbuffer(path: Path) -> Flatbuffer:
    """The graph of a .tflite file. ConvertError for what is no such file, or more than a file can be."""
    if path.stat().st_size > MOST_BYTES:
        raise ConvertError(
            f"{path.name} is larger than {MOST_BYTES >> 20} MB: no board could hold its weights"
        )
    data = path.read_bytes()
    if data[4:8] != MAGIC:
        raise ConvertError(f"{path.name} is no TFLite model, which has TFL3 at byte 4; {HINT}")
    tflite = _package(path.name)
    model = tflite.Model.GetRootAs(data, 0)
    count = _checked(path.name, "graphs", model.SubgraphsLength(), MOST_GRAPHS)
    if not count:
        raise ConvertError(f"{path.name} holds no graph; {HINT}")
    names = _operator_names(path.name, model, tflite)
    graphs = [_graph(path, data, model, model.Subgraphs(i), names) for i in range(count)]
    run = {
        op.options[part] for graph in graphs for op in graph.operators for part in RUNS if part in op.options
    }
    if kept := next((op.kind for op in graphs[0].operators if op.kind in STATE), None):
        raise ConvertError(
            f"{path.name} keeps what it has seen from one call to the next ({kept}), as one that was made "
            "to stream: convert the one that it was made of, which takes a whole window; --hop streams it"
        )
    if alone := set(range(1, count)) - run:
        raise ConvertError(
            f"{path.name} holds {len(alone) + 1} graphs that stand alone, as of several signatures; one is "
            "supported, and what its loops run: convert one function"
        )
    return replace(graphs[0], graphs=tuple(graphs[1:]))


def _graph(path: Path, data: bytes, model: Any, graph: Any, names: list[str]) -> Flatbuffer:
    """One of a file's graphs, the operators of which have these names."""
    tflite = _package(path.name)
    count = _checked(path.name, "tensors", graph.TensorsLength(), MOST_TENSORS)
    steps = _checked(path.name, "operators", graph.OperatorsLength(), MOST_OPERATORS)
    tensors = tuple(_tensor(path.name, data, model, graph.Tensors(i)) for i in range(count))
    operators = tuple(_operator(path.name, graph.Operators(i), names, tflite) for i in range(steps))
    inputs, outputs = (_numbers(path.name, graph, which, count) for which in ("Inputs", "Outputs"))
    for step in operators:
        made = (*step.outputs, *step.intermediates)
        if not all(-1 <= i < count for i in step.inputs) or not all(0 <= o < count for o in made):
            raise ConvertError(f"{path.name}: {step.kind} uses a tensor that the file does not hold; {HINT}")
    return Flatbuffer(path.stem, tensors, operators, inputs, outputs)


def _package(name: str) -> Any:
    try:
        import tflite
    except ImportError as error:
        raise ConvertError(
            f"{name} is a TFLite model: to read it, pip install 'microtrain[tflite]' (the package tflite)"
        ) from error
    return tflite


def _checked(name: str, what: str, count: int, most: int) -> int:
    if count > most:
        raise ConvertError(f"{name} declares {count:,} {what}; {most:,} are the most")
    return count


def _numbers(name: str, table: Any, which: str, tensors: int) -> tuple[int, ...]:
    """A vector of numbers of tensors."""
    _checked(name, which.lower(), getattr(table, f"{which}Length")(), MOST_INPUTS)
    found = getattr(table, f"{which}AsNumpy")()
    numbers = tuple(int(i) for i in np.atleast_1d(found)) if getattr(table, f"{which}Length")() else ()
    if not all(0 <= i < tensors for i in numbers):
        raise ConvertError(f"{name}: its {which.lower()} are no tensors of the file; {HINT}")
    return numbers


def _operator_names(name: str, model: Any, tflite: Any) -> list[str]:
    """What each operator code means."""
    known = {code: text for text, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)}
    names = []
    for i in range(_checked(name, "operator codes", model.OperatorCodesLength(), MOST_OPERATORS)):
        code = model.OperatorCodes(i)
        number = builtin(code)
        text = known.get(number, f"operator {number}")
        if text == "CUSTOM":
            text = f"custom operator {_text(code.CustomCode())}"
        names.append(text)
    return names


def builtin(code: Any) -> int:
    """The BuiltinOperator of an operator code: the larger of its two fields (schema.fbs, OperatorCode).

    The package reads the newer field only where it is 127 or more; ai-edge-quantizer writes no other.
    """
    table = code._tab
    at = table.Offset(CODE)
    newer = int.from_bytes(table.Bytes[table.Pos + at : table.Pos + at + 4], "little") if at else 0
    return max(newer, int(code.DeprecatedBuiltinCode()))


def _text(name: bytes | None) -> str:
    """A name of the file, for sentences."""
    return one_line((name or b"").decode("utf-8", "replace"))


def _tensor(name: str, data: bytes, model: Any, tensor: Any) -> Stored:
    own = _text(tensor.Name())
    label = own or "a tensor without a name"
    rank = _checked(name, "dimensions of a tensor", tensor.ShapeLength(), 8)
    shape = tuple(int(tensor.Shape(i)) for i in range(rank))
    signature = [int(tensor.ShapeSignature(i)) for i in range(min(tensor.ShapeSignatureLength(), 8))]
    if any(d < 0 for d in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise ConvertError(f"{name}: {label} is declared as {'x'.join(map(str, shape))}, more than fits")
    if tensor.Sparsity() is not None:
        raise ConvertError(
            f"{name} keeps {label} without its zeros, which is not supported: convert the model without "
            "Optimize.EXPERIMENTAL_SPARSITY, and all weights are there"
        )
    dtype = DTYPES.get(tensor.Type(), "")
    return Stored(
        own,
        shape,
        dtype,
        _constant(name, label, _bytes(name, label, data, model, tensor), shape, dtype),
        _quantized(name, label, shape, tensor),
        any(d < 0 for d in signature[1:]),
    )


def _bytes(name: str, label: str, data: bytes, model: Any, tensor: Any) -> bytes:
    """What the buffer of a tensor holds, or keeps behind the flatbuffer."""
    if tensor.Buffer() >= model.BuffersLength():
        raise ConvertError(f"{name}: {label} lies in a buffer that the file does not hold; {HINT}")
    buffer = model.Buffers(tensor.Buffer())
    place = behind(buffer)
    if place is None:
        return np.atleast_1d(buffer.DataAsNumpy()).tobytes() if buffer.DataLength() else b""
    if place.stop > len(data):
        raise ConvertError(
            f"{name}: {label} lies at byte {place.start:,} of {len(data):,}; the file is cut short: {HINT}"
        )
    return data[place]


def behind(buffer: Any) -> slice | None:
    """The bytes of the file in which a buffer has its data, where that lies behind the flatbuffer, as
    ai-edge-quantizer writes it (schema.fbs, Buffer); None where it holds them itself."""
    offset, size = int(buffer.Offset()), int(buffer.Size())
    return slice(offset, offset + size) if offset > 1 and size and not buffer.DataLength() else None


def _constant(name: str, label: str, found: bytes, shape: tuple[int, ...], dtype: str) -> np.ndarray | None:
    """The constant of a tensor; None where it has none."""
    if not found:
        return None
    if not dtype:
        raise ConvertError(
            f"{name}: {label} holds numbers of a type that is not supported; use int8 or float32"
        )
    if len(found) != math.prod(shape) * np.dtype(dtype).itemsize:
        raise ConvertError(
            f"{name}: {label} is declared as {'x'.join(map(str, shape))} but {len(found):,} B are there; "
            f"the file is cut short or damaged: {HINT}"
        )
    return np.frombuffer(found, dtype).reshape(shape)


def _quantized(name: str, label: str, shape: tuple[int, ...], tensor: Any) -> Quantization | None:
    """Scales and zero points of a tensor; None where it has none.

    A vector has one axis. Files of 2020 name that of the weights beside it, and TFLite Micro does not look.
    """
    found = tensor.Quantization()
    if found is None or not found.ScaleLength():
        return None
    scale = np.atleast_1d(found.ScaleAsNumpy()).astype(np.float64)
    zero = np.atleast_1d(found.ZeroPointAsNumpy()) if found.ZeroPointLength() else np.zeros(1, np.int64)
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise ConvertError(f"{name}: a scale of {label} is not a positive number; {HINT}")
    axis = found.QuantizedDimension() if len(shape) > 1 else 0
    if len(scale) > 1 and (not 0 <= axis < len(shape) or shape[axis] != len(scale)):
        size = "x".join(map(str, shape))
        raise ConvertError(f"{name}: {label} has {len(scale)} scales along axis {axis} of {size}; {HINT}")
    return Quantization(scale, zero.astype(np.int64), axis)


LOOPS = ("CondSubgraphIndex", "BodySubgraphIndex")
OF_COMPOSITE = "DecompositionSubgraphIndex"
RUNS = (*LOOPS, OF_COMPOSITE)  # where an operator says which graphs it runs
OPTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "CONV_2D": (
        "Conv2DOptions",
        ("Padding", "StrideH", "StrideW", "DilationHFactor", "DilationWFactor", "FusedActivationFunction"),
    ),
    "DEPTHWISE_CONV_2D": (
        "DepthwiseConv2DOptions",
        ("Padding", "StrideH", "StrideW", "DilationHFactor", "DilationWFactor", "FusedActivationFunction"),
    ),
    **dict.fromkeys(
        ("AVERAGE_POOL_2D", "MAX_POOL_2D"),
        (
            "Pool2DOptions",
            ("Padding", "StrideH", "StrideW", "FilterHeight", "FilterWidth", "FusedActivationFunction"),
        ),
    ),
    "TRANSPOSE_CONV": ("TransposeConvOptions", ("Padding", "StrideH", "StrideW", "FusedActivationFunction")),
    "FULLY_CONNECTED": ("FullyConnectedOptions", ("FusedActivationFunction", "WeightsFormat")),
    "ADD": ("AddOptions", ("FusedActivationFunction",)),
    "SUB": ("SubOptions", ("FusedActivationFunction",)),
    "MUL": ("MulOptions", ("FusedActivationFunction",)),
    "DIV": ("DivOptions", ("FusedActivationFunction",)),
    "CONCATENATION": ("ConcatenationOptions", ("Axis", "FusedActivationFunction")),
    "LEAKY_RELU": ("LeakyReluOptions", ("Alpha",)),
    "GELU": ("GeluOptions", ("Approximate",)),
    "RESIZE_NEAREST_NEIGHBOR": ("ResizeNearestNeighborOptions", ("AlignCorners", "HalfPixelCenters")),
    "RESIZE_BILINEAR": ("ResizeBilinearOptions", ("AlignCorners", "HalfPixelCenters")),
    "DEPTH_TO_SPACE": ("DepthToSpaceOptions", ("BlockSize",)),
    "SPACE_TO_DEPTH": ("SpaceToDepthOptions", ("BlockSize",)),
    "MIRROR_PAD": ("MirrorPadOptions", ("Mode",)),
    **dict.fromkeys(("MEAN", "REDUCE_MAX"), ("ReducerOptions", ("KeepDims",))),
    "SOFTMAX": ("SoftmaxOptions", ("Beta",)),
    "GATHER": ("GatherOptions", ("Axis", "BatchDims")),
    "PACK": ("PackOptions", ("Axis",)),
    "UNPACK": ("UnpackOptions", ("Axis",)),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        "UnidirectionalSequenceLSTMOptions",
        ("FusedActivationFunction", "CellClip", "TimeMajor"),
    ),
    "WHILE": ("WhileOptions", LOOPS),
    "BATCH_MATMUL": ("BatchMatMulOptions", ("AdjX", "AdjY")),
    "STRIDED_SLICE": (
        "StridedSliceOptions",
        ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask", "Offset"),
    ),
}


def _operator(name: str, operator: Any, names: list[str], tflite: Any) -> Operator:
    """One operator; the options of kinds that are not in OPTIONS are left out."""
    index = operator.OpcodeIndex()
    if index >= len(names):
        raise ConvertError(f"{name} has an operator of a kind that it does not name; {HINT}")
    _checked(name, "inputs of an operator", operator.InputsLength(), MOST_INPUTS)
    _checked(name, "outputs of an operator", operator.OutputsLength(), MOST_INPUTS)
    inputs = tuple(int(operator.Inputs(i)) for i in range(operator.InputsLength()))
    outputs = tuple(int(operator.Outputs(i)) for i in range(operator.OutputsLength()))
    kind = names[index]
    table, fields = OPTIONS.get(kind, ("", ()))
    options: dict[str, Any] = {}
    found = operator.BuiltinOptions()
    if table and found is not None:
        made = getattr(tflite, table)()
        made.Init(found.Bytes, found.Pos)
        get: Callable[[str], Any] = lambda field: getattr(made, field)()  # noqa: E731
        options = {field: get(field) for field in fields}
    if kind == COMPOSITE and (found := operator.BuiltinOptions2()) is not None:
        made = tflite.StableHLOCompositeOptions()
        made.Init(found.Bytes, found.Pos)
        kind, options = f"composite {_text(made.Name())}", {OF_COMPOSITE: made.DecompositionSubgraphIndex()}
    _checked(name, "intermediates of an operator", operator.IntermediatesLength(), MOST_INPUTS)
    between = tuple(int(operator.Intermediates(i)) for i in range(operator.IntermediatesLength()))
    return Operator(kind, inputs, outputs, options, between)
