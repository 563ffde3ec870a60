"""Lite residual modules as a scheme asks for them (Cai et al. 2020, TinyTL, section 3.2; docs/schemes.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from microtrain.base.errors import short

from .ir import ConvertError

KERNELS = (1, 3, 5, 7)
KEYS = ("blocks", "groups", "kernel", "reduce", "rate")
MOST_RATE = 1024.0


@dataclass(frozen=True)
class LiteResiduals:
    """Which blocks get a module beside them, and what the modules are like.

    blocks  names or places (from the end if negative) of blocks; a number: so many of the last ones
    groups  of the convolution, and of the normalisation behind it
    kernel  of the convolution
    reduce  rows and columns that are averaged into one in front of it; 1: none
    rate    what the learning rate of weights is multiplied with
    """

    blocks: tuple[str | int, ...] | int
    groups: int = 8
    kernel: int = 3
    reduce: int = 2
    rate: float = 4.0


def parse(value: Any, where: str) -> LiteResiduals | None:
    """The value of `lite_residuals`: a mapping, or blocks alone. `where` names the scheme in messages."""
    if value is None:
        return None
    given = dict(value) if isinstance(value, Mapping) else {"blocks": value}
    unknown = [key for key in given if key not in KEYS]
    if unknown:
        raise ConvertError(
            f"{where}: lite_residuals has no key {short(unknown[0])}; there are {', '.join(KEYS)}"
        )
    usual = LiteResiduals(0)
    return LiteResiduals(
        _blocks(given.get("blocks"), where),
        _whole(given.get("groups", usual.groups), "groups", "1 or more", lambda n: n >= 1, where),
        _whole(given.get("kernel", usual.kernel), "kernel", "1, 3, 5 or 7", lambda n: n in KERNELS, where),
        _whole(given.get("reduce", usual.reduce), "reduce", "1 to 8", lambda n: 1 <= n <= 8, where),
        _rate(given.get("rate", usual.rate), where),
    )


def _blocks(value: Any, where: str) -> tuple[str | int, ...] | int:
    if type(value) is int and value > 0:
        return value
    named = isinstance(value, list) and all(
        type(v) is int or (isinstance(v, str) and v.strip()) for v in value
    )
    if named and value and len(set(value)) == len(value):
        return tuple(value)
    raise ConvertError(
        f"{where}: the blocks of lite_residuals are {short(value)}; they must be a list of different names "
        "or places, or the number of last blocks, 1 or more"
    )


def _whole(value: Any, key: str, allowed: str, good: Callable[[int], bool], where: str) -> int:
    if type(value) is int and good(value):
        return value
    raise ConvertError(f"{where}: {key} of lite_residuals is {short(value)}; it must be {allowed}")


def _rate(value: Any, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 < value <= MOST_RATE:
        return float(value)
    raise ConvertError(
        f"{where}: rate of lite_residuals is {short(value)}; it must be above 0 and at most {MOST_RATE:g}, "
        "what the rate of weights is multiplied with"
    )
