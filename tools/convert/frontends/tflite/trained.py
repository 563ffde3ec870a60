"""Trained layers into a copy of the TFLite file that they came from.

An int8 file keeps its scales and takes the integers that the device has. Its head was float on the device and
is float in the file from then on: what comes to it is dequantized, and a softmax behind it quantizes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from microtrain.convert.aten_call import Home, Homes
from microtrain.convert.ir import ConvertError

from .file import Flatbuffer, Quantization, Stored, read_flatbuffer
from .sizes import sized
from .write import Changes, Made, Step, write_flatbuffer

BOUNDED = ("SOFTMAX", "LOG_SOFTMAX", "LOGISTIC")  # whose results have the same scale whatever comes in
SHAPES = ("RESHAPE", "SQUEEZE")
SAME = ("QUANTIZE", "DEQUANTIZE")
FLOATS = ("<f4", "<f2")
TINY = 1e-30  # a scale of what is all 0


def trained_tflite(
    path: Path, homes: Homes, trained: Mapping[str, np.ndarray], head: tuple[str, str] | None
) -> bytes:
    """The file's bytes with trained parameters in it.

    trained  real numbers as in a state dict of PyTorch, by the names in `homes`; a bias may be new
    head     names of the head's weights and biases, which stay float; None: there is no head
    Errors   ConvertError where the file cannot take them
    """
    file = read_flatbuffer(path)
    known, steps = sized(file).tensors, list(range(len(file.operators)))
    sizes = frozenset(i for i in steps if known[file.operators[i].outputs[0]].data is not None)
    copy = _Copy(file, [*steps], sizes)
    if head is not None:
        home = homes[head[0]]
        copy.head(home.step, home.back(trained[head[0]]), trained.get(head[1]))
    for name, value in trained.items():
        if name not in (head or ()):
            copy.constant(name, homes, value)
    return write_flatbuffer(path.read_bytes(), Changes(copy.constants, copy.tensors, copy.steps))


@dataclass
class _Copy:
    """What will be other than in the file: see Changes.

    sizes  operators that compute no more than sizes of tensors
    """

    file: Flatbuffer
    steps: list[int | Step]
    sizes: frozenset[int]
    constants: dict[int, bytes] = field(default_factory=dict)
    tensors: dict[int, Made] = field(default_factory=dict)

    def constant(self, name: str, homes: Homes, value: np.ndarray) -> None:
        """Weights or biases of a layer that is no head."""
        home = homes.get(name)
        if home is None:
            self._new_bias(name, homes[name.removesuffix("bias") + "weight"], value)
            return
        number = self.file.operators[home.step].inputs[home.input]
        readers = sum(number in op.inputs for op in self.file.operators)
        unpacked = (op for op in self.file.operators if op.kind == "DEQUANTIZE" and number in op.outputs)
        number = next((op.inputs[0] for op in unpacked), number)
        stored, values = self.file.tensors[number], home.back(value)
        if stored.quantized is not None and home.scale is None:  # a part of a sum or product has its own
            most = np.iinfo(stored.dtype).max
            scale = np.array([max(float(np.abs(values).max(initial=0.0)) / most, TINY)])
            stored = replace(stored, quantized=Quantization(scale, np.zeros(1, np.int64), 0))
        elif readers == 1:
            self.constants[number] = _stored(stored, values).tobytes()
            return
        made = Made(stored.name, stored.shape, stored.dtype, _stored(stored, values), stored.quantized)
        self._reads(home, self._new(made))

    def _reads(self, home: Home, number: int) -> None:
        """An operator reads another tensor from now on; others that read that of before go on."""
        like = [s.like if isinstance(s, Step) else s for s in self.steps]
        at = like.index(home.step)
        old = self.steps[at]
        given = old if isinstance(old, Step) else self.file.operators[home.step]
        inputs = [number if i == home.input else t for i, t in enumerate(given.inputs)]
        self.steps[at] = Step(inputs, given.outputs, like=home.step)

    def _new_bias(self, name: str, weight: Home, value: np.ndarray) -> None:
        """Biases of a layer that has none in the file."""
        op = self.file.operators[weight.step]
        first = 2 if op.kind == "TRANSPOSE_CONV" else 0
        x, w = (self.file.tensors[op.inputs[i]] for i in (first, weight.input))
        made = Made(name, value.shape, "<f4", value.astype("<f4"))
        if x.quantized is not None and w.quantized is not None:
            scale = np.broadcast_to(x.quantized.scale * w.quantized.scale, value.shape)
            integers = np.rint(value / scale).astype("<i4")
            zeros = np.zeros(len(scale), np.int64)
            made = Made(name, value.shape, "<i4", integers, Quantization(scale, zeros, 0))
        like = [s.like if isinstance(s, Step) else s for s in self.steps]
        at = like.index(weight.step)
        old = self.steps[at]
        inputs = old.inputs if isinstance(old, Step) else op.inputs
        self.steps[at] = Step((*inputs[: max(first, 1) + 1], self._new(made)), op.outputs, like=weight.step)

    def _new(self, made: Made) -> int:
        """The number of a new tensor."""
        number = max([len(self.file.tensors) - 1, *self.tensors]) + 1
        self.tensors[number] = made
        return number

    def head(self, place: int, weight: np.ndarray, bias: np.ndarray | None) -> None:
        """The last layer, and what comes behind it, in float. place: its operator"""
        op = self.file.operators[place]
        x, stored = op.inputs[0], self.file.tensors[op.inputs[1]]
        weight = weight.reshape(len(weight), *stored.shape[1:]).astype("<f4")
        taken = [x, self._new(Made(f"{stored.name}_trained", weight.shape, "<f4", weight))]
        if bias is not None:
            taken.append(self._new(Made(f"{stored.name}_bias", bias.shape, "<f4", bias.astype("<f4"))))
        given, at = self.file.tensors[x], self.steps.index(place)
        before: list[int | Step] = []
        if given.dtype not in FLOATS:
            taken[0] = self._new(Made(f"{given.name}_float", given.shape, "<f4"))
            before.append(Step((x,), (taken[0],), kind="DEQUANTIZE"))
        made = Step(tuple(taken), op.outputs, like=place)
        self.steps[at:] = [*before, *self._behind(made, place, len(weight))]

    def _behind(self, head: Step, place: int, classes: int) -> list[int | Step]:
        """The head and the operators behind it, in float."""
        later = range(place + 1, len(self.file.operators))
        sizes = [i for i in later if i in self.sizes and self._of_head(i, head)]
        steps, rest = [head], [i for i in later if i not in sizes]
        old = self.file.tensors[head.outputs[0]].shape[-1]
        self._as_float(head.outputs[0], old, classes)
        bounded = False
        while rest and self._follows(rest[0], steps[-1].outputs[0]):
            number = rest.pop(0)
            op = self.file.operators[number]
            if op.kind in SAME:
                steps[-1] = replace(steps[-1], outputs=op.outputs)
                bounded = bounded and op.kind == "QUANTIZE"
            elif op.kind in BOUNDED or op.kind in SHAPES:
                if op.kind in SHAPES and classes != old:
                    raise _counted(self.file.name, op.kind, old, classes)
                steps.append(Step((steps[-1].outputs[0], *op.inputs[1:]), op.outputs, like=number))
                bounded = bounded or op.kind in BOUNDED
            else:
                raise ConvertError(
                    f"{self.file.name}: {op.kind} behind the last layer would read floats, which is not "
                    "supported; only a softmax or logistic function, a reshape and a dequantization may"
                )
            self._as_float(op.outputs[0], old, classes)
        if rest:
            raise ConvertError(
                f"{self.file.name} goes on behind its head with {self.file.operators[rest[0]].kind}, which "
                "is not supported here"
            )
        first, *behind = self._quantized(steps) if bounded else list(steps)
        return [first, *sizes, *behind]

    def _of_head(self, number: int, head: Step) -> bool:
        """Whether an operator reads no more than the head's result and what is made of its sizes."""
        made = {t for i in self.sizes for t in self.file.operators[i].outputs} | {head.outputs[0]}
        inputs = self.file.operators[number].inputs
        return all(t in made or self.file.tensors[t].data is not None for t in inputs)

    def _follows(self, number: int, tensor: int) -> bool:
        return tensor in self.file.operators[number].inputs

    def _as_float(self, tensor: int, old: int, classes: int) -> None:
        """Write a tensor as float, with a number for each class."""
        stored = self.file.tensors[tensor]
        shape = tuple(classes if d == old and d != classes else d for d in stored.shape)
        self.tensors[tensor] = Made(stored.name, shape, "<f4")

    def _quantized(self, steps: list[Step]) -> list[int | Step]:
        """The steps and one that quantizes what the last makes as the file has it."""
        last = steps[-1].outputs[0]
        stored = self.file.tensors[last]
        if stored.dtype in FLOATS:
            return list(steps)
        as_float = self.tensors[last]
        self.tensors[last] = replace(as_float, dtype=stored.dtype, quantized=stored.quantized)
        number = self._new(replace(as_float, name=f"{stored.name}_float"))
        steps[-1] = replace(steps[-1], outputs=(number,))
        return [*steps, Step((number,), (last,), kind="QUANTIZE")]


def _stored(stored: Stored, value: np.ndarray) -> np.ndarray:
    """Real numbers in the type of a tensor of the file."""
    dtype = np.dtype(stored.dtype)
    found = stored.quantized
    if found is None or dtype.kind == "f":
        return value.astype(dtype)
    shape = [1] * value.ndim
    if len(found.scale) > 1:
        shape[found.axis] = len(found.scale)
    zero = found.zero if len(found.zero) == len(found.scale) else np.zeros(len(found.scale), np.int64)
    integers = np.rint(value / found.scale.reshape(shape)) + zero.reshape(shape)
    most = np.iinfo(dtype)
    return np.asarray(np.clip(integers, most.min, most.max), dtype)


def _counted(name: str, kind: str, old: int, classes: int) -> ConvertError:
    return ConvertError(
        f"{name}: {kind} behind the last layer counts its {old} classes, so the file cannot have {classes}; "
        f"convert with --classes {old}, or take the weights with -o"
    )
