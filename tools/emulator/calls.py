"""Functions whose calls are counted: where they begin, and what the calls took."""

from __future__ import annotations

from collections.abc import Iterable

from .elf import Image
from .errors import EmulatorError
from .native import CALLS_MAX, Call
from .report import CallCost


def entries(image: Image, functions: tuple[str, ...]) -> list[int]:
    """The addresses of these functions.

    Errors   EmulatorError where the ELF has no such function, or there are too many
    """
    missing = [name for name in functions if name not in image.symbols]
    if missing:
        raise EmulatorError(f"{image.path} has no function {missing[0]}: nothing to watch.")
    if len(functions) > CALLS_MAX:
        raise EmulatorError(
            f"{len(functions)} functions are more than the {CALLS_MAX} that can be watched at once."
        )
    return [image.symbols[name] & ~1 for name in functions]


def costs(functions: tuple[str, ...], counted: Iterable[Call]) -> dict[str, CallCost]:
    """Calls of each function, and the instructions in those that returned."""
    calls = zip(functions, counted, strict=False)
    return {name: CallCost(int(call.count), int(call.instructions)) for name, call in calls}
