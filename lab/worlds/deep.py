"""How long conversion takes for networks of many layers, from the file to the generated C."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from microtrain.base.commands import last_line, ours, run
from microtrain.base.errors import Error

from .networks import Inverted

DEPTHS = (50, 100, 200, 400)
SCHEMES = ("bias-only", "full")  # of biases alone, and of all there is
CHANNELS, SIDE, CLASSES = 8, 32, 10
EACH = 3  # layers of a block


def network(layers: int) -> nn.Module:
    """A stem, inverted bottlenecks with residual adds, and a head: so many convolutions."""
    stem = [nn.Conv2d(3, CHANNELS, 3, 2, 1), nn.ReLU()]
    blocks = [Inverted(CHANNELS, CHANNELS, 1, 2) for _ in range((layers - 1) // EACH)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, CLASSES))


def seconds(layers: int, scheme: str, folder: Path) -> tuple[float, float]:
    """Of the clock and of a processor, converted for this machine: what fits a board is another question."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    path, images = folder / "deep.pt2", folder / "deep.npz"
    torch.export.save(torch.export.export(network(layers).eval(), (torch.zeros(1, 3, SIDE, SIDE),)), path)
    np.savez(images, images=np.random.default_rng(0).integers(0, 256, (4, SIDE, SIDE, 3)).astype(np.uint8))
    options = ["--calibration", images, "--mean", "imagenet", "--std", "imagenet", "--scheme", scheme]
    start, before = time.monotonic(), _processor()
    done = run(ours("tools/convert", path, *options, "--board", "native", "-o", folder / "deep"))
    if done.returncode:
        raise Error(f"{layers} layers: {last_line(done)}")
    return time.monotonic() - start, _processor() - before


def _processor() -> float:
    """Seconds of children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
