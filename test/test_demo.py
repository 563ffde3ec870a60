"""The demo in small: what it leaves behind, what it says without a terminal, and where it cannot go on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import Built
from PIL import Image

from microtrain.base.build import Firmware
from microtrain.base.errors import Error
from microtrain.demo import run as demo
from microtrain.demo.cli import main
from microtrain.demo.sessions import Result
from microtrain.device.session import Log, Settings


@pytest.fixture(scope="module")
def few_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One image of each class to learn from, and one to test with."""
    folder, rng = tmp_path_factory.mktemp("few"), np.random.default_rng(0)
    for part in ("train", "test"):
        for digit in range(demo.CLASSES):
            (folder / part / str(digit)).mkdir(parents=True)
            pixels = rng.integers(0, 256, (32, 32)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / part / str(digit) / "0.png")
    return folder


def test_the_demo_in_small(
    example: Built, few_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it but the conversion and the builds, with ten images."""
    firmware = Firmware(example.folder, example.program, example.elf)
    monkeypatch.setattr(demo, "OUTPUT", tmp_path)
    monkeypatch.setattr(demo, "export_images", lambda: few_images)
    monkeypatch.setattr(demo, "make_all", lambda: dict.fromkeys(demo.TITLES, firmware))
    monkeypatch.setattr(demo, "shown", lambda path: path)
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["sha256_host"] == report["sha256_device"]
    assert report["train_steps"] == report["test_images"] == 10
    assert report["accuracy_head_only"] == report["accuracy_after"]  # the same firmware here
    assert report["sram_measured"] <= report["sram_reported"]
    assert report["step_instructions"] > report["inference_instructions"] > 0
    log = json.loads((tmp_path / "session.json").read_text())
    assert log["settings"]["rate"] == demo.RATE and len(log["steps"]) == 10
    assert all((tmp_path / name).is_file() for name in ("curve.svg", "arena.svg", "memory.json"))
    said = done.output.splitlines()
    assert "  emulated STM32F746: training, 10 samples" in said
    assert said.count("  emulated STM32F746: evaluating, 10 samples") == 2
    assert f"  board {report['sha256_device']}" in said


def test_a_board_that_computes_otherwise_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "OUTPUT", demo.ROOT / "build/demo")
    numbers = ("sram_reported", "sram_measured", "flash_bytes", "inference_instructions", "step_instructions")
    report = dict.fromkeys(numbers, 1) | {"test_images": 1, "train_steps": 1}
    host = dict.fromkeys(demo.TITLES, Result(0.1, 0.9, Log({}, (), Settings())))
    with pytest.raises(Error, match="the board's weights differ from the host's"):
        demo.tell({**report, "sha256_host": "aa", "sha256_device": "bb"}, host)
    assert "sparse update     10.0% ->  90.0%" in capsys.readouterr().out  # it is said all the same


def test_without_its_extra_the_demo_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microtrain.base.extras.find_spec", lambda name: None)
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 1
    assert done.output.startswith(
        "demo: the demo, whose images are scikit-learn's digits, needs sklearn and scipy"
    )
    assert "pip install 'microtrain[demo]'" in done.output


def test_images_are_exported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that was left half-written is made anew, a whole one is kept."""
    ran: list[Path] = []

    def export(words: list[str], log: Path) -> str:
        ran.append(Path(words[-1]))
        (ran[-1] / "test").mkdir(parents=True)
        return ""

    monkeypatch.setattr(demo, "OUTPUT", tmp_path)
    monkeypatch.setattr(demo, "logged", export)
    (tmp_path / "images/train").mkdir(parents=True)
    assert demo.export_images() == demo.export_images() == tmp_path / "images"
    assert ran == [tmp_path / "images"]
    assert not (tmp_path / "images/train").exists()
