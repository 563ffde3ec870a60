"""The client on a line that flips and loses bytes on the way to the firmware, and on ports that fail."""

from __future__ import annotations

import ctypes
import errno
import os
import pty
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from puppet import Puppet, build

from microtrain.device import link
from microtrain.device.answers import decimal
from microtrain.device.client import Device
from microtrain.device.conversation import FLOOD_BYTES, Conversation, greet
from microtrain.device.errors import AnswerError, DeviceError, FaultError, LinkError, NoAnswerError
from microtrain.device.link import EmulatorPort, ProgramPort, SerialPort, open_failure

SIZE = 64  # of the null model's trainables
OK, FAULT = b"ok pong\r\n", b"fault bus error\r\nfault pc 08001234\r\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(tmp_path_factory.mktemp("line"))


class BadLine:
    """A port to the puppet. What goes over it is changed at some places, counted in bytes from its start.

    flips  place -> bits that are turned over; lost: places whose bytes do not arrive
    """

    def __init__(self, board: Puppet) -> None:
        self.board = board
        self.flips: dict[int, int] = {}
        self.lost: set[int] = set()
        self.at = 0
        self.came = b""

    def damaged(self, data: bytes) -> bytes:
        places = range(self.at, self.at + len(data))
        self.at += len(data)
        pairs = zip(places, data, strict=True)
        return bytes(byte ^ self.flips.get(place, 0) for place, byte in pairs if place not in self.lost)

    def write(self, data: bytes) -> None:
        self.board.send(self.damaged(data))

    def read(self, size: int, timeout_s: float) -> bytes:
        self.came += self.damaged(self.board.raw())
        if not self.came:
            self.board.wait(int(timeout_s * 1000))
            self.came += self.damaged(self.board.raw())
        taken, self.came = self.came[:size], self.came[size:]
        return taken

    def close(self) -> None:
        pass


def connected(library: ctypes.CDLL) -> tuple[Device, BadLine]:
    board = Puppet(library)
    board.start()
    line = BadLine(board)
    return Device(line), line


def test_the_client_knows_the_firmware(library: ctypes.CDLL) -> None:
    device, _ = connected(library)
    assert device.info.model == "null" and device.info.shape == (8, 8, 1)
    image = np.arange(64, dtype=np.uint8).reshape(8, 8, 1)
    before = device.pull()
    assert len(device.infer(image).logits) == 3
    assert device.train(image, 2).loss > 0
    assert device.pull() != before
    assert device.save() == 1
    device.reset()
    assert device.pull() == before
    device.reboot()
    assert device.stats()["steps"] == "0"
    device.forget()
    device.close()


PLACES = st.integers(0, 700)


@settings(max_examples=150)
@given(
    st.dictionaries(PLACES, st.integers(1, 255), max_size=4),
    st.sets(PLACES, max_size=3),
    st.binary(min_size=SIZE, max_size=SIZE),
)
def test_weights_arrive_or_the_client_says_so(
    library: ctypes.CDLL, flips: dict[int, int], lost: set[int], block: bytes
) -> None:
    """Whatever bytes are damaged: a push that returns has left these weights, and a pull has fetched them."""
    device, line = connected(library)
    line.at, line.flips, line.lost = 0, flips, lost
    try:
        device.push(block)
        fetched = device.pull()
    except DeviceError:
        return
    assert fetched == block


@settings(max_examples=100)
@given(PLACES, st.integers(1, 255), st.integers(0, 2))
def test_one_damaged_byte_changes_nothing_that_is_learned(
    library: ctypes.CDLL, place: int, bits: int, label: int
) -> None:
    """The rows of an image are sent again; the step is the one that a good line would have led to."""
    image = np.arange(64, dtype=np.uint8).reshape(8, 8, 1)
    good, _ = connected(library)
    good.train(image, label)
    learned = good.sha()
    device, line = connected(library)
    line.at, line.flips = 0, {place: bits}
    try:
        device.train(image, label)
    except DeviceError:
        return
    line.flips = {}
    if device.stats()["steps"] == "1":
        assert device.sha() == learned


def test_damage_everywhere_is_given_up(library: ctypes.CDLL) -> None:
    """The properties above can fail: where no frame gets through, the client says so."""
    device, line = connected(library)
    device.push(bytes(SIZE))
    line.at, line.flips = 0, dict.fromkeys(range(40, 2000), 1)
    with pytest.raises(DeviceError):
        device.push(b"\1" * SIZE)
    line.flips = {}
    assert Device(line).pull() == bytes(SIZE)


@settings(max_examples=300)
@given(st.floats(0, 1000))
def test_every_rate_can_be_told_to_the_device(library: ctypes.CDLL, rate: float) -> None:
    value = ctypes.c_float(-1)
    assert library.parse_f32(decimal(rate).encode(), ctypes.byref(value)) == 1
    assert value.value == pytest.approx(rate, rel=1e-6, abs=1e-8)


# ------------------------------------------------------------------------------------------------ greeting


class Script:
    """A port that says its pieces one after the other, one per read; then it is silent."""

    def __init__(self, *pieces: bytes, again: bytes = b"") -> None:
        self.pieces, self.again, self.sent = list(pieces), again, b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def read(self, size: int, timeout_s: float) -> bytes:
        return self.pieces.pop(0) if self.pieces else self.again

    def close(self) -> None:
        pass


def greeted(port: Script) -> None:
    greet(Conversation(port), "the desk")


def test_a_device_that_first_refuses_is_greeted_again() -> None:
    greeted(Script(b"err command unknown\r\n", b"", b"err command x\r\n", b"", OK))
    greeted(Script(b"", b"microtrain a b 01234567\r\n", b"", OK))


def test_a_device_that_crashed_at_start_says_why() -> None:
    with pytest.raises(FaultError, match="the firmware on the desk crashed at start: fault bus error"):
        greeted(Script(FAULT, b""))
    with pytest.raises(FaultError, match=r"crashed: fault bus error; fault pc 08001234\."):
        greeted(Script(b"", FAULT, b""))


def test_another_program_on_the_line_is_quoted() -> None:
    with pytest.raises(NoAnswerError, match=r"is not a microtrain device .it says 'login:'"):
        greeted(Script(b"login:\r\n", b""))
    with pytest.raises(NoAnswerError, match="no microtrain device answers on the desk"):
        greeted(Script())


def test_noise_without_end_is_no_answer() -> None:
    with pytest.raises(NoAnswerError, match="only noise comes over the line"):
        Conversation(Script(again=b"\x80" * (FLOOD_BYTES // 4))).next(1)
    assert Conversation(Script(again=b"x\n" * (FLOOD_BYTES // 4))).listen(1)[0] == "x"


def test_a_selftest_that_fails_or_never_ends(library: ctypes.CDLL) -> None:
    device, _ = connected(library)
    assert device.selftest()
    device._talk = Conversation(Script(b"kernels wrong\r\nerr selftest kernels\r\n"))
    with pytest.raises(AnswerError, match="kernels wrong; kernels"):
        device.selftest()
    device._talk = Conversation(Script(b"kernels ok\r\n", b""))
    with pytest.raises(NoAnswerError, match="the self-test does not end"):
        device.selftest()


def test_answers_that_this_client_does_not_know(library: ctypes.CDLL) -> None:
    device, _ = connected(library)
    device._talk = Conversation(Script(b"input 8by8\r\nok\r\n"))
    with pytest.raises(DeviceError, match="answers `info` in a way this client does not know"):
        device._read_info()
    for call in (device.replay, device.rehearse):
        with pytest.raises(DeviceError, match="no replay buffer: convert the model with --replay"):
            call(3)


# --------------------------------------------------------------------------------------------------- ports


@pytest.fixture
def terminal() -> Iterator[tuple[int, str]]:
    """A pseudo-terminal: the end that stands for the device, and the name of the other one."""
    ours, theirs = pty.openpty()
    yield ours, os.ttyname(theirs)
    os.close(theirs)


def test_a_serial_port_carries_bytes_until_it_breaks(terminal: tuple[int, str]) -> None:
    ours, name = terminal
    port = SerialPort(name)
    assert port.has_baud
    port.set_baud(921600)
    os.write(ours, b"abc")
    assert port.read(2, 1) == b"ab"
    assert port.read(9, 1) == b"c"
    assert port.read(9, 0.01) == b""
    port.write(b"xyz")
    assert os.read(ours, 3) == b"xyz"
    with pytest.raises(LinkError, match=r"cannot run at -5 baud .*: choose another --baud"):
        port.set_baud(-5)
    os.close(ours)
    with pytest.raises(LinkError, match=f"the line to {name} broke: is the cable still plugged in"):
        for _ in range(100):
            port.read(1, 0.01)
            port.write(b"x")
    port.close()


def test_a_socket_has_no_rate() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = SerialPort(f"socket://127.0.0.1:{server.getsockname()[1]}")
        with server.accept()[0] as board:
            board.sendall(b"hello")
            assert not port.has_baud
            assert port.read(5, 1)[:1] == b"h"
        port.close()


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOENT, "no such port: /dev/x. Is the board plugged in?"),
        (errno.EACCES, "no permission to open /dev/x: join its group"),
        (errno.EBUSY, "/dev/x is in use: close the other program"),
        (errno.EIO, "no board on /dev/x: it is not a serial port that can be opened"),
    ],
)
def test_why_a_port_does_not_open(number: int, sentence: str) -> None:
    assert sentence in open_failure("/dev/x", OSError(number, "why"))
    outer = ValueError("could not open")
    outer.__cause__ = OSError(number, "why")
    assert sentence in open_failure("/dev/x", outer)


def script(folder: Path, text: str) -> Path:
    path = folder / "program"
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    program = script(tmp_path, "import time\nprint('here', flush=True)\ntime.sleep(600)")
    port = ProgramPort(program)
    assert port.read(4, 10) == b"here"
    port.close()
    assert port._process.poll() is not None


def test_a_program_that_ends_is_told_with_its_status(tmp_path: Path) -> None:
    port = ProgramPort(script(tmp_path, "raise SystemExit(3)"))
    port._process.wait(10)
    with pytest.raises(LinkError, match=r"has ended .exit code 3.: is it microtrain's native build"):
        port.read(1, 5)
    with pytest.raises(LinkError, match="exit code 3"):
        for _ in range(10):
            port.write(b"x" * 100_000)
    port.close()


def test_what_is_no_program_or_firmware(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(LinkError, match=r"text cannot be started: Permission denied\."):
        ProgramPort(tmp_path / "text")
    with pytest.raises(LinkError, match=r"the emulator cannot run .*text: "):
        EmulatorPort(tmp_path / "text")


def test_a_board_that_stops_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Stopping:
        def __init__(self, elf: Path) -> None:
            self.elf = elf

        def write(self, data: bytes) -> None:
            raise RuntimeError("bus fault at 0")

        def close(self) -> None:
            pass

    monkeypatch.setattr("microtrain.emulator.EmulatedPort", Stopping)
    (tmp_path / "a.elf").write_text("")
    port = link.EmulatorPort(tmp_path / "a.elf")
    with pytest.raises(LinkError, match="the emulated board stopped: bus fault at 0"):
        port.write(b"x")
    port.close()
