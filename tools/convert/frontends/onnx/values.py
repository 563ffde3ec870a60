"""What the nodes of an ONNX graph make and read, and the walk's view of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from microtrain.base.errors import one_line
from microtrain.convert.aten_call import Act, Call, Home, Homes, LayerError, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.lowering import Lowering
from microtrain.convert.ops.aten.attention import Scores
from microtrain.convert.ops.aten.columns import Columns, refused
from microtrain.convert.ops.aten.expanded import Expanded
from microtrain.convert.ops.aten.lengths import Length
from microtrain.convert.ops.aten.squares import Piece
from microtrain.convert.ops.aten.stack import Stacked

from ..aten.rules import lower
from .file import OnnxGraph, Step

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class Turned:
    """An activation whose dimensions are in the order NHWC, or a vector that was flattened in that order."""

    act: Act

    @property
    def acts(self) -> tuple[Act]:
        """What a stand-in reads in its place."""
        return (self.act,)


@dataclass(frozen=True)
class Label:
    """What is made of the network's result: a label, a table of probabilities. of: that result."""

    of: Act


@dataclass(frozen=True)
class Parts:
    """Activations one behind the other along an axis, of which each reader takes one."""

    acts: tuple[Act, ...]
    axis: int


@dataclass(frozen=True, eq=False)
class Quantized(Param):
    """A constant in real numbers, which the file has in 8 bits, with these scales."""

    scale: np.ndarray = field(kw_only=True)


Value = Act | Turned | Label | Param | Scores | Length | Expanded | Parts | Piece | Stacked | Columns | None


class Walker:
    """The graph as far as it has been walked.

    env    name -> value
    homes  where the file has the constants of layers
    """

    def __init__(self, file: OnnxGraph) -> None:
        self.file = file
        self.homes: Homes = {}
        self.low = Lowering(file.name)
        self.env: dict[str, Value] = {n: Param(n, v) for n, v in file.constants.items()}

    def value(self, name: str) -> Value:
        if not name:
            return None
        if name not in self.env:
            for step in self.file.steps:
                if name in step.outputs[1:] and step.outputs[0] in self.env:
                    raise LayerError(
                        f"layer {step.name}",
                        f"result {step.outputs.index(name) + 1} of {step.op} is not supported; the nearest "
                        "that is: its first alone",
                    )
            raise ConvertError(f"{self.file.name} uses {one_line(name)}, which no node before makes")
        return self.env[name]

    @staticmethod
    def at(step: Step, name: str, default: Any) -> Any:
        value = step.attributes.get(name)
        return default if value is None else value

    @staticmethod
    def plain(value: Act | Turned) -> Act:
        return value.act if isinstance(value, Turned) else value

    def act(self, step: Step, place: int = 0) -> Act:
        """An input that is an activation, in NCHW."""
        value = self.value(step.inputs[place])
        if isinstance(value, Act | Turned):
            return self.plain(value)
        if isinstance(value, Columns):
            raise refused(Call(step.op.lower(), step.name, True, {}))
        raise ConvertError(
            f"layer {step.name}: {step.op} works on a constant; only ops on activations are supported"
        )

    def like(self, step: Step, made: Any, place: int = 0) -> Value:
        """A result in the order of dimensions that an input has."""
        return Turned(made) if isinstance(self.value(step.inputs[place]), Turned) else made

    def call(self, step: Step, op: str, /, **args: Any) -> Any:
        return lower(self.low, Call(op, step.name, True, args))

    def made(self, step: Step, op: str, /, **args: Any) -> Value:
        """What a call on views in their own order makes."""
        value: Value = self.call(step, op, **args)
        return value

    def unary(self, step: Step, op: str, /, **args: Any) -> Value:
        return self.like(step, self.call(step, op, self=self.act(step), **args))

    def goes_on(self, step: Step, ops: Sequence[str]) -> bool:
        """Whether one of these ops reads what a step makes, at once or further on.

        Steps that are seen as one (`pieces.py`) stand where the last of them does.
        """
        made = set(step.outputs)
        place = next(i for i, each in enumerate(self.file.steps) if made & set(each.outputs))
        for later in self.file.steps[place + 1 :]:
            if made & set(later.inputs):
                if later.op in ops:
                    return True
                made |= set(later.outputs)
        return False

    def optional(self, step: Step, place: int) -> Value:
        return self.value(step.inputs[place]) if len(step.inputs) > place else None

    def at_home(
        self,
        step: Step,
        place: int,
        param: Param,
        given: Value,
        back: Callable[[np.ndarray], np.ndarray] = lambda values: values,
    ) -> Param:
        """A layer's constant, as PyTorch has it, of an input of a node. back: into that input's order."""
        scale = given.scale.reshape(-1) if isinstance(given, Quantized) else None
        step, place = step.parts.get(place, (step, place))
        self.homes[param.name] = Home(self.file.steps.index(step), place, param.value, back, scale)
        if not isinstance(given, Param):
            return param
        return Param(param.name, param.value, int(given.value.__array_interface__["data"][0]))

    def numbers(self, step: Step, place: int, attribute: str) -> list[int] | None:
        """Whole numbers from an attribute or, in later opsets, an input."""
        given = self.optional(step, place)
        if isinstance(given, Param):
            return [int(v) for v in np.ravel(given.value)]
        found = step.attributes.get(attribute)
        return None if found is None else [int(v) for v in (found if isinstance(found, list) else [found])]


def named(walk: Walker, step: Step, value: Value, kind: str) -> Param:
    """A constant under the name of its layer: its own where it ends with .weight, else the module's of which
    the node is the only one of its kind, else the node's."""
    if not isinstance(value, Param):
        raise ConvertError(f"layer {step.name}: the {kind} of {step.op} is computed; it must be a constant")
    plain = np.asarray(value.value, np.float32)
    if value.name.endswith(f".{kind}") and value.name.removesuffix(f".{kind}") not in walk.low.layers:
        return Param(value.name, plain)
    if step.module and step.module not in walk.low.layers and _is_alone(walk, step):
        return Param(f"{step.module}.{kind}", plain)
    return Param(f"{step.name.strip('/').replace('/', '.')}.{kind}", plain)


def _is_alone(walk: Walker, step: Step) -> bool:
    """Whether no other node of its kind is of the same module."""
    return [s.module for s in walk.file.steps if s.op == step.op].count(step.module) == 1


def channels_first(rank: int) -> list[int]:
    """NHWC to NCHW."""
    return [0, rank - 1, *range(1, rank - 1)]


def channels_last(rank: int) -> list[int]:
    """NCHW to NHWC."""
    return [0, *range(2, rank), 1]


def axis_map(rank: int) -> dict[int, int]:
    """Axis in NHWC -> axis in NCHW."""
    return dict(enumerate(channels_last(rank)))


def as_last(dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(dims[i] for i in channels_last(len(dims))) if len(dims) > 2 else tuple(dims)


def in_file(value: Value) -> tuple[int, ...] | None:
    """The dimensions that an activation has in the file; None of anything else."""
    if isinstance(value, Turned):
        return as_last(value.act.dims)
    return value.dims if isinstance(value, Act) else None


def two(sizes: Sequence[int]) -> list[int]:
    """Sizes of one or two axes as height and width; a series has the width 1."""
    return [*[int(s) for s in sizes], 1, 1][:2]


def one_a_channel(value: Param, other: Value) -> bool:
    """Whether a constant beside an activation has one number for each channel, or one for all.

    Axes of the constant belong to the last ones of the activation, which are in the order that the node sees.
    """
    if not isinstance(other, Act | Turned):
        return value.value.size == max(value.value.shape, default=1)
    dims = other.act.dims if isinstance(other, Turned) else other.dims
    channels = 1 if len(dims) > 2 and isinstance(other, Act) else len(dims) - 1
    if len(dims) == 2 and dims[0] > 1:  # a table, whose columns need not be channels
        return value.value.size == 1
    missing = len(dims) - value.value.ndim
    return all(n == 1 or i + missing == channels for i, n in enumerate(value.value.shape))


def channelwise(value: Param, other: Value) -> Param:
    """A constant beside an activation as [1, c, 1, 1], where it says one number a channel; else as it is."""
    array = value.value
    if array.size == 1:
        return Param(value.name, array.reshape(()))
    return Param(value.name, array.reshape(1, -1, 1, 1)) if one_a_channel(value, other) else value
