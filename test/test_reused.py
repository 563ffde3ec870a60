"""Values that more than one op reads, in the middle of what conversion makes one op of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from test_resample import assert_as_pytorch
from torch import nn

from microtrain.convert.ops.position import POSITION

C, SIDE = 8, 8


class Reused(nn.Module):
    """A convolution, a body that reads some values twice, and a head."""

    def __init__(self, body: Callable[[Reused, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.stem, self.mix = nn.Conv2d(3, C, 3, 2, 1), nn.Conv2d(C, C, 3, padding=1)
        self.first, self.second = (nn.Parameter(torch.randn(1, C, SIDE, SIDE)) for _ in range(2))
        self.head, self.body = nn.Linear(C, 5), body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.body(self, self.stem(x)).mean((2, 3)))
        return logits


def gate(net: Reused, x: torch.Tensor) -> torch.Tensor:
    """Half of a SiLU, which is a gate too."""
    opened = nn.Sigmoid()(x)
    made: torch.Tensor = net.mix(x * opened) * opened
    return made


def changed_gate(net: Reused, x: torch.Tensor) -> torch.Tensor:
    """No SiLU."""
    made: torch.Tensor = net.mix(x * nn.Sigmoid()(x).mul_(3))
    return made


def positions(net: Reused, x: torch.Tensor) -> torch.Tensor:
    """The first of two sums with constants, as DETR adds positions to what is asked and not to values."""
    once = x + net.first
    made: torch.Tensor = net.mix(once + net.second) + once
    return made


def both_positions(net: Reused, x: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = net.mix(x + net.first + net.second)
    return made


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("body", [gate, changed_gate, positions, both_positions])
def test_values_that_are_read_again(body: Callable[..., torch.Tensor], suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Reused(body).eval()
    graph = assert_as_pytorch(model, tmp_path / f"model{suffix}", (3, 2 * SIDE, 2 * SIDE))
    tables = sum(n.op == POSITION for n in graph.nodes)
    assert tables == {positions: 2, both_positions: 1}.get(body, 0)
