"""The soak in small, and with planted bugs that it must find."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from conftest import Built
from pio_build import ROOT, board_with_bug, build_once, with_bug

from lab.soak import fuzz_device, fuzz_host, power, week
from lab.soak.hard_life import HardLife

CUTS, ROUNDS, ROOM = 150, 10, 1024  # the first slot is full after a few saves: the second one is erased
HOST_FRAMES, DEVICE_FRAMES = 15_000, 1_000
HOST_INPUTS = 10_000  # of one process: 18 of 20 find the worst of the bugs below
UNTIL_FOUND = 800_000  # the first failure ends it: only what is blind to a bug gets so far


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace, _ = build_once(tmp_path_factory, "pio-null", "disco_f746ng", "native")
    return workspace / "build/disco_f746ng/firmware.elf"


# ---------------------------------------------------------------- power cuts


def cut_power(elf: Path) -> power.Report:
    return power.cut_power(power.Plan(elf, 3, ROUNDS, ROOM), CUTS, 1, lambda: None)


def test_a_power_cut_at_any_instruction_leaves_the_old_or_the_new_state(elf: Path) -> None:
    report = cut_power(elf)
    assert report.losses == []
    assert report.cuts == CUTS and report.in_saves > 10 and report.contents > 10 and report.erases == 2


# What a missing CRC loses takes torn words: test_flash_checkpoint.py
CHECKPOINT_BUGS = {
    "seed not saved": (".seed = s->seed,", ".seed = 1,"),
    "erases the newest": (
        "for (uint32_t turn = c->status == CHECKPOINT_NONE ? 0 : 1;",
        "for (uint32_t turn = 0;",
    ),
}


@pytest.mark.parametrize("bug", CHECKPOINT_BUGS)
def test_checkpoints_with_a_bug_lose_something(tmp_path: Path, bug: str) -> None:
    assert cut_power(board_with_bug(tmp_path, "checkpoint.c", *CHECKPOINT_BUGS[bug])).losses


# ---------------------------------------------------------------- the serial line


RECEIVER_BUGS = {
    "payload CRC not checked": ("return sent == crc32(0, r->bytes, r->frame.size) ?", "return sent != 1u ?"),
    "length not bounded": ("int keep = r->frame.size <= FRAME_PAYLOAD_MAX;", "int keep = 1;"),
    "a frame that ends early waits for ever": ("!in_frame ||", "in_frame ||"),
}


def fuzz_host_line(
    folder: Path, frames: int, firmware: Path = ROOT / "firmware", inputs: int = HOST_INPUTS
) -> fuzz_host.Report:
    program = fuzz_host.build(folder, firmware)
    return fuzz_host.fuzz(folder, program, frames, 1, lambda _: None, inputs)


@pytest.mark.parametrize("inputs", [HOST_INPUTS, pytest.param(fuzz_host.RUNS, marks=pytest.mark.slow)])
def test_fuzzed_bytes_on_this_machine_change_nothing(tmp_path: Path, inputs: int) -> None:
    report = fuzz_host_line(tmp_path, HOST_FRAMES, inputs=inputs)
    assert report.failures == []
    assert report.frames >= HOST_FRAMES


@pytest.mark.parametrize("bug", RECEIVER_BUGS)
def test_the_fuzzer_finds_a_bug_in_the_receiver(tmp_path: Path, bug: str) -> None:
    project = with_bug(tmp_path, "receiver.c", *RECEIVER_BUGS[bug])
    assert fuzz_host_line(tmp_path, UNTIL_FOUND, project / "firmware").failures


def test_the_fuzzer_finds_a_push_that_is_taken_over_whatever_its_crc(tmp_path: Path) -> None:
    project = with_bug(
        tmp_path, "transfer.c", "if (crc32(0, bytes, total) != t->crc) {", "if (t->crc == 1) {"
    )
    assert fuzz_host_line(tmp_path, UNTIL_FOUND, project / "firmware").failures


def fuzz_board_line(elf: Path) -> list[str]:
    """What failed first, if anything did."""
    return fuzz_device.fuzz(elf, DEVICE_FRAMES, 1, lambda _: None, failures=1).failures


def test_damaged_frames_on_the_board_change_nothing(elf: Path) -> None:
    assert fuzz_board_line(elf) == []


@pytest.mark.parametrize("bug", list(RECEIVER_BUGS)[:2])
def test_damaged_frames_find_a_bug_on_the_board(tmp_path: Path, bug: str) -> None:
    assert fuzz_board_line(board_with_bug(tmp_path, "receiver.c", *RECEIVER_BUGS[bug]))


# ---------------------------------------------------------------- the week


def lesson() -> week.Lesson:
    draws = np.random.default_rng(3)
    images = draws.integers(0, 256, (20, 32, 32, 1)).astype(np.uint8)
    return week.Lesson(images, draws.integers(0, 10, 20))


def test_a_hard_day_ends_like_an_undisturbed_one(example: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(week, "EVERY_STEPS", 12)
    monkeypatch.setattr(week, "AUTOSAVE", 5)
    report = week.live(example.elf, example.program, lesson(), 80, 1, lambda _: None)
    assert report.equal
    assert report.troubles.power_cuts and report.troubles.resets and report.troubles.damaged
    assert report.again > 0


def test_a_session_that_loses_a_step_is_not_equal(example: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that does not ask for the step after trouble, but believes that all is well."""
    monkeypatch.setattr(week, "EVERY_STEPS", 12)
    told = iter(range(1000))
    monkeypatch.setattr(week.Host, "_find_place", lambda self: min(80, 20 + 20 * next(told)))
    assert not week.live(example.elf, example.program, lesson(), 80, 1, lambda _: None).equal


def test_a_calm_life_has_no_troubles(example: Built) -> None:
    from microtrain.device.client import Device
    from microtrain.emulator import Board

    port = HardLife(Board(example.elf), random.Random(1), 10**15, 0.0)
    with Device(port, "the board") as device:
        lesson().teach(device, 0)
    assert (port.troubles.power_cuts, port.troubles.resets, port.troubles.damaged) == (0, 0, 0)
