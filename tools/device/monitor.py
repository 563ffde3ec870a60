"""A raw terminal on the device's line: what is typed goes out line by line, what it says is shown."""

from __future__ import annotations

import select
from typing import TextIO

from .link import Port

POLL_S = 0.05
QUIET_S = 1.0  # after the input ends: how long the device may stay silent before the terminal closes


def monitor(port: Port, keys: TextIO, screen: TextIO) -> None:
    """Run until the input ends (Ctrl-D) and the device is silent, or Ctrl-C."""
    open_input = True
    try:
        while open_input:
            show(port.read(4096, POLL_S), screen)
            if has_input(keys):
                line = keys.readline()
                open_input = bool(line)
                if line:
                    port.write(line.rstrip("\r\n").encode("ascii", "replace") + b"\n")
        while data := port.read(4096, QUIET_S):
            show(data, screen)
    except KeyboardInterrupt:
        screen.write("\n")


def show(data: bytes, screen: TextIO) -> None:
    """Print bytes; those that are no text as \\xNN."""
    screen.write("".join(printable(byte) for byte in data))
    screen.flush()


def printable(byte: int) -> str:
    if byte == 13:
        return ""
    return chr(byte) if 32 <= byte < 127 or byte in (9, 10) else f"\\x{byte:02x}"


def has_input(keys: TextIO) -> bool:
    """True when a line can be read; what is no file of the operating system always can."""
    try:
        return bool(select.select([keys], [], [], 0)[0])
    except (OSError, ValueError):
        return True
