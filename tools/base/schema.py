"""Frozen dataclasses as JSON and back, with every value checked against its annotation.

    @dataclass(frozen=True)
    class Point:
        x: int
        y: Annotated[int, AtLeast(0)]
        into: str = field(metadata=key("in"))       its name in JSON
        note: Note | None = field(metadata=OPTIONAL)     left out where it is None

An annotation is int, float, str, a dataclass, tuple[T, ...], tuple[A, B], dict[str, T], a union of these, or
Annotated with one of the rules below. Fields are written in their order. What a file has beyond them is left.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from .errors import short

T = TypeVar("T")
OPTIONAL = {"optional": True}
NOT_IN_FILE = {"key": None}


def key(name: str) -> dict[str, str]:
    """Metadata of a field whose name in JSON is a keyword of Python."""
    return {"key": name}


@dataclass(frozen=True)
class AtLeast:
    """A number from here on."""

    least: int

    def wrong(self, value: Any) -> str | None:
        return None if value >= self.least else f"not {self.least} or more"


@dataclass(frozen=True)
class OneOf:
    """One of these words."""

    words: tuple[str, ...]

    def wrong(self, value: Any) -> str | None:
        return None if value in self.words else f"not one of {', '.join(self.words)}"


@dataclass(frozen=True)
class Matches:
    """Text that a regular expression matches as a whole."""

    pattern: str

    def wrong(self, value: Any) -> str | None:
        return None if re.fullmatch(self.pattern, value) else f"not of the form {self.pattern}"


class SchemaError(ValueError):
    """What is wrong with a value, and where: "trainables.tensors[3].bytes is 'x', not a whole number"."""


def decode(kind: type[T], value: object) -> T:
    """The dataclass that a JSON document stands for. SchemaError names the first key that is wrong."""
    return typing.cast(T, _value(kind, value, ""))


def encode(value: object) -> Any:
    """A dataclass as a JSON document. SchemaError where a value is not what its annotation says."""
    document = _plain(value)
    decode(type(value), document)
    return document


def keys(kind: type) -> dict[str, Any]:
    """Annotations of a dataclass by their keys in JSON, those of fields that are not in the file left out."""
    return {name: hint for _, name, hint, _ in _fields(kind)}


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, str, Any, bool], ...]:
    """Name, key, annotation and whether it may be missing, of each field that is in the file."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(
        (field.name, field.metadata.get("key", field.name), hints[field.name], "optional" in field.metadata)
        for field in dataclasses.fields(kind)
        if field.metadata.get("key", field.name) is not None
    )


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        pairs = [(key, getattr(value, name), optional) for name, key, _, optional in _fields(type(value))]  # type: ignore[arg-type]
        return {key: _plain(one) for key, one, optional in pairs if not (optional and one is None)}
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def _value(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _object(kind, value, where)
    if origin is Annotated:
        return _ruled(arguments, value, where)
    if origin in (types.UnionType, typing.Union):
        return _union(arguments, value, where)
    if origin is tuple:
        return _sequence(arguments, value, where)
    if origin is dict:
        _check(isinstance(value, dict), value, where, "an object")
        return {name: _value(arguments[1], one, _within(where, name)) for name, one in value.items()}
    _check(_is_scalar(kind, value), value, where, SCALARS[kind])
    return value


def _within(where: str, name: str) -> str:
    """The place of an entry whose name the file chose; in quotes what a sentence would not bear as it is."""
    return f"{where}.{name}" if re.fullmatch(r"[\w.-]{1,60}", name) else f"{where}[{short(name)}]"


def _object(kind: Any, value: Any, where: str) -> Any:
    _check(isinstance(value, dict), value, where, "an object")
    found = {}
    for name, key, hint, optional in _fields(kind):
        inner = f"{where}.{key}" if where else key
        if key in value:
            found[name] = _value(hint, value[key], inner)
        elif optional:
            found[name] = None
        else:
            raise SchemaError(f"{inner} is missing")
    return kind(**found)


def _ruled(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    found = _value(arguments[0], value, where)
    for rule in arguments[1:]:
        if wrong := rule.wrong(found):
            raise SchemaError(f"{where} is {short(value)}, {wrong}")
    return found


def _union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    """Where only one kind of the union looks like the value, what is wrong within it is said."""
    likely = [kind for kind in kinds if _looks_like(kind, value)]
    if not likely:
        names = " or ".join(_name(kind) for kind in kinds)
        raise SchemaError(f"{where} is {short(value)}, not {names}")
    return _value(likely[0], value, where)


def _looks_like(kind: Any, value: Any) -> bool:
    kind = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
    if dataclasses.is_dataclass(kind) or typing.get_origin(kind) is dict:
        return isinstance(value, dict)
    return isinstance(value, list) if typing.get_origin(kind) is tuple else _is_scalar(kind, value)


def _sequence(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    _check(isinstance(value, list), value, where, "a list")
    if kinds[-1] is ...:
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise SchemaError(f"{where} has {len(value)} entries, not {len(kinds)}")
    pairs = enumerate(zip(kinds, value, strict=True))
    return tuple(_value(kind, one, f"{where}[{i}]") for i, (kind, one) in pairs)


SCALARS = {int: "a whole number", float: "a number", str: "text", type(None): "null"}


def _is_scalar(kind: Any, value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if kind is float:
        return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, kind)


def _name(kind: Any) -> str:
    """What to call a kind of value in a sentence."""
    kind = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
    return SCALARS.get(kind, "a list" if typing.get_origin(kind) is tuple else "an object")


def _check(right: bool, value: Any, where: str, wanted: str) -> None:
    if not right:
        raise SchemaError(f"{where or 'the document'} is {short(value)}, not {wanted}")
