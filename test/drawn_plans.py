"""Plans that hypothesis draws, and the places at which a document can be wrong, both from the schema."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Annotated, Any

from hypothesis import strategies as st

from microtrain.base.plan import FORMAT, Plan
from microtrain.base.schema import NOT_IN_FILE, AtLeast, Matches, OneOf, keys

TEXT = st.text(max_size=6)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**62), 2**62),
    float: FINITE,
    str: TEXT,
    type(None): st.none(),
}


def drawn(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation as tools/base/schema.py reads it."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        own = [field.name for field in fields(hint) if field.metadata != NOT_IN_FILE]
        return st.builds(typing.cast(Any, hint), **{name: drawn(hints[name]) for name in own})
    if origin is Annotated:
        return ruled(*parts)
    if origin in (types.UnionType, typing.Union):
        return st.one_of([drawn(part) for part in parts])
    if origin is tuple and parts[-1] is ...:
        return st.lists(drawn(parts[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(drawn(part) for part in parts))
    if origin is dict:
        return st.dictionaries(TEXT, drawn(parts[1]), max_size=2)
    return SCALARS[hint]


def ruled(kind: Any, rule: Any) -> st.SearchStrategy[Any]:
    if isinstance(rule, AtLeast):
        return st.integers(rule.least, 2**62)
    if isinstance(rule, OneOf):
        return st.sampled_from(rule.words)
    assert isinstance(rule, Matches) and kind is str
    return st.from_regex(rule.pattern, fullmatch=True)


def plans() -> st.SearchStrategy[Plan]:
    """Any plan that the schema allows, sensible or not."""
    return drawn(Plan).map(lambda plan: replace(plan, format=FORMAT))


@dataclass(frozen=True)
class Place:
    """A value in a document: holder[key] is of the annotation; where, as a sentence names it."""

    holder: Any
    key: Any
    hint: Any
    where: str


def places(hint: Any, value: Any, where: str = "") -> Iterator[Place]:
    """Every key of an object and every entry of a list that the schema speaks of."""
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    parts = typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        for part in (part for part in parts if structured(part) is type(value)):
            yield from places(part, value, where)
    elif is_dataclass(hint):
        for key, inner in keys(typing.cast(Any, hint)).items():
            if key in value:
                name = f"{where}.{key}" if where else key
                yield Place(value, key, inner, name)
                yield from places(inner, value[key], name)
    elif typing.get_origin(hint) is tuple:
        kinds = parts[:1] * len(value) if parts[-1] is ... else parts
        for i, (kind, one) in enumerate(zip(kinds, value, strict=True)):
            yield Place(value, i, kind, f"{where}[{i}]")
            yield from places(kind, one, f"{where}[{i}]")


def structured(kind: Any) -> type | None:
    """What an object or a list is in JSON; None for a single value."""
    return dict if is_dataclass(kind) else list if typing.get_origin(kind) is tuple else None


WRONG: dict[Any, list[Any]] = {
    int: [None, True, 1.5, "7", [], {}],
    float: [None, True, float("nan"), float("inf"), "1", [], {}],
    str: [None, True, 3, 1.5, [], {}],
    type(None): [True, 3, 1.5, float("nan"), float("inf"), "7", [], {}, "x"],
    tuple: [None, True, 3, 1.5, "x", {}],
    dict: [None, True, 3, 1.5, "x", []],
}


def wrong_values(hint: Any) -> list[Any]:
    """JSON values of another type than the annotation's, and those out of its range."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        each = [{repr(v): v for v in wrong_values(part)} for part in parts]
        return [v for name, v in each[0].items() if all(name in other for other in each)]
    if origin is Annotated:
        rule = parts[1]
        outside = rule.least - 1 if isinstance(rule, AtLeast) else "sideways"
        return [*wrong_values(parts[0]), outside]
    if origin is tuple and parts[-1] is not ...:
        return [*WRONG[tuple], []]
    return WRONG[dict if is_dataclass(hint) else origin or hint]
