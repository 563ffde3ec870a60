"""Checkpoints: what a device has learned is there after a restart, whatever happens while it is saved."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pio_build import board_with_bug, build_once
from serial_program import ANSWER_S, Program

from lab.attack.cuts import slot
from lab.soak.line import BoardLine, LineError, State
from microtrain.emulator import Board

SLOTS = ((0, 128 << 10), (128 << 10, 256 << 10))  # in the file that is the flash: offset, bytes
HEADER, RECORD, STRIDE = 32, 64, 128  # bytes; the null model has 64 of trainables
MODEL_ID = 0x6C6C756E


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace, _ = build_once(tmp_path_factory, "pio-asan", "native_asan")
    return workspace / "build" / "native_asan" / "program"


@pytest.fixture
def flash(tmp_path: Path) -> Path:
    return tmp_path / "flash.bin"


@contextmanager
def running(program: Path, flash: Path) -> Iterator[Program]:
    """A device from power on to power off."""
    device = Program(program, flash)
    yield device
    device.process.communicate(timeout=ANSWER_S)
    assert device.process.returncode == 0


def learn(device: Program, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        assert device.ask(f"pattern {step}") == "ok pattern"
        assert device.ask(f"train {step % 3}").startswith("ok train")


def stats(device: Program) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in device.ask_all("stats")[:-1])


def test_what_was_saved_is_there_after_a_restart(program: Path, flash: Path) -> None:
    with running(program, flash) as device:
        assert device.checkpoint == "checkpoint none"
        device.ask("seed 77")
        device.ask("rate 0.5")
        device.ask("autosave 100")
        learn(device, 5)
        saved = device.pull()
        assert device.ask_all("save") == ["busy erasing flash, up to 4 s", "ok save 1"]
        learn(device, 2, 5)
        assert device.pull() != saved
    with running(program, flash) as device:
        assert device.checkpoint == "checkpoint 1 of step 5"
        assert device.pull() == saved
        assert stats(device)["steps"] == "5"
        learn(device, 2, 5)
        again = device.pull()
    with running(program, flash) as device:  # autosave, seed and rate came back with it
        learn(device, 2, 5)
        assert device.pull() == again
        assert device.ask("seed 78") == "ok seed 78"
        learn(device, 97, 7)
        assert stats(device)["saves"] == "1"
        learn(device, 1)
        assert stats(device)["saves"] == "2"


def test_a_learner_goes_on_as_if_never_interrupted(program: Path, flash: Path, tmp_path: Path) -> None:
    with running(program, tmp_path / "other.bin") as device:
        learn(device, 12)
        undisturbed = device.pull()
    for start in range(0, 12, 4):
        with running(program, flash) as device:
            learn(device, 4, start)
            device.ask("save")
    with running(program, flash) as device:
        assert device.pull() == undisturbed


def test_a_controlled_restart_saves_what_is_new(program: Path, flash: Path) -> None:
    with running(program, flash) as device:
        learn(device, 3)
        learned = device.pull()
        assert device.ask("reboot") == "ok reboot"
        device.boot()
        assert device.checkpoint == "checkpoint 1 of step 3"
        assert device.pull() == learned
        device.ask("reboot")
        device.boot()
        assert device.checkpoint == "checkpoint 1 of step 3"  # nothing was new


def test_slots_fill_before_one_is_erased(program: Path, flash: Path) -> None:
    places = [(size - HEADER) // STRIDE for _, size in SLOTS]
    with running(program, flash) as device:
        for number in range(1, sum(places) + 2):
            learn(device, 1, number)
            said = device.ask_all("save")
            erasing = number in (1, places[0] + 1, sum(places) + 1)
            assert said == ["busy erasing flash, up to 4 s"] * erasing + [f"ok save {number}"]
        assert (stats(device)["erases_a"], stats(device)["erases_b"]) == ("2", "1")
        assert stats(device)["saves_left"] == str((10000 - 2) * places[0] + (10000 - 1) * places[1])
        learned = device.pull()
    with running(program, flash) as device:
        assert device.checkpoint == f"checkpoint {number} of step {number}"
        assert device.pull() == learned


def test_a_corrupt_checkpoint_gives_way_to_the_one_before(program: Path, flash: Path) -> None:
    with running(program, flash) as device:
        learn(device, 1)
        before = device.pull()
        device.ask("save")
        learn(device, 1)
        device.ask("save")
    damaged = bytearray(flash.read_bytes())
    damaged[HEADER + STRIDE + RECORD + 3] ^= 0x10
    flash.write_bytes(damaged)
    with running(program, flash) as device:
        assert device.checkpoint == "checkpoint 1 of step 1"
        assert device.pull() == before
        assert device.ask("save") == "ok save 2"  # behind the damaged one
    with running(program, flash) as device:
        assert device.checkpoint == "checkpoint 2 of step 1"


def header(model_id: int, version: int) -> bytes:
    head = struct.pack("<4I", 0x4C53544D, version, model_id, 3) + b"\xff" * 12
    return head + struct.pack("<I", zlib.crc32(head))


@pytest.mark.parametrize(
    ("model_id", "version", "reason"),
    [(0x1234ABCD, 1, "it is of model 1234abcd"), (MODEL_ID, 2, "its layout is version 2")],
)
def test_what_others_learned_is_refused_and_kept(
    program: Path, flash: Path, model_id: int, version: int, reason: str
) -> None:
    with running(program, flash) as device:
        initial = device.pull()
        learn(device, 1)
        device.ask("save")
    other = bytearray(flash.read_bytes())
    other[:HEADER] = header(model_id, version)
    flash.write_bytes(other)
    with running(program, flash) as device:
        assert device.checkpoint == f"checkpoint refused: {reason}; `forget` erases it"
        assert device.pull() == initial
        assert device.ask("save").startswith("err flash holds")
        learn(device, 1)
        device.ask("autosave 1")
        assert any(line.startswith("unsaved: the flash holds") for line in train_lines(device))
        device.ask("reboot")
        device.boot()
        assert device.checkpoint.startswith("checkpoint refused")
        assert flash.read_bytes() == other
        assert device.ask_all("forget")[-1] == "ok forget"
        assert device.ask("save") == "ok save 1"
        assert (stats(device)["erases_a"], stats(device)["erases_b"]) == ("4", "1")
    with running(program, flash) as device:
        assert device.checkpoint == "checkpoint 1 of step 0"


def train_lines(device: Program) -> list[str]:
    device.ask("pattern 1")
    return device.ask_all("train 1")


def test_forget_keeps_the_trainables(program: Path, flash: Path) -> None:
    with running(program, flash) as device:
        learn(device, 2)
        learned = device.pull()
        device.ask("save")
        assert device.ask_all("forget")[-1] == "ok forget"
        assert device.pull() == learned
    with running(program, flash) as device:
        assert device.checkpoint == "checkpoint none"


def test_autosave_takes_a_number(program: Path, flash: Path) -> None:
    with running(program, flash) as device:
        assert device.ask("autosave soon").startswith("err argument autosave takes a number")


def test_a_file_of_another_size_is_refused(program: Path, flash: Path) -> None:
    flash.write_bytes(b"x")
    with pytest.raises(AssertionError):
        Program(program, flash)


# ---------------------------------------------------------------- power cuts, on the emulated board

SAVE_OPERATIONS = (RECORD + 64) // 4  # words
ERASE_OPERATIONS = 1 + HEADER // 4


def null_elf(factory: pytest.TempPathFactory, board: str) -> Path:
    """The null model for a board."""
    nucleo = board == "nucleo_f446re"
    workspace, _ = build_once(factory, *(("pio-nucleo", board) if nucleo else ("pio-null", board, "native")))
    return workspace / "build" / board / "firmware.elf"


@pytest.fixture(scope="module", params=["disco_f746ng", "nucleo_f446re"])
def line(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BoardLine:
    return BoardLine(Board(null_elf(tmp_path_factory, request.param)))


def saved_once(line: BoardLine, slot_full: bool) -> tuple[bytes, State]:
    """Flash with one checkpoint, and its state. slot_full: the next one needs an erase."""
    flash = line.board.memory.flash
    for place in (slot(line.board, "a"), slot(line.board, "b")):
        flash[place] = b"\xff" * (place.stop - place.start)
    line.boot()
    line.train(1, 3)
    assert line.ask("save")[-1] == "ok save 1"
    if slot_full:
        first = slot(line.board, "a")
        rest = slice(first.start + HEADER + STRIDE, first.stop)
        flash[rest] = bytes(rest.stop - rest.start)
    return flash[:], line.state()


def saves(line: BoardLine) -> bool:
    """Whether the second save comes to its end; the power may fail before."""
    try:
        return line.do("save") == "ok save 2"
    except LineError:
        return False


def cut_save_everywhere(line: BoardLine, slot_full: bool, torn: bool) -> None:
    """Cut the power in each flash operation of a save: the old state or the new one, and it can save again.

    torn   the operation has changed some of its bits, at random
    """
    flash, old = saved_once(line, slot_full)
    draws = random.Random(5)
    operations = SAVE_OPERATIONS + ERASE_OPERATIONS * slot_full
    outcomes = []
    for operation in range(1, operations + 2):
        line.board.memory.flash[:] = flash
        assert line.boot() == "checkpoint 1 of step 1"
        line.train(2, 3)
        new = line.state()
        line.board.power_cut_at(flash_operation=operation, torn=draws.randbytes if torn else None)
        assert saves(line) == (operation > operations)
        line.boot()
        found = line.state()
        assert found in (old, new)
        outcomes.append(found == new)
        line.train(3, 3)
        third = line.state()
        assert line.ask("save")[-1].startswith("ok save")
        line.boot()
        assert line.state() == third
    assert outcomes[-1]
    assert not any(outcomes[: operations - 1])


@pytest.mark.parametrize("slot_full", [False, True])
@pytest.mark.parametrize("torn", [False, True])
def test_power_cut_at_every_flash_operation_of_a_save(line: BoardLine, slot_full: bool, torn: bool) -> None:
    cut_save_everywhere(line, slot_full, torn)


BUGS = {
    "no CRC": ("r.magic == RECORD_MAGIC && r.crc == crc_of(", "r.magic == RECORD_MAGIC && 0 != crc_of("),
    "one slot only": ("(c->slot + turn) % BOARD_SLOTS", "(c->slot + 0 * turn) % BOARD_SLOTS"),
    "seed not saved": (".seed = s->seed,", ".seed = 1,"),
}


@pytest.fixture(params=list(BUGS))
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> BoardLine:
    """A board whose firmware has a bug in its checkpoints."""
    return BoardLine(Board(board_with_bug(tmp_path, "checkpoint.c", *BUGS[request.param])))


def test_planted_bugs_are_caught(broken: BoardLine) -> None:
    with pytest.raises(AssertionError):
        for slot_full in (False, True):
            cut_save_everywhere(broken, slot_full, torn=True)
        goes_on_with_its_seed(broken)


def goes_on_with_its_seed(line: BoardLine) -> None:
    """A board that was reset after a save learns what one that was not learns."""
    saved_once(line, slot_full=False)
    line.ask("seed 77")
    line.ask("save")
    flash = line.board.memory.flash[:]
    line.train(2, 3)
    undisturbed = line.state()
    line.board.memory.flash[:] = flash
    line.boot()
    line.train(2, 3)
    assert line.state() == undisturbed


def test_a_board_goes_on_with_its_seed(line: BoardLine) -> None:
    goes_on_with_its_seed(line)


def test_a_forget_that_fails_half_way_keeps_no_place_of_what_is_erased(line: BoardLine) -> None:
    saved_once(line, slot_full=False)
    line.board.flash.worn = {7}
    try:
        assert line.ask("forget")[-1].startswith("err flash")
        assert "saves 0" in line.ask("stats")
        here = line.state()
        assert line.reboot() == "checkpoint 1 of step 1"  # it saves what is saved nowhere else
        assert line.state() == here
        line.train(2, 3)
        learned = line.state()
        assert line.ask("save")[-1] == "ok save 2"
        line.boot()
        assert line.state() == learned
    finally:
        line.board.flash.worn = set()


def test_a_forget_that_fails_half_way_finds_what_is_left(line: BoardLine) -> None:
    """The older checkpoint in the slot that could not be erased is what the next start would load."""
    _, old = saved_once(line, slot_full=True)
    line.train(2, 3)
    assert line.ask("save")[-1] == "ok save 2"  # in the second slot
    line.train(3, 3)
    line.board.flash.worn = {7}
    try:
        assert line.ask("forget")[-1].startswith("err flash")
        assert "saves 2" in line.ask("stats")
        learned = line.state()
        assert learned != old
        assert line.ask("save")[-1] == "ok save 3"
        line.boot()
        assert line.state() == learned
    finally:
        line.board.flash.worn = set()
