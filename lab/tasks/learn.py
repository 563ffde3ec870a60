"""What a network learns: by the simulator, which has the board's bits; an autoencoder by its own C."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from microtrain.base.commands import run
from microtrain.native.model import Model, Sgd, compile_model
from microtrain.samples.numbers import load_numbers

from .cases import Case

EPOCHS = 2
RATE = 0.02  # of an autoencoder
Learned = dict[str, float | str]


def classes(case: Case, generated: Path, data: Path, work: Path) -> Learned:
    """Accuracy on held-out samples before and after, in the device's arithmetic and with float errors."""
    found: Learned = {"metric": "accuracy"}
    for key, arithmetic in (("after", "device"), ("float_after", "float")):
        out = work / f"simulated-{arithmetic}"
        words = [sys.executable, "tools/simulate", str(generated), "--data", str(data), "-o", str(out)]
        words += ["--epochs", str(EPOCHS), "--jobs", "1", "--arithmetic", arithmetic]
        words += ["--limit", str(case.limit)] if case.limit else []
        done = run(words)
        if done.returncode:
            raise RuntimeError(done.stderr[-400:])
        accuracy = json.loads((out / "results.json").read_text())["runs"][0]["accuracy"]
        found[key] = round(accuracy["after"], 4)
        found.setdefault("before", round(accuracy["before"], 4))
    return found


def samples(folder: Path, n: int) -> np.ndarray:
    return np.stack([load_numbers(path, (1, 1, n)) for path in sorted(folder.iterdir())])


def normal(case: Case, generated: Path, data: Path, work: Path) -> Learned:
    """Area under the curve between a machine that has become normal and a third, before and after."""
    model = Model(generated, compile_model(generated, work))
    n = 640
    test, odd = samples(data / "test", n), samples(data / "odd", n)

    def auc() -> float:
        low, high = (np.array([model.forward(x, False)[1] for x in part]) for part in (test, odd))
        return round(float((high[:, None] > low[None]).mean()), 4)

    before = auc()
    for step, x in enumerate(samples(data / "new", n)):
        model.forward(x, True)
        rates = dict.fromkeys(("lr_weight", "lr_bias", "lr_head"), RATE)
        model.backward(0, Sgd(**rates, seed=1, step=step))
    return {"metric": "AUC", "before": before, "after": auc()}
