"""Training that diverges: the device goes back to its last checkpoint and learns more slowly from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import Built
from pio_build import build_once
from serial_program import WEIGHTS, H, Program, W, frame
from test_flash_checkpoint import learn, stats

from microtrain.device.answers import Step
from microtrain.device.client import Device
from microtrain.device.link import Port, ProgramPort
from microtrain.emulator.port import EmulatedPort

BRIGHT = bytes([255]) * (H * W)
# Of the null model, whose class k is the sum over every third pixel: sure of class 0 on a bright image.
SPOILED = bytes(127 if i % 3 == 0 else 129 for i in range(64))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace, _ = build_once(tmp_path_factory, "pio-asan", "native_asan")
    return workspace / "build" / "native_asan" / "program"


@pytest.fixture
def device(program: Path, tmp_path: Path) -> Iterator[Program]:
    device = Program(program, tmp_path / "flash.bin")
    yield device
    device.process.communicate(timeout=10)
    assert device.process.returncode == 0


def spoil(device: Program) -> None:
    """Weights that are wrong about every bright image, at a rate that does not mend them."""
    assert device.start_push(SPOILED) == "ok push"
    assert device.ask(frame(WEIGHTS, 0, SPOILED)) == "ok push done"
    device.ask("rate 0.001")


def mistaken_step(device: Program) -> list[str]:
    """Train on a bright image that is not of class 0."""
    device.send_image(BRIGHT)
    return device.ask_all("train 1")


def until_back(device: Program, most: int = 400) -> tuple[int, str]:
    """Mistaken steps until the device goes back; their number, and what it says then."""
    for count in range(1, most + 1):
        *said, final = mistaken_step(device)
        assert final.startswith("ok train 1 0 ")
        if said[-1:] and said[-1].startswith("diverged"):
            return count, said[-1]
    raise AssertionError(f"not back after {most} steps")


def test_back_to_the_last_checkpoint_at_half_the_rate(device: Program) -> None:
    device.ask("seed 5")
    learn(device, 4)
    saved = device.pull()
    device.ask("save")
    learn(device, 3, 4)
    spoil(device)
    assert until_back(device)[1] == "diverged: back to step 4 at rate 0.0005"
    assert device.pull() == saved
    now = stats(device)
    assert (now["steps"], now["seed"], now["saves"], now["rollbacks"]) == ("4", "5", "1", "1")
    assert device.ask("infer").startswith("err image rows missing")


def test_back_to_the_conversion_where_nothing_was_saved(device: Program) -> None:
    converted = device.sha()
    learn(device, 4)
    spoil(device)
    assert until_back(device)[1] == "diverged: back to step 0 at rate 0.0005"
    assert device.sha() == converted


def test_the_running_mean_starts_over(device: Program) -> None:
    spoil(device)
    until_back(device)
    spoil(device)
    assert not any(line.startswith("diverged") for _ in range(5) for line in mistaken_step(device))


def test_a_diverging_session_is_not_saved(device: Program) -> None:
    """It takes steps to notice: of the later half of them none becomes the checkpoint it goes back to."""
    device.ask("autosave 1")
    learn(device, 2)
    spoil(device)
    steps, said = until_back(device)
    assert 2 <= int(said.split()[4]) < 2 + steps // 2


def test_without_the_guard_it_goes_on(device: Program) -> None:
    assert device.ask("guard 0") == "ok guard 0"
    spoil(device)
    with pytest.raises(AssertionError, match="not back"):
        until_back(device)
    assert stats(device)["rollbacks"] == "0"
    assert device.ask("guard 1") == "ok guard 1"
    assert "back to step 0" in until_back(device)[1]


def test_the_setting_is_kept_over_a_restart(program: Path, tmp_path: Path) -> None:
    for setting, rollbacks in (("guard 0", "0"), ("guard 1", "1")):
        device = Program(program, tmp_path / "flash.bin")
        device.ask(setting)
        device.ask("save")
        device.process.communicate(timeout=10)
        device = Program(program, tmp_path / "flash.bin")
        spoil(device)
        for _ in range(100):
            mistaken_step(device)
        assert stats(device)["rollbacks"] == rollbacks
        device.process.communicate(timeout=10)


@pytest.mark.parametrize("word", ["2", "on", "-1"])
def test_it_takes_0_or_1(device: Program, word: str) -> None:
    assert device.ask(f"guard {word}") == "err argument guard takes 0 or 1"


def wild(port: Port) -> tuple[list[Step], str, dict[str, str]]:
    """A real model at a thousand times its rate, until it has diverged; its state afterwards."""
    images = np.random.default_rng(1).integers(0, 256, (8, 32, 32, 1)).astype(np.uint8)
    steps: list[Step] = []
    with Device(port) as device:
        device.train(images[0], 3)
        device.save()
        saved = device.sha()
        device.rate(1000)
        while not steps or not steps[-1].diverged:
            steps.append(device.train(images[len(steps) % 8], len(steps) % 10))
            assert len(steps) < 200
        assert device.sha() == saved
        return steps, saved, device.stats()


def test_a_real_model_is_brought_back_alike_on_the_board_and_on_this_machine(example: Built) -> None:
    here, on_board = wild(ProgramPort(example.program)), wild(EmulatedPort(example.elf))
    assert here[:2] == on_board[:2]
    assert here[2]["rollbacks"] == on_board[2]["rollbacks"] == "1"
