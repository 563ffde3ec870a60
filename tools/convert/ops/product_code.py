"""The kernels that keep a record in fewer bytes (kernels/product_code.h): no step of a graph."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from microtrain.convert.ir import Graph
from microtrain.convert.names import identifier
from microtrain.convert.reference.hostlib import S8, U8, Record, Signature

from .ctext import Table, numbers, struct

HEADER = "product_code"


class ProductCode(Record):
    _fields_ = (("book", ctypes.c_void_p), *((n, ctypes.c_uint16) for n in ("rows", "row", "part")))
    _arrays_: ClassVar = {"book": S8}


KERNELS: dict[str, Signature] = {
    "product_code_bytes": (ctypes.c_uint32, (ProductCode,)),
    "product_code_encode_s8": (None, (ProductCode, S8, U8)),
    "product_code_decode_s8": (None, (ProductCode, U8, S8)),
}


def tables(graph: Graph) -> list[Table]:
    """The books of a graph's record."""
    found = []
    for tensor, code in graph.codes.items():
        flat = np.concatenate([book.reshape(-1) for book in code.books])
        found.append(Table(f"MODEL_WEIGHTS int8_t {_book(tensor)}[{flat.size}]", flat, "tables"))
    return found


def structs(graph: Graph) -> Iterator[str]:
    for tensor, code in graph.codes.items():
        fields = numbers(ProductCode(rows=code.rows, row=code.row, part=code.part))
        yield struct(HEADER, "code", tensor, {"book": _book(tensor), **fields})


def encode(tensor: str, at: str, code: str) -> str:
    """The call that keeps a tensor. at: where it lies; code: where its code goes."""
    return f"product_code_encode_s8(&code_{identifier(tensor)}, {at}, {code});"


def decode(tensor: str, code: str, at: str) -> str:
    return f"product_code_decode_s8(&code_{identifier(tensor)}, {code}, {at});"


def _book(tensor: str) -> str:
    return f"book_{identifier(tensor)}"
