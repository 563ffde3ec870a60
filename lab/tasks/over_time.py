"""Recurrent networks of spoken digits: the device against PyTorch, and a head that learns a new speaker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lab.bench import measure
from lab.bench.build import build
from microtrain.base.pio import BOARD
from microtrain.base.plan import read_plan
from microtrain.base.terminal import say

from . import speaker, spoken
from .spoken import Recording, front_end

CELLS: dict[str, Callable[..., nn.RNNBase]] = {"GRU": nn.GRU, "LSTM": nn.LSTM}
UNITS, TESTED = 48, 10  # recordings before this number are never trained on
EPOCHS, RATE, BATCH = 40, 3e-3, 32
# A head alone. The device's rate was chosen on draws of two speakers that no row has.
HEAD_ON_DEVICE, HEAD_IN_FLOAT = speaker.Way(20, 6.25), speaker.Way(20, 0.01)
COUNT = max(speaker.COUNTS)


class OverTime(nn.Module):
    """[n, 1, ROWS, bands] to words: a recurrent layer over the rows, of which the last result is read."""

    def __init__(self, cell: str, words: int) -> None:
        super().__init__()
        self.cell = CELLS[cell](front_end().bands, UNITS, batch_first=True)
        self.head = nn.Linear(UNITS, words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.cell(x.squeeze(1))[0][:, -1])
        return result


def pretrained(cell: str, rows: np.ndarray, words: np.ndarray) -> OverTime:
    """rows: uint8 [recordings][variants][ROWS][bands]"""
    torch.manual_seed(spoken.SEED)
    torch.set_num_threads(1)
    net, wanted = OverTime(cell, int(words.max()) + 1), torch.tensor(words)
    best = torch.optim.AdamW(net.parameters(), RATE, weight_decay=0.02)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(best, EPOCHS * -(-len(words) // BATCH))
    for _ in range(EPOCHS):
        way = torch.randint(rows.shape[1], (len(words),))
        for some in torch.randperm(len(words)).split(BATCH):
            best.zero_grad()
            made = net(spoken.masked(spoken.taken(rows[some, way[some]])))
            nn.functional.cross_entropy(made, wanted[some], label_smoothing=0.05).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            best.step()
            falling.step()
    return net.eval()


def held_out(cell: str, name: str, known: list[Recording], rows: np.ndarray, work: Path) -> dict[str, Any]:
    """The network of all speakers but one: recordings of theirs that it has not seen, then that one's."""
    folder = work / f"{cell}-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    words, others = np.array([one.word for one in known]), np.array([one.speaker != name for one in known])
    fresh = np.array([one.number < TESTED for one in known])
    net = pretrained(cell, rows[others & ~fresh], words[others & ~fresh])
    model = speaker.exported(net, folder)
    generated = speaker.converted(model, rows[others & ~fresh, 0], folder)
    own = [k for k, one in enumerate(known) if one.speaker == name]
    machine, tests = speaker.machine_of(generated), (rows[others & fresh, 0], words[others & fresh])
    nothing = np.zeros(0)
    known_ones = speaker.Lesson(nothing, nothing, nothing, tests, 0)
    machine.reset()
    row = {
        "cell": cell,
        "speaker": name,
        "device": speaker.tested(machine, known_ones),
        "float": speaker.in_float(net, known_ones),
    }
    given = speaker.lesson([known[k] for k in own], rows[own, 0], 0)
    row["new_before"] = speaker.tested(machine, given)
    row["new_after"] = speaker.by_device(machine, given, COUNT, HEAD_ON_DEVICE)
    row["new_float"] = speaker.by_float(net, given, COUNT, speaker.Way(20, 0.001))
    net.cell.requires_grad_(False)
    row["new_float_head"] = speaker.by_float(net, given, COUNT, HEAD_IN_FLOAT)
    say(" ".join(f"{k} {v:.4f}" if isinstance(v, float) else str(v) for k, v in row.items()))
    return row | sizes(generated, folder, rows[own[0], 0])


def sizes(generated: Path, work: Path, sample: np.ndarray) -> dict[str, int]:
    """Memory and instructions of the firmware, on the emulated board."""
    plan = read_plan(generated / "plan.json")
    elf = build(generated, work, BOARD)
    counts, report = measure.instruction_counts(elf, plan, sample[..., None], 0), measure.memory(elf, plan)
    return {
        "arena": plan.arena.bytes,
        "sram": report.sram_total,
        "flash": report.flash_total,
        "inference_instructions": counts["inference_instructions"],
        "front_end_instructions": speaker.front_end_instructions(elf, plan.input.shape[0]),
    }


def measured(folder: Path, work: Path) -> Iterator[dict[str, Any]]:
    """A row for each cell and each speaker that is held out."""
    known = spoken.recordings(folder)
    rows = speaker.all_rows(known, work)
    for cell in CELLS:
        for name in sorted({one.speaker for one in known}):
            yield held_out(cell, name, known, rows, work)
