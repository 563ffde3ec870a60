"""Ops that the published networks have not: the emulated board learns with them as this machine does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from pio_build import build, host_program
from test_resample import exported
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from microtrain.base.plan import read_plan
from microtrain.convert.cli import main as convert
from microtrain.device.client import Device
from microtrain.device.link import EmulatorPort, Port, ProgramPort

CLASSES, TAUGHT, ASKED, EPOCHS = 3, 30, 30, 2
SHAPE = (12, 12, 3)


class Upwards(nn.Module):
    """A vector as a map, a transposed convolution, weight norm, a written-out norm, a gate, means of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.vector = weight_norm(nn.Conv2d(3, 8, 3, 2, 1)), nn.Linear(8 * 36, 12)
        self.wide, self.up = nn.Linear(12, 6 * 9), nn.ConvTranspose2d(6, 8, 3, 2, 1, 1)
        self.gate, self.last, self.head = nn.Conv2d(8, 12, 1), nn.Conv1d(6, 8, 3, padding=1), nn.Linear(8, 3)
        for name, values in self.named_parameters():
            if values.ndim > 1 and "original0" not in name:  # not the lengths of the weight norm
                nn.init.normal_(values, 0, 2.0 / values[0].numel() ** 0.5)
        self.scale, self.shift = nn.Parameter(torch.rand(8) + 0.5), nn.Parameter(torch.randn(8) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.down(x))
        x = torch.relu(self.wide(torch.relu(self.vector(x.flatten(1))))).view(-1, 6, 3, 3)
        x = self.up(x)
        x = x - x.mean(1, keepdim=True)
        x = x / torch.sqrt(x.pow(2).mean(1, keepdim=True) + 1e-5)
        x = functional.glu(self.gate(x * self.scale[:, None, None] + self.shift[:, None, None]), 1)
        x = torch.relu(self.last(x.mean(2)))  # the mean over its rows, a series
        result: torch.Tensor = self.head(x.sum(2))
        return result


def samples(label: int, count: int, seed: int) -> np.ndarray:
    """Noise about a picture that each class has."""
    picture = np.random.default_rng(label).integers(60, 196, SHAPE)
    noise = np.random.default_rng([seed, label]).normal(0, 30, (count, *SHAPE))
    return np.clip(np.rint(picture + noise), 0, 255).astype(np.uint8)


def session(port: Port) -> tuple[str, float, float]:
    """SHA-256 of what was learned, and the accuracy before and after."""
    taught = [samples(label, TAUGHT, 1) for label in range(CLASSES)]
    asked = [samples(label, ASKED, 2) for label in range(CLASSES)]
    with Device(port) as device:

        def accuracy() -> float:
            right = [device.infer(each).label == label for label, own in enumerate(asked) for each in own]
            return float(np.mean(right))

        device.seed(7)
        before = accuracy()
        for _ in range(EPOCHS):
            for number in range(TAUGHT):
                for label in range(CLASSES):
                    device.train(taught[label][number], label)
        return device.sha(), before, accuracy()


@pytest.mark.slow
def test_the_board_learns_with_them_what_this_machine_learns(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = exported(Upwards(), tmp_path / "model.pt2", (SHAPE[2], *SHAPE[:2]))
    for label in range(CLASSES):
        (tmp_path / f"typical/{label}").mkdir(parents=True)
        for number, sample in enumerate(samples(label, 12, 3)):
            np.save(tmp_path / f"typical/{label}/{number}.npy", sample)
    generated = tmp_path / "generated"
    words = (model, "--classes", CLASSES, "--calibration", tmp_path / "typical", "-o", generated)
    done = CliRunner().invoke(convert, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    ops = {step.op for step in read_plan(generated / "plan.json").steps}
    wanted = ("unflatten", "resample", "multiply_maps", "normalise")
    assert {f"{op}{back}" for op in wanted for back in ("", "_bwd_x")} <= ops
    board = session(EmulatorPort(build(tmp_path / "pio", "disco_f746ng", generated)))
    host = session(ProgramPort(host_program(generated, tmp_path)))
    assert board == host
    assert board[1] < 0.6 and board[2] > 0.9
