"""Constant tables and parameter structs as generated code writes them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from microtrain.convert.names import identifier, number
from microtrain.convert.reference.hostlib import Record

C_TYPES = {
    **{"int8_t": "i1", "uint8_t": "u1", "int16_t": "<i2", "uint16_t": "<u2"},
    **{"int32_t": "<i4", "uint32_t": "<u4", "float": "<f4"},
}


@dataclass(frozen=True, eq=False)
class Table:
    """One constant array. `kind` is weights, biases or tables, as in reports of flash."""

    declaration: str
    values: np.ndarray
    kind: str

    @property
    def name(self) -> str:
        return self.declaration.split()[-1].split("[")[0]

    @property
    def dtype(self) -> np.dtype:
        """Of the values as they lie in flash."""
        return np.dtype(C_TYPES[self.declaration.split()[-2]])

    @property
    def nbytes(self) -> int:
        """Of flash."""
        return int(self.values.size) * self.dtype.itemsize

    @property
    def bytes(self) -> bytes:
        """As they lie in flash."""
        return self.values.astype(self.dtype).tobytes()


def struct(kind: str, variable: str, name: str, fields: Record | Mapping[str, object]) -> str:
    """A C definition of the struct; a Record gives its numbers."""
    if isinstance(fields, Record):
        fields = numbers(fields)
    text = ", ".join(f".{key} = {_value(value)}" for key, value in fields.items())
    return f"static const struct {kind} {variable}_{identifier(name)} = {{\n    {text},\n}};\n"


def numbers(record: Record) -> dict[str, object]:
    """The fields of a struct but for its pointers, and for those that its kernels may not have."""
    names = (field[0] for field in record._fields_ if field[1] is not ctypes.c_void_p)
    found = {name: getattr(record, name) for name in names}
    return {name: value for name, value in found.items() if value or name not in record._tflite_}


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)
