"""Power cuts in every command that writes to flash, damaged headers, wrapped numbers: never back in time."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from pio_build import board_with_bug
from serial_program import WEIGHTS, H, W, frame
from test_flash_checkpoint import HEADER, MODEL_ID, RECORD, STRIDE, header, null_elf
from test_guard import SPOILED

from lab.attack.cuts import (
    SLOTS,
    blank,
    blocks,
    boot_from,
    cut_forget,
    half_done,
    prepare,
    records,
    slot,
    watch,
)
from lab.soak.line import BoardLine, State
from lab.soak.power import Plan, Survivor
from microtrain.emulator import Board

CLASSES = 3
SECONDS = 2  # see cut_twice
MAGIC, NUMBER, MODEL, CRC = 0, 4, 56, 60  # offsets in a record


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return null_elf(tmp_path_factory, "disco_f746ng")


@pytest.fixture(scope="module")
def line(elf: Path) -> BoardLine:
    return BoardLine(Board(elf))


@pytest.fixture(scope="module")
def survivor(elf: Path) -> Survivor:
    return Survivor(Plan(elf, CLASSES))


# ---------------------------------------------------------------- every command, every flash operation


def autosave(line: BoardLine) -> None:
    line.do("autosave 1")
    line.train(21, CLASSES)


COMMANDS: dict[str, Callable[[BoardLine], object]] = {
    "save": lambda line: line.do("save"),
    "autosave": autosave,
    "reboot": BoardLine.reboot,
    "forget": lambda line: line.do("forget"),
}


def perform(line: BoardLine, flash: bytes, command: str) -> list[bytes]:
    """Flash before each operation of a command and behind the last; the board has learned since it woke."""
    boot_from(line, flash)
    line.train(20, CLASSES)
    return watch(line, lambda: COMMANDS[command](line))


def cuts(copies: list[bytes], torn: str, draws: random.Random) -> list[bytes]:
    """What a cut in each operation leaves: just behind it, in some of its bits, or in some of its blocks."""
    around = pairwise(copies)
    if torn == "whole":
        return [after for _, after in around]
    mask = draws.randbytes if torn == "bits" else blocks(draws, STRIDE)
    return [half_done(before, after, mask) for before, after in around]


def cut_twice(line: BoardLine, survivor: Survivor, flash: bytes, command: str, seconds: int) -> None:
    """A cut in each operation leaves the state before the command or behind it, also when it is repeated.

    seconds   how many of the first cuts are followed by so many second ones, each by itself
    """
    draws = random.Random(7)
    copies = perform(line, flash, command)
    old, new = survivor.state(copies[0]), survivor.state(copies[-1])
    assert isinstance(old, State) and isinstance(new, State) and old != new and len(copies) > 15
    for torn in ("whole", "bits", "blocks"):
        firsts = cuts(copies, torn, draws)
        found = [survivor.state(cut) for cut in firsts]
        assert set(found) <= {old, new}
        assert torn != "whole" or found == sorted(found, key=lambda state: state == new)  # never back again
        for first in draws.sample(firsts, min(seconds, len(firsts))):
            again = perform(line, first, command)
            either = {survivor.state(again[0]), survivor.state(again[-1])}
            second = cuts(again, torn, draws)
            assert {survivor.state(cut) for cut in draws.sample(second, min(seconds, len(second)))} <= either


@pytest.mark.parametrize("newest", SLOTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_cuts_of_a_command_leave_the_state_before_it_or_behind_it(
    line: BoardLine, survivor: Survivor, command: str, newest: str
) -> None:
    held = prepare(line, CLASSES, newest)
    flash = line.board.flash_content()
    assert survivor.state(flash) == held
    cut_twice(line, survivor, flash, command, SECONDS)
    assert survivor.state(perform(line, flash, "forget")[-1]) == survivor.state(blank(line.board))


@pytest.mark.slow
@pytest.mark.parametrize("newest", SLOTS)
@pytest.mark.parametrize(
    ("command", "seconds"), [("save", 15), ("autosave", 4), ("reboot", 4), ("forget", 100)]
)
def test_pairs_of_cuts(line: BoardLine, survivor: Survivor, command: str, seconds: int, newest: str) -> None:
    """Of `forget` all of them."""
    prepare(line, CLASSES, newest)
    cut_twice(line, survivor, line.board.flash_content(), command, seconds)


def test_the_other_commands_write_nothing(line: BoardLine) -> None:
    prepare(line, CLASSES, "b", full=False)
    everything = (
        *(
            "help",
            "ping",
            "info",
            "image",
            "row 0 0 00",
            "pattern 1",
            "infer",
            "pattern 2",
            "train 1",
            "eval 0",
        ),
        *("stats", "stats clear", "rate 0.5", "seed 9", "replay 4", "rehearse 1", "sha", "selftest", "pull"),
        *(
            f"push 64 00000000 {MODEL_ID:08x}",
            "reset",
            "autosave 9",
            "guard 1",
            "led 1",
            "baud 115200",
            "nonsense",
        ),
    )
    known = {text.split(":")[0].split()[0] for text in line.ask("help")[:-1]}
    assert known == {command.split()[0] for command in everything} - {"nonsense"} | set(COMMANDS)

    def ask_all() -> None:
        for command in everything:
            line.board.feed(command.encode("ascii") + b"\n")
            line.board.run(seconds=1)

    assert len(watch(line, ask_all)) == 1
    line.board.take_output()


def test_going_back_from_divergence_writes_nothing(line: BoardLine) -> None:
    """Weights that are wrong about every bright image, at a rate that does not mend them."""
    prepare(line, CLASSES, "a")
    newest = line.do("sha")
    line.do(f"push 64 {zlib.crc32(SPOILED):08x} {MODEL_ID:08x}")
    line.board.feed(frame(WEIGHTS, 0, SPOILED))
    assert line.do("") == "ok push done"
    line.do("rate 0.001")

    def diverge() -> None:
        said: list[str] = []
        while not any(text.startswith("diverged: back to step 6") for text in said):
            for y in range(H):
                line.do(f"row {y} 0 {'ff' * W}")
            said = line.ask("train 1")
            assert said[-1].startswith("ok train")

    assert len(watch(line, diverge)) == 1
    assert line.do("sha") == newest


# ---------------------------------------------------------------- planted bugs


BUGS = {
    "nothing is struck": (
        "if (!strike_all_but_the_newest(c)) {",
        "if (c->slot > BOARD_SLOTS && !strike_all_but_the_newest(c)) {",
    ),
    "only the other slot is struck": ("(slot != c->slot || offset != c->offset) &&", "slot != c->slot &&"),
}


@pytest.mark.parametrize(
    ("bug", "cuts"),
    [
        ("nothing is struck", 40),
        pytest.param("only the other slot is struck", 600, marks=pytest.mark.slow),
    ],
)
def test_a_forget_that_goes_back_in_time_is_noticed(tmp_path: Path, bug: str, cuts: int) -> None:
    """The first is how it once was: slot A was erased, and the older checkpoint of slot B was left."""
    elf = board_with_bug(tmp_path, "checkpoint.c", *BUGS[bug])
    losses = cut_forget(elf, CLASSES, cuts, 1, lambda: None).losses
    assert any(loss.startswith("newest checkpoint in slot a, cut ") for loss in losses)


@pytest.mark.parametrize("board", ["disco_f746ng", "nucleo_f446re"])
def test_forget_never_goes_back_in_time(tmp_path_factory: pytest.TempPathFactory, board: str) -> None:
    advanced: list[None] = []
    report = cut_forget(null_elf(tmp_path_factory, board), CLASSES, 200, 1, lambda: advanced.append(None))
    assert report.losses == []
    assert report.cuts == len(advanced) == 200


# ---------------------------------------------------------------- worn flash


@pytest.mark.parametrize("newest", SLOTS)
@pytest.mark.parametrize("worn", SLOTS)
def test_a_slot_that_cannot_be_erased_brings_no_older_checkpoint_back(
    line: BoardLine, survivor: Survivor, newest: str, worn: str
) -> None:
    held = prepare(line, CLASSES, newest)
    line.board.flash.worn = {4 if worn == "a" else 7}
    try:
        assert line.ask("forget")[-1] == "err flash cannot be erased, it may be worn out"
    finally:
        line.board.flash.worn = set()
    expected = held if worn == newest else survivor.state(blank(line.board))
    assert survivor.state(line.board.flash_content()) == expected


# ---------------------------------------------------------------- damaged headers


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("newest", SLOTS)
def test_a_flipped_bit_in_a_header_loses_nothing(
    line: BoardLine, survivor: Survivor, newest: str, full: bool
) -> None:
    held = prepare(line, CLASSES, newest, full)
    flash, draws = line.board.flash_content(), random.Random(3)
    for name in SLOTS:
        for byte in range(HEADER):
            damaged = bytearray(flash)
            damaged[slot(line.board, name).start + byte] ^= 1 << draws.randrange(8)
            assert survivor.state(bytes(damaged)) == held


@pytest.mark.parametrize("newest", SLOTS)
def test_the_newest_checkpoint_stays_below_a_damaged_header_until_there_is_a_newer_one(
    line: BoardLine, survivor: Survivor, newest: str
) -> None:
    """Its slot has room, but is not written to; the save goes to the other one, which is erased for it."""
    prepare(line, CLASSES, newest, full=False)
    damaged = bytearray(line.board.flash_content())
    damaged[slot(line.board, newest).start + 9] ^= 4
    for command in ("save", "forget"):
        cut_twice(line, survivor, bytes(damaged), command, 1)


def test_a_slot_whose_erase_was_cut_short_is_not_written_to(line: BoardLine) -> None:
    """The header's cells were the last to be erased: there it stands, above places that look blank."""
    prepare(line, CLASSES, "a")
    flash = line.board.flash_content()
    copies = perform(line, flash, "save")
    sizes = [sum(x != y for x, y in zip(a, b, strict=True)) for a, b in pairwise(copies)]
    erase = sizes.index(max(sizes))
    left = half_done(copies[erase], copies[erase + 1], lambda size: (b"\xff" * HEADER).ljust(size, b"\0"))
    old_header = slice(slot(line.board, "b").start + 4, slot(line.board, "b").start + HEADER)
    assert left[old_header] == flash[old_header] != b"\xff" * (HEADER - 4)
    boot_from(line, left)
    assert line.ask("save")[0].startswith("busy erasing")


def planted(flash: bytes, start: int, fields: dict[int, int]) -> bytes:
    """Flash with other fields in the record that starts there, and a CRC that fits them."""
    changed = bytearray(flash)
    for offset, value in fields.items():
        struct.pack_into("<I", changed, start + offset, value)
    crc = zlib.crc32(changed[start + RECORD : start + STRIDE], zlib.crc32(changed[start : start + CRC]))
    struct.pack_into("<I", changed, start + CRC, crc)
    return bytes(changed)


@pytest.mark.parametrize(
    ("model", "damaged", "counts"),
    [
        (MODEL_ID, True, True),
        (0xFFFFFFFF, False, True),  # of older firmware, which left the word blank
        (0xFFFFFFFF, True, False),
        (MODEL_ID ^ 1, True, False),
    ],
)
def test_below_a_damaged_header_a_record_must_know_its_model(
    line: BoardLine, model: int, damaged: bool, counts: bool
) -> None:
    prepare(line, CLASSES, "b")
    newest = records(line.board, "b")[1]
    flash = bytearray(planted(line.board.flash_content(), newest, {MODEL: model}))
    flash[slot(line.board, "b").start] ^= damaged
    line.board.memory.flash[:] = bytes(flash)
    assert line.boot() == ("checkpoint 4 of step 4" if counts else "checkpoint 3 of step 3")


# ---------------------------------------------------------------- what another model or version left


@pytest.mark.parametrize("seconds", [SECONDS, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("others", ["a", "b", "ab"])
@pytest.mark.parametrize(("model", "version"), [(0x1234ABCD, 1), (MODEL_ID, 2)])
def test_forget_of_what_others_left_brings_nothing_back(
    line: BoardLine, others: str, model: int, version: int, seconds: int | None
) -> None:
    """Refused, or nothing: never what this model once saved in the other slot.

    seconds   how many of the first cuts are followed by a second one; None: all
    """
    prepare(line, CLASSES, "b")
    flash, draws = bytearray(line.board.flash_content()), random.Random(2)
    for name in others:
        start = slot(line.board, name).start
        flash[start : start + HEADER] = header(model, version)
        for record in records(line.board, name):
            flash[:] = planted(bytes(flash), record, {MODEL: model if version == 1 else 0})
    copies = perform(line, bytes(flash), "forget")
    for torn in ("whole", "bits", "blocks"):
        firsts = cuts(copies, torn, draws)
        repeated = draws.sample(firsts, min(seconds or len(firsts), len(firsts)))
        again = [draws.choice(cuts(perform(line, first, "forget"), torn, draws)) for first in repeated]
        for cut in (*firsts, *again):
            line.board.memory.flash[:] = cut
            assert line.boot().startswith(("checkpoint refused", "checkpoint none"))
    line.board.memory.flash[:] = copies[-1]
    assert line.boot() == "checkpoint none"


# ---------------------------------------------------------------- numbers of saves


def test_numbers_of_saves_wrap(line: BoardLine) -> None:
    prepare(line, CLASSES, "b", full=False)
    flash = line.board.flash_content()
    for number, record in enumerate(records(line.board, "a") + records(line.board, "b")):
        flash = planted(flash, record, {NUMBER: 0xFFFFFFFE - 3 + number})
    line.board.memory.flash[:] = flash
    assert line.boot() == "checkpoint 4294967294 of step 4"
    for step, number in enumerate((0xFFFFFFFF, 0, 1), 5):
        line.train(step, CLASSES)
        learned = line.state()
        assert line.do("save") == f"ok save {number}"
        assert line.boot() == f"checkpoint {number} of step {step}"
        assert line.state() == learned


def test_cuts_where_numbers_wrap(line: BoardLine, survivor: Survivor) -> None:
    held = prepare(line, CLASSES, "a")
    flash = line.board.flash_content()
    numbers = sorted(
        (record for name in SLOTS for record in records(line.board, name)),
        key=lambda record: flash[record + NUMBER],
    )
    for back, record in enumerate(reversed(numbers)):
        flash = planted(flash, record, {NUMBER: (1 - back) & 0xFFFFFFFF})
    assert survivor.state(flash) == held
    for command in ("save", "forget"):
        cut_twice(line, survivor, flash, command, 1)
