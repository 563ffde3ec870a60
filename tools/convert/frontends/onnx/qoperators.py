"""ONNX's operators of integers, as what they compute: DequantizeLinear, the operator, QuantizeLinear.

ONNX Runtime's quantize_static() writes them with quant_format=QOperator, those without a standard name in its
own domain (onnxruntime/docs/ContribOperators.md). Those of quantize_dynamic() scale activations as they come:
what is left of these is a float operator, and weights that were rounded.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from microtrain.base.errors import one_line
from microtrain.convert.ir import ConvertError

RUNTIME = "com.microsoft"
Codes = tuple[str, str]  # names of a scale and a zero point
SAME = {  # its operator, and of how many tensors: each with its scale and zero point, then the result's
    ("", "QLinearMatMul"): ("MatMul", 2),
    (RUNTIME, "QLinearAdd"): ("Add", 2),
    (RUNTIME, "QLinearMul"): ("Mul", 2),
    (RUNTIME, "QLinearSigmoid"): ("Sigmoid", 1),
    (RUNTIME, "QLinearLeakyRelu"): ("LeakyRelu", 1),
    (RUNTIME, "QLinearSoftmax"): ("Softmax", 1),
    (RUNTIME, "QLinearAveragePool"): ("AveragePool", 1),
    (RUNTIME, "QLinearGlobalAveragePool"): ("GlobalAveragePool", 1),
}
LAST, OWN = "channels_last", ("channels_last", "opset")  # attributes of the runtime's operators alone
QUANTIZE, DEQUANTIZE, DYNAMIC, PAD, CONCAT = (
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "Pad",
    "Concat",
)
INTEGERS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
MOVES = (  # which do with codes what they do with numbers
    *(
        "Reshape",
        "Transpose",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Slice",
        "Split",
        "Gather",
        "Tile",
        "Expand",
    ),
    *("Identity", "MaxPool", "GlobalMaxPool", "DepthToSpace", "SpaceToDepth", "Resize", CONCAT),
)
READS = (DEQUANTIZE, "Shape", "ArgMax", "TopK")  # that take nothing else from them


def in_numbers(name: str, model: Any, constant: Callable[[Any], np.ndarray]) -> Any:
    """A model (onnx.ModelProto) of operators that compute with numbers, changed in place.

    name      of its file, for what is said of it
    constant  the numbers of a TensorProto
    Errors    ConvertError for what takes codes for numbers, and for scales that are computed
    """
    kinds = {(node.domain, node.op_type) for node in model.graph.node}
    known = kinds & {*RULES, *((d, op) for d, op in kinds if not d and op in (QUANTIZE, DYNAMIC))}
    if not known:
        return model
    made = _Numbers(name, model, constant)
    for node in model.graph.node:
        made.add(node)
    if said := [op for _, op in known if op != QUANTIZE]:
        warnings.warn(
            f"{name} computes with integers ({', '.join(sorted(said))}): they are read as the operators of "
            "numbers that they are, and what is trained goes back into a file of those",
            stacklevel=5,
        )
    del model.graph.node[:]
    model.graph.node.extend(made.nodes)
    return model


@dataclass
class _Numbers:
    """The nodes of a graph, one by one in numbers.

    nodes  those so far
    codes  scale and zero point of tensors of integers, where a node says them
    loose  what DynamicQuantizeLinear makes: numbers here, and their units, which are 1
    plain  what has its units in weights already, and what it was before these
    """

    name: str
    model: Any
    constant: Callable[[Any], np.ndarray]
    nodes: list[Any] = field(default_factory=list)
    codes: dict[str, Codes] = field(default_factory=dict)
    loose: set[str] = field(default_factory=set)
    plain: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.model.graph
        self.tensors = {t.name: t for t in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
                self.tensors[node.output[0]] = node.attribute[0].t
        self.makers = {o: node for node in graph.node for o in node.output}
        self.readers: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in set(node.input):
                self.readers.setdefault(name, []).append(node)
        self.taken = set(self.makers) | set(self.readers) | set(self.tensors)

    def add(self, node: Any) -> None:
        """Append a node, as what it is in numbers."""
        rule = RULES.get((node.domain, node.op_type))
        if rule is not None:
            rule(self, node)
            return
        if node.output and node.output[0] in self.plain:
            self.node("Identity", [self.plain[node.output[0]]], node.output[0], (), node.name)
            return
        if node.op_type == QUANTIZE and len(node.input) > 1:
            self.codes[node.output[0]] = (node.input[1], node.input[2] if len(node.input) > 2 else "")
        elif read := [i for i in node.input if i in self.codes]:
            self._on_codes(node, read)
            return
        self.nodes.append(node)

    def _on_codes(self, node: Any, read: Sequence[str]) -> None:
        """A node that reads integers: one that moves them, or a padding, whose number is one of them."""
        codes = self.codes[read[0]]
        if node.op_type == PAD:
            inner, filled = self.free(node.output[0]), node.input[2] if len(node.input) > 2 else ""
            if not filled:
                kind = self.value(codes[1]).dtype if codes[1] else np.dtype(np.uint8)
                filled = self.initializer(f"{node.output[0]}_zero", np.zeros((), kind))
            numbers = [self.number(read[0], codes), node.input[1], self.number(filled, codes)]
            self.node(PAD, [*numbers, *node.input[3:]], inner, node.attribute, node.name)
            self.node(QUANTIZE, [inner, *codes] if codes[1] else [inner, codes[0]], node.output[0])
        else:
            alike = all(self._values(c) == self._values(codes) for i in read if (c := self.codes[i]) != codes)
            if node.op_type not in (*MOVES, *READS) or node.domain or not alike:
                where = one_line(node.name) or one_line(node.op_type)
                raise ConvertError(
                    f"layer {where}: {one_line(node.op_type)} of integers is not supported; the nearest that "
                    "is: DequantizeLinear in front of it and QuantizeLinear behind it"
                )
            self.nodes.append(node)
        if node.op_type not in READS:
            self.codes |= dict.fromkeys(node.output, codes)

    def take_units(self, product: str) -> np.ndarray | None:
        """The constant part of what integers are multiplied with, behind a Cast; that product is left out.
        None where they go on otherwise."""
        cast = self._only_reader(product, "Cast")
        times = None if cast is None else self._only_reader(cast.output[0], "Mul")
        if cast is None or times is None:
            return None
        maker = self.makers.get(next((i for i in times.input if i != cast.output[0]), ""))
        if maker is None or maker.op_type != "Mul" or not self.loose & set(maker.input):
            return None
        constants = [i for i in maker.input if i in self.tensors]
        if len(constants) != 1:
            return None
        self.plain[times.output[0]] = cast.output[0]
        return self.value(constants[0])

    def _only_reader(self, name: str, op: str) -> Any:
        readers = self.readers.get(name, [])
        return readers[0] if [node.op_type for node in readers] == [op] else None

    def _values(self, codes: Codes) -> tuple[bytes, ...]:
        return tuple(self.value(name).tobytes() if name else b"" for name in codes)

    def node(
        self, op: str, inputs: Sequence[str], output: str, attributes: Sequence[Any] = (), name: str = ""
    ) -> str:
        """Append a node of ONNX's own; returns its output."""
        from onnx import helper

        made = helper.make_node(op, list(inputs), [output], name or self.free(output))
        made.attribute.extend(a for a in attributes if a.name not in OWN)
        self.nodes.append(made)
        return output

    def number(self, name: str, codes: Codes, axis: int | None = None) -> str:
        """What integers are; axis: of weights, along which each has a scale of its own"""
        from onnx import helper

        said = [] if axis is None else [helper.make_attribute("axis", axis)]
        inputs = [name, *codes] if codes[1] else [name, codes[0]]
        return self.node(DEQUANTIZE, inputs, self.free(f"{name}_number"), said)

    def value(self, name: str) -> np.ndarray:
        """A constant. ConvertError where it is computed."""
        if name not in self.tensors:
            raise ConvertError(
                f"{self.name}: {one_line(name)} is computed; make scales and weights constants"
            )
        return self.constant(self.tensors[name])

    def initializer(self, name: str, value: np.ndarray) -> str:
        from onnx import numpy_helper

        made = numpy_helper.from_array(value, self.free(name))
        self.model.graph.initializer.append(made)
        self.tensors[made.name] = made
        return str(made.name)

    def free(self, name: str) -> str:
        made = next(n for i in count() if (n := f"{name}_{i}" if i else name) not in self.taken)
        self.taken.add(made)
        return made


def _same(made: _Numbers, node: Any) -> None:
    """One operator of tensors of one scale each, or of a matrix with one for each column."""
    op, several = SAME[node.domain, node.op_type]
    _check_order(node)
    inputs: list[str] = []
    for x, *codes in (node.input[3 * i : 3 * i + 3] for i in range(several)):
        columns = op == "MatMul" and bool(inputs)
        inputs.append(made.number(x, (codes[0], codes[1]), 1 if columns else None))
    _coded(made, node, op, inputs, 3 * several)


def _conv(made: _Numbers, node: Any) -> None:
    x, xs, xz, w, ws, wz = node.input[:6]
    _check_order(node)
    inputs = [made.number(x, (xs, xz)), made.number(w, (ws, wz), 0)]
    if len(node.input) > 8 and node.input[8]:
        inputs.append(_bias(made, node.input[8], made.value(xs) * made.value(ws)))
    _coded(made, node, "Conv", inputs, 6)


def _gemm(made: _Numbers, node: Any) -> None:
    a, sa, za, b, sb, zb = node.input[:6]
    said = {x.name: x for x in node.attribute}
    inputs = [made.number(a, (sa, za)), made.number(b, (sb, zb), 0 if _flag(said, "transB") else 1)]
    if len(node.input) > 6 and node.input[6]:
        alpha = float(said["alpha"].f) if "alpha" in said else 1.0
        inputs.append(_bias(made, node.input[6], alpha * made.value(sa) * made.value(sb)))
    _coded(made, node, "Gemm", inputs, 7)


def _concat(made: _Numbers, node: Any) -> None:
    parts = [node.input[i : i + 3] for i in range(2, len(node.input), 3)]
    inputs = [made.number(x, (scale, zero)) for x, scale, zero in parts]
    inner = made.node(CONCAT, inputs, made.free(f"{node.output[0]}_number"), node.attribute, node.name)
    made.node(QUANTIZE, [inner, *node.input[:2]], node.output[0])
    made.codes[node.output[0]] = (node.input[0], node.input[1])


def _coded(made: _Numbers, node: Any, op: str, inputs: Sequence[str], place: int) -> None:
    """Append the operator and the codes of its result, whose scale and zero point are at a place of its
    inputs; a result without them is in numbers."""
    scale = node.input[place] if len(node.input) > place else ""
    zero = node.input[place + 1] if len(node.input) > place + 1 else ""
    inner = made.free(f"{node.output[0]}_number") if scale else node.output[0]
    made.node(op, inputs, inner, node.attribute, node.name)
    if scale:
        made.node(QUANTIZE, [inner, scale, zero] if zero else [inner, scale], node.output[0])
        made.codes[node.output[0]] = (scale, zero)


def _bias(made: _Numbers, name: str, scale: np.ndarray) -> str:
    """Biases of 32 bits, in the units of the products."""
    scale = scale.astype(np.float32)
    codes = (made.initializer(f"{name}_scale", scale if scale.size > 1 else scale.reshape(())), "")
    return made.number(name, codes, 0)


def _check_order(node: Any) -> None:
    if _flag({a.name: a for a in node.attribute}, LAST):
        raise ConvertError(
            f"layer {one_line(node.name)}: {one_line(node.op_type)} with its channels last is not supported; "
            "the nearest that is: with channels first, as the model was exported"
        )


def _flag(attributes: dict[str, Any], name: str) -> bool:
    return name in attributes and bool(attributes[name].i)


def _dynamic(made: _Numbers, node: Any) -> None:
    """Numbers stay what they are, in units of 1."""
    y, scale, *zero = node.output
    made.node("Identity", node.input, y)
    made.loose |= {y, scale}
    for name, value in ((scale, np.float32(1.0)), *((z, np.uint8(0)) for z in zero)):
        made.node("Identity", [made.initializer(name, np.asarray(value))], name)


def _of_integers(made: _Numbers, node: Any) -> None:
    """A product of integers, and what gives it its units: a Cast, and a factor behind it."""
    x, w = node.input[:2]
    if x not in made.loose:
        raise ConvertError(
            f"layer {one_line(node.name)}: {one_line(node.op_type)} is supported behind {DYNAMIC} alone; the "
            "nearest that is: a file that ONNX Runtime's quantize_static() made"
        )
    weight = made.value(w).astype(np.float32)
    zero = made.value(node.input[3]) if len(node.input) > 3 and node.input[3] else np.zeros(())
    weight = weight - _each(node, zero, weight)
    units = made.take_units(node.output[0])
    if units is not None:
        weight = weight * _each(node, units, weight)
    number = made.initializer(f"{w}_number", weight)
    made.node(INTEGERS[node.op_type], [x, number], node.output[0], node.attribute, node.name)


def _each(node: Any, value: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """One number for all weights, or for each channel: the first axis of a convolution, a matrix's last."""
    value = value.astype(np.float32)
    conv = node.op_type == "ConvInteger" and value.size > 1
    return value.reshape(-1, *[1] * (weight.ndim - 1)) if conv else value


RULES: dict[tuple[str, str], Callable[[_Numbers, Any], None]] = {
    **dict.fromkeys(SAME, _same),
    ("", "QLinearConv"): _conv,
    (RUNTIME, "QGemm"): _gemm,
    (RUNTIME, "QLinearConcat"): _concat,
    ("", DYNAMIC): _dynamic,
    **dict.fromkeys((("", op) for op in INTEGERS), _of_integers),
}
