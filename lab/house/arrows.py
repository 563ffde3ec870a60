"""What runs up or stays silent: the checks that the tests make, counted."""

from __future__ import annotations

from dataclasses import fields

from microtrain.base.paths import ROOT
from microtrain.convert.ops import TABLE
from microtrain.convert.ops.functions import ACTIVATIONS
from microtrain.convert.ops.scale import SCALE

from . import includes, op_names, rooms

NEW_OPS = (*ACTIVATIONS, SCALE)  # those that were added when an op had become an entry


def upward() -> list[str]:
    """Imports and includes from a lower room to a higher one."""
    return rooms.upward() + [f"{file} includes {header}" for file, header in includes.wrong(ROOT)]


def silent_failures() -> list[str]:
    """What an op's entry may leave out without an error, and the files that name an op beside its entry."""
    return silent_fields() + [f"{file} names {word}" for file, word in op_names.violations()]


def silent_fields() -> list[str]:
    found = []
    for name, op in TABLE.items():
        said = {field.name: getattr(op, field.name) for field in fields(op) if field.name != "name"}
        for field in said:
            try:
                type(op)(name, **{key: value for key, value in said.items() if key != field})
            except TypeError:
                continue
            found.append(f"{name} says nothing of {field}")
    return found


def files_per_op() -> dict[str, int]:
    """Files that somebody has to touch who adds an op, tests among them, for each of the newest."""
    return {op: len(op_names.files_naming(op)) for op in NEW_OPS}
