"""Front end for TFLite: float flatbuffers, and int8 ones, whose scales and zero points are kept.

Tensors of a flatbuffer are NHWC, as the IR's are; calls go to the rules of aten ops, which think in NCHW. A
layer is named after its kind and the place of its operator in the file: conv0, dwconv1, fc12.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from microtrain.convert.aten_call import Act, Call, Homes, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.nearest import ONE_INPUT, unsupported
from microtrain.convert.ops.aten.squares import Piece, is_square, squared
from microtrain.convert.raw import Raw

from ..returned import returned
from ..written_norms import Written
from . import layers, parts, shapes, tokens
from .batches import woven
from .file import Flatbuffer, Operator, Stored, read_flatbuffer
from .group_norms import group_norms
from .group_norms import normalised as by_groups
from .loops import loop
from .names import FUSED, GELU, OTHERS, UNARY, WORDS
from .norms import Norm, normalised, norms
from .pads import padded_last
from .recurrent import lstm
from .reductions import REDUCED, reduced
from .sizes import sized, unpacked
from .transposed import conv_transpose
from .values import Walker, channels_first

GO_ON = ("MEAN", "SUM", "QUANTIZE", "DEQUANTIZE")  # which a square may be a part of a normalisation for
JOINS = ("CONCATENATION", "PACK")  # of what has one scale
REAL = ("<f4", "<f2", "i1", "u1", "<i2")  # types of activations
RULES: dict[str, Callable[[Walker, Operator, str], Any]] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), layers.conv),
    "TRANSPOSE_CONV": conv_transpose,
    "FULLY_CONNECTED": layers.linear,
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), layers.pool),
    **dict.fromkeys(REDUCED, reduced),
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM"), layers.arithmetic),
    **dict.fromkeys(("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"), layers.compared),
    **dict.fromkeys(("SELECT", "SELECT_V2"), layers.chosen),
    **dict.fromkeys(("QUANTIZE", "DEQUANTIZE"), layers.quantize),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), shapes.view),
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), shapes.pad),
    **dict.fromkeys(("RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"), shapes.resize),
    "TRANSPOSE": shapes.transpose,
    "TILE": shapes.tile,
    **dict.fromkeys(("SLICE", "STRIDED_SLICE"), parts.cut),
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), shapes.blocks),
    **dict.fromkeys(("SPLIT", "SPLIT_V"), parts.split),
    "UNPACK": parts.unpack,
    "PACK": parts.pack,
    "GATHER": parts.gather,
    "REVERSE_V2": parts.reverse,
    "CONCATENATION": parts.concatenation,
    "SQUARED_DIFFERENCE": layers.difference_squared,
    "L2_NORMALIZATION": layers.of_length_one,
    "ADD_N": layers.summed,
    "POW": layers.power,
    "CAST": layers.cast,
    "ZEROS_LIKE": layers.zeros,
    "FILL": layers.filled,
    "LOGICAL_AND": layers.both,
    "BROADCAST_TO": shapes.broadcast,
    **dict.fromkeys(("SOFTMAX", "LOG_SOFTMAX"), tokens.softmax),
    "BATCH_MATMUL": tokens.product,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm,
    "WHILE": loop,
    "PRELU": layers.prelu,
    "RELU_0_TO_1": lambda walk, op, name: walk.call("clamp", op, name, min=0.0, max=1.0),
    "LEAKY_RELU": lambda walk, op, name: walk.call(
        "leaky_relu", op, name, negative_slope=op.options["Alpha"]
    ),
    "GELU": lambda walk, op, name: walk.call(
        "gelu", op, name, approximate=GELU[bool(op.options["Approximate"])]
    ),
}


def read_tflite(path: Path) -> Raw:
    """The raw graph of a .tflite file."""
    return _Walk(_prepared(path)).read()


def _prepared(path: Path) -> Flatbuffer:
    """A file's operators, each in its place, with constants for all that is computed of constants alone."""
    return padded_last(woven(unpacked(sized(read_flatbuffer(path)))))


def tflite_homes(path: Path) -> Homes:
    """Where a .tflite file has the constants of its layers."""
    walk = _Walk(_prepared(path))
    walk.read()
    return walk.homes


class _Walk(Walker):
    """Walks the operators of one file.

    norms   layer normalisations, by the operator that ends each; groups: those of groups of channels
    parts   the operators inside them
    """

    def __init__(self, file: Flatbuffer) -> None:
        super().__init__(file)
        self.norms = norms(file)
        self.groups = group_norms(file, {place for norm in self.norms.values() for place in norm.inside})
        ends: list[Norm | Written] = [*self.norms.values(), *self.groups.values()]
        self.parts = {place for norm in ends for place in norm.inside}

    def read(self) -> Raw:
        if len(self.file.inputs) != 1:
            raise ConvertError(f"{self.file.name} takes {len(self.file.inputs)} inputs; {ONE_INPUT}")
        entry = self.file.inputs[0]
        self.env[entry] = self.low.input(channels_first(self.file.tensors[entry].shape))
        self.give(self.env[entry], self.file.tensors[entry])
        for place, op in enumerate(self.file.operators):
            if place in self.parts:
                continue
            self.place = place
            self._operator(op, f"{WORDS.get(op.kind, op.kind.lower())}{place}")
        outputs = [self.env.get(i) for i in self.file.outputs]
        kinds = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED")
        weights = [self.file.tensors[op.inputs[1]].shape for op in self.file.operators if op.kind in kinds]
        return self.low.finish(returned(self.low, outputs), weights)

    def _operator(self, op: Operator, name: str) -> None:
        """Append one operator and what is fused into it; one that is not supported gets a stand-in."""
        out = op.outputs[0]
        stored = self.file.tensors[out]
        if stored.data is not None:  # of constants alone
            return
        known = op.kind in RULES or op.kind in UNARY
        if not stored.shape and stored.dtype in REAL and known:
            raise ConvertError(
                f"layer {name}: {op.kind} makes one number without an axis, which is not supported; the "
                "nearest that is: one for each sample, [1, 1]"
            )
        before = len(self.low.nodes)
        try:
            self._settle_squares(op, name)
            if self.place in self.norms:
                value = normalised(self, op, name, self.norms[self.place])
            elif self.place in self.groups:
                value = by_groups(self, op, name, self.groups[self.place])
            elif op.kind in UNARY:
                value = self.call(UNARY[op.kind], op, name)
            elif op.kind in RULES:
                value = RULES[op.kind](self, op, name)
            else:
                raise unsupported(Call(op.kind.lower(), name, True, {}))
            if isinstance(value, list):
                self.env.update(zip(op.outputs, value, strict=True))
                return
            value = self._fused(op, name, value, stored)
            if op.kind in JOINS:
                self.give_inside(before, stored)
        except ConvertError as error:
            ended = self.norms.get(self.place) or self.groups.get(self.place)
            read = (*op.inputs, *([ended.given] if ended else []))
            inputs = {str(i): self.env[t] for i, t in enumerate(read) if t in self.env}
            call = Call(op.kind.lower(), name, True, inputs)
            shapes_made = [channels_first(self.file.tensors[t].shape) for t in op.outputs]
            made = [self.low.stand_in(call, error, shape) for shape in shapes_made]
            self.env.update(zip(op.outputs, made, strict=True))
            return
        self.env[out] = value

    def _settle_squares(self, op: Operator, name: str) -> None:
        """Make the squares that an operator reads, if it is none of those that go on with a normalisation."""
        for tensor in () if op.kind in GO_ON else op.inputs:
            if isinstance(value := self.env.get(tensor), Piece) and is_square(value):
                self.env[tensor] = squared(self.low, Call("square", name, False, {}), value)

    def _fused(self, op: Operator, name: str, value: Any, stored: Stored) -> Any:
        """The value behind the activation that the operator carries, with the scale that the file says."""
        fused = op.options.get("FusedActivationFunction", 0)
        self.give(value, stored)
        if fused and is_square(value):
            value = squared(self.low, Call("square", name, False, {}), value)
            self.give(value, stored)
        if fused and not isinstance(value, Param):
            if not isinstance(value, Act):
                raise ConvertError(
                    f"layer {name}: {op.kind} with a fused activation is not supported inside attention, a "
                    "normalisation or a sum of stacked tensors; the nearest that is: without one"
                )
            if fused not in FUSED or op.kind == "CONCATENATION":  # TFLite's own kernels leave it out
                raise ConvertError(
                    f"layer {name}: {op.kind} with the fused activation {OTHERS.get(fused, fused)} is not "
                    "supported; the nearest that is: that activation as an operator of its own behind it"
                )
            word, args = FUSED[fused]
            value = self.made(word, f"{name}.{word}", self=value, **args)
            self.give(value, stored)
        return value
