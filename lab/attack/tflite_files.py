"""Writes small TFLite files, with the package `tflite`'s own builders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite

OFFSET, ALIGNMENT = 6, 16  # where the table of a buffer says where its offset is; of what lies there
TYPES = {"float32": 0, "float16": 1, "int32": 2, "uint8": 3, "bool": 6, "int16": 7, "int8": 9}
VERSIONS = {tflite.BuiltinOperator.BROADCAST_TO: 2}  # of operators whose first one is not known to TFLite


@dataclass
class Writer:
    """Tensors and operators in the order in which they are added; all of them go into one graph. Graphs that
    loops run have writers of their own, beside it.

    apart  as ai-edge-quantizer writes it: constants lie behind the flatbuffer, and what an operator is stands
           in the newer field alone
    keeps  whether the tensor that is being added is a state
    sparse whether tensors that are added say which of their numbers are not 0
    """

    apart: bool = False
    b: Any = field(default_factory=lambda: flatbuffers.Builder(1024))
    tensors: list[int] = field(default_factory=list)
    buffers: list[bytes] = field(default_factory=lambda: [b""])
    operators: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    keeps: bool = False
    sparse: bool = False
    graphs: list[int] = field(default_factory=list)

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "int8",
        data: np.ndarray | None = None,
        scale: Sequence[float] = (),
        zero: Sequence[int] = (0,),
        axis: int = 0,
        signature: Sequence[int] = (),
    ) -> int:
        """Add a tensor; returns its number. Equal constants are kept once, as TFLite's converter does.

        signature  its shape with -1 for what the file leaves open
        """
        b, quantization, stored = self.b, None, b""
        if data is not None:
            stored = np.ascontiguousarray(data, dtype).tobytes()
            self.buffers += [] if stored in self.buffers else [stored]
        if scale:
            scales = self._vector(np.array(scale, np.float32))
            zeros = self._vector(np.array(zero, np.int64))
            tflite.QuantizationParametersStart(b)
            tflite.QuantizationParametersAddScale(b, scales)
            tflite.QuantizationParametersAddZeroPoint(b, zeros)
            tflite.QuantizationParametersAddQuantizedDimension(b, axis)
            quantization = tflite.QuantizationParametersEnd(b)
        if self.sparse:
            tflite.SparsityParametersStart(b)
            places = tflite.SparsityParametersEnd(b)
        text, sizes = b.CreateString(name), self._vector(np.array(shape, np.int32))
        said = self._vector(np.array(signature, np.int32)) if signature else None
        tflite.TensorStart(b)
        tflite.TensorAddShape(b, sizes)
        tflite.TensorAddType(b, TYPES[dtype])
        tflite.TensorAddBuffer(b, self.buffers.index(stored))
        tflite.TensorAddName(b, text)
        if quantization is not None:
            tflite.TensorAddQuantization(b, quantization)
        if said is not None:
            tflite.TensorAddShapeSignature(b, said)
        if self.keeps:
            tflite.TensorAddIsVariable(b, True)
        if self.sparse:
            tflite.TensorAddSparsity(b, places)
        self.tensors.append(tflite.TensorEnd(b))
        return len(self.tensors) - 1

    def state(self, shape: Sequence[int], dtype: str = "int8", side: Sequence[float] = ()) -> int:
        """Add a tensor that keeps its value from one inference to the next. side: its scale and zero point"""
        self.keeps = True
        made = self.tensor("state", shape, dtype, scale=side[:1], zero=[int(zero) for zero in side[1:]])
        self.keeps = False
        return made

    def op(
        self,
        kind: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        table: str = "",
        *,
        between: Any = (),
        **options: Any,
    ) -> None:
        """Add an operator.

        table    its options, such as Conv2DOptions, with fields by name; a tuple is a vector
        between  numbers of its intermediates
        """
        b, made = self.b, None
        if table:
            vectors = {n: self._vector(np.array(v, np.int32)) for n, v in options.items() if type(v) is tuple}
            options |= vectors
            getattr(tflite, f"{table}Start")(b)
            for name, value in options.items():
                getattr(tflite, f"{table}Add{name}")(b, value)
            made = getattr(tflite, f"{table}End")(b)
        code = getattr(tflite.BuiltinOperator, kind)
        if code not in self.codes:
            self.codes.append(code)
        taken, given = self._vector(np.array(inputs, np.int32)), self._vector(np.array(outputs, np.int32))
        inside = self._vector(np.array(between, np.int32)) if between else None
        tflite.OperatorStart(b)
        tflite.OperatorAddOpcodeIndex(b, self.codes.index(code))
        tflite.OperatorAddInputs(b, taken)
        tflite.OperatorAddOutputs(b, given)
        if inside is not None:
            tflite.OperatorAddIntermediates(b, inside)
        if made is not None:
            tflite.OperatorAddBuiltinOptionsType(b, getattr(tflite.BuiltinOptions, table))
            tflite.OperatorAddBuiltinOptions(b, made)
        self.operators.append(tflite.OperatorEnd(b))

    def beside(self) -> Writer:
        """The writer of another graph of the file."""
        return Writer(self.apart, self.b, buffers=self.buffers, codes=self.codes, graphs=self.graphs)

    def graph(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Put a graph beside that of the file, as its next one."""
        self.graphs.append(self._graph(inputs, outputs))

    def _graph(self, inputs: Sequence[int], outputs: Sequence[int]) -> int:
        b = self.b
        tensors, operators = self._offsets(self.tensors), self._offsets(self.operators)
        taken, given = self._vector(np.array(inputs, np.int32)), self._vector(np.array(outputs, np.int32))
        tflite.SubGraphStart(b)
        tflite.SubGraphAddTensors(b, tensors)
        tflite.SubGraphAddInputs(b, taken)
        tflite.SubGraphAddOutputs(b, given)
        tflite.SubGraphAddOperators(b, operators)
        return int(tflite.SubGraphEnd(b))

    def file(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """The whole file."""
        b = self.b
        graphs = self._offsets([self._graph(inputs, outputs), *self.graphs])
        buffers = self._offsets([self._buffer(data) for data in self.buffers])
        codes = self._offsets([self._code(code) for code in self.codes])
        tflite.ModelStart(b)
        tflite.ModelAddVersion(b, 3)
        tflite.ModelAddOperatorCodes(b, codes)
        tflite.ModelAddSubgraphs(b, graphs)
        tflite.ModelAddBuffers(b, buffers)
        b.Finish(tflite.ModelEnd(b), b"TFL3")
        made = bytearray(b.Output())
        return bytes(self._with_constants_behind(made) if self.apart else made)

    def _with_constants_behind(self, made: bytearray) -> bytearray:
        """The file whose buffers say where their bytes are, and these."""
        model = tflite.Model.GetRootAs(made, 0)
        for number, data in enumerate(self.buffers):
            table = model.Buffers(number)._tab
            if data:
                made += bytes(-len(made) % ALIGNMENT)
                at = table.Pos + table.Offset(OFFSET)
                made[at : at + 8] = len(made).to_bytes(8, "little")
                made += data
        return made

    def _buffer(self, data: bytes) -> int:
        vector = self.b.CreateByteVector(data) if data and not self.apart else None
        tflite.BufferStart(self.b)
        if data and self.apart:
            tflite.BufferAddOffset(self.b, OFFSET)  # one that is not known yet
            tflite.BufferAddSize(self.b, len(data))
        if vector is not None:
            tflite.BufferAddData(self.b, vector)
        return int(tflite.BufferEnd(self.b))

    def _code(self, code: int) -> int:
        tflite.OperatorCodeStart(self.b)
        if not self.apart:
            tflite.OperatorCodeAddDeprecatedBuiltinCode(self.b, min(code, 127))
        tflite.OperatorCodeAddBuiltinCode(self.b, code)
        tflite.OperatorCodeAddVersion(self.b, VERSIONS.get(code, 1))
        return int(tflite.OperatorCodeEnd(self.b))

    def _vector(self, values: np.ndarray) -> int:
        return int(self.b.CreateNumpyVector(values))

    def _offsets(self, offsets: Sequence[int]) -> int:
        self.b.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.b.PrependUOffsetTRelative(offset)
        return int(self.b.EndVector())


@dataclass
class Int8:
    """An int8 network, op by op, with random weights; `x` is the tensor that was made last, NHWC.

    still  of the channels of the layers that follow so many, the first ones, have weights 0 and biases below
    """

    w: Writer
    x: int
    shape: tuple[int, ...]
    rng: np.random.Generator
    scale: float
    still: int = 0

    @classmethod
    def input(cls, shape: Sequence[int], seed: int = 0, scale: float = 0.05, zero: int = 3) -> Int8:
        w = Writer()
        x = w.tensor("input", (1, *shape), scale=(scale,), zero=(zero,))
        return cls(w, x, tuple(shape), np.random.default_rng(seed), scale)

    def layer(
        self,
        kind: str,
        weight: Sequence[int],
        out: Sequence[int],
        y: tuple[float, int],
        axis: int,
        table: str,
        **options: Any,
    ) -> Int8:
        """A layer with weights of a shape, an output of a shape, scale and zero."""
        channels = weight[axis]
        values = self.rng.integers(-127, 128, weight)
        scales = self.rng.uniform(0.2, 1.0, channels) * 0.02 / (np.prod(weight) / channels) ** 0.5
        if kind == "FULLY_CONNECTED":
            scales = scales[:1]
        b = self.rng.integers(-2000, 2000, channels)
        np.moveaxis(values, axis, 0)[: self.still] = 0
        b[: self.still] = -1
        constants = (
            self.w.tensor("w", weight, data=values, scale=tuple(scales), zero=[0] * len(scales), axis=axis),
            self.w.tensor("b", (channels,), "int32", b, tuple(scales * self.scale), [0] * len(scales)),
        )
        made = self.w.tensor("y", (1, *out), scale=(y[0],), zero=(y[1],))
        self.w.op(kind, (self.x, *constants), (made,), table, **options)
        self.x, self.shape, self.scale, self.zero = made, tuple(out), y[0], y[1]
        return self

    def conv(
        self,
        c: int,
        k: tuple[int, int],
        stride: int,
        out: tuple[int, int],
        y: tuple[float, int],
        act: int = 1,
    ) -> Int8:
        options = {
            "Padding": 0,
            "StrideH": stride,
            "StrideW": stride,
            "FusedActivationFunction": act,
        }
        options |= {"DilationHFactor": 1, "DilationWFactor": 1, "FusedActivationFunction": act}
        weight = (c, *k, self.shape[-1])
        return self.layer("CONV_2D", weight, (*out, c), y, 0, "Conv2DOptions", **options)

    def depthwise(
        self, k: tuple[int, int], stride: int, out: tuple[int, int], y: tuple[float, int], act: int = 1
    ) -> Int8:
        c = self.shape[-1]
        options = {"Padding": 0, "StrideH": stride, "StrideW": stride}
        options |= {"DilationHFactor": 1, "DilationWFactor": 1, "FusedActivationFunction": act}
        return self.layer(
            "DEPTHWISE_CONV_2D", (1, *k, c), (*out, c), y, 3, "DepthwiseConv2DOptions", **options
        )

    def dense(self, c: int, y: tuple[float, int], act: int) -> Int8:
        """A linear layer of a vector."""
        table = "FullyConnectedOptions"
        weight = (c, *self.shape)
        return self.layer("FULLY_CONNECTED", weight, (c,), y, 0, table, FusedActivationFunction=act)

    def linear(self, c: int, y: tuple[float, int], act: int = 0) -> Int8:
        features = int(np.prod(self.shape))
        flat = self.w.tensor("flat", (1, features), scale=(self.scale,), zero=(self.zero,))
        self.w.op("RESHAPE", (self.x, self.w.tensor("s", (2,), "int32", np.array([1, features]))), (flat,))
        self.x, self.shape = flat, (features,)
        return self.dense(c, y, act)

    def map(
        self,
        kind: str,
        y: tuple[float, int],
        table: str = "",
        shape: Sequence[int] | None = None,
        **options: Any,
    ) -> Int8:
        """An operator of the one tensor, whose shape it keeps where none is given."""
        self.shape = tuple(shape or self.shape)
        made = self.w.tensor(kind.lower(), (1, *self.shape), scale=(y[0],), zero=(y[1],))
        self.w.op(kind, (self.x,), (made,), table, **options)
        self.x, self.scale, self.zero = made, y[0], y[1]
        return self

    def by_constant(
        self, kind: str, each: bool, constant: tuple[float, int], y: tuple[float, int], act: int = 0
    ) -> Int8:
        """MUL, ADD or SUB of a constant of its own for each channel, or of one for all.

        constant  its scale and zero point
        """
        values = self.rng.integers(-127, 128, self.shape[-1:] if each else ())
        own = self.w.tensor("c", values.shape, data=values, scale=constant[:1], zero=constant[1:])
        made = self.w.tensor(kind.lower(), (1, *self.shape), scale=(y[0],), zero=(y[1],))
        self.w.op(kind, (self.x, own), (made,), f"{kind.title()}Options", FusedActivationFunction=act)
        self.x, self.scale, self.zero = made, y[0], y[1]
        return self

    def prelu(self, slopes: tuple[float, int], y: tuple[float, int]) -> Int8:
        """Slopes below 0, one for each channel. slopes: their scale and zero point"""
        values = self.rng.integers(-128, 128, (1, 1, self.shape[-1]))
        own = self.w.tensor("slopes", values.shape, data=values, scale=slopes[:1], zero=slopes[1:])
        made = self.w.tensor("prelu", (1, *self.shape), scale=y[:1], zero=y[1:])
        self.w.op("PRELU", (self.x, own), (made,))
        self.x, self.scale, self.zero = made, y[0], y[1]
        return self

    def resize(self, sides: tuple[int, int]) -> Int8:
        """Lines between pixels."""
        size = self.w.tensor("size", (2,), "int32", np.array(sides))
        self.shape = (*sides, self.shape[-1])
        made = self.w.tensor("lines", (1, *self.shape), scale=(self.scale,), zero=(self.zero,))
        self.w.op("RESIZE_BILINEAR", (self.x, size), (made,), "ResizeBilinearOptions", HalfPixelCenters=True)
        self.x = made
        return self

    def transposed(self, axes: tuple[int, ...]) -> Int8:
        own = self.w.tensor("axes", (len(axes),), "int32", np.array(axes))
        self.shape = tuple((1, *self.shape)[axis] for axis in axes)[1:]
        made = self.w.tensor("turned", (1, *self.shape), scale=(self.scale,), zero=(self.zero,))
        self.w.op("TRANSPOSE", (self.x, own), (made,))
        self.x = made
        return self

    def with_other(self, kind: str, other: int) -> Int8:
        """MAXIMUM or MINIMUM of this tensor and another one of its shape and scale."""
        made = self.w.tensor(kind.lower(), (1, *self.shape), scale=(self.scale,), zero=(self.zero,))
        self.w.op(kind, (self.x, other), (made,), "MaximumMinimumOptions")
        self.x = made
        return self

    def times(self, other: int, y: tuple[float, int]) -> Int8:
        """The product with another tensor of that shape."""
        made = self.w.tensor("product", (1, *self.shape), scale=(y[0],), zero=(y[1],))
        self.w.op("MUL", (other, self.x), (made,), "MulOptions")
        self.x, self.scale, self.zero = made, y[0], y[1]
        return self

    zero: int = -128  # of what a RESHAPE reads

    def mean(self, y: tuple[float, int]) -> Int8:
        """The global average, to a scale of its own."""
        axes = self.w.tensor("axes", (2,), "int32", np.array([1, 2]))
        made = self.w.tensor("mean", (1, self.shape[-1]), scale=(y[0],), zero=(y[1],))
        self.w.op("MEAN", (self.x, axes), (made,), "ReducerOptions", KeepDims=False)
        self.x, self.shape, self.scale, self.zero = made, (self.shape[-1],), y[0], y[1]
        return self

    def softmax(self) -> Int8:
        made = self.w.tensor("softmax", (1, *self.shape), scale=(1 / 256,), zero=(-128,))
        self.w.op("SOFTMAX", (self.x,), (made,), "SoftmaxOptions", Beta=1.0)
        self.x = made
        return self

    def file(self) -> bytes:
        return self.w.file((0,), (self.x,))


def small_network(apart: bool = False) -> bytes:
    """All that tells TFLite from PyTorch: padding on one side, a mean with a scale of its own.

    apart  as Writer has it
    """
    net = Int8.input((9, 10, 3))
    net.w.apart = apart
    net.conv(8, (3, 3), 2, (5, 5), (0.04, -128)).depthwise((3, 4), 2, (3, 3), (0.03, -128), act=3)
    net.conv(6, (1, 1), 1, (3, 3), (0.02, -128)).mean((0.008, -128)).linear(4, (0.05, 7)).softmax()
    return net.file()
