"""One command, one answer: the turn-taking on the line, with time-outs and crashes noticed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .errors import AnswerError, DamagedError, DeviceError, FaultError, NoAnswerError
from .link import Port
from .protocol import Frame, Line, Receiver

READ_BYTES = 4096
FLOOD_BYTES = 1 << 20  # this much without an answer is noise, not a device
SILENCE_S = 0.6  # longer than the 500 ms after which the device gives up a frame
ANSWER_S = 3.0
COMPUTE_S = 60.0  # an inference or a training step
BUSY_S = 10.0  # longer than the erase of a flash sector, which `busy` announces
PROBE_S = 1.0
BANNER = re.compile(r"microtrain \S+ \S+ [0-9a-f]{8}$")


@dataclass(frozen=True)
class Answer:
    """What a command drew: its data lines and frames, and the line that ended it."""

    lines: tuple[str, ...]
    frames: tuple[Frame, ...]
    final: str

    def values(self, *kinds: Callable[[str], Any]) -> list[Any]:
        """The words behind `ok COMMAND`, each read as its kind; more of them are passed over.

        Errors   DamagedError where one is missing or no such thing
        """
        words = self.final.split()[2:]
        try:
            return [kind(word) for kind, word in zip(kinds, words[: len(kinds)], strict=True)]
        except ValueError as error:
            raise DamagedError(self.final) from error


def says_diverged(answer: Answer) -> bool:
    """Whether the device is back at its last checkpoint."""
    return any(line.startswith("diverged:") for line in answer.lines)


class Conversation:
    """Sends and receives whole lines and frames over a port."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self._receiver = Receiver()
        self._waiting: list[Line | Frame] = []

    def send(self, data: bytes) -> None:
        self.port.write(data)

    def next(self, timeout_s: float) -> Line | Frame | None:
        """The next whole line or frame; None when `timeout_s` passed without one.

        Errors   FaultError when the firmware crashes or restarts, NoAnswerError when only noise comes
        """
        flood = 0
        while not self._waiting:
            data = self.port.read(READ_BYTES, timeout_s)
            flood += len(data)
            if not data:
                return None
            if flood > FLOOD_BYTES:
                raise NoAnswerError(
                    "only noise comes over the line: is --port the right one, and the --baud?"
                )
            self._waiting.extend(self._receiver.feed(data))
        item = self._waiting.pop(0)
        if isinstance(item, Line):
            self._watch(item.text)
        return item

    def answer(self, command: str, expect: str = "ok", timeout_s: float = ANSWER_S) -> Answer:
        """Collect what follows `command` up to its final line, which must begin with `expect`.

        Finals that belong to something older are passed over.

        Errors   AnswerError on `err ...`, NoAnswerError
        """
        lines: list[str] = []
        frames: list[Frame] = []
        while (item := self.next(timeout_s)) is not None:
            if isinstance(item, Frame):
                frames.append(item)
            elif not item.intact:
                continue  # whatever it says, it may be wrong
            elif item.text.startswith("err "):
                word, _, sentence = item.text[4:].partition(" ")
                raise AnswerError(word, sentence, command)
            elif item.text.split()[: len(expect.split())] == expect.split():
                return Answer(tuple(lines), tuple(frames), item.text)
            elif item.text.startswith("busy "):
                timeout_s = max(timeout_s, BUSY_S)
            elif item.text.split()[0] != "ok":
                lines.append(item.text)
        raise NoAnswerError(
            f"the device did not answer `{command}` within {timeout_s:g} s: "
            "press its reset button and try again, at a lower --baud if it happens again.",
            lines,
        )

    def command(self, text: str, expect: str = "ok", timeout_s: float = ANSWER_S) -> Answer:
        """Send one line and collect its answer."""
        self.send(text.encode("ascii") + b"\n")
        return self.answer(text, expect, timeout_s)

    def settle(self, silence_s: float = SILENCE_S) -> list[str]:
        """Find the place again: end a half-sent line, pass over everything until the device is silent.

        Returns the lines that were passed over.
        """
        self.send(b"\n")
        return self.listen(silence_s)

    def listen(self, silence_s: float) -> list[str]:
        """Everything that is said until the device is silent for `silence_s`."""
        lines, self._waiting = [item.text for item in self._waiting if isinstance(item, Line)], []
        taken = 0
        while data := self.port.read(READ_BYTES, silence_s):
            taken += len(data)
            lines += [item.text for item in self._receiver.feed(data) if isinstance(item, Line)]
            if taken > FLOOD_BYTES:
                break
        self._receiver.reset()
        return lines

    def _watch(self, text: str) -> None:
        """Notice a crash or a restart in the middle of a conversation."""
        if text.startswith("fault "):
            report = [text, *self.listen(PROBE_S)]
            said = "; ".join(line for line in report if line.startswith("fault "))
            raise FaultError(
                f"the firmware crashed: {said}. The device restarts with its last checkpoint, if it has one."
            )
        banner = BANNER.search(text)  # behind what it was saying when it was cut off
        if banner:
            raise FaultError(
                f"the device restarted (it says `{banner[0]}`), with its last checkpoint, if it has one. "
                "Was its reset button pressed, or its power cut?"
            )


def greet(talk: Conversation, where: str, tries: int = 3) -> None:
    """Make sure a microtrain device is listening.

    Errors   FaultError when it has crashed, NoAnswerError with what to check
    """
    heard: list[str] = []
    for _ in range(tries):
        heard += talk.settle(0.2 if not heard else SILENCE_S)
        faults = [line for line in heard if line.startswith("fault ")]
        if faults:
            raise FaultError(f"the firmware on {where} crashed at start: {'; '.join(faults)}.")
        try:
            talk.command("ping", expect="ok pong", timeout_s=PROBE_S)
            return
        except AnswerError:
            continue
        except NoAnswerError as error:
            heard += error.heard
        except FaultError as error:
            if "crashed" in str(error):
                raise
            heard.append("")
    raise not_microtrain(where, heard)


def not_microtrain(where: str, heard: list[str]) -> DeviceError:
    said = next((line for line in heard if line.strip()), None)
    if said is not None:
        return NoAnswerError(
            f"{where} is not a microtrain device (it says {said[:60]!r}): "
            "upload the firmware (`pio run -t upload`) or choose another port."
        )
    return NoAnswerError(
        f"no microtrain device answers on {where}: check the cable and the port, upload the firmware "
        "(`pio run -t upload`), press the board's reset button."
    )
