"""Front end for TFLite: float flatbuffers, and int8 ones, whose scales and zero points are kept.

Tensors of a flatbuffer are NHWC, as the IR's are; calls go to the rules of aten ops, which think in NCHW. A
layer is named after its kind and the place of its operator in the file: conv0, dwconv1, fc12.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.convert.ir import ConvertError
from microtrain.convert.lowering import Act, Call, Home, Homes, Lowering, Param, Raw
from microtrain.convert.nearest import no_matrix, unsupported
from microtrain.convert.ops.activations import CLIP

from .aten import lower
from .tflite_cuts import spans
from .tflite_file import Flatbuffer, Operator, Stored, read_flatbuffer
from .tflite_names import AXES, FUSED, GELU, UNARY, WORDS
from .tflite_windows import Sides


def read_tflite(path: Path) -> Raw:
    """The raw graph of a .tflite file."""
    return _Walker(read_flatbuffer(path)).read()


def tflite_homes(path: Path) -> Homes:
    """Where a .tflite file has the constants of its layers."""
    walker = _Walker(read_flatbuffer(path))
    walker.read()
    return walker.homes


class _Walker:
    """Walks the operators of one file.

    env    tensor of the file -> activation or constant
    sizes  tensors that say no more than shapes
    """

    def __init__(self, file: Flatbuffer) -> None:
        self.file = file
        self.homes: Homes = {}
        self.place = 0  # of the operator that is being read
        self.low = Lowering(file.name)
        self.env: dict[int, Act | Param] = {}
        self.sizes: set[int] = set()
        self.rules: dict[str, Callable[[Operator, str], Any]] = {
            "CONV_2D": self._conv,
            "DEPTHWISE_CONV_2D": self._conv,
            "FULLY_CONNECTED": self._linear,
            "AVERAGE_POOL_2D": self._pool,
            "MAX_POOL_2D": self._pool,
            **dict.fromkeys(("MEAN", "REDUCE_MAX"), self._reduced),
            "TRANSPOSE": self._transpose,
            **dict.fromkeys(("SLICE", "STRIDED_SLICE"), self._cut),
            "SPLIT": self._split,
            "PRELU": lambda op, name: self._call("prelu", op, name, weight=self._value(op.inputs[1])),
            **dict.fromkeys(("ADD", "SUB", "MUL", "DIV"), self._arithmetic),
            **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), self._view),
            **dict.fromkeys(("PAD", "PADV2"), self._pad),
            **dict.fromkeys(("QUANTIZE", "DEQUANTIZE"), self._quantize),
            "LEAKY_RELU": lambda op, name: self._call(
                "leaky_relu", op, name, negative_slope=op.options["Alpha"]
            ),
            "GELU": lambda op, name: self._call(
                "gelu", op, name, approximate=GELU[bool(op.options["Approximate"])]
            ),
            "CONCATENATION": self._concatenation,
        }

    def read(self) -> Raw:
        if len(self.file.inputs) != 1:
            raise ConvertError(f"{self.file.name} takes {len(self.file.inputs)} inputs; it must take one")
        entry = self.file.inputs[0]
        self.env[entry] = self.low.input(_channels_first(self.file.tensors[entry].shape))
        self._give(self.env[entry], self.file.tensors[entry])
        for place, op in enumerate(self.file.operators):
            self.place = place
            self._operator(op, f"{WORDS.get(op.kind, op.kind.lower())}{place}")
        outputs = [self.env.get(i) for i in self.file.outputs]
        kinds = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
        weights = [self.file.tensors[op.inputs[1]].shape for op in self.file.operators if op.kind in kinds]
        return self.low.finish(outputs, weights)

    def _operator(self, op: Operator, name: str) -> None:
        """Append one operator and what is fused into it; one that is not supported gets a stand-in."""
        out = op.outputs[0]
        stored = self.file.tensors[out]
        if op.kind == "SHAPE" or (op.inputs and op.inputs[0] in self.sizes):
            self.sizes.update(op.outputs)  # what is made of shapes: the file says the shapes themselves
            return
        try:
            if op.kind in UNARY:
                value = self._call(UNARY[op.kind], op, name)
            elif op.kind in self.rules:
                value = self.rules[op.kind](op, name)
            else:
                raise unsupported(Call(op.kind.lower(), name, True, {}))
            if isinstance(value, list):
                self.env.update(zip(op.outputs, value, strict=True))
                return
            value = self._fused(op, name, value, stored)
        except ConvertError as error:
            inputs = {str(i): self.env[t] for i, t in enumerate(op.inputs) if t in self.env}
            call = Call(op.kind.lower(), name, True, inputs)
            value = self.low.stand_in(call, error, _channels_first(stored.shape))
        self.env[out] = value

    def _fused(self, op: Operator, name: str, value: Any, stored: Stored) -> Any:
        """The value behind the activation that the operator carries, with the scale that the file says."""
        fused = op.options.get("FusedActivationFunction", 0)
        self._give(value, stored)
        if fused and isinstance(value, Act):
            if fused not in FUSED:
                raise ConvertError(f"layer {name}: its fused activation {fused} is not supported; use a ReLU")
            word, args = FUSED[fused]
            value = lower(self.low, Call(word, f"{name}.{word}", True, {"self": value, **args}))
            self._give(value, stored)
        return value

    def _give(self, value: Any, stored: Stored) -> None:
        """Keep the file's scale and zero for an activation."""
        found = stored.quantized
        if not isinstance(value, Act) or value.pad or found is None or stored.dtype not in ("i1", "u1"):
            return
        if len(found.scale) != 1:
            raise ConvertError(
                f"{self.file.name}: {stored.name} has a scale for each channel; one is supported"
            )
        zero = int(found.zero[0]) - (128 if stored.dtype == "u1" else 0)
        if not -128 <= zero <= 127:
            raise ConvertError(f"{self.file.name}: {stored.name} has a zero point of {zero}, outside int8")
        self.low.give(value, float(found.scale[0]), zero)

    def _given(self, tensor: int) -> tuple[float, int] | None:
        act = self.env.get(tensor)
        return self.low.tensors[self.low.tensor_of(act)].given if isinstance(act, Act) else None

    def _value(self, tensor: int) -> Act | Param | None:
        """An activation, or a constant as real numbers; None: an input that was left out."""
        if tensor < 0:
            return None
        if tensor not in self.env:
            stored = self.file.tensors[tensor]
            if stored.data is None:
                raise ConvertError(f"{self.file.name} uses {stored.name}, which no operator before makes")
            self.env[tensor] = Param(stored.name, _real(stored))
        return self.env[tensor]

    def _made(self, word: str, op: Operator, name: str, **args: Any) -> Call:
        return Call(word, name, True, {"self": self._value(op.inputs[0]), **args})

    def _call(self, word: str, op: Operator, name: str, **args: Any) -> Any:
        """The value of an aten op on the operator's first input."""
        return lower(self.low, self._made(word, op, name, **args))

    def _image(self, op: Operator, name: str) -> tuple[Act, bool]:
        """The operator's input as an image, and whether the IR has it turned: one row of it as a column.

        A series reaches a Conv2D of Keras as one row; here its steps in time are rows, which stream.
        """
        x = self._value(op.inputs[0])
        shape = self.file.tensors[op.inputs[0]].shape
        if not isinstance(x, Act) or len(shape) != 4:
            raise ConvertError(
                f"layer {name}: {op.kind} reads {list(shape)}; it must be an image [n, h, w, c]"
            )
        _, h, w, c = shape
        above, before, below, behind = x.pad or (0, 0, 0, 0)
        rows, columns, channels = self.low.shape(x)
        own = (above + rows + below, before + columns + behind, channels)
        if own == (h, w, c):
            return x, False
        if h == 1 and own == (w, 1, c):
            return replace(x, dims=(self.low.batch, c, w, 1)), True
        raise ConvertError(f"layer {name}: {op.kind} reads an image that was reshaped to {h}x{w}x{c}")

    def _conv(self, op: Operator, name: str) -> Any:
        x, turned = self._image(op, name)
        stored = self.file.tensors[op.inputs[1]]
        weight = self._value(op.inputs[1])
        if not isinstance(weight, Param) or weight.value.ndim != 4:
            raise ConvertError(
                f"layer {name}: the weights of {op.kind} must be a constant of four dimensions"
            )
        depthwise = op.kind.startswith("DEPTHWISE")
        order = (3, 0, 1, 2) if depthwise else (0, 3, 1, 2)
        values = weight.value.transpose(order)
        window = Sides(op, self.low.shape(x), values.shape[2:], turned, "DilationHFactor", "DilationWFactor")
        order = (*order[:2], order[3], order[2]) if turned else order
        args = {
            "input": x,
            "weight": self._at_home(
                op,
                1,
                f"{name}.weight",
                weight.value.transpose(order),
                lambda w: w.transpose(np.argsort(order)),
            ),
            "bias": self._bias(op, name),
            "stride": window.stride,
            "padding": window.padding,
            "dilation": window.dilation,
            "groups": x.dims[1] if depthwise else x.dims[1] // max(values.shape[1], 1),
        }
        made = lower(self.low, Call("conv2d", name, True, args))
        self._keep_scale(name, stored)
        return made

    def _bias(self, op: Operator, name: str) -> Param | None:
        """The biases, in real numbers."""
        bias = self._value(op.inputs[2]) if len(op.inputs) > 2 else None
        if bias is None:
            return None
        if not isinstance(bias, Param):
            raise ConvertError(f"layer {name}: its biases are computed; they must be a constant of the file")
        return self._at_home(op, 2, f"{name}.bias", bias.value, lambda b: b)

    def _at_home(
        self,
        op: Operator,
        place: int,
        name: str,
        value: np.ndarray,
        back: Callable[[np.ndarray], np.ndarray],
    ) -> Param:
        """An operator's constant in PyTorch's order, under a layer's name; back: into the file's order."""
        found = self.file.tensors[op.inputs[place]].quantized
        self.homes[name] = Home(self.place, place, value, back, None if found is None else found.scale)
        return Param(name, value)

    def _keep_scale(self, name: str, stored: Stored) -> None:
        """Keep the file's scales for the weights of a layer that were int8, symmetric."""
        layer, found = self.low.layers[name], stored.quantized
        if found is None or stored.dtype != "i1" or found.zero.any():
            return
        channels = len(layer.weight)
        if len(found.scale) not in (1, channels):
            raise ConvertError(f"layer {name}: {len(found.scale)} scales for {channels} channels of weights")
        self.low.layers[name] = replace(layer, weight_scale=np.broadcast_to(found.scale, (channels,)).copy())

    def _linear(self, op: Operator, name: str) -> Any:
        """Columns of the weights go over a map in the order HWC; the rule expects CHW."""
        x, weight = self._value(op.inputs[0]), self._value(op.inputs[1])
        if op.options.get("WeightsFormat", 0):
            raise ConvertError(f"layer {name}: shuffled weights are not supported; convert the model without")
        if not isinstance(x, Act) or not isinstance(weight, Param) or weight.value.ndim != 2:
            raise no_matrix(Call(op.kind, name, True, {}), both=isinstance(weight, Act))
        whole = math.prod(x.dims) == math.prod(self.low.shape(x))  # else it is a part, a vector
        h, w, c = self.low.shape(x) if whole else (1, 1, math.prod(x.dims))
        classes, features = weight.value.shape
        if features == c and h * w > 1:
            return self._each_pixel(op, name, x, weight.value)
        if features != h * w * c:
            raise ConvertError(f"layer {name} wants {features} features and gets {h * w * c}")
        values = weight.value.reshape(classes, h, w, c).transpose(0, 3, 1, 2).reshape(classes, -1)
        flat = replace(x, dims=(self.low.batch, features))

        def back(m: np.ndarray) -> np.ndarray:
            return m.reshape(-1, c, h, w).transpose(0, 2, 3, 1).reshape(len(m), -1)

        args = {
            "input": flat,
            "weight": self._at_home(op, 1, f"{name}.weight", values, back),
            "bias": self._bias(op, name),
        }
        made = lower(self.low, Call("linear", name, True, args))
        self._keep_scale(name, self.file.tensors[op.inputs[1]])
        return made

    def _each_pixel(self, op: Operator, name: str, x: Act, weight: np.ndarray) -> Any:
        """A linear layer over the channels of each pixel, or each step in time."""
        h, w, c = self.low.shape(x)
        home = self._at_home(op, 1, f"{name}.weight", weight[..., None, None], lambda m: m[..., 0, 0])
        args = {
            "input": Act(x.tensor, (self.low.batch, c, h, w)),
            "weight": home,
            "bias": self._bias(op, name),
        }
        made = lower(self.low, Call("conv2d", name, True, args))
        self._keep_scale(name, self.file.tensors[op.inputs[1]])
        return replace(made, dims=_channels_first(self.file.tensors[op.outputs[0]].shape))

    def _pool(self, op: Operator, name: str) -> Any:
        x, turned = self._image(op, name)
        kernel = (op.options["FilterHeight"], op.options["FilterWidth"])
        window = Sides(op, self.low.shape(x), kernel, turned)
        word = "avg_pool2d" if op.kind.startswith("AVERAGE") else "max_pool2d"
        args = {"self": x, "kernel_size": window.kernel, "stride": window.stride, "padding": window.padding}
        return lower(self.low, Call(word, name, True, {**args, "count_include_pad": False}))

    def _reduced(self, op: Operator, name: str) -> Any:
        """The mean or the maximum over the map."""
        x, axes = self._value(op.inputs[0]), self._value(op.inputs[1])
        shape = self.file.tensors[op.inputs[0]].shape
        if not isinstance(x, Act) or not isinstance(axes, Param):
            raise ConvertError(f"layer {name}: the axes of {op.kind} must be constants")
        over = {int(a) % max(len(shape), 1) for a in np.ravel(axes.value)}
        spatial = set(range(1, len(shape) - 1))
        h, w, c = self.low.shape(x)
        if over != spatial or not spatial:
            raise ConvertError(
                f"layer {name}: {op.kind} of {list(shape)} over {sorted(over)} is not supported; the nearest "
                "that is: over height and width, or over time"
            )
        dims = _channels_first(self.file.tensors[op.outputs[0]].shape)
        image = replace(x, dims=(self.low.batch, c, h, w))
        args = {"self": image, "dim": [2, 3], "keepdim": True}
        made = lower(self.low, Call("mean" if op.kind == "MEAN" else "amax", name, True, args))
        return replace(made, dims=dims)

    def _arithmetic(self, op: Operator, name: str) -> Any:
        """A sum or product of two activations, or of one and a constant, a number or one a channel."""
        a, b = (self._value(t) for t in op.inputs[:2])
        if isinstance(a, Act) and isinstance(b, Act):
            return self._joined(op.kind.lower(), name, a, b)
        sides = [replace_values(v) if isinstance(v, Param) else v for v in (a, b)]
        return lower(self.low, Call(op.kind.lower(), name, True, {"self": sides[0], "other": sides[1]}))

    def _joined(self, word: str, name: str, a: Act, b: Act) -> Any:
        return lower(self.low, Call(word, name, True, {"self": a, "other": b}))

    def _view(self, op: Operator, name: str) -> Any:
        """Numbers stay in their order, NHWC, so only the shape is noted; an input is declared anew."""
        x, shape = self._value(op.inputs[0]), self.file.tensors[op.outputs[0]].shape
        if not isinstance(x, Act):
            return Param(x.name, x.value.reshape(shape)) if x else None
        own = self.low.shape(x)
        turned = len(shape) == 4 and shape[1] == 1 and own == (shape[2], 1, shape[3])
        if x.tensor == "input" and not x.pad and not self.low.nodes and len(shape) in (3, 4) and not turned:
            return self._declared(_channels_first(shape))
        return replace(x, dims=_channels_first(shape))

    def _pad(self, op: Operator, name: str) -> Any:
        """Zeros around an image, which the convolution behind it takes as its padding."""
        x, widths = self._value(op.inputs[0]), self._value(op.inputs[1])
        rank = len(self.file.tensors[op.inputs[0]].shape)
        if not isinstance(x, Act) or not isinstance(widths, Param) or widths.value.shape != (rank, 2):
            raise ConvertError(f"layer {name}: only constant padding of an image or a series is supported")
        sides = widths.value.astype(int).tolist()
        if any(sides[0]) or any(sides[-1]) or rank not in (3, 4) or op.kind == "PADV2":
            raise ConvertError(
                f"layer {name}: only zeros above, below and beside an image, or before and behind a "
                "series, are supported"
            )
        pads = [width for side in sides[-2:0:-1] for width in side]
        return lower(self.low, Call("pad", name, True, {"self": x, "pad": pads}))

    def _transpose(self, op: Operator, name: str) -> Any:
        """An input in another order than NHWC is declared anew as what it is turned into."""
        x, order = self._value(op.inputs[0]), self._value(op.inputs[1])
        shape = self.file.tensors[op.outputs[0]].shape
        axes = [int(a) for a in np.ravel(order.value)] if isinstance(order, Param) else []
        if not isinstance(x, Act) or len(axes) != len(shape):
            raise ConvertError(f"layer {name}: the axes of {op.kind} must be constants")
        if axes == list(range(len(axes))):
            return x
        if x.tensor != "input" or self.low.nodes or axes != [0, *range(2, len(axes)), 1]:
            raise ConvertError(
                f"layer {name}: {op.kind} of {list(x.dims)} is not supported; the nearest that is: of the "
                "input alone, from NCHW to NHWC"
            )
        return self._declared(_channels_first(shape))

    def _declared(self, dims: tuple[int, ...]) -> Act:
        """The input, declared anew."""
        given = self.low.tensors["input"].given
        made = self.low.input(dims)
        if given:
            self.low.give(made, *given)
        return made

    def _cut(self, op: Operator, name: str) -> Any:
        shape = self.file.tensors[op.inputs[0]].shape
        given = [self._value(t) for t in op.inputs[1:]]
        numbers = [[int(n) for n in np.ravel(v.value)] for v in given if isinstance(v, Param)]
        x, axes = self._value(op.inputs[0]), AXES.get(len(shape), {})
        for span in spans(op, name, shape, numbers):
            args = {"self": x, "dim": axes.get(span.axis, span.axis)}
            if span.alone:
                x = lower(self.low, Call("select", name, True, {**args, "index": span.taken.start}))
            else:
                by = {"start": span.taken.start, "end": span.taken.stop, "step": span.taken.step}
                x = lower(self.low, Call("slice", name, True, {**args, **by}))
        return x

    def _split(self, op: Operator, name: str) -> Any:
        axis, shape = self._value(op.inputs[0]), self.file.tensors[op.inputs[1]].shape
        if not isinstance(axis, Param):
            raise ConvertError(f"layer {name}: the axis of {op.kind} must be a constant")
        at = int(np.ravel(axis.value)[0]) % max(len(shape), 1)
        args = {"self": self._value(op.inputs[1]), "dim": AXES.get(len(shape), {}).get(at, at)}
        size = -(-shape[at] // len(op.outputs))
        made = lower(self.low, Call("split", name, True, {**args, "split_size": size}))
        if len(made) != len(op.outputs):
            raise ConvertError(f"layer {name}: a split into {len(made)} parts has {len(op.outputs)} results")
        return made

    def _quantize(self, op: Operator, name: str) -> Any:
        """A change of number type changes nothing; a change of scale is an op of its own."""
        x, after = self._value(op.inputs[0]), self.file.tensors[op.outputs[0]]
        before = self._given(op.inputs[0])
        if not isinstance(x, Act) or op.kind == "DEQUANTIZE" or before is None:
            return x
        found = after.quantized
        zero = int(found.zero[0]) - (128 if after.dtype == "u1" else 0) if found else 0
        if found is None or before == (float(found.scale[0]), zero):
            return x
        return self._call(CLIP, op, name)

    def _concatenation(self, op: Operator, name: str) -> Any:
        axis = op.options["Axis"]
        rank = len(self.file.tensors[op.outputs[0]].shape)
        values = [self._value(t) for t in op.inputs]
        dim = AXES.get(rank, {}).get(axis % max(rank, 1), axis)
        return lower(self.low, Call("cat", name, True, {"tensors": values, "dim": dim}))


def _channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    """NHWC as NCHW, [n, time, c] as [n, c, time]; what has no channels stays."""
    return (shape[0], shape[-1], *shape[1:-1]) if len(shape) > 2 else shape


def replace_values(value: Param) -> Param:
    """A constant [..., c] as [1, c, 1, 1]; a single number stays."""
    return value if value.value.size == 1 else Param(value.name, value.value.reshape(1, -1, 1, 1))


def _real(stored: Stored) -> np.ndarray:
    """A constant in real numbers, float32; integers without a scale stay what they are."""
    assert stored.data is not None
    found = stored.quantized
    if found is None:
        return stored.data.astype(np.float32) if stored.dtype in ("<f2", "<f4") else stored.data
    shape = [1] * len(stored.shape)
    if len(found.scale) > 1:
        shape[found.axis] = len(found.scale)
    zero = found.zero if len(found.zero) == len(found.scale) else np.zeros(len(found.scale), np.int64)
    real = (stored.data.astype(np.float64) - zero.reshape(shape)) * found.scale.reshape(shape)
    return np.asarray(real, np.float32)
