"""The arithmetic of training, decided by measurement: one thing changed at a time, in PyTorch.

The base is the device's: int8 weights rounded stochastically, int8 errors with one scale per channel, a float
head, plain SGD. Variants are judged on validation images, never on test images.
"""

from __future__ import annotations

from dataclasses import replace

from microtrain.simulate.rules import FLOAT, Rules

from .cases import BAR, EPOCHS, GRID, Cell, Job, Session
from .store import STUDY, load

NETWORK = "mcunet-5fps"
RATES = GRID[1:4]
SEEDS = (0, 1)
BASE = Rules(weights="int8", errors="channel")
VARIANTS = {
    "base": BASE,
    "float": FLOAT,
    "weights: float masters": replace(BASE, weights="float"),
    "weights: 4 fraction bits": replace(BASE, fraction_bits=4),
    "weights: 8 fraction bits": replace(BASE, fraction_bits=8),
    "weights: rounded to nearest": replace(BASE, rounding="nearest"),
    "errors: not rounded": replace(BASE, errors="float"),
    "errors: one scale per pixel": replace(BASE, errors="pixel"),
    "errors: one scale per tensor": replace(BASE, errors="tensor"),
    "errors: one power of two per tensor": replace(BASE, errors="tensor2"),
    "errors: one power of two per tensor, stochastic": replace(
        BASE, errors="tensor2", error_rounding="stochastic"
    ),
    "errors: one scale per channel, stochastic": replace(BASE, error_rounding="stochastic"),
    "errors: largest 10 % kept": replace(BASE, kept=0.1),
    "errors: largest 1 % kept": replace(BASE, kept=0.01),
    "gradients: mean of 8": replace(BASE, accumulate=8, rates=(8.0, 8.0, 8.0)),
    "gradients: mean of 32": replace(BASE, accumulate=32, rates=(32.0, 32.0, 32.0)),
    "momentum 0.9": replace(BASE, momentum=0.9, rates=(0.1, 0.1, 0.1)),
    "rates: biases / 4": replace(BASE, rates=(1.0, 0.25, 1.0)),
    "rates: biases x 4": replace(BASE, rates=(1.0, 4.0, 1.0)),
    "rates: head / 4": replace(BASE, rates=(1.0, 1.0, 0.25)),
    "rates: head x 4": replace(BASE, rates=(1.0, 1.0, 4.0)),
    "warm-up of 500 steps": BASE,
    "head: int8": replace(BASE, head="int8"),
    "steps of loss below 0.05 skipped": replace(BASE, gate=0.05),
    "steps of loss below 0.3 skipped": replace(BASE, gate=0.3),
}


def cells() -> list[Cell]:
    """One cell per variant and data set."""
    return [
        Cell(
            dataset, NETWORK, BAR[NETWORK], arithmetic="study", rules=rules, variant=name,
            warmup=500 if name.startswith("warm-up") else 0,
        )
        for dataset in reversed(EPOCHS)
        for name, rules in VARIANTS.items()
    ]  # fmt: skip


def jobs() -> list[Job]:
    """Those that pages/results-arithmetic.json does not tell of."""
    done = {(row["dataset"], row["variant"]) for row in load(STUDY)}
    sessions = tuple(Session(lr, seed, validation=True) for lr in RATES for seed in SEEDS)
    return [Job(cell, sessions) for cell in cells() if (cell.dataset, cell.variant) not in done]
