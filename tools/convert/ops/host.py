"""The kernels of every entry on this machine, callable by the names of their headers.

lib = load()                                  builds build/host/kernels-<hash>.so the first time
lib.conv2d_fwd_s8(p, x, weights, b, y, mask, scratch)
"""

from __future__ import annotations

import functools
from pathlib import Path

from microtrain.convert.reference.hostlib import BASICS, HostLib, Signature, build

from . import TABLE, imprint, log_mel, product_code


def kernels() -> dict[str, Signature]:
    """Every kernel by name: of all entries, of statistics, records and sound, and what numeric.h offers."""
    found = dict(BASICS)
    for op in TABLE.values():
        found |= op.kernels
    return found | imprint.KERNELS | product_code.KERNELS | log_mel.KERNELS


def bound(path: Path) -> HostLib:
    """The kernels of a library that `hostlib.build` made."""
    return HostLib(path, kernels())


@functools.cache
def load(cc: str | None = None) -> HostLib:
    """The firmware's kernels, built if need be. cc: name of a compiler, the default one if None."""
    return bound(build(cc))
