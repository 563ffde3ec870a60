"""Drawn TFLite files in int8: the operators of a float one, with scales of what it makes of samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_tflite import Drawn

from lab.attack.tflite_files import Writer

Side = tuple[float, int]
KEEP = (  # what they make has the scale of what they read
    *(
        "RESHAPE",
        "SQUEEZE",
        "EXPAND_DIMS",
        "TRANSPOSE",
        "PAD",
        "PADV2",
        "MIRROR_PAD",
        "SPLIT",
        "SPLIT_V",
        "SLICE",
    ),
    *("STRIDED_SLICE", "GATHER", "UNPACK", "RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR", "DEPTH_TO_SPACE"),
    *("SPACE_TO_DEPTH", "REVERSE_V2", "TILE", "MAX_POOL_2D", "AVERAGE_POOL_2D", "REDUCE_MAX", "REDUCE_MIN"),
)
ALIKE = ("CONCATENATION", "PACK", "MAXIMUM", "MINIMUM")  # all that they read has the scale of what they make
FIXED: dict[str, Side] = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0), "SOFTMAX": (1 / 256, -128)}
WEIGHTS = {"CONV_2D": (1, 2, 0), "DEPTHWISE_CONV_2D": (1, 2, 3), "FULLY_CONNECTED": (1, 2, None)}
WEIGHTS |= {"TRANSPOSE_CONV": (1, 3, 0)}  # places of weights and biases, and the axis of the channels
FREE = (
    *("ADD", "SUB", "MUL", "MEAN", "RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "PRELU", "HARD_SWISH"),
    "ABS",
)
KINDS = {*KEEP, *ALIKE, *FIXED, *WEIGHTS, *FREE}


def ranges(net: Drawn, path: Path, pixels: np.ndarray) -> dict[int, tuple[float, float]]:
    """The least and the largest number of each tensor that the float file makes of samples."""
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    kind = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    run = litert.Interpreter(
        str(path), experimental_op_resolver_type=kind, experimental_preserve_all_tensors=True
    )
    run.allocate_tensors()
    found: dict[int, tuple[float, float]] = {}
    made = [t for step in net.w.steps for t in step[2]]
    for each in pixels:
        run.set_tensor(0, each[None] / np.float32(255))
        run.invoke()
        for tensor in made:
            values = run.get_tensor(tensor)
            low, high = found.get(tensor, (0.0, 0.0))
            found[tensor] = (min(low, float(values.min())), max(high, float(values.max())))
    return found


def side(low: float, high: float) -> Side:
    """Scale and zero point of a range with 0 in it."""
    scale = float(np.float32(max(high - low, 1e-3) / 255))
    return scale, int(np.clip(np.rint(-128 - low / scale), -128, 127))


@dataclass
class Integers:
    """The int8 file of a float one. now: tensor of that -> number here and its scale and zero point"""

    net: Drawn
    known: dict[int, tuple[float, float]]
    w: Writer = field(default_factory=Writer)
    now: dict[int, tuple[int, Side]] = field(default_factory=dict)

    def file(self) -> bytes:
        entry = (float(np.float32(1 / 255)), -128)
        first = self.made(0, entry)
        for step in self.net.w.steps:
            self.step(*step)
        return self.w.file((first,), (self.now[self.net.x][0],))

    def made(self, tensor: int, own: Side) -> int:
        number = self.w.tensor("made", self.net.w.shapes[tensor], "int8", scale=own[:1], zero=own[1:])
        self.now[tensor] = (number, own)
        return number

    def constant(self, tensor: int, own: Side | None = None) -> int:
        """A constant: whole numbers as they are, others in units of their own, or of `own`."""
        data = self.net.w.constants[tensor]
        if data.dtype.kind != "f":
            return self.w.tensor("whole", self.net.w.shapes[tensor], "int32", data)
        data = np.nan_to_num(data, neginf=-1e9)
        scale, zero = own or side(min(0.0, float(data.min())), max(0.0, float(data.max())))
        stored = np.clip(np.rint(data / scale) + zero, -128, 127)
        return self.w.tensor("constant", data.shape, "int8", stored, (scale,), (zero,))

    def step(
        self, kind: str, inputs: tuple[int, ...], outputs: tuple[int, ...], table: str, about: dict[str, Any]
    ) -> None:
        acts = [t for t in inputs if t in self.now]
        kept = kind in KEEP or (kind == "MEAN" and outputs[0] % 3 == 0)
        own = self.now[acts[0]][1] if kept else FIXED.get(kind) or side(*self.known[outputs[0]])
        if kind in WEIGHTS:
            given = self.weighted(kind, inputs)
        elif kind in ALIKE:
            given = [self.as_side(t, own) for t in inputs]
        else:
            value = own if kind == "PADV2" else None
            given = [self.now[t][0] if t in self.now else self.constant(t, value) for t in inputs]
        self.w.op(kind, given, [self.made(t, own) for t in outputs], table, **about)

    def as_side(self, tensor: int, own: Side) -> int:
        """A tensor in these units."""
        if tensor not in self.now:
            return self.constant(tensor, own)
        number, before = self.now[tensor]
        if before == own:
            return number
        made = self.w.tensor("as", self.net.w.shapes[tensor], "int8", scale=own[:1], zero=own[1:])
        self.w.op("QUANTIZE", (number,), (made,), "QuantizeOptions")
        return made

    def weighted(self, kind: str, inputs: tuple[int, ...]) -> list[int]:
        """Inputs of a layer: weights by channel, but for a linear layer, and biases."""
        at, of_biases, axis = WEIGHTS[kind]
        x = next(t for t in inputs if t in self.now)
        weights = self.net.w.constants[inputs[at]].astype(float)
        over = tuple(i for i in range(weights.ndim) if i != axis)
        scale = np.maximum(np.abs(weights).max(over if axis is not None else None), 1e-6) / 127
        by = scale if axis is None else scale.reshape([-1 if i == axis else 1 for i in range(weights.ndim)])
        scales, zeros = [float(n) for n in np.ravel(scale)], [0] * np.size(scale)
        stored = np.rint(weights / by)
        own = self.w.tensor("weights", weights.shape, "int8", stored, scales, zeros, axis=axis or 0)
        given = [own if i == at else self.now[t][0] if t in self.now else t for i, t in enumerate(inputs)]
        for place in (i for i, t in enumerate(inputs) if i != at and t >= 0 and t not in self.now):
            given[place] = self.constant(inputs[place])
        if len(inputs) > of_biases and inputs[of_biases] >= 0:
            units = self.now[x][1][0] * scale
            biases = np.rint(self.net.w.constants[inputs[of_biases]] / units)
            by_channel = [float(n) for n in np.ravel(units)]
            given[of_biases] = self.w.tensor("biases", biases.shape, "int32", biases, by_channel, zeros)
        return given


def fits(kinds: Iterable[str]) -> bool:
    """Whether the operators are among those that are written here."""
    return set(kinds) <= KINDS
