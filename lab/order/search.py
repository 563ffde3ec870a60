"""A search over orders of sections: pieces of the order move, and stay where no more lines are missed."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from microtrain.base.hostcc import Parts, compiled
from microtrain.base.paths import ROOT
from microtrain.emulator.engine import INSTRUCTION_CACHE

from .trace import Trace

SOURCE = Path(__file__).with_name("misses.c")
ALIGNMENT = 4  # of a section of code
LONGEST = 4  # sections that move together


class Misses:
    """Lines that the instruction cache misses in all traces, for an order of names."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.traces = traces
        flags = ("-std=c11", "-O2", "-shared", "-fPIC")
        what = Parts("the cache of lab/order", "misses", (SOURCE,), flags, (ROOT / "tools/emulator",))
        self._count = ctypes.CDLL(str(compiled(what))).misses
        self._count.restype = ctypes.c_uint64
        self._count.argtypes = [
            ctypes.c_void_p,
            ctypes.c_uint64,
            ctypes.c_void_p,
            ctypes.c_uint32,
            ctypes.c_uint32,
        ]

    def __call__(self, order: Sequence[str]) -> int:
        return sum(self.of(trace, order) for trace in self.traces)

    def of(self, trace: Trace, order: Sequence[str]) -> int:
        """In one trace. What the order does not name lies behind it, as the linker had it."""
        starts = addresses(trace, order)
        blocks = np.ascontiguousarray(trace.blocks)
        found: int = self._count(blocks.ctypes.data, len(blocks), starts.ctypes.data, *INSTRUCTION_CACHE)
        return found


def addresses(trace: Trace, order: Sequence[str]) -> np.ndarray:
    """Where each section of a trace lies in this order."""
    rank = {name: i for i, name in enumerate(order)}
    keys = [rank.get(name, len(rank)) for name in trace.sections]
    first = np.argsort(keys, kind="stable")
    sizes = -(-trace.sizes[first] // ALIGNMENT) * ALIGNMENT
    starts = np.empty(len(first), np.uint32)
    starts[first] = trace.start + np.concatenate(([0], np.cumsum(sizes)[:-1]))
    return starts


def search(count: Callable[[Sequence[str]], int], order: Sequence[str], tries: int) -> tuple[list[str], int]:
    """The best order found in `tries` moves from `order`, and its misses; the same on every machine."""
    chance = random.Random(0)
    best, lowest = list(order), count(order)
    for _ in range(tries):
        moved = move(best, chance)
        found = count(moved)
        if found <= lowest:
            best, lowest = moved, found
    return best, lowest


def move(order: Sequence[str], chance: random.Random) -> list[str]:
    """A few neighbours lie elsewhere, or two sections change places."""
    moved = list(order)
    if chance.random() < 0.4:
        i, j = chance.sample(range(len(moved)), 2)
        moved[i], moved[j] = moved[j], moved[i]
        return moved
    first = chance.randrange(len(moved))
    piece = moved[first : first + chance.randint(1, LONGEST)]
    del moved[first : first + len(piece)]
    place = chance.randint(0, len(moved))
    return moved[:place] + piece + moved[place:]
