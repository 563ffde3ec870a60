"""The board's serial line on a terminal, a pseudo-terminal or a TCP port; sleep takes real time."""

from __future__ import annotations

import os
import pty
import select
import socket
import time
import tty
from collections.abc import Callable

from .board import Board
from .errors import EmulatorError
from .loop import Stop

SLICE_S = 0.05  # virtual seconds of work between looks at the host's side
REST_S = 0.02  # seconds to wait for the host while the firmware sleeps
CHUNK = 4096


def serve(board: Board, source: int, sink: int, limit_s: float | None = None) -> str:
    """Carry bytes both ways until something ends it.

    source, sink   file descriptors of the host's side
    limit_s        virtual seconds at most
    Returns        "end of input", "time is up" or "power cut"
    Errors         Fault where the firmware fails; what it sent before is delivered first
    """
    end_s = None if limit_s is None else board.seconds + limit_s
    input_open = True
    while end_s is None or board.seconds < end_s:
        try:
            stop = board.run(seconds=SLICE_S, stop_on_sleep=True)
        finally:
            _send(sink, board.take_output())
        if stop is Stop.POWER_CUT:
            return "power cut"
        resting = stop is not Stop.LIMIT
        if resting and not input_open and end_s is None:
            return "end of input"
        input_open = input_open and _receive(board, source, REST_S if resting else 0)
        if resting:
            board.run(seconds=REST_S)
            _send(sink, board.take_output())
    return "time is up"


def _receive(board: Board, source: int, wait_s: float) -> bool:
    """Feed what the host has sent. False: it has hung up."""
    if not select.select([source], [], [], wait_s)[0]:
        return True
    try:
        data = os.read(source, CHUNK)
    except OSError:
        return False
    board.feed(data)
    return bool(data)


def _send(sink: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(sink, data) :]
        except BlockingIOError:
            time.sleep(REST_S)
        except OSError:
            return  # the host has hung up; reading will tell


def serve_tcp(board: Board, port: int, limit_s: float | None, announce: Callable[[str], None]) -> str:
    """One client on 127.0.0.1.

    Errors   EmulatorError where the port cannot be opened
    """
    try:
        server = socket.create_server(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        raise EmulatorError(
            f"cannot listen on TCP port {port} ({error}): choose another --tcp PORT."
        ) from error
    with server:
        announce(f"socket://127.0.0.1:{server.getsockname()[1]}")
        client, _ = server.accept()
    with client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return serve(board, client.fileno(), client.fileno(), limit_s)


def serve_pty(board: Board, limit_s: float | None, announce: Callable[[str], None]) -> str:
    """A pseudo-terminal; clients may come and go, for our own end of it stays open."""
    try:
        master, slave = pty.openpty()
    except OSError as error:
        raise EmulatorError(f"this machine gives no pseudo-terminal ({error}): use --tcp PORT.") from error
    try:
        tty.setraw(slave)
        announce(os.ttyname(slave))
        return serve(board, master, master, limit_s)
    finally:
        os.close(master)
        os.close(slave)
