"""A TFLite or ONNX file on the emulated board and back: its own runtime then answers as the board does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from pio_build import build
from test_model_copy import interpreted
from test_onnx import quantized_file, reference

from lab.attack.tflite_files import small_network
from microtrain.convert.cli import main as convert
from microtrain.device.cli import main as device
from microtrain.device.client import Device
from microtrain.device.link import EmulatorPort

CLASSES, TAUGHT, ASKED = 3, 30, 40


def small_tflite(folder: Path) -> Path:
    path = folder / "small.tflite"
    path.write_bytes(small_network())
    return path


def by_tflite(path: Path, stored: np.ndarray) -> np.ndarray:
    pytest.importorskip("ai_edge_litert", reason="no reference interpreter of TFLite")
    return interpreted(path, stored.astype(int) - 128)


def by_onnx(path: Path, stored: np.ndarray) -> np.ndarray:
    return reference(path, ((stored.astype(np.float64) - 100) * 0.02).transpose(0, 3, 1, 2))


FILES: dict[str, tuple[Callable[[Path], Path], tuple[int, ...], Callable[[Path, np.ndarray], np.ndarray]]] = {
    "tflite": (small_tflite, (9, 10, 3), by_tflite),
    "onnx": (quantized_file, (6, 6, 2), by_onnx),
}


def samples(shape: tuple[int, ...], label: int, count: int, seed: int) -> np.ndarray:
    """Noise about a picture that each class has."""
    picture = np.random.default_rng(label).integers(40, 216, shape)
    noise = np.random.default_rng([seed, label]).normal(0, 25, (count, *shape))
    return np.clip(np.rint(picture + noise), 0, 255).astype(np.uint8)


def done(command: object, *words: object) -> str:
    result = CliRunner().invoke(command, [str(word) for word in words])  # type: ignore[arg-type]
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILES)
def test_what_the_board_learned_is_in_the_file(kind: str, tmp_path: Path) -> None:
    make, shape, answers = FILES[kind]
    model, out = make(tmp_path), tmp_path / f"out.{kind}"
    for label in range(CLASSES):
        (tmp_path / f"data/{label}").mkdir(parents=True)
        for n, sample in enumerate(samples(shape, label, TAUGHT, seed=1)):
            np.save(tmp_path / f"data/{label}/{n}.npy", sample)
    generated = tmp_path / "generated"
    done(convert, model, "--classes", CLASSES, "-o", generated)
    elf = build(tmp_path / "pio", "disco_f746ng", generated)
    board = ("--emulate", elf, "--plan", generated / "plan.json")
    done(device, *board, "train", tmp_path / "data")
    done(device, *board, "pull", "-o", tmp_path / "trained.npz", f"--{kind}", out, "--model", model)
    asked = np.concatenate([samples(shape, label, ASKED, seed=2) for label in range(CLASSES)])
    named = np.repeat(np.arange(CLASSES), ASKED)
    with Device(EmulatorPort(elf, kept=True)) as line:
        found = np.array([line.infer(each).logits.argmax() for each in asked])
    told = answers(out, asked)
    assert (told.argmax(1) == found).all()
    assert (found == named).mean() > 0.9
    if told.shape == (before := answers(model, asked)).shape:
        assert (before.argmax(1) == named).mean() < 0.7, "the file as it was knows less"
