"""What a network learns: by the simulator, which has the board's bits; an autoencoder by its own C."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from lab.golden.data import find
from microtrain.base.commands import run
from microtrain.base.plan import read_plan
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ops.reconstruct import ANOMALY as SCORE
from microtrain.native.model import Model, Sgd, compile_model
from microtrain.samples.numbers import load_numbers

from .cases import Case
from .twin import Twin

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
    """As the model stores them, int8 [samples][1][1][n]."""
    bytes_ = np.stack([load_numbers(path, (1, 1, n)) for path in sorted(folder.iterdir())])
    return (bytes_.astype(np.int16) - 128).astype(np.int8)


def auc(low: np.ndarray, high: np.ndarray) -> float:
    """Area under the curve between scores that should be low and scores that should be high."""
    return round(float((high[:, None] > low[None]).mean()), 4)


def normal(case: Case, generated: Path, data: Path, work: Path) -> Learned:
    """Area under the curve between a machine that has become normal and a third, before and after; and after
    in float, by the published float file."""
    model = Model(generated, compile_model(generated, work))
    n = model.shape[-1]
    test, odd, new = (samples(data / part, n) for part in ("test", "odd", "new"))

    def measured() -> float:
        low, high = (np.array([model.forward(x, False)[SCORE] for x in part]) for part in (test, odd))
        return auc(low, high)

    before = measured()
    for step, x in enumerate(new):
        model.forward(x, True)
        rates = dict.fromkeys(("lr_weight", "lr_bias", "lr_head"), RATE)
        model.backward(0, Sgd(**rates, seed=1, step=step))
    return {
        "metric": "AUC",
        "before": before,
        "after": measured(),
        "float_after": in_float(case, generated, data),
    }


def in_float(case: Case, generated: Path, data: Path) -> float:
    """The same session in PyTorch."""
    published, scale, zero = float_twin(case.model)
    plan = read_plan(generated / "plan.json")
    n = plan.input.shape[-1]

    def real(part: str) -> np.ndarray:
        stored = samples(data / part, n).reshape(-1, n).astype(np.float32)
        return np.asarray((stored - np.float32(zero)) * np.float32(scale))

    twin = Twin(published, plan, real("normal"))
    for sample in real("new"):
        twin.learn(sample, RATE)
    return auc(twin.scores(real("test")), twin.scores(real("odd")))


def float_twin(model: str) -> tuple[Path, float, int]:
    """The float file beside an int8 one, and what the int8 file's input means: scale and zero."""
    folder = find().folder / "mlperf_tiny"
    graph = load_model(folder / model).graph
    given = graph.tensors[graph.input.tensor].given
    assert given is not None
    return folder / model.replace("int8", "fp32"), float(given[0]), int(given[1])
