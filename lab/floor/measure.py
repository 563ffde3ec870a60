"""What each layer's kernels take on the emulated board."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from lab.bench.measure import ENTRIES, after_one_step, op_of
from microtrain.base.errors import Error
from microtrain.base.plan import Plan
from microtrain.convert.names import identifier
from microtrain.device.client import Device
from microtrain.emulator import Board, EmulatedPort, cycles
from microtrain.emulator.registers import Register

KERNELS = (
    "conv2d_fwd_s8",
    "dwconv2d_fwd_s8",
    "conv2d_bwd_x_s8",
    "dwconv2d_bwd_x_s8",
    "conv2d_bwd_w_s8",
    "dwconv2d_bwd_w_s8",
    "bias_update_s32",
)
ARGUMENTS = (Register.R0, Register.R1, Register.R2, Register.R3)
TABLES = ("weights", "conv", "bias")  # what a kernel is given of a layer
Key = tuple[str, str]  # op and layer


@dataclass(frozen=True)
class Measured:
    """Of one inference, or one step.

    instructions  with all that the model's functions call
    by_layer      of kernels, by op and layer
    issue, stalls estimated cycles: to issue everything, and of waiting for memory
    """

    instructions: int
    by_layer: dict[Key, int]
    issue: int
    stalls: int


class Watcher:
    """Whose call of a kernel is whose: each is given a table of its layer."""

    def __init__(self, board: Board, plan: Plan) -> None:
        self._board = board
        self._layers = {identifier(row.layer): row.layer for row in plan.layers}
        self._tables = {address: name for name, address in board.image.symbols.items() if self._layer(name)}
        self._open: dict[str, str] = {}
        self._before: Counter[str] = Counter()
        self.found: Counter[Key] = Counter()
        self.kernels = [name for name in KERNELS if name in board.image.symbols]
        board.watch_calls([*ENTRIES, *self.kernels], only_inside=True)
        for name in self.kernels:
            board.watch(name, partial(self._entered, name))

    def close(self) -> None:
        """The last call of each kernel has returned."""
        for kernel in self.kernels:
            self._settle(kernel)

    def _layer(self, symbol: str) -> str | None:
        table, _, rest = symbol.partition("_")
        return self._layers.get(rest) if table in TABLES else None

    def _entered(self, kernel: str) -> None:
        self._settle(kernel)
        given = (self._tables.get(self._board.register(place)) for place in ARGUMENTS)
        symbol = next((found for found in given if found), None)
        layer = self._layer(symbol) if symbol else None
        if layer is None:
            raise Error(f"{kernel} was called with nothing that names a layer.")
        self._open[kernel] = layer

    def _settle(self, kernel: str) -> None:
        """What the call before took goes to its layer."""
        now = self._board.calls()[kernel].instructions
        if kernel in self._open:
            self.found[op_of(kernel), self._open.pop(kernel)] += now - self._before[kernel]
        self._before[kernel] = now


def measured(elf: Path, plan: Plan, image: np.ndarray, label: int) -> dict[str, Measured]:
    """Of an inference and of a step, after another step. image: uint8 [h][w][c]"""
    trained = after_one_step(elf, image, label)
    found = {}
    for phase in ("inference", "step"):
        board = Board(elf, caches=True)
        device = Device(EmulatedPort(board))
        device.push(trained)
        watcher = Watcher(board, plan)
        if phase == "step":
            device.train(image, label)
        else:
            device.infer(image)
        watcher.close()
        calls, use = board.calls(), cycles.estimate(board)
        total = sum(calls[name].instructions for name in ENTRIES)
        found[phase] = Measured(total, dict(watcher.found), round(use.issue), use.cache.stalls)
    return found
