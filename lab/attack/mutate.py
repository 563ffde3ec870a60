"""Damage to files: of their bytes, of what lies packed in them, of the numbers and names of their JSON."""

from __future__ import annotations

import io
import json
import random
import re
import zipfile
from collections.abc import Callable
from typing import Any

NUMBERS = (0, 1, -1, 2, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**53, 2**63, -(2**31), 10**400)
VALUES: tuple[Any, ...] = (
    *NUMBERS, 0.5, 1e308, -1e-308, float("inf"), float("nan"), None, True, False, "", "x", "*/", "[/red]",
    "\x1b[2J", "../../escaped", "/etc/passwd", [], {}, [[]], {"a": {}}, "é" * 50, "0x10", "1" * 400,
)  # fmt: skip
WORDS = (
    b"\0" * 8,
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"\x80\x04",
    b"PK\x03\x04",
    b"*/",
    b"cposix\nsystem\n",
    b"%n" * 8,
)

TELLING = (".json", ".pkl", ".py")  # what a reader interprets; the rest is numbers

Mutation = Callable[[random.Random, bytes], bytes]


def mutated(rng: random.Random, data: bytes) -> bytes:
    """The file with a few changes. Archives are changed inside as often as outside."""
    kinds = [flip, flip, cut, insert, repeat]
    if data[:2] == b"PK":
        kinds += [inside, inside, inside, inside, inside]
    elif data[:1] in (b"{", b"["):
        kinds += [value, value, value, value]
    elif data.isascii():
        kinds += [word, word, word]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(kinds)(rng, data)
    return data


def flip(rng: random.Random, data: bytes) -> bytes:
    """Some bytes, or some bits of them, at one place."""
    if not data:
        return data
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        at = rng.randrange(len(changed))
        changed[at] = rng.choice((changed[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0, 255))
    return bytes(changed)


def cut(rng: random.Random, data: bytes) -> bytes:
    """Without its end, its beginning or its middle."""
    first, last = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return rng.choice((data[:first], data[last:], data[:first] + data[last:]))


def insert(rng: random.Random, data: bytes) -> bytes:
    """Bytes that mean something somewhere."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(WORDS) + data[at + rng.choice((0, 4, 8)) :]


def repeat(rng: random.Random, data: bytes) -> bytes:
    """A piece of the file many times."""
    first, last = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    piece = data[first : min(last, first + 256)]
    return data[:first] + piece * rng.choice((2, 16, 200)) + data[first:]


def inside(rng: random.Random, data: bytes) -> bytes:
    """One file of an archive changed, so that sizes and checksums are right; or missing, or twice."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as old:
            entries = [(name, old.read(name)) for name in old.namelist()]
    except Exception:  # damaged by an earlier change
        return flip(rng, data)
    if not entries:
        return data
    telling = [i for i, (name, _) in enumerate(entries) if name.endswith(TELLING)]
    chosen = rng.choice(telling) if telling and rng.random() < 0.7 else rng.randrange(len(entries))
    name, content = entries[chosen]
    how = rng.randrange(10)
    if how == 0:
        del entries[chosen]
    elif how == 1:
        entries[chosen] = (name, entries[rng.randrange(len(entries))][1])
    else:
        entries[chosen] = (name, mutated(rng, content))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as new:
        for entry in entries:
            new.writestr(*entry)
    return packed.getvalue()


def value(rng: random.Random, data: bytes) -> bytes:
    """A value somewhere in a JSON document replaced, left out or moved."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return flip(rng, data)
    places = [(holder, key) for holder, key in _places(document)]
    if not places:
        return data
    holder, key = rng.choice(places)
    if rng.random() < 0.15:
        del holder[key]
    elif rng.random() < 0.2:
        other, theirs = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[theirs]))
    else:
        holder[key] = rng.choice(VALUES)
    return json.dumps(document).encode()


def word(rng: random.Random, data: bytes) -> bytes:
    """A name or a number of a text replaced by another one of it, or by one that means something."""
    words = list(re.finditer(rb"[\w.]+", data))
    if not words:
        return flip(rng, data)
    at = rng.choice(words)
    other = rng.choice(
        (rng.choice(words).group(), str(rng.choice(NUMBERS)).encode(), b"__class__", b"None", b"-1")
    )
    return data[: at.start()] + other + data[at.end() :]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a document with each of its keys."""
    found, work = [], [value]
    while work:
        one = work.pop()
        items = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        for key, item in items:
            found.append((one, key))
            work.append(item)
    return found
