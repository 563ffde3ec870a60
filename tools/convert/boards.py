"""What a board has for a model (platform/boards/NAME.json), and how much of it may be used."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from microtrain.base.errors import Error, short
from microtrain.base.paths import ROOT
from microtrain.base.plan import Budget

FOLDER = ROOT / "platform/boards"
DEFAULT = "disco_f746ng"
KB = 1024
STACK_RESERVE = 2816  # bytes that the linker scripts keep for the stack beyond what it reaches
HEADER, RECORD, ALIGNMENT = 32, 64, 32  # bytes of a checkpoint slot and of what is saved in it


@dataclass(frozen=True)
class External:
    """Flash beside the chip, which is read as memory. size: bytes"""

    name: str
    size: int


@dataclass(frozen=True)
class Board:
    """Bytes.

    sram      all of it
    flash     all of it
    weights   of flash, kept for weights, biases and the trainables' start values
    slot      of flash, the smaller of the two for checkpoints; 0: there is none
    most      of flash that weights may have where nothing is saved
    external  flash beside the chip, which frozen weights may lie in
    """

    name: str
    sram: int
    flash: int
    weights: int
    slot: int
    most: int
    external: tuple[External, ...] = ()

    @property
    def without_checkpoints(self) -> Board:
        """The same where their flash holds weights, and nothing that is learned is saved."""
        return replace(self, weights=self.most, slot=0)

    def can_save(self, trainables: int) -> bool:
        """Whether a checkpoint of so many bytes fits a slot, as capacity() of runtime/checkpoint.c has it."""
        record = -(-(RECORD + trainables) // ALIGNMENT) * ALIGNMENT
        return HEADER + record <= self.slot


@dataclass(frozen=True)
class Limits:
    """What a model must keep to.

    board        None: this machine
    sram, flash  bytes; None: no limit, which this machine has where none is given
    external     flash beside the chip for weights that its own has no room for; None: not to be used
    """

    board: Board | None = None
    sram: int | None = None
    flash: int | None = None
    external: External | None = None

    @property
    def with_external(self) -> Limits:
        """The same with all flash as one: what a model may have before it is known which part lies where."""
        if self.external is None or self.flash is None:
            return self
        return replace(self, flash=self.flash + self.external.size)

    @property
    def sram_room(self) -> int | None:
        """Bytes of SRAM that a firmware may reach: of a whole board, without what is kept for its stack."""
        if self.board is None or self.sram is None:
            return self.sram
        return min(self.sram, self.board.sram - STACK_RESERVE)

    @property
    def external_name(self) -> str:
        return "" if self.external is None else self.external.name

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
    document = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    keys = ("maximum_ram_size", "maximum_size", "weights_size", "checkpoint_size", "weights_size_most")
    sram, flash, weights, slot, most = (int(document["upload"][key]) for key in keys)
    beside = {key: int(entry["size"]) for key, entry in document.get("external", {}).items()}
    return Board(
        name, sram, flash, weights, slot, most, tuple(External(*item) for item in sorted(beside.items()))
    )


def core(name: str) -> tuple[str, str]:
    """A board's processor and its FPU, as gcc's -mcpu and -mfpu name them."""
    entry = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["build"]
    return str(entry["cpu"]), str(entry["fpu"])


def limits(
    board: Board | None, sram_kb: int | None, flash_kb: int | None, external: str | None = None
) -> Limits:
    """The limits on a board (None: this machine), all of it where no KB are given.

    external  name of the flash beside the chip that weights may lie in
    Errors    Error for more than the board has
    """
    given = {"sram": sram_kb, "flash": flash_kb}
    sizes = {what: None if kb is None else kb * KB for what, kb in given.items()}
    beside = None if external is None else _external(board, external)
    if board is None:
        return Limits(None, sizes["sram"], sizes["flash"])
    whole = {"sram": board.sram, "flash": board.flash}
    for what, size in sizes.items():
        if size is not None and size > whole[what]:
            raise Error(
                f"--budget-{what} {given[what]} is more than {board.name} has: {whole[what] // KB} KB; "
                "leave the option out to use all of it."
            )
    sram, flash = (sizes[what] or whole[what] for what in whole)
    return Limits(board, sram, flash, beside)


def _external(board: Board | None, name: str) -> External:
    """The flash of that name. Error where the board has none such."""
    known = () if board is None else board.external
    found = next((external for external in known if external.name == name), None)
    if found is None:
        whose = "this machine" if board is None else board.name
        what = (
            f"it has {', '.join(e.name for e in known)}"
            if known
            else "it has none at all, leave the option out"
        )
        raise Error(f"--external-flash {short(name)}: {whose} has no such flash beside its chip; {what}.")
    return found
