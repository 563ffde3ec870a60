"""The networks of `microtrain demo --task ...`, pretrained on made-up signals. Needs torch.

python examples/signals/make_models.py
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from microtrain.base.sound import parse  # noqa: E402
from microtrain.demo import made_up, voices  # noqa: E402
from microtrain.demo.signals import MEAN, ROWS_MEAN, ROWS_STD, STD  # noqa: E402
from microtrain.samples.log_mel import log_mel  # noqa: E402

SEED = 20


def moves() -> nn.Module:
    """[n, 3, STEPS, 1] to activities: a convolution over time is one of 5x1."""

    def block(c_in: int, c_out: int) -> list[nn.Module]:
        return [nn.Conv2d(c_in, c_out, (5, 1), (2, 1), (2, 0)), nn.BatchNorm2d(c_out), nn.ReLU()]

    layers = [*block(3, 16), *block(16, 24), *block(24, 32), nn.AvgPool2d((made_up.STEPS // 8, 1))]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, len(made_up.ACTIVITIES)))


def words() -> nn.Module:
    """[n, 1, ROWS, bands] to words. No padding over time, so that windows may overlap."""

    def then(layer: nn.Module, channels: int) -> list[nn.Module]:
        return [layer, nn.BatchNorm2d(channels), nn.ReLU()]

    layers = [
        *then(nn.Conv2d(1, 16, (5, 6), 2), 16),
        *then(nn.Conv2d(16, 16, 3, groups=16), 16),
        *then(nn.Conv2d(16, 24, 1), 24),
        *then(nn.Conv2d(24, 24, (5, 3), (1, 2), groups=24), 24),
        *then(nn.Conv2d(24, 32, 1), 32),
    ]
    return nn.Sequential(*layers, nn.AvgPool2d((9, 2)), nn.Flatten(), nn.Linear(32, len(voices.WORDS)))


def said(rng: np.random.Generator, labels: np.ndarray) -> torch.Tensor:
    """Words by grown-ups, as the network takes the front end's rows."""
    front = parse(voices.FRONT)
    rows = [log_mel(front, voices.word(rng, voices.anybody(rng), voices.WORDS[k])) for k in labels]
    return torch.tensor((np.stack(rows).astype(np.float32) / 255 - ROWS_MEAN) / ROWS_STD)[:, None]


def spectra() -> nn.Module:
    """[n, 1, 1, BANDS] to itself."""
    sizes, layers = (made_up.BANDS, 32, 8, 32), [nn.Flatten()]
    for c_in, c_out in pairwise(sizes):
        layers += [nn.Linear(c_in, c_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], made_up.BANDS))


def read(stored: np.ndarray) -> torch.Tensor:
    """What the network sees of int8 samples."""
    return torch.tensor(((stored.astype(np.float32) + 128) / 255 - MEAN) / STD)


def fit(net: nn.Module, x: torch.Tensor, wanted: torch.Tensor, loss: nn.Module, steps: int) -> None:
    best = torch.optim.Adam(net.parameters(), 3e-3)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(best, steps)
    for _ in range(steps):
        some = torch.randint(len(x), (64,))
        best.zero_grad()
        loss(net(x[some]), wanted[some]).backward()
        best.step()
        falling.step()


def save(net: nn.Module, name: str, x: torch.Tensor) -> None:
    torch.export.save(torch.export.export(net.eval(), (x[:1].clone(),)), HERE / name)
    print(f"{name}: {sum(p.numel() for p in net.parameters())} numbers")


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    labels = rng.integers(0, len(made_up.ACTIVITIES), 4000)
    worn = [made_up.motion(rng, made_up.anybody(rng), made_up.ACTIVITIES[k]) for k in labels]
    x, net = read(np.stack(worn)).permute(0, 2, 1)[..., None], moves()
    fit(net, x, torch.tensor(labels), nn.CrossEntropyLoss(), 600)
    save(net, "motion.pt2", x)
    x = read(np.stack([made_up.spectrum(rng, made_up.KNOWN) for _ in range(2000)]))[:, None, None]
    net = spectra()
    fit(net, x, x.flatten(1), nn.MSELoss(), 1500)
    save(net, "anomaly.pt2", x)
    labels = rng.integers(0, len(voices.WORDS), 1500)
    x, net = said(rng, labels), words()
    fit(net, x, torch.tensor(labels), nn.CrossEntropyLoss(label_smoothing=0.05), 800)
    save(net, "sound.pt2", x)


if __name__ == "__main__":
    main()
