"""The op table: everything the compiler knows of each op, in one entry."""

from __future__ import annotations

from . import conv, elementwise, head, pool, stream
from .table import Op

TABLE: dict[str, Op] = {**conv.OPS, **elementwise.OPS, **pool.OPS, **head.OPS, **stream.OPS}

__all__ = ["TABLE", "Op"]
