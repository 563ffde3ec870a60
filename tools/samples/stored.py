"""Samples as a model takes them."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Entry(Protocol):
    """An input, of a graph or of plan.json, by channel.

    table  the stored value of each of the 256 pixels, of each channel or of all; nothing: by gain and offset
    """

    @property
    def gain(self) -> tuple[float, ...]: ...
    @property
    def offset(self) -> tuple[float, ...]: ...
    @property
    def table(self) -> tuple[tuple[int, ...], ...] | None: ...


def stored(pixels: np.ndarray, entry: Entry) -> np.ndarray:
    """uint8 [..][c] as int8: by a table, or sat8(rint(pixel * gain + offset)) in float32."""
    if entry.table:
        tables = np.array(entry.table, np.int8)
        made: np.ndarray = tables[np.arange(pixels.shape[-1]) % len(tables), pixels]
        return made
    values = pixels.astype(np.float32) * np.array(entry.gain, np.float32) + np.array(entry.offset, np.float32)
    return np.rint(np.clip(values, -128.0, 127.0)).astype(np.int8)
