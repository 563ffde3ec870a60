"""Which blocks of code ran, one after the other, and the section of an object file that each belongs to."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lab.bench.measure import ENTRIES, after_one_step
from microtrain.base.errors import Error
from microtrain.device.client import Device
from microtrain.emulator import Board, EmulatedPort

PART = re.compile(r"^ (\.text\.\S+)\s+0x([0-9a-f]+)\s+0x([0-9a-f]+)\s+\S+$", re.MULTILINE)
LOCAL = re.compile(r"\.(isra|part|constprop|lto_priv|cold)\..*|\.(isra|part|constprop)$")
PERIODS = 32  # of loops whose third round, and those behind it, are left out: they find what the second left
WINDOW, EVERY = 4096, 4  # the search looks at one in so many runs of so many blocks


@dataclass(frozen=True, eq=False)
class Trace:
    """What ran in one step of a firmware.

    sections  of code, as the linker placed them: names without what gcc appends to a copy of a function
    sizes     of each, bytes
    start     address of the first
    blocks    uint32 [n][3]: section, offset, bytes
    """

    sections: tuple[str, ...]
    sizes: np.ndarray
    start: int
    blocks: np.ndarray

    @property
    def used(self) -> list[str]:
        """Names of the sections that ran, in the order of their first block."""
        seen, first = np.unique(self.blocks[:, 0], return_index=True)
        return list(dict.fromkeys(self.sections[int(i)] for i in seen[np.argsort(first)]))

    def sampled(self) -> Trace:
        """A quarter of it, from all along the step."""
        taken = np.arange(len(self.blocks)) // WINDOW % EVERY == 0
        return replace(self, blocks=self.blocks[taken])


def record(elf: Path, image: np.ndarray, label: int) -> Trace:
    """One training step after another one; interrupts and the serial line are left out."""
    parts = placed(elf.with_suffix(".map"))
    board = Board(elf)
    device = Device(EmulatedPort(board))
    device.push(after_one_step(elf, image, label))
    ran: list[tuple[int, int]] = []
    board.watch_calls(ENTRIES, only_inside=True)
    board.on_block(lambda address, size: ran.append((address, size)))
    device.train(image, label)
    starts = [address for _, address, _ in parts]
    owner = {address: bisect_right(starts, address) - 1 for address in {a for a, _ in ran}}
    blocks = [(owner[a], a - starts[owner[a]], size) for a, size in ran if owner[a] >= 0]
    names = tuple(LOCAL.sub("", name) for name, _, _ in parts)
    sizes = np.array([size for _, _, size in parts])
    return Trace(names, sizes, starts[0], shortened(np.array(blocks, np.uint32)))


def placed(path: Path) -> list[tuple[str, int, int]]:
    """(name, address, bytes) of each section of code in a map of the linker, by address."""
    text = re.sub(r"^( \.text\.\S+)\n", r"\1", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = [(name, int(at, 16), int(size, 16)) for name, at, size in PART.findall(text)]
    parts = sorted((part for part in found if part[1] and part[2]), key=lambda part: part[1])
    if not parts:
        raise Error(f"{path} names no section .text.*: build with -ffunction-sections.")
    return parts


def shortened(blocks: np.ndarray) -> np.ndarray:
    """The blocks without the third and later rounds of short loops."""
    for period in range(1, PERIODS + 1):
        same = (blocks[period:] == blocks[:-period]).all(axis=1)
        sums = np.concatenate(([0], np.cumsum(same)))
        rounds = (1 if period == 1 else 2) * period  # a block alone meets itself nowhere
        full = sums[rounds:] - sums[:-rounds] == rounds if len(sums) > rounds else np.zeros(0, bool)
        keep = np.ones(len(blocks), bool)
        keep[period + rounds - 1 :] = ~full
        blocks = blocks[keep]
    return blocks
