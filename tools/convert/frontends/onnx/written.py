"""Normalisations of groups of channels, or of each pixel's, as exporters write them into ONNX files.

Keras' have their scale in the factor that is one over the deviation, and groups as a view of five axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ops.aten.normalise import normalised
from microtrain.convert.ops.aten.squares import by_root_mean
from microtrain.convert.ops.tokens import numbers, viewed

from ..aten.groups import by_groups
from ..operations import ADD, MEAN, MUL, SQUARE, SUB, VIEW, Network, Operation
from ..written_norms import Written, norm_of, roots
from .constants import folded
from .file import OnnxGraph, Step
from .parts import Pieces
from .tokens import seen
from .values import Turned, Value, Walker, named

CHANNEL_NORM = "ChannelNormalization"  # the step that all of them become
KINDS = {
    **{"Add": ADD, "Sub": SUB, "Mul": MUL, "Div": "div", "Neg": "neg", "Reciprocal": "reciprocal"},
    **{"Sqrt": "sqrt", "ReduceMean": MEAN},
    **dict.fromkeys(("Reshape", "Identity", "Cast", "Squeeze", "Unsqueeze"), VIEW),
}
POWERS = {2.0: SQUARE, 0.5: "sqrt", -0.5: "rsqrt"}
RAISES = "Pow"


@dataclass(frozen=True)
class ChannelNorm:
    """One of them. inside: outputs of the steps that are no more than parts"""

    file: OnnxGraph
    norm: Written
    inside: frozenset[str]

    def step(self, last: Step) -> Step:
        """It as one step. last: the step that makes its result"""
        homes = {"weight": self.norm.weight, "bias": self.norm.bias}
        parts = {kind: (self.file.steps[home[0]], home[1]) for kind, home in homes.items() if home}
        inputs = [str(self.norm.given), *(step.inputs[which] for step, which in parts.values())]
        return replace(
            last,
            op=CHANNEL_NORM,
            inputs=tuple(inputs),
            attributes={"norm": self.norm, "kinds": list(parts)},
            parts=dict(enumerate(parts.values(), 1)),
        )


class Pending:
    """What may be such normalisations, until the sizes of what they read are known."""

    def __init__(self, file: OnnxGraph) -> None:
        self.file, self.pieces = file, Pieces(file)
        operations = [_operation(self.pieces, step) for step in file.steps]
        results = frozenset(file.outputs)
        self.network = Network(operations, partial(_constant, self.pieces), results, first=True)
        self.roots: dict[int, list[int]] = {}  # by their first steps
        for root, first in roots(self.network).items():
            self.roots.setdefault(first, []).append(root)

    def settled(self, walk: Walker, place: int) -> dict[str, ChannelNorm]:
        """Normalisations whose first step is at a place, by the names of their results."""
        shape, found = partial(_shape, walk, self.file.steps[place]), {}
        for root in self.roots.get(place, ()):
            for last, norm in norm_of(self.network, root, shape, pixels=True).items():
                names = (name for inner in norm.inside for name in self.file.steps[inner].outputs)
                found[self.file.steps[last].outputs[0]] = ChannelNorm(self.file, norm, frozenset(names))
        return found


def _operation(pieces: Pieces, step: Step) -> Operation:
    if step.outputs and pieces.held(step.outputs[0]) is not None:  # a constant, which no operator makes
        return Operation("", (), (), partial(folded, step))
    if step.op == RAISES and len(step.inputs) == 2:
        exponent = pieces.numbers.get(step.inputs[1], 1.0)
        return Operation(POWERS.get(exponent, ""), step.inputs[:1], step.outputs, partial(_raised, exponent))
    kind = "" if step.domain else KINDS.get(step.op, "")
    return Operation(kind, step.inputs, step.outputs, partial(folded, step))


def _raised(exponent: float, arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.asarray(arrays[0] ** exponent)


def _constant(pieces: Pieces, name: object) -> np.ndarray | None:
    return pieces.held(str(name)) if name else None


def _shape(walk: Walker, step: Step, name: object) -> tuple[int, ...] | None:
    """The shape of a tensor that has been made, in the file's order of axes."""
    value = walk.env.get(str(name))
    x = seen(walk, step, value) if isinstance(value, Act | Turned) else None
    return tuple(x.dims) if isinstance(x, Act) else None


def of_channels(walk: Walker, step: Step) -> Value:
    """What such a step makes, in the order of axes that the file has it in."""
    norm: Written = step.attributes["norm"]
    x = seen(walk, step, walk.value(step.inputs[0]))
    assert isinstance(x, Act)
    given = viewed(walk.low, x, np.moveaxis(numbers(walk.low, x), norm.axis, 1))
    params = _params(walk, step, step.attributes["kinds"])
    made = _normalised(walk, step, given, norm, params)
    order = np.moveaxis(numbers(walk.low, made), 1, norm.axis)
    return viewed(walk.low, made, order.reshape(norm.made))


def _normalised(walk: Walker, step: Step, x: Act, norm: Written, params: Mapping[str, Param]) -> Act:
    """The normalisation of an image in PyTorch's order."""
    if norm.groups:
        return by_groups(walk.low, Call("group_norm", step.name, True, params), x, norm)
    call = Call("layer_norm", step.name, True, {"input": x, **params, "eps": norm.epsilon})
    if norm.centred:
        return normalised(walk.low, call, 1, apart=True)
    made = by_root_mean(walk.low, replace(call, builtin=False), walk.low.activation(call, x), norm.epsilon)
    for word, kind in (("mul", "weight"), ("add", "bias")):
        if kind in params:
            made = walk.call(step, word, self=made, other=params[kind])
    return made


def _params(walk: Walker, step: Step, kinds: Sequence[str]) -> dict[str, Param]:
    """The constants, one number a channel: [c, 1, 1], beside an image."""
    found = {}
    for place, kind in enumerate(kinds, 1):
        given = walk.value(step.inputs[place])
        param = named(walk, step, given, kind)
        back = partial(np.reshape, shape=param.value.shape)
        flat = replace(param, value=param.value.reshape(-1, 1, 1))
        found[kind] = walk.at_home(step, place, flat, given, back)
    return found
