"""The demo of made-up signals: what the simulator makes, and that its networks learn somebody else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from pio_build import host_program
from sklearn.metrics import roc_auc_score

from microtrain.convert.cli import main as convert_main
from microtrain.demo import made_up, signals
from microtrain.demo.cli import main
from microtrain.device.link import ProgramPort
from microtrain.device.session import Settings, Silent


def test_signals_have_the_physics_that_they_are_made_of() -> None:
    rng = np.random.default_rng(0)
    upright = made_up.Person(1.0, 1.0, np.eye(3))
    made = {name: made_up.motion(rng, upright, name) / made_up.LSB_PER_G for name in made_up.ACTIVITIES}
    assert made["resting"].mean(axis=0) == pytest.approx([0, 0, 1], abs=0.2), "gravity"
    shake = {name: float(signal.std(axis=0).sum()) for name, signal in made.items()}
    assert shake["resting"] < shake["cycling"] < shake["walking"] < shake["running"]
    turned = made_up.rotation(rng, 100.0)
    np.testing.assert_allclose(turned @ turned.T, np.eye(3), atol=1e-12)
    assert np.trace(turned) == pytest.approx(1 + 2 * np.cos(np.deg2rad(100)))
    loud = np.mean([made_up.spectrum(rng, made_up.OTHER, "rubbing") for _ in range(20)], axis=0)
    still = np.mean([made_up.spectrum(rng, made_up.OTHER) for _ in range(20)], axis=0)
    assert (loud - still)[-10:].min() > 4 and np.abs((loud - still)[:20]).max() < 4, "rubbing is a hiss"


@pytest.mark.parametrize("name", signals.TASKS)
def test_a_seed_makes_the_same_samples(name: str) -> None:
    one, again, other = (signals.TASKS[name](seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.training.values, again.training.values)
    assert (one.training.values != other.training.values).any()
    assert one.training.values.dtype == np.uint8 and one.training.values.ndim == 4


def test_the_area_under_the_curve_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    scores, odd = np.round(rng.normal(0, 1, 80), 1), rng.integers(0, 2, 80)
    assert signals.auc(scores, odd) == pytest.approx(roc_auc_score(odd, scores))


@pytest.mark.parametrize(("name", "least"), [("motion", 0.85), ("anomaly", 0.85)])
def test_what_is_unknown_is_learned(name: str, least: float, tmp_path: Path) -> None:
    """The demo's session, on the shipped network, converted and built for this machine."""
    task = signals.TASKS[name](0)
    words = signals.conversion(task, tmp_path)
    result = CliRunner().invoke(convert_main, list(map(str, words)))
    assert result.exit_code == 0, result.output
    program = host_program(tmp_path / "generated", tmp_path)
    settings = Settings(1, 0, rate=task.rate, schedule="cosine")
    found = signals.session(task, ProgramPort(program), name, settings, Silent())
    assert found.before < 0.75 and found.after > least, found


def test_an_unknown_task_is_named() -> None:
    done = CliRunner().invoke(main, ["--task", "sound"])
    assert done.exit_code == 2 and "motion" in done.output
