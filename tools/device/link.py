"""Byte ports: a serial line, a TCP socket, the emulated board, or the host-native firmware on pipes."""

from __future__ import annotations

import errno
import os
import select
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import serial

from .errors import LinkError

DEFAULT_BAUD = 115200
T = TypeVar("T")


class Port(Protocol):
    """A pipe for bytes to and from one device.

    Times are seconds of the device's own clock: an emulated board counts virtual ones.
    """

    def write(self, data: bytes) -> None:
        """Send all of `data`."""

    def read(self, size: int, timeout_s: float) -> bytes:
        """Return up to `size` bytes as soon as any is there; b"" when none came within `timeout_s`."""

    def close(self) -> None:
        """Release the port; a second call does nothing."""


class SerialPort:
    """A port of the operating system ("/dev/ttyACM0", "COM3") or of the net ("socket://host:port")."""

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            self._serial = serial.serial_for_url(name, baudrate=DEFAULT_BAUD, timeout=0.1, write_timeout=10)
        except (serial.SerialException, OSError, ValueError) as error:
            raise LinkError(open_failure(name, error)) from error

    @property
    def has_baud(self) -> bool:
        """A socket has no rate of its own: whatever stands behind it keeps the device's."""
        return "://" not in self.name

    def set_baud(self, baud: int) -> None:
        try:
            self._serial.flush()  # what was written goes out at the old rate
            self._serial.baudrate = baud
        except (serial.SerialException, OSError, ValueError) as error:
            raise LinkError(
                f"{self.name} cannot run at {baud} baud ({error}): choose another --baud."
            ) from error

    def write(self, data: bytes) -> None:
        try:
            self._serial.write(data)
        except (serial.SerialException, OSError) as error:
            raise LinkError(lost_line(self.name)) from error

    def read(self, size: int, timeout_s: float) -> bytes:
        try:
            self._serial.timeout = timeout_s
            first = self._serial.read(1)
            self._serial.timeout = 0
            return bytes(first + self._serial.read(size - 1)) if first and size > 1 else bytes(first)
        except (serial.SerialException, OSError) as error:
            raise LinkError(lost_line(self.name)) from error

    def close(self) -> None:
        self._serial.close()


class ProgramPort:
    """The firmware built for this machine, speaking on its standard input and output."""

    def __init__(self, program: Path) -> None:
        self.program = program
        if not program.is_file():
            raise LinkError(f"no such program: {program}. Build it with `pio run -e native`.")
        try:
            self._process = subprocess.Popen(
                [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
        except OSError as error:
            raise LinkError(f"{program} cannot be started: {error.strerror}.") from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def write(self, data: bytes) -> None:
        try:
            while data:
                data = data[self._stdin.write(data) :]
        except (OSError, ValueError) as error:
            raise LinkError(self._ended()) from error

    def read(self, size: int, timeout_s: float) -> bytes:
        if not select.select([self._stdout], [], [], timeout_s)[0]:
            return b""
        data = os.read(self._stdout.fileno(), size)
        if not data:
            raise LinkError(self._ended())
        return data

    def close(self) -> None:
        self._stdin.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()

    def _ended(self) -> str:
        return (
            f"{self.program} has ended (exit code {self._process.wait(5)}): is it microtrain's native build?"
        )


class EmulatorPort:
    """The emulated board with a firmware in its flash; its faults become sentences.

    kept   the board stays on between commands, in a file beside the ELF; otherwise it is new and then gone
    fresh  a new board takes the place of the one in the file
    told   a line about the kept board, or nothing
    """

    def __init__(self, elf: Path, kept: bool = False, fresh: bool = False) -> None:
        if not elf.is_file():
            raise LinkError(f"no such ELF file: {elf}. Build it with `pio run`.")
        try:
            from microtrain.emulator import EmulatedPort, KeptPort  # type: ignore[attr-defined,unused-ignore]
        except ImportError as error:
            raise LinkError(f"the emulator cannot be loaded ({error}): run `make setup` first.") from error
        try:
            port = KeptPort(elf, fresh) if kept else EmulatedPort(elf)
        except Exception as error:  # the emulator's own errors are sentences already
            raise LinkError(f"the emulator cannot run {elf}: {error}") from error
        self._port = port
        self.told = port.told if isinstance(port, KeptPort) else ""

    @property
    def has_baud(self) -> bool:
        return True

    @property
    def seconds(self) -> float:
        """Virtual time since the board was switched on."""
        return self._port.board.seconds

    def set_baud(self, baud: int) -> None:
        """The host's rate; where the firmware has another, bytes arrive damaged."""
        self._port.set_baud(baud)

    def write(self, data: bytes) -> None:
        self._guard(lambda: self._port.write(data))

    def read(self, size: int, timeout_s: float) -> bytes:
        return self._guard(lambda: self._port.read(size, timeout_s))

    def close(self) -> None:
        self._port.close()

    def _guard(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except Exception as error:
            raise LinkError(f"the emulated board stopped: {error}") from error


def open_failure(name: str, error: Exception) -> str:
    """Why a port could not be opened, and what to do."""
    number = getattr(error, "errno", None)
    if number is None and isinstance(error.__cause__ or error.__context__, OSError):
        number = getattr(error.__cause__ or error.__context__, "errno", None)
    if "://" in name:
        return f"nothing answers at {name} ({error}): start the board or emulator behind it first."
    if number == errno.ENOENT or isinstance(error, FileNotFoundError):
        return f"no such port: {name}. Is the board plugged in? `pio device list` shows the ports there are."
    if number in (errno.EACCES, errno.EPERM):
        return (
            f"no permission to open {name}: join its group (`sudo usermod -aG dialout $USER`), log in again."
        )
    if number == errno.EBUSY:
        return f"{name} is in use: close the other program (a monitor?) that has it open."
    return f"no board on {name}: it is not a serial port that can be opened ({error})."


def lost_line(name: str) -> str:
    return f"the line to {name} broke: is the cable still plugged in, and no other program on the port?"
