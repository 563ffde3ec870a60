"""The baud rate of a line, at both of its ends: found, changed, raised as far as a test allows, lowered."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .conversation import PROBE_S, SILENCE_S, Conversation, greet
from .errors import AnswerError, DeviceError, FaultError, LinkError, NoAnswerError
from .link import DEFAULT_BAUD, Port

FAST = (2000000, 1000000, 921600, 460800)  # that are tried, the fastest first
BAUDS = (DEFAULT_BAUD, 921600, 460800, 1000000, 2000000, 230400)  # where a device may have been left
RETURN_S = 2.5  # after which a device that heard nothing at a new rate is at the old one again
BURST, BURSTS = 64, 4  # pings: 5 bytes there and 9 back each, less than the device's receive ring holds
TRIES = 4


@runtime_checkable
class Rated(Protocol):
    """A port that has a baud rate."""

    @property
    def has_baud(self) -> bool: ...

    def set_baud(self, baud: int) -> None: ...


class Rate:
    """What rate a conversation runs at. baud: now."""

    def __init__(self, port: Port, talk: Conversation) -> None:
        self._port = port if isinstance(port, Rated) and port.has_baud else None
        self._talk = talk
        self.baud = DEFAULT_BAUD

    def find(self, where: str) -> None:
        """Greet the device, at whatever rate it was left. Errors as greet()."""
        first: NoAnswerError | None = None
        for baud in BAUDS if self._port is not None else BAUDS[:1]:
            self._here(baud)
            try:
                greet(self._talk, where, tries=1 if first else 3)
                return
            except NoAnswerError as error:
                first = first or error
        assert first is not None
        raise first

    def change(self, baud: int) -> None:
        """Change it at both ends; where the device is not heard at the new one, both go back.

        Does nothing on a port that has no rate (a program, a socket).
        """
        if self._port is None or baud == self.baud:
            return
        before = self.baud
        self._talk.command(f"baud {baud}", "ok baud")
        try:
            self._here(baud)
            self._talk.command("ping", "ok pong", PROBE_S)
        except (AnswerError, NoAnswerError, LinkError) as error:
            self._back(before)
            raise DeviceError(f"the line does not work at {baud} baud: choose a lower --baud.") from error

    def _back(self, before: int) -> None:
        """Both ends at the old rate. Where only the way from the device is bad, it must be told to go back.

        Errors   NoAnswerError where it is not heard there
        """
        self._talk.send(f"\nbaud {before}\n".encode())
        self._here(before)
        for silence_s in (SILENCE_S, RETURN_S):
            self._talk.settle(silence_s)
            try:
                self._talk.command("ping", "ok pong", PROBE_S)
                return
            except (AnswerError, NoAnswerError) as error:
                last = error
        raise last

    def raise_to_fastest(self) -> int:
        """The fastest of FAST at which a short test loses nothing, or the rate as it is; returns it."""
        for baud in FAST if self.is_there else ():
            if self.takes(baud):
                return baud
        return self.baud

    @property
    def is_there(self) -> bool:
        """Whether the port has a rate: a program has none, nor has a socket."""
        return self._port is not None

    def takes(self, baud: int) -> bool:
        """Whether a short test loses nothing at a rate, which then stays; otherwise the first one comes back.

        Errors   FaultError where the firmware crashes; NoAnswerError where it is not heard at any rate
        """
        try:
            self.change(baud)
        except FaultError:
            raise
        except DeviceError:
            return False  # it went back by itself
        if self._is_clean():
            return True
        self.lower()
        return False

    def lower(self) -> None:
        """Back to the rate at which a device begins, over a line that loses bytes at this one.

        Errors   NoAnswerError where the device is not heard at any rate
        """
        for _ in range(TRIES):
            self._talk.settle()
            try:
                self.change(DEFAULT_BAUD)
                return
            except FaultError:
                raise
            except DeviceError:
                continue
        self.find("the line")

    def _here(self, baud: int) -> None:
        """Change this end."""
        if self._port is not None:
            self._port.set_baud(baud)
        self.baud = baud

    def _is_clean(self) -> bool:
        """Whether bursts of pings are answered one by one."""
        try:
            for _ in range(BURSTS):
                self._talk.send(b"ping\n" * BURST)
                for _ in range(BURST):
                    if self._talk.answer("ping", "ok pong", PROBE_S).lines:
                        return False
        except (AnswerError, NoAnswerError):
            return False
        return True
