"""What a reader of model files says: calls of aten ops, on activations and constants of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from microtrain.base.trained import TURNED
from microtrain.convert.ir import ConvertError


class LayerError(ConvertError):
    """What one layer asks for that is not supported.

    where    names it; text: is the same of any layer
    follows  it reads what has a stand-in, of which only the shape is known: nobody can say it is at fault
    """

    def __init__(self, where: str, text: str, between: str = ": ") -> None:
        super().__init__(f"{where}{between}{text}")
        self.where = where
        self.text = text
        self.follows = False


@dataclass(frozen=True)
class Act:
    """An activation as the model sees it.

    tensor  name of the IR tensor (h, w, c) that holds the values
    dims    shape in the model's own order: (n, c, h, w), or any view of it; the order in memory stays CHW
    half    the mean over the width was asked for, which is made with that over the height if it follows
    pad     zeros around it, that a convolution must take: top, left, bottom, right; they count in dims
    lowest  around it is what no maximum takes, in the place of zeros
    order   which number of CHW stands at each place of dims, where it is not the next one (ops/tokens.py)
    factor  that it is still to be multiplied with, which only attention takes in
    """

    tensor: str
    dims: tuple[int, ...]
    half: bool = False
    pad: tuple[int, int, int, int] | None = None
    order: np.ndarray | None = field(default=None, compare=False)
    factor: float = 1.0
    lowest: bool = False


@dataclass(frozen=True, eq=False)
class Param:
    """A constant tensor of the model and its name in the state dict.

    origin    of the file's constant that it was made of, where its memory does not tell: one with a Home
    computed  by the model, of constants: what a layer would learn of it has no place in the state dict
    stored    in which order it stands in the state dict, where that is another one (base/trained.py)
    """

    name: str
    value: np.ndarray
    origin: str | int | None = None
    computed: bool = False
    stored: str | None = None

    @property
    def place(self) -> str | int:
        """Tells the constant of the file that it was made of from all others: its origin, or its memory."""
        return int(self.value.__array_interface__["data"][0]) if self.origin is None else self.origin

    @property
    def t(self) -> Param:
        """A matrix with its axes the other way round."""
        turned = self.stored is None and self.origin is None
        return replace(self, value=self.value.T, stored=TURNED if turned else None)


def is_symbol(value: Any) -> bool:
    """Whether a value stands for a tensor: an activation, a constant, or what a rule has noted of some."""
    return isinstance(value, Act | Param) or hasattr(value, "acts")


@dataclass(frozen=True, eq=False)
class Home:
    """Where a file has a constant of a layer, so that what was trained can go back there.

    step   place of the operator that reads it, among those of the file
    input  which of its inputs it is
    value  real numbers, as in a state dict of PyTorch
    back   numbers of that shape -> as the operator takes them
    scale  real value of a unit, one or one for each output channel, of integers in the file; None: floats
    apart  what a number in the file is off by at most, in parts of the largest of its constant, where that
           has few digits (float16) or integers of its own
    """

    step: int
    input: int
    value: np.ndarray
    back: Callable[[np.ndarray], np.ndarray]
    scale: np.ndarray | None = None
    apart: float = 0.0

    @property
    def units(self) -> np.ndarray | None:
        """scale, beside a value."""
        return None if self.scale is None else self.scale.reshape(-1, *[1] * (self.value.ndim - 1))


Homes = dict[str, Home]  # by the names that layers' sources have


@dataclass(frozen=True)
class Call:
    """One call of an aten op.

    op       name without namespace and overload: "conv2d"
    module   path of the module that calls it, "" for the model itself
    builtin  that module is one of torch's own, so that its path names just this op
    args     by the names of the op's schema; missing ones have their default
    """

    op: str
    module: str
    builtin: bool
    args: Mapping[str, Any]

    @property
    def x(self) -> Any:
        """The first argument, called `self` or `input` in schemas."""
        return self.args["self"] if "self" in self.args else self.args.get("input")

    @property
    def acts(self) -> list[Act]:
        """The activations that it reads, those of lists and of what a rule has noted too."""
        values = [v for value in self.args.values() for v in (value if isinstance(value, list) else [value])]
        return [v for value in values for v in getattr(value, "acts", (value,)) if isinstance(v, Act)]

    def get(self, name: str, default: Any) -> Any:
        """An argument; the default where it is missing or None."""
        value = self.args.get(name)
        return default if value is None else value

    @property
    def where(self) -> str:
        return f"layer {self.module}" if self.module else "the model's forward()"

    def node_name(self, op: str) -> str:
        """Name of the node that is made: the module's path where that says it all, else path and op."""
        if self.builtin and self.module:
            return self.module
        return f"{self.module}.{op}" if self.module else op

    def error(self, text: str) -> ConvertError:
        return LayerError(self.where, text)


def pair(value: Any) -> tuple[int, int]:
    """One number or two, as torch takes them for height and width."""
    if isinstance(value, Sequence):
        return (int(value[0]), int(value[-1]))
    return int(value), int(value)


def sides(value: Any) -> tuple[int, ...]:
    """Padding as a Window has it: at the top and left, and how much more there is at the bottom and right.

    value  one number, two, or four: top, left, bottom, right
    """
    if isinstance(value, Sequence) and len(value) == 4:
        top, left, bottom, right = (int(v) for v in value)
        return top, left, bottom - top, right - left
    return pair(value)


def stride_of(call: Call, default: tuple[int, int]) -> tuple[int, int]:
    stride = pair(call.get("stride", None) or default)
    if min(stride) < 1:
        raise call.error(f"a stride of {stride[0]}x{stride[1]}; 1 is the least")
    return stride
