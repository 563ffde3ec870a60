"""Normalisations of groups of channels that forward() writes out, in a torch.export file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import Lowering
from microtrain.convert.ops import add
from microtrain.convert.ops.tokens import VIEWS, numbers, viewed

from ..aten.groups import by_groups
from ..operations import ADD, DEVIATION, DIV, MEAN, MUL, SQUARE, SUB, VARIANCE, VIEW, Network, Operation
from ..written_norms import Written, written_norms

Arrays = Sequence[np.ndarray]
Shape = tuple[int, ...]
SIZE = ("as_int", "as_float")


@dataclass(frozen=True)
class Number:
    """A number that stands where a tensor could."""

    value: float


@dataclass(frozen=True)
class Node:
    """One node of a program. said: its arguments by name; made: the shape of its first result"""

    op: str
    said: Mapping[str, Mapping[str, Any]]
    outputs: tuple[str, ...]
    made: Shape | None

    @property
    def inputs(self) -> tuple[str | Number, ...]:
        """What it reads in the place of a tensor; more that it reads stands behind these."""
        first = [self._tensor(self.said[name]) for name in ("self", "other") if name in self.said]
        rest = [self._tensor(arg) for name, arg in self.said.items() if name not in ("self", "other")]
        return tuple(x for x in first if x is not None) + tuple(x for x in rest if isinstance(x, str))

    @staticmethod
    def _tensor(arg: Mapping[str, Any]) -> str | Number | None:
        kind, value = next(iter(arg.items()))
        if kind == "as_tensor":
            return str(value["name"])
        return Number(float(value)) if kind in SIZE else None

    def number(self, name: str, default: Any) -> Any:
        """An argument that is a number or a list of some; None where something else is said."""
        kind, value = next(iter(self.said.get(name, {"": default}).items()))
        value = default if kind == "as_none" else value
        return value if isinstance(value, int | float | list) else None


def _reduced(run: Callable[..., Any], node: Node, v: Arrays) -> np.ndarray:
    axes = tuple(int(d) % v[0].ndim for d in node.number("dim", None) or range(v[0].ndim))
    return np.asarray(run(v[0], axis=axes, keepdims=bool(node.number("keepdim", False))))


def _is_plain(node: Node) -> bool:
    """Whether nothing but a tensor, or two, says what is made."""
    return node.number("alpha", 1) == 1 and "as_none" in node.said.get("rounding_mode", ("as_none",))


def _spread(root: bool, node: Node, v: Arrays) -> np.ndarray:
    """A variance, or its root; correction: how many fewer than there are numbers it divides by"""
    less = node.number("correction", 1 if node.number("unbiased", True) else 0)
    return _reduced(partial(np.std if root else np.var, ddof=less), node, v)


def _seen(node: Node, v: Arrays) -> np.ndarray:
    return np.asarray(v[0].reshape(node.made or v[0].shape))


TWO: Mapping[str, tuple[str, Callable[..., np.ndarray]]] = {
    add.ADD: (ADD, np.add),
    "sub": (SUB, np.subtract),
    "mul": (MUL, np.multiply),
    "div": (DIV, np.divide),
}
ONE: Mapping[str, tuple[str, Callable[[np.ndarray], Any]]] = {
    "neg": ("neg", np.negative),
    "reciprocal": ("reciprocal", np.reciprocal),
    "sqrt": ("sqrt", np.sqrt),
    "rsqrt": ("rsqrt", lambda x: 1 / np.sqrt(x)),
    "square": (SQUARE, np.square),
}
POWERS = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt"}
SAME = ("view_as", "reshape_as", "contiguous", "clone", "to", "_to_copy", "type_as", "alias", "detach")
SPREADS = {"var": VARIANCE, "std": DEVIATION}
IN_PLACE = "_"  # ends an op's name


def _operation(node: Node) -> Operation:
    """What a node is; nothing where it is none of a normalisation's."""
    op, first = node.op.removesuffix(IN_PLACE), node.inputs[:1]
    if op == "pow":
        op = POWERS.get(float(node.number("exponent", 0) or 0), op)
    if op in TWO and len(node.inputs) == 2 and _is_plain(node):
        kind, of_two = TWO[op]
        return Operation(kind, node.inputs, node.outputs, lambda v: of_two(v[0], v[1]))
    if op in ONE:
        kind, of_one = ONE[op]
        return Operation(kind, first, node.outputs, lambda v: np.asarray(of_one(v[0])))
    if op == "mean":
        return Operation(MEAN, first, node.outputs, partial(_reduced, np.mean, node))
    if op in SPREADS:
        kind = SPREADS[op]
        return Operation(kind, first, node.outputs, partial(_spread, kind == DEVIATION, node))
    if op in (*VIEWS, *SAME):
        return Operation(VIEW, first, node.outputs, partial(_seen, node))
    return Operation("", node.inputs, node.outputs, lambda v: v[0])


def _changed(nodes: Sequence[Node], operations: Sequence[Operation]) -> set[str]:
    """Tensors that something changes in place, and what it is a view of, where others read them as well."""
    readers = Counter(key for node in nodes for key in set(node.inputs))
    views = (node for node, op in zip(nodes, operations, strict=True) if op.kind == VIEW and node.inputs)
    bases = {node.outputs[0]: node.inputs[0] for node in views}
    found = set[str]()
    for node in nodes:
        key = node.inputs[0] if node.inputs and node.op.endswith(IN_PLACE) else None
        while isinstance(key, str):
            found |= {key} if readers[key] > 1 else set()
            key = bases.pop(key, None)
    return found


def group_norms(
    nodes: Sequence[Node], given: Mapping[str, Any], shape: Callable[[Any], Shape | None], results: set[str]
) -> tuple[dict[int, Written], list[Operation]]:
    """Group normalisations, by the place of the node that makes their result; and all nodes' operations.

    given    constants, by their names in the program
    """
    held = {name: value.value for name, value in given.items() if isinstance(value, Param)}
    operations = [_operation(node) for node in nodes]
    changed = _changed(nodes, operations)
    for place, (node, op) in enumerate(zip(nodes, operations, strict=True)):
        first = next((key for key in node.inputs[:1] if isinstance(key, str)), "")
        if op.kind == VIEW and first in held:  # a constant, which no operator makes
            held[node.outputs[0]] = _seen(node, [held[first]])
            operations[place] = Operation("", (), (), op.run)
        elif changed & set(node.inputs):
            operations[place] = Operation("", op.inputs, op.outputs, op.run)

    def constant(key: Any) -> np.ndarray | None:
        return np.array(key.value) if isinstance(key, Number) else held.get(key)

    return written_norms(Network(operations, constant, frozenset(results), first=True), shape), operations


def normalised(low: Lowering, call: Call, x: Act, norm: Written, params: Mapping[str, Param]) -> Act:
    """The normalisation of a map, in the shape in which forward() has its result."""
    given = x if norm.axis == 1 else viewed(low, x, np.moveaxis(numbers(low, x), norm.axis, 1))
    made = by_groups(low, replace(call, args=params), given, norm)
    if norm.axis == 1 and made.dims == norm.made:
        return made
    order = np.moveaxis(numbers(low, made), 1, norm.axis)
    return viewed(low, made, order.reshape(norm.made))
