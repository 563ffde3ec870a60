"""Numbers as the firmware writes and reads them, against Python's: any number, any word."""

from __future__ import annotations

import ctypes
import math
import re
import struct
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from puppet import build

MANY = settings(max_examples=500)
WORDS = st.text("0123456789.-+eExXaAfFnN @g", max_size=14)
NUMBERS = st.from_regex(r"[0-9]{0,6}\.?[0-9]{0,6}", fullmatch=True)
BITS = st.integers(0, 2**32 - 1)
HALVES = st.integers(-(10**6), 10**6).map(lambda n: (2 * n + 1) / 32)  # a half behind the fourth digit


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = build(tmp_path_factory.mktemp("text"))
    library.text_f32.argtypes = [ctypes.c_char_p, ctypes.c_float]
    for name in ("text_u32", "text_f32", "text_hex"):
        getattr(library, name).restype = ctypes.c_size_t
    return library


def written(text: ctypes.CDLL, function: str, *values: object) -> str:
    """What a writer leaves, after a check that it writes no byte beyond it."""
    out = ctypes.create_string_buffer(b"#" * 40, 40)
    size = getattr(text, function)(out, *values)
    assert out.raw[size:] == b"#" * (40 - size)
    return out.raw[:size].decode()


def read(text: ctypes.CDLL, function: str, word: str, kind: type = ctypes.c_uint32) -> object:
    """What a reader makes of a word; None where it refuses it, and then it leaves the value alone."""
    value = kind(7)
    if getattr(text, function)(word.encode(), ctypes.byref(value)):
        return value.value
    assert value.value == 7
    return None


@MANY
@given(BITS)
def test_integers_are_written_and_read(text: ctypes.CDLL, n: int) -> None:
    assert written(text, "text_u32", n) == str(n)
    assert read(text, "parse_u32", str(n)) == n
    assert written(text, "text_hex", n, 8) == f"{n:08x}"
    assert read(text, "parse_hex32", f"{n:x}") == n
    assert read(text, "parse_hex32", f"{n:08X}") == n


@MANY
@given(WORDS)
@example("4294967295")
@example("4294967296")
@example("00000000000")
@example("ffffffff")
@example("100000000")
def test_only_integers_are_read(text: ctypes.CDLL, word: str) -> None:
    decimal = re.fullmatch("[0-9]+", word) and int(word) < 2**32
    assert read(text, "parse_u32", word) == (int(word) if decimal else None)
    hexadecimal = re.fullmatch("[0-9a-fA-F]{1,8}", word)
    assert read(text, "parse_hex32", word) == (int(word, 16) if hexadecimal else None)
    byte = re.match("[0-9a-fA-F]{2}", word)
    assert text.parse_hex_byte(word.encode()) == (int(word[:2], 16) if byte else -1)


def bits_of(value: float) -> int:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits)


@MANY
@given(st.one_of(BITS, HALVES.map(bits_of)))
@example(0x00000001)
@example(0x4F7FFFFF)  # the largest below 2^32
@example(0x4F800000)
@example(0xFF800000)
@example(0x7FC00001)
@example(0x80000000)
def test_floats_are_written_as_c_prints_them(text: ctypes.CDLL, bits: int) -> None:
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    if math.isnan(value):
        assert written(text, "text_f32", value).lstrip("-") == "nan"
    elif abs(value) >= 2**32:
        assert written(text, "text_f32", value) == ("-inf" if value < 0 else "inf")
    else:
        assert written(text, "text_f32", value) == f"{value:.4f}"


@MANY
@given(st.one_of(NUMBERS, WORDS))
@example("4294967295")
@example("4294967296")
@example("0.000000001")
@example("0.0000000001")
@example(".")
def test_floats_are_read(text: ctypes.CDLL, word: str) -> None:
    """Within a unit in the last place: the digits are rounded to a float, and so is the quotient."""
    found = read(text, "parse_f32", word, ctypes.c_float)
    digits, fraction = word.replace(".", "", 1), word.partition(".")[2]
    if re.fullmatch("[0-9]+", digits) and int(digits) < 2**32 and len(fraction) <= 9:
        assert isinstance(found, float)
        near = np.float32(Decimal(word))
        assert abs(np.float32(found) - near) <= np.spacing(near)
    else:
        assert found is None


def test_a_wrong_digit_is_noticed(text: ctypes.CDLL) -> None:
    """The comparisons can fail."""
    assert written(text, "text_u32", 10) != "11"
    assert written(text, "text_f32", 0.00015) != "0.0001"
    assert read(text, "parse_f32", "0.5", ctypes.c_float) != 0.25
