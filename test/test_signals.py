"""The demo of made-up signals: what the simulator makes, and that its networks learn somebody else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from pio_build import host_program
from sklearn.metrics import roc_auc_score

from microtrain.convert.cli import main as convert_main
from microtrain.demo import made_up, signals, voices
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


def test_words_have_the_physics_of_a_voice() -> None:
    """Harmonics of the pitch, resonances that are a child's where a child speaks, and a hiss."""
    voice, hertz = voices.Voice(100.0, 1.0, 1.0), np.fft.rfftfreq(2000, 1 / voices.RATE)

    def spectrum(rng: np.random.Generator, speaker: voices.Voice, text: str, first: int) -> np.ndarray:
        start = voices.NEEDED // 2 + first
        said = [voices.word(rng, speaker, text)[start : start + 2000].astype(float) for _ in range(8)]
        found: np.ndarray = np.mean([np.abs(np.fft.rfft(x * np.hanning(2000))) for x in said], axis=0)
        return found

    def loudest(found: np.ndarray, low: float, high: float) -> float:
        band = (hertz > low) & (hertz < high)
        return float(hertz[band][found[band].argmax()])

    def rough(x: np.ndarray) -> float:
        return float(np.abs(np.diff(x)).mean() / np.abs(x).mean())

    rng = np.random.default_rng(0)
    a = spectrum(rng, voice, "aaa", -1000)
    assert loudest(a, 60, 150) == pytest.approx(100, abs=12), "the pitch"
    assert loudest(a, 500, 1000) == pytest.approx(750, abs=110), "the first resonance of a"
    assert loudest(spectrum(rng, voice, "iii", -1000), 1500, 2600) == pytest.approx(2250, abs=220)
    child = spectrum(rng, voices.Voice(100.0, 1.4, 1.0), "aaa", -1000)
    assert loudest(child, 500, 1500) == pytest.approx(1.4 * 750, abs=150)
    said = [voices.word(rng, voice, "sao").astype(float) for _ in range(20)]
    start = voices.NEEDED // 2 - int(0.21 * voices.RATE)
    begun, ended = (np.mean([rough(x[start + at : start + at + 500]) for x in said]) for at in (200, 2400))
    assert begun > 2 * ended, "s hisses, o does not"


@pytest.mark.parametrize("name", signals.TASKS)
def test_a_seed_makes_the_same_samples(name: str) -> None:
    one, again, other = (signals.TASKS[name](seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.training.values, again.training.values)
    assert (one.training.values != other.training.values).any()
    shape = one.training.values.shape
    assert one.training.values.dtype == (np.int16 if name == "sound" else np.uint8)
    assert len(shape) == (2 if name == "sound" else 4)


def test_the_area_under_the_curve_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    scores, odd = np.round(rng.normal(0, 1, 80), 1), rng.integers(0, 2, 80)
    assert signals.auc(scores, odd) == pytest.approx(roc_auc_score(odd, scores))


@pytest.mark.parametrize(("name", "least"), [("sound", 0.85), ("motion", 0.85), ("anomaly", 0.85)])
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
    done = CliRunner().invoke(main, ["--task", "smell"])
    assert done.exit_code == 2 and "motion" in done.output
