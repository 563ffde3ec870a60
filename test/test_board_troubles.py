"""The runtime on a board that fails: worn flash, a line that stops, a rate that it cannot do."""

from __future__ import annotations

import ctypes
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from puppet import BIT, ERASE_FAILS, SLOTS, STUCK, Puppet, build

from microtrain.device.protocol import ROW, WEIGHTS, Frame, encode

WORN = "err flash does not hold what is written, it may be worn out; the last checkpoint stays"
BUSY = "busy erasing flash, up to 4 s"
RECORD, STRIDE, NUMBER, CRC = 32, 128, 4, 60  # the first record of a slot, from one to the next; words of it


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("puppet"))


@pytest.fixture
def board(library: ctypes.CDLL) -> Puppet:
    started = Puppet(library)
    assert started.start()[-1] == "ready"
    return started


# ----------------------------------------------------------------------------------------------- flash


def test_a_slot_that_takes_no_writes_is_passed_over(board: Puppet) -> None:
    board.trouble(STUCK, 0)
    board.train(2)
    assert board.ask("save")[-1] == "ok save 1"
    assert board.start()[2] == "checkpoint 1 of step 2"


def test_flash_that_takes_no_writes_keeps_the_checkpoint(board: Puppet) -> None:
    board.train(2)
    board.ask("save")
    learned = board.ask("sha")
    board.trouble(STUCK, STUCK)
    before = board.slots()[0]
    board.train(1)
    assert board.ask("save")[-1] == WORN
    assert board.slots()[0] == before
    assert board.start()[2] == "checkpoint 1 of step 2"
    assert board.ask("sha") == learned


def test_flash_that_cannot_be_erased_is_filled_to_the_end(board: Puppet) -> None:
    board.ask("save")
    board.trouble(ERASE_FAILS, ERASE_FAILS)
    answers: list[str] = []
    while not answers or answers[-1].startswith("ok"):
        board.train(1)
        answers.append(board.ask("save")[-1])
    assert len(answers) == (board.state.slot_bytes[0] - RECORD) // STRIDE
    assert answers[-1] == WORN
    assert board.start()[2] == f"checkpoint {len(answers)} of step {len(answers) - 1}"


def test_a_bit_that_stays_costs_its_place_alone(board: Puppet) -> None:
    """The record is written again behind the one that did not hold: its number would be 257."""
    board.state.bad[0] = RECORD + NUMBER + 1
    board.trouble(BIT, 0)
    board.train(3)
    assert board.ask("save")[-1] == "ok save 1"
    first, second = (board.slots()[0][RECORD + i * STRIDE :] for i in range(2))
    assert (first[NUMBER + 1], second[NUMBER + 1]) == (1, 0)
    assert first[NUMBER + 4 : STRIDE] == second[NUMBER + 4 : STRIDE]
    assert board.start()[2] == "checkpoint 1 of step 3"


def test_trainables_that_no_slot_can_hold(board: Puppet) -> None:
    for slot in range(SLOTS):
        board.state.slot_bytes[slot] = 96
    assert board.ask("save")[-1] == "err flash has no slot that is large enough for the trainables"


def test_forget_says_which_erase_failed(board: Puppet) -> None:
    board.train(1)
    board.ask("save")
    board.trouble(ERASE_FAILS, 0)
    assert board.ask("forget")[-1] == "err flash cannot be erased, it may be worn out"
    assert board.start()[2] == "checkpoint 1 of step 1"
    board.trouble(0, 0)
    assert board.ask("forget")[-1] == "ok forget"
    assert board.start()[2] == "checkpoint none"


def test_forget_stops_where_an_older_record_cannot_be_cleared(board: Puppet) -> None:
    """Else a power cut in the erase that follows could bring it back."""
    board.ask("save")
    board.train(1)
    board.ask("save")
    board.trouble(STUCK, STUCK)
    assert board.ask("forget") == [WORN]
    assert board.start()[2] == "checkpoint 2 of step 1"


def test_training_goes_on_where_the_autosave_fails(board: Puppet) -> None:
    board.ask("autosave 2")
    board.trouble(STUCK, STUCK)
    board.train(1)
    board.ask("pattern 9")
    said = board.ask("train 1")
    assert any(line.startswith("unsaved: the flash does not hold") for line in said)
    assert said[-1].startswith("ok train")


def test_an_application_takes_the_steps_of_the_line(board: Puppet) -> None:
    """microtrain_train() in a firmware: loss and weights of `train`; what is no label changes neither."""
    board.ask("pattern 3")
    loss = float(board.ask("train 1")[-1].split()[-1])
    learned = board.ask("sha")
    assert board.start() and board.ask("sha") != learned
    board.ask("pattern 3")
    found = ctypes.c_float(-1.0)
    assert board.library.puppet_train(3, ctypes.byref(found)) < 0 and found.value == -1.0
    assert board.library.puppet_train(1, ctypes.byref(found)) == 0
    assert found.value == pytest.approx(loss, abs=1e-4) and board.ask("sha") == learned
    assert board.ask("pattern 3") and board.library.puppet_train(1, None) == 0


def test_a_reboot_happens_although_it_cannot_save(board: Puppet) -> None:
    board.train(1)
    board.trouble(STUCK, STUCK)
    said = board.ask("reboot")
    assert any(line.startswith("unsaved: ") for line in said)
    assert said[-4:] == ["microtrain puppet null 6c6c756e", "start software", "checkpoint none", "ready"]


def numbered(record: bytes, number: int) -> bytes:
    """A record with another number of its save, and the check sum that goes with it."""
    changed = record[:NUMBER] + struct.pack("<I", number) + record[NUMBER + 4 :]
    crc = zlib.crc32(changed[:CRC] + changed[CRC + 4 : CRC + 4 + 64])
    return changed[:CRC] + struct.pack("<I", crc) + changed[CRC + 4 :]


def test_the_number_of_saves_wraps(board: Puppet) -> None:
    board.train(1)
    board.ask("save")
    record = numbered(board.slots()[0][RECORD : RECORD + STRIDE], 0xFFFFFFFF)
    ctypes.memmove(ctypes.byref(board.state.flash[0], RECORD), record, STRIDE)
    assert board.start()[2] == "checkpoint 4294967295 of step 1"
    board.train(1)
    assert board.ask("save")[-1] == "ok save 0"
    assert board.start()[2] == "checkpoint 0 of step 2"


def test_a_record_with_a_wrong_sum_does_not_count(board: Puppet) -> None:
    """The wrap above stands on its check sum: one bit less and the record is none."""
    board.train(1)
    board.ask("save")
    board.state.flash[0][RECORD + NUMBER] ^= 1
    assert board.start()[2] == "checkpoint none"


# ------------------------------------------------------------------------------------------ serial line


def test_a_frame_that_stops_is_given_up_after_half_a_second(board: Puppet) -> None:
    board.send(encode(Frame(ROW, 1, 0, bytes(8)))[:15])
    board.wait(499)
    assert board.raw() == b""
    board.wait(1)
    assert board.said() == ["err frame timeout"]
    assert board.ask("ping") == ["ok pong"]


def test_a_header_that_stops_is_given_up_too(board: Puppet) -> None:
    board.send(b"\xa5")
    board.wait(500)
    assert board.said() == ["err frame timeout"]


def test_text_may_take_its_time(board: Puppet) -> None:
    board.send(b"pi")
    board.wait(60_000)
    assert board.ask("ng") == ["ok pong"]


def test_a_rate_that_nobody_speaks_is_left_after_two_seconds(board: Puppet) -> None:
    assert board.ask("baud 921600") == ["ok baud 921600"]
    assert board.state.baud == 921600
    board.wait(1999)
    assert board.state.baud == 921600
    board.wait(1)
    assert board.state.baud == 115200
    assert "baud 115200" in board.ask("info")


def test_noise_does_not_prove_a_rate_but_a_line_does(board: Puppet) -> None:
    for line, left in (("\x7f\x01", 115200), ("nonsense", 115200), ("ping", 921600)):
        board.ask("baud 921600")
        board.ask(line)
        board.wait(2500)
        assert board.state.baud == left, line


def test_a_rate_that_the_board_cannot_do_changes_nothing(board: Puppet) -> None:
    board.state.baud_bad = 1_000_000
    board.ask("baud 1000000")
    board.wait(2500)
    assert board.state.baud == 115200
    assert "baud 115200" in board.ask("info")


@pytest.mark.parametrize("rate", ["0", "9599", "3000001", "4294967296", "fast", "-1"])
def test_rates_that_no_line_has(board: Puppet, rate: str) -> None:
    assert board.ask(f"baud {rate}") == ["err argument baud takes a rate, 9600..3000000"]


def test_lost_bytes_and_the_led_are_the_boards(board: Puppet) -> None:
    board.state.lost = 17
    assert "bytes_lost 17" in board.ask("stats")
    board.ask("led 1")
    assert board.state.led == 1
    board.ask("led 0")
    assert board.state.led == 0


def test_a_crash_is_told_at_the_next_start(board: Puppet) -> None:
    board.state.crashed = 1
    told = (
        "crashed 2 times, last: exception 6 pc 08001234 lr 08001111 sp 2004fff0 cfsr 00010000 hfsr 00000000"
    )
    assert told in board.start()
    board.state.crashed = 0
    assert not any(line.startswith("crashed") for line in board.start())


TEXT = st.binary(max_size=12).map(
    lambda b: b"?" + bytes(x for x in b if x not in (0xA5, 10, 13))
)  # no command
Sent = tuple[int, int, bytes]
FRAMES = st.lists(st.tuples(st.integers(0, 255), st.integers(0, 80), TEXT), min_size=1, max_size=8)


@settings(max_examples=200)
@given(FRAMES, st.integers(1, 40))
def test_every_whole_frame_is_answered(library: ctypes.CDLL, frames: list[Sent], chunk: int) -> None:
    """Between lines of noise, in chunks of any size: the client's frames reach the device as they are."""
    board = Puppet(library)
    board.state.chunk = chunk
    board.start()
    weights = np.arange(64, dtype=np.uint8).tobytes()
    board.ask(f"push 64 {zlib.crc32(weights):08x} 6c6c756e")
    for sequence, size, noise in frames:
        payload = weights[:size] if size else b""
        board.send(noise + b"\n" + encode(Frame(WEIGHTS, sequence, 0, payload)))
        said = [line for line in board.said() if not line.startswith("err command")]
        if size >= 64:
            assert said == ["ok push done"]
            return
        assert said == ([f"ok weights 0 {sequence}"] if size else [refusal()])


def refusal() -> str:
    return "err frame weights are outside the trainables or leave a gap"


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=40), max_size=6))
def test_whatever_arrives_the_device_answers_a_ping(library: ctypes.CDLL, noise: list[bytes]) -> None:
    board = Puppet(library)
    board.start()
    for data in noise:
        board.send(data)
    board.wait(500)
    board.send(b"\n")
    board.wait(500)
    board.send(b"\n")
    board.raw()
    assert board.ask("ping") == ["ok pong"]
