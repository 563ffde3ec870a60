"""A command's options as one frozen dataclass: each is declared once, as a field.

@dataclass(frozen=True)
class Looks:
    size: int = option("--size", type=click.IntRange(1), default=3, help="Of the picture.")

@click.command()
@collected(Looks, into="looks")
def main(looks: Looks) -> None: ...
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

Function = TypeVar("Function", bound=Callable[..., Any])
UNSET = object()


class Number(click.FloatRange):
    """A decimal number within bounds. click lets `nan` pass them, and `inf` where there is no upper one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


class LearningRate(Number):
    """A learning rate: one step with 1 or more of it would undo all that a network knows.

    --lr was a factor on the scheme's rates once; so whoever still means one is told.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if number >= 1:
            self.fail(
                f"{number:g} is no learning rate, which is below 1; for a factor on the scheme's rates "
                f"there is --lr-factor {number:g}.",
                param,
                ctx,
            )
        return number


def option(*names: str, default: Any = UNSET, **attributes: Any) -> Any:
    """A field that a command takes as an option. names: "--size"; attributes: as click.option takes them."""
    if default is not UNSET:
        attributes["default"] = default
    empty = False if attributes.get("is_flag") else () if attributes.get("multiple") else None
    value = empty if default is UNSET or callable(default) else default
    return dataclasses.field(default=value, metadata={"names": names, "attributes": attributes})


def collected(kind: type, into: str) -> Callable[[Function], Function]:
    """Gives a command the options that the fields of a dataclass declare, in their order.

    into  the parameter of the function that takes the dataclass
    """
    fields = [field for field in dataclasses.fields(kind) if "names" in field.metadata]

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def packed(*args: Any, **values: Any) -> Any:
            own = {field.name: values.pop(field.name) for field in fields}
            return function(*args, **{into: kind(**own)}, **values)

        command: Any = packed
        for field in reversed(fields):
            names, attributes = field.metadata["names"], field.metadata["attributes"]
            command = click.option(*names, field.name, **attributes)(command)
        return cast(Function, command)

    return decorate
