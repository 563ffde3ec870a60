"""Front end for ONNX: operators become calls of the aten ops that PyTorch has for the same thing.

Tensors of ONNX are NCHW, as PyTorch's are. tf2onnx keeps the NHWC input of Keras and turns it: a value is
`Turned` while its dimensions are in that order. QuantizeLinear and DequantizeLinear say scales and zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.base.errors import short
from microtrain.base.shapes import by
from microtrain.convert.aten_call import Act, Call, Homes, LayerError, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.lowering import Lowering
from microtrain.convert.nearest import NO_FUNCTION, NO_FUSION, NO_SELECTION, ONE_INPUT, unsupported
from microtrain.convert.ops.aten.attention import Scores
from microtrain.convert.ops.aten.expanded import Expanded, made
from microtrain.convert.ops.aten.lengths import Length
from microtrain.convert.ops.aten.squares import Piece, squared
from microtrain.convert.ops.aten.stack import Stacked, of_stacked
from microtrain.convert.raw import Raw

from ..aten.constants import MOST_IN_ALL
from ..endings import ENDINGS
from ..found import together
from ..returned import returned
from . import layers, loops, norms, scales, shapes, tokens, written
from . import recurrent as recurrents
from .constants import FOLDS, folded, shape_of
from .file import OnnxGraph, Step, read_onnx_file
from .pieces import in_pieces
from .transposed import conv_transpose
from .values import WEIGHTED, Label, Turned, Value, Walker, as_last, channels_first

COLOURS = (1, 3, 4)  # channels of a picture
LABELS = (  # behind the logits
    *("ArgMax", "TopK", "ZipMap", "ArrayFeatureExtractor", "LabelEncoder", "Binarizer"),
)
LEARNED = "ai.onnx.ml"  # the domain of scikit-learn's own operators
BESIDE_LABELS, OTHER_CLASS = ("Reshape",), "Sub"  # of probabilities
LAYERS = (*WEIGHTED, "Mul", "Add")  # behind which probabilities are no label
ADDS_AXES = "Unsqueeze"
TOKENS = ("Reshape", "Squeeze", "MatMul")  # what is turned for these is no image in NHWC
IN_FRONT = (  # of the Transpose of an input, which they leave an image of the same order
    *("QuantizeLinear", "DequantizeLinear", "Cast", "Identity", "Add", "Sub", "Mul", "Div", "Pad", "Slice"),
)
PLACES = ("Slice", "Gather", "Transpose", "Concat", "Split", "Pad", "Tile")  # which take numbers by these
OF_SQUARES = (  # may go on with a normalisation that a file writes out
    *("ReduceMean", "ReduceSum", "Mul", "Add", "Sub", "Div", "Pow", "Sqrt", "Reciprocal", "Identity", "Cast"),
)
SAME_NAME = {  # one call on the first input, no other arguments
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "HardSwish": "hardswish",
    "Softplus": "softplus",
    "Mish": "mish",
    "Neg": "neg",
    "Abs": "abs",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Reciprocal": "reciprocal",
    "Softsign": "softsign",
    "Erf": "erf",
    "Sin": "sin",
    "Cos": "cos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Asinh": "asinh",
    "Sign": "sign",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
}
RULES: dict[str, Callable[[Walker, Step], Value | list[Value]]] = {
    "Conv": layers.conv,
    "ConvTranspose": conv_transpose,
    "Gemm": layers.gemm,
    "MatMul": layers.matmul,
    "BatchNormalization": norms.batch,
    "InstanceNormalization": norms.instance,
    "GroupNormalization": norms.group,
    "LayerNormalization": norms.layer,
    written.CHANNEL_NORM: written.of_channels,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), layers.arithmetic),
    **dict.fromkeys(("Sum", "Mean"), layers.of_several),
    **dict.fromkeys(("MaxPool", "AveragePool"), layers.pool),
    "LRN": layers.response,
    "Averages": layers.averages,
    "Windows": layers.side_by_side,
    **dict.fromkeys(layers.REDUCES, layers.reduced),
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze"), shapes.view),
    "Transpose": shapes.transpose,
    "Identity": lambda walk, step: walk.value(step.inputs[0]),
    "Dropout": scales.dropout,
    **dict.fromkeys(("Max", "Min"), scales.bound),
    **dict.fromkeys(scales.COMPARISONS, scales.compared),
    "Not": lambda walk, step: walk.unary(step, "rsub", other=1.0),  # of a comparison, which is 1 or 0
    "Where": scales.chosen,
    "Shrink": scales.shrink,
    **dict.fromkeys(("Cast", "CastLike"), scales.cast),
    "Clip": scales.clip,
    "Pad": shapes.pad,
    "Resize": shapes.resize,
    "Tile": shapes.tile,
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), shapes.blocks),
    "Concat": shapes.concat,
    "Split": shapes.split,
    "Slice": shapes.cut,
    "LeakyRelu": lambda walk, step: walk.unary(
        step, "leaky_relu", negative_slope=walk.at(step, "alpha", 0.01)
    ),
    "PRelu": scales.prelu,
    "Selu": scales.selu,
    "Elu": lambda walk, step: walk.unary(step, "elu", alpha=walk.at(step, "alpha", 1.0)),
    "Celu": lambda walk, step: walk.unary(step, "celu", alpha=walk.at(step, "alpha", 1.0)),
    "Gelu": lambda walk, step: walk.unary(step, "gelu", approximate=walk.at(step, "approximate", "none")),
    "HardSigmoid": scales.hard_sigmoid,
    "QuantizeLinear": scales.quantize,
    "DequantizeLinear": scales.dequantize,
    **tokens.RULES,
    **recurrents.RULES,
    **loops.RULES,
}


def read_onnx(path: Path, input_shape: tuple[int, ...] | None = None) -> Raw:
    """The raw graph of a .onnx file. input_shape: (c, h, w), where the file leaves it open."""
    return _walked(path, input_shape)[1]


def onnx_homes(path: Path, input_shape: tuple[int, ...] | None = None) -> Homes:
    """Where a .onnx file has the constants of its layers."""
    return _walked(path, input_shape)[0].homes


def _walked(path: Path, input_shape: tuple[int, ...] | None) -> tuple[_Walk, Raw]:
    """The walk of a file and what it made.

    An input that is turned first of all, for what tokens are turned for too, is an image in NHWC where its
    last axis is that of colours. Others are taken for tokens, unless something of that is refused, and
    nothing of the other.
    """
    file = read_onnx_file(path)
    walk = _Walk(file)
    raw, error = _tried(walk, input_shape)
    if walk.doubtful and (walk.coloured or raw is None or raw.found):
        other = _Walk(file, turned=True)
        again, _ = _tried(other, input_shape)
        if again is not None and not again.found:
            return other, again
    if raw is None:
        assert error is not None
        raise error
    return walk, raw


def _tried(walk: _Walk, input_shape: tuple[int, ...] | None) -> tuple[Raw | None, ConvertError | None]:
    try:
        return walk.read(input_shape), None
    except ConvertError as error:
        return None, error


class _Walk(Walker):
    """Walks the nodes of one graph.

    turned    an input that is turned first of all is an image, whatever reads it
    doubtful  it may be one, or tokens
    coloured  an image's colours would be last, and not where PyTorch has them
    """

    def __init__(self, file: OnnxGraph, turned: bool = False) -> None:
        super().__init__(file)
        self.turned, self.doubtful, self.coloured = turned, False, False

    def read(self, input_shape: tuple[int, ...] | None) -> Raw:
        if len(self.file.inputs) != 1:
            names = ", ".join(short(name) for name in self.file.inputs[:4])
            raise ConvertError(
                f"{self.file.name} takes {len(self.file.inputs)} inputs ({names}); {ONE_INPUT}"
            )
        self._input(self.file.inputs[0], input_shape)
        whole = in_pieces(self.file)
        self.env |= {name: Param(name, value) for name, value in whole.constants.items()}
        needed = set(self.file.outputs)
        for step in reversed(self.file.steps):
            needed |= set(step.inputs) if needed & set(step.outputs) else set()
        for place, step in enumerate(self.file.steps):
            whole.settle(self, place)
            if needed & set(step.outputs) and not whole.inside & set(step.outputs):
                self._step(whole.steps.get(step.outputs[0], step) if step.outputs else step)
        weights = [
            v.shape for s in self.file.steps if s.op in WEIGHTED and (v := self._weight_of(s)) is not None
        ]
        return self.low.finish(returned(self.low, self._results()), weights)

    def _weight_of(self, step: Step) -> np.ndarray | None:
        value = self.env.get(step.inputs[1]) if len(step.inputs) > 1 else None
        if not isinstance(value, Param):
            return None
        return value.value if step.op.startswith("Conv") or self.at(step, "transB", 0) else value.value.T

    def _input(self, name: str, input_shape: tuple[int, ...] | None) -> None:
        """Declare the input. One that is turned first of all is declared as what it is turned into."""
        sizes = self.file.sizes.get(name, ())
        self._check_batch(name, sizes)
        dims = [1, *(d if d is not None else 0 for d in sizes[1:])]
        if 0 in dims and input_shape:
            dims = [1, *input_shape][: len(dims)]
        if not sizes or 0 in dims:
            raise ConvertError(
                f"{self.file.name} leaves the size of its input open; export it with a fixed one, or pass "
                "--input CxHxW"
            )
        self.coloured = len(dims) == 4 and dims[3] in COLOURS and dims[1] not in COLOURS
        readers = [s for s in self.file.steps if name in s.inputs]
        for _ in self.file.steps:  # at most: a damaged file may go round in circles
            if len(readers) == 1 and readers[0].op in IN_FRONT and readers[0].outputs:
                readers = [s for s in self.file.steps if readers[0].outputs[0] in s.inputs]
        turns = [
            s for s in readers if s.op == "Transpose" and self.at(s, "perm", []) == channels_first(len(dims))
        ]
        made = {s.outputs[0] for s in turns}
        self.doubtful = any(made & set(reader.inputs) and reader.op in TOKENS for reader in self.file.steps)
        straight = [s.op for s in self.file.steps if name in s.inputs]
        if turns and len(turns) == len(readers) and (self.turned or not self.doubtful):
            entry = self.low.input((dims[0], dims[-1], *dims[1:-1]))
            self.env[name] = Turned(entry)
        else:
            self.env[name] = entry = self.low.input(tuple(dims))
        if name in self.file.bytes and "DequantizeLinear" not in straight:
            self.low.give(entry, 1.0, -128)

    def _check_batch(self, name: str, sizes: Sequence[int | None]) -> None:
        """ConvertError for an input of one sample alone, whose first axis is no batch."""
        readers = [s for s in self.file.steps if name in s.inputs]
        added = [
            self.file.constants.get(s.inputs[1]) for s in readers if s.op == ADDS_AXES and len(s.inputs) > 1
        ]
        first = bool(added) and all(axes is not None and 0 in axes for axes in added)
        if sizes and sizes[0] != 1 and (len(sizes) == 1 or (first and len(added) == len(readers))):
            given = by([d or 0 for d in sizes])
            raise ConvertError(
                f"{self.file.name} takes an input of {given}, without an axis for the batch; export it with "
                f"one, 1x{given}"
            )

    def _step(self, step: Step) -> None:
        """Append one node; one that is not supported gets a stand-in, if the shape of its result is known."""
        try:
            value = self._made(step)
        except ConvertError as error:
            read = {i for later in self.file.steps for i in later.inputs} | set(self.file.outputs)
            names = [o for o in step.outputs if o and o in read]
            sizes = [self.file.sizes.get(name, ()) for name in names]
            if not sizes or any(not each or None in each[1:] for each in sizes):
                self.low.found.append(error)
                raise _all_of(self.low) from error
            inputs = {i: self.env.get(i) for i in step.inputs}
            call = Call(step.op.lower(), step.name, True, inputs)
            made = [self.low.stand_in(call, error, (1, *(d or 1 for d in each[1:]))) for each in sizes]
            self.env.update(zip(names, made, strict=True))
            return
        values = value if isinstance(value, list) else [value]
        self.env.update(zip(step.outputs, values, strict=False))

    def _made(self, step: Step) -> Value | list[Value]:
        self._expand(step)
        values = [self.value(i) for i in step.inputs]
        labels = [v for v in values if isinstance(v, Label)]
        if labels and step.op in WEIGHTED:
            raise LayerError(
                f"layer {step.name}",
                f"{step.op} reads what is chosen by size (TopK, ArgMax) inside the network, which is not "
                "supported; the nearest that is: the maximum over a map or over time",
            )
        if labels:
            return labels[0]
        if self._is_label(step, values):
            return Label(next(self.plain(v) for v in values if isinstance(v, Act | Turned)))
        if step.domain and step.op == "Scaler":
            return layers.scaler(self, step)
        if step.domain:
            instead = NO_SELECTION if step.domain == LEARNED else NO_FUSION
            instead = NO_FUNCTION if (step.domain, step.op) in self.file.functions else instead
            raise LayerError(f"layer {step.name}", f"{step.domain}.{step.op} is not supported; {instead}")
        if step.op in FOLDS and all(v is None or isinstance(v, Param) for v in values):
            return self._constant(step, values)
        if step.op == "Shape" and isinstance(x := tokens.seen(self, step, values[0]), Act):
            return Param(step.name, shape_of(step, x.dims))
        of_length = step.op in norms.LENGTHS and not isinstance(values[0], Param)
        if of_length or any(isinstance(v, Length) for v in values):
            return norms.length(self, step)
        if step.op == "Pow" or any(isinstance(v, Piece) for v in values):
            return norms.written_out(self, step)
        if any(isinstance(v, Scores) for v in values):
            is_view = RULES.get(step.op) is shapes.view
            return shapes.view(self, step) if is_view else tokens.of_scores(self, step)
        if any(isinstance(v, Stacked) for v in values) and not step.op.startswith("Reduce"):
            raise LayerError(f"layer {step.name}", of_stacked(step.op))
        if step.op in SAME_NAME:
            return self.unary(step, SAME_NAME[step.op])
        if step.op not in RULES:
            raise unsupported(Call(step.op.lower(), step.name, True, {}))
        return RULES[step.op](self, step)

    def _expand(self, step: Step) -> None:
        """Make what stands many times, where a step reads it otherwise than in a product or a sum; and a
        square, where it is no part of a normalisation. A map that was flattened with its channels last
        is seen in that order by what takes some of it."""
        for name in step.inputs if step.op not in ("Mul", "Add", "Sub", "Div") else ():
            if isinstance(value := self.env.get(name), Expanded):
                self.env[name] = made(self.low, Call("expand", step.name, False, {}), value)
        for name in step.inputs if step.op in PLACES else ():
            if tokens.is_flat(self, value := self.env.get(name)):
                self.env[name] = tokens.seen(self, step, value)
        for name in step.inputs if step.op not in OF_SQUARES else ():
            if isinstance(value := self.env.get(name), Piece) and value == Piece(value.of, squared=True):
                act = squared(self.low, Call("square", step.name, False, {}), value)
                self.env[name] = Turned(act) if value.last else act

    def _constant(self, step: Step, values: Sequence[Value]) -> Param:
        arrays = [v.value if isinstance(v, Param) else None for v in values]
        name = next((v.name for v in values if isinstance(v, Param)), step.name)
        if step.op == "Identity":  # PyTorch has constants of equal numbers once
            name = step.outputs[0]
        made = folded(step, arrays)
        self.low.computed += made.size
        if self.low.computed > MOST_IN_ALL:
            raise ConvertError(
                f"{self.file.name} makes more than {MOST_IN_ALL:,} numbers of constants; store them in it"
            )
        return Param(name, made)

    def _is_label(self, step: Step, values: Sequence[Value]) -> bool:
        """Whether a step makes a label of the network's result, or a table of its probabilities.

        In front of layers only TopK and ArgMax are one, which no layer can read.
        """
        if step.op in LABELS:
            return step.domain != LEARNED or not self.goes_on(step, WEIGHTED)
        if not self._is_end(step, values):
            return False
        return step.op in BESIDE_LABELS or self._is_other_class(step, values)

    def _is_other_class(self, step: Step, values: Sequence[Value]) -> bool:
        """Whether a step makes 1 - p, which then stands before p: of scikit-learn's two classes the other."""
        one = values[0] if len(values) == 2 else None
        if step.op != OTHER_CLASS or not isinstance(one, Param) or not (one.value == 1).all():
            return False
        readers = [s for s in self.file.steps if step.outputs[0] in s.inputs]
        both = (step.outputs[0], step.inputs[1])
        return step.outputs[0] not in self.file.outputs and all(s.inputs == both for s in readers)

    def _is_end(self, step: Step, values: Sequence[Value]) -> bool:
        """Whether a step reads the probabilities of a network, which scikit-learn's models go on with.

        What goes on with layers is a gate.
        """
        acts = [self.plain(v) for v in values if isinstance(v, Act | Turned)]
        makers = [n.op for a in acts for n in self.low.nodes if a.tensor in n.outputs]
        is_map = step.op == "Reshape" and len(self.numbers(step, 1, "shape") or []) > 2
        if is_map or not makers or not all(op in ENDINGS for op in makers):
            return False
        return not self.goes_on(step, LAYERS)

    def _results(self) -> list[Any]:
        """The outputs that are the network's; what is made of them is left out."""
        values = [self.env.get(o) for o in self.file.outputs]
        acts = [self._like_input(self.plain(v)) for v in values if isinstance(v, Act | Turned)]
        found = acts or [v.of for v in values if isinstance(v, Label)]
        return list(dict.fromkeys(found))

    def _like_input(self, act: Act) -> Act:
        """A vector that the file has as a map in NHWC, as it has its input, seen in NCHW."""
        entry = self.env[self.file.inputs[0]]
        turned = isinstance(entry, Turned) and act.order is None and act.dims == as_last(entry.act.dims)
        if not turned or self.low.shape(act)[:2] != (1, 1):
            return act
        axes = channels_first(len(act.dims))
        order = np.arange(math.prod(act.dims)).reshape(act.dims).transpose(axes)
        return replace(act, dims=order.shape, order=order)


def _all_of(low: Lowering) -> ConvertError:
    """One error for what was found before the walk had to end."""
    return low.found[0] if len(low.found) == 1 else together(low.name, low.found)
