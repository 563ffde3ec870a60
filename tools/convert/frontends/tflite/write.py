"""Writes a TFLite flatbuffer with some tensors and operators other than in the file that was read.

What lies in the file stays where it is. New tables are put in front of it and refer to it, as offsets of a
flatbuffer only point forward; constants of the same size are exchanged where they lie. What buffers keep
behind the flatbuffer comes into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .file import DTYPES, Quantization, behind, builtin

ALIGNMENT = 16  # of constants
VERSIONS = {"DEQUANTIZE": 2, "QUANTIZE": 1}  # of operators that a file may lack
TYPES = {dtype: code for code, dtype in DTYPES.items()}


@dataclass(frozen=True, eq=False)
class Made:
    """A tensor that is written anew. dtype: as in DTYPES; data: of a constant"""

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray | None = None
    quantized: Quantization | None = None


@dataclass(frozen=True)
class Step:
    """An operator that is written anew.

    like  the one of the file that it has its kind and options from; None: it is of a kind of VERSIONS
    """

    inputs: Sequence[int]
    outputs: Sequence[int]
    like: int | None = None
    kind: str = ""


@dataclass(frozen=True, eq=False)
class Changes:
    """What is other than in the file.

    constants  tensor -> bytes as many as it has
    tensors    tensor -> how it is written; new ones have the numbers behind those of the file
    steps      the operators: numbers of the file's, and new ones
    """

    constants: Mapping[int, bytes]
    tensors: Mapping[int, Made]
    steps: Sequence[int | Step]


def write_flatbuffer(data: bytes, changes: Changes) -> bytes:
    """The bytes of a file, which read_flatbuffer() has accepted, with some changes."""
    return _Writer(data).write(changes)


class _Writer:
    """b: holds the file's bytes; what is built comes in front of them.

    behind  by the numbers of their buffers: constants that lie behind the flatbuffer
    """

    def __init__(self, data: bytes) -> None:
        import flatbuffers
        import tflite

        self.builder: Any = flatbuffers.Builder
        self.schema: Any = tflite
        model = tflite.Model.GetRootAs(data, 0)
        places = {i: behind(model.Buffers(i)) for i in range(model.BuffersLength())}
        kept = {i: place for i, place in places.items() if place is not None}
        self.behind = {i: data[place] for i, place in kept.items()}
        data = data[: min((place.start for place in kept.values()), default=len(data))]
        self.old = bytearray(data + bytes(-len(data) % ALIGNMENT))
        self.model = tflite.Model.GetRootAs(self.old, 0)
        self.graph = self.model.Subgraphs(0)
        self.buffers: list[int] = []
        self.codes: list[str] = []

    def write(self, changes: Changes) -> bytes:
        tensors = dict(changes.tensors)
        for number, values in changes.constants.items():
            if not self._exchanged(number, values):
                tensors[number] = self._copied(number, values)
        b = self.b = self.builder(len(self.old))
        b.Bytes[:], b.head, b.minalign = self.old, 0, ALIGNMENT
        count = max([self.graph.TensorsLength() - 1, *tensors]) + 1
        made = [
            self._tensor(tensors[i]) if i in tensors else self._at(self.graph.Tensors(i))
            for i in range(count)
        ]
        steps = [
            self._step(s) if isinstance(s, Step) else self._at(self.graph.Operators(s)) for s in changes.steps
        ]
        graph = self._like(self.graph, {0: self._tables(made), 3: self._tables(steps)}, range(5))
        old = [
            self._held(self.behind[i]) if i in self.behind else self._at(self.model.Buffers(i))
            for i in range(self.model.BuffersLength())
        ]
        others = [self._at(self.model.Subgraphs(i)) for i in range(1, self.model.SubgraphsLength())]
        replaced = {
            1: self._codes(),
            2: self._tables([graph, *others]),
            4: self._tables([*old, *self.buffers]),
        }
        b.Finish(self._like(self.model, replaced, range(1, 8)), b"TFL3")
        return bytes(b.Output())

    def _exchanged(self, number: int, values: bytes) -> bool:
        """Whether a constant was overwritten in its place, which nothing else reads."""
        place = self.graph.Tensors(number).Buffer()
        graphs = [self.model.Subgraphs(i) for i in range(self.model.SubgraphsLength())]
        readers = [i for g in graphs for i in range(g.TensorsLength()) if g.Tensors(i).Buffer() == place]
        found = self.model.Buffers(place)
        held = len(self.behind[place]) if place in self.behind else found.DataLength()
        if len(readers) > 1 or held != len(values):
            return False
        if place in self.behind:
            self.behind[place] = values
            return True
        found.DataAsNumpy()[:] = np.frombuffer(values, np.uint8)
        return True

    def _copied(self, number: int, values: bytes) -> Made:
        """A tensor of the file with other bytes."""
        old = self.graph.Tensors(number)
        dtype, shape = DTYPES[old.Type()], tuple(old.Shape(i) for i in range(old.ShapeLength()))
        said = old.Quantization()
        quantized = None
        if said is not None and said.ScaleLength():
            scale, zero = said.ScaleAsNumpy(), said.ZeroPointAsNumpy()
            quantized = Quantization(scale, zero, said.QuantizedDimension())
        return Made((old.Name() or b"").decode(), shape, dtype, np.frombuffer(values, dtype), quantized)

    def _at(self, table: Any) -> int:
        """Where the builder has a table of the file."""
        return len(self.old) - int(table._tab.Pos)

    def _like(self, table: Any, replaced: Mapping[int, int], references: Iterable[int]) -> int:
        """A copy of a table with other fields. references: fields that point elsewhere."""
        fields = {}
        held = table._tab
        for slot in references:
            offset = held.Offset(4 + 2 * slot)
            if offset:
                fields[slot] = len(self.old) - int(held.Indirect(held.Pos + offset))
        version = table.Version() if table is self.model else None
        self.b.StartObject(8)
        for slot, offset in {**fields, **replaced}.items():
            self.b.PrependUOffsetTRelativeSlot(slot, offset, 0)
        if version is not None:
            self.b.PrependUint32Slot(0, version, 0)
        return int(self.b.EndObject())

    def _tensor(self, made: Made) -> int:
        b, schema, quantization = self.b, self.schema, None
        place = 0 if made.data is None else self._buffer(made.data)
        name, shape = b.CreateString(made.name), b.CreateNumpyVector(np.array(made.shape, np.int32))
        if made.quantized is not None:
            scales = b.CreateNumpyVector(np.asarray(made.quantized.scale, np.float32))
            zeros = b.CreateNumpyVector(np.asarray(made.quantized.zero, np.int64))
            schema.QuantizationParametersStart(b)
            schema.QuantizationParametersAddScale(b, scales)
            schema.QuantizationParametersAddZeroPoint(b, zeros)
            schema.QuantizationParametersAddQuantizedDimension(b, made.quantized.axis)
            quantization = schema.QuantizationParametersEnd(b)
        schema.TensorStart(b)
        schema.TensorAddShape(b, shape)
        schema.TensorAddType(b, TYPES[made.dtype])
        schema.TensorAddBuffer(b, place)
        schema.TensorAddName(b, name)
        if quantization is not None:
            schema.TensorAddQuantization(b, quantization)
        return int(schema.TensorEnd(b))

    def _buffer(self, values: np.ndarray) -> int:
        """The number of a new buffer."""
        self.buffers.append(self._held(values.tobytes()))
        return int(self.model.BuffersLength()) + len(self.buffers) - 1

    def _held(self, values: bytes) -> int:
        """A buffer that holds its bytes."""
        self.b.StartVector(1, len(values), ALIGNMENT)
        self.b.head -= len(values)
        self.b.Bytes[self.b.head : self.b.head + len(values)] = values
        data = self.b.EndVector()
        self.schema.BufferStart(self.b)
        self.schema.BufferAddData(self.b, data)
        return int(self.schema.BufferEnd(self.b))

    def _step(self, step: Step) -> int:
        b, schema = self.b, self.schema
        old = None if step.like is None else self.graph.Operators(step.like)
        options = None if old is None else old.BuiltinOptions()
        inputs, outputs = (b.CreateNumpyVector(np.array(n, np.int32)) for n in (step.inputs, step.outputs))
        schema.OperatorStart(b)
        schema.OperatorAddOpcodeIndex(b, self._code(step.kind) if old is None else old.OpcodeIndex())
        schema.OperatorAddInputs(b, inputs)
        schema.OperatorAddOutputs(b, outputs)
        if old is not None and options is not None:
            schema.OperatorAddBuiltinOptionsType(b, old.BuiltinOptionsType())
            schema.OperatorAddBuiltinOptions(b, len(self.old) - int(options.Pos))
        return int(schema.OperatorEnd(b))

    def _code(self, kind: str) -> int:
        """The number of an operator code; one that the file lacks is added."""
        number = getattr(self.schema.BuiltinOperator, kind)
        for i in range(self.model.OperatorCodesLength()):
            code = self.model.OperatorCodes(i)
            if builtin(code) == number:
                return i
        if kind not in self.codes:
            self.codes.append(kind)
        return int(self.model.OperatorCodesLength()) + self.codes.index(kind)

    def _codes(self) -> int:
        """The vector of operator codes."""
        b, schema = self.b, self.schema
        found = [self._at(self.model.OperatorCodes(i)) for i in range(self.model.OperatorCodesLength())]
        for kind in self.codes:
            number = getattr(schema.BuiltinOperator, kind)
            schema.OperatorCodeStart(b)
            schema.OperatorCodeAddDeprecatedBuiltinCode(b, number)
            schema.OperatorCodeAddBuiltinCode(b, number)
            schema.OperatorCodeAddVersion(b, VERSIONS[kind])
            found.append(int(schema.OperatorCodeEnd(b)))
        return self._tables(found)

    def _tables(self, offsets: Sequence[int]) -> int:
        """A vector of tables."""
        self.b.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.b.PrependUOffsetTRelative(offset)
        return int(self.b.EndVector())
