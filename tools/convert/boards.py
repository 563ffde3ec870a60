"""What a board has for a model: the sizes in its board file, platform/boards/NAME.json."""

from __future__ import annotations

import json
from dataclasses import dataclass

from microtrain.base.paths import ROOT

FOLDER = ROOT / "platform/boards"
DEFAULT = "disco_f746ng"


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


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def find(name: str = DEFAULT) -> Board:
    """The board of a name that `names` gives."""
    sizes = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["upload"]
    keys = ("maximum_ram_size", "maximum_size", "weights_size", "checkpoint_size")
    return Board(name, *(int(sizes[key]) for key in keys))
