"""What a board has for a model (platform/boards/NAME.json), and how much of it may be used."""

from __future__ import annotations

import json
from dataclasses import dataclass

from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.plan import Budget

FOLDER = ROOT / "platform/boards"
DEFAULT = "disco_f746ng"
KB = 1024
HEADER, RECORD, ALIGNMENT = 32, 64, 32  # bytes of a checkpoint slot and of what is saved in it


@dataclass(frozen=True)
class Board:
    """Bytes.

    sram      all of it
    flash     all of it
    weights   of flash, kept for weights, biases and the trainables' start values
    slot      of flash, the smaller of the two for checkpoints
    """

    name: str
    sram: int
    flash: int
    weights: int
    slot: int

    def can_save(self, trainables: int) -> bool:
        """Whether a checkpoint of so many bytes fits a slot, as capacity() of runtime/checkpoint.c has it."""
        record = -(-(RECORD + trainables) // ALIGNMENT) * ALIGNMENT
        return HEADER + record <= self.slot


@dataclass(frozen=True)
class Limits:
    """What a model must keep to.

    board        None: this machine
    sram, flash  bytes; None: no limit, which this machine has where none is given
    """

    board: Board | None = None
    sram: int | None = None
    flash: int | None = None

    @property
    def budget(self) -> Budget | None:
        """What plan.json says: this machine has none."""
        if self.board is None or self.sram is None or self.flash is None:
            return None
        return Budget(self.sram, self.flash)

    @property
    def board_name(self) -> str | None:
        return None if self.board is None else self.board.name

    @property
    def sram_can_rise(self) -> bool:
        """Whether a larger --budget-sram would give more."""
        return self.sram is not None and (self.board is None or self.sram < self.board.sram)

    @property
    def flash_can_rise(self) -> bool:
        """Whether a larger --budget-flash would give more."""
        return self.flash is not None and (self.board is None or self.flash < self.board.flash)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def find(name: str = DEFAULT) -> Board:
    """The board of a name that `names` gives."""
    sizes = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["upload"]
    keys = ("maximum_ram_size", "maximum_size", "weights_size", "checkpoint_size")
    return Board(name, *(int(sizes[key]) for key in keys))


def core(name: str) -> tuple[str, str]:
    """A board's processor and its FPU, as gcc's -mcpu and -mfpu name them."""
    entry = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["build"]
    return str(entry["cpu"]), str(entry["fpu"])


def limits(board: Board | None, sram_kb: int | None, flash_kb: int | None) -> Limits:
    """The limits on a board (None: this machine), all of it where no KB are given.

    Errors   Error for more than the board has
    """
    given = {"sram": sram_kb, "flash": flash_kb}
    sizes = {what: None if kb is None else kb * KB for what, kb in given.items()}
    if board is None:
        return Limits(None, **sizes)
    whole = {"sram": board.sram, "flash": board.flash}
    for what, size in sizes.items():
        if size is not None and size > whole[what]:
            raise Error(
                f"--budget-{what} {given[what]} is more than {board.name} has: {whole[what] // KB} KB; "
                "leave the option out to use all of it."
            )
    return Limits(board, **{what: sizes[what] or whole[what] for what in whole})
