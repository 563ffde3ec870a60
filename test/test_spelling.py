"""Calls that are another one by another name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_resample import assert_as_pytorch
from torch import nn

TURNS = {
    "movedim": lambda x: x.movedim(1, -1),
    "several axes": lambda x: torch.movedim(x, (1, 2), (-1, 1)),
    "moveaxis": lambda x: torch.moveaxis(x, 1, 3),
    "swapaxes": lambda x: x.swapaxes(1, 2).swapaxes(2, 3),
    "swapdims": lambda x: x.swapdims(1, 2).swapdims(-1, 2),
}


@pytest.mark.parametrize("way", TURNS)
def test_turns_by_other_names_are_those_of_pytorch(way: str, tmp_path: Path) -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(3, 6, 3, 2), nn.LayerNorm(6), nn.Linear(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.norm(TURNS[way](self.conv(x)))  # type: ignore[no-untyped-call]
            return torch.as_tensor(self.head(torch.relu(x).mean((1, 2))))

    torch.manual_seed(1)
    assert_as_pytorch(Turned(), tmp_path / "model.pt2", (3, 9, 7))
