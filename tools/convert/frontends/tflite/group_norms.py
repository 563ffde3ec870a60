"""Group and instance normalisation as Keras and litert-torch write them into TFLite files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Call
from microtrain.convert.ops.tokens import places, view_of

from ..aten.groups import by_groups
from ..operations import ADD, DISTANCE, MEAN, MUL, SQUARE, SUB, VIEW, Network, Operation
from ..written_norms import Written, written_norms
from .file import Flatbuffer, Operator
from .norms import constants
from .sizes import OF_SIZES
from .tokens import places_as
from .values import Walker, held, real

Arrays = Sequence[np.ndarray]


def _mean(op: Operator, v: Arrays) -> np.ndarray:
    axes = tuple(int(a) % v[0].ndim for a in np.ravel(v[1]))
    return np.asarray(v[0].mean(axis=axes, keepdims=bool(op.options.get("KeepDims"))))


RULES: Mapping[str, tuple[str, Callable[[Operator, Arrays], np.ndarray]]] = {
    **{kind: (word, OF_SIZES[kind]) for kind, word in (("ADD", ADD), ("SUB", SUB), ("MUL", MUL))},
    "RESHAPE": (VIEW, OF_SIZES["RESHAPE"]),
    "NEG": ("neg", lambda op, v: -v[0]),
    "SQUARE": (SQUARE, lambda op, v: v[0] ** 2),
    "SQUARED_DIFFERENCE": (DISTANCE, lambda op, v: (v[0] - v[1]) ** 2),
    "RSQRT": ("rsqrt", lambda op, v: 1 / np.sqrt(v[0])),
    "MEAN": (MEAN, _mean),
    **dict.fromkeys(("QUANTIZE", "DEQUANTIZE"), (VIEW, lambda op, v: v[0])),
}
NOTHING = ("", lambda op, v: v[0])


def group_norms(file: Flatbuffer, others: set[int]) -> dict[int, Written]:
    """Group normalisations, by the place of the operator that makes their result.

    others  operators that are parts of something else
    """
    operations = []
    for place, op in enumerate(file.operators):
        kind, rule = NOTHING if place in others else RULES.get(op.kind, NOTHING)
        ends = bool(op.options.get("FusedActivationFunction"))
        operations.append(Operation(kind, op.inputs, op.outputs, partial(rule, op), ends))

    def constant(tensor: Any) -> np.ndarray | None:
        stored = file.tensors[tensor] if tensor >= 0 else None
        return None if stored is None or stored.data is None else np.asarray(real(stored))

    shape = lambda tensor: file.tensors[tensor].shape  # noqa: E731
    return written_norms(Network(operations, constant, frozenset(file.outputs)), shape)


def normalised(walk: Walker, op: Operator, name: str, norm: Written) -> Any:
    """The normalisation that ends with an operator."""
    params = constants(walk, name, norm.weight, norm.bias)
    assert isinstance(norm.given, int)
    reads, shape = Operator(op.kind, (norm.given,), op.outputs), walk.file.tensors[norm.given].shape
    x, at = places_as(walk, reads, name, walk.value(norm.given), shape)
    given = view_of(walk.low, x.tensor, np.moveaxis(at, norm.axis, 1), x.factor)
    made = by_groups(walk.low, Call("group_norm", name, True, params), given, norm)
    order = np.moveaxis(places(walk.low, made), 1, norm.axis)
    return held(walk.low, made.tensor, order.reshape(norm.made), made.factor)
