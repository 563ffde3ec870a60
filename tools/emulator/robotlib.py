"""Robot Framework keywords with the names, arguments and meaning of Renode's (the subset that suites use)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from robot.api import logger
from robot.utils import DotDict

from .board import Board
from .errors import EmulatorError
from .loop import Stop, Until
from .monitor import Monitor
from .port import DEFAULT_BAUD

DEFAULT_TIMEOUT_S = 8.0
LED_LOOK_S = 0.001
Match = dict[str, Any]


class Tester:
    """Collects what a serial line says, line by line.

    lines     finished and not yet matched
    current   the unfinished one
    report    everything
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.lines: list[str] = []
        self.current = ""
        self.report: list[str] = []

    def receive(self, data: bytes) -> None:
        *finished, self.current = (self.current + data.decode("latin1")).split("\n")
        for line in finished:
            self.lines.append(line.rstrip("\r"))
            self.report.append(line.rstrip("\r"))

    def find(self, content: str, regex: bool, unfinished: bool) -> Match | None:
        """The first line that holds `content`; it and all before it are then done with."""
        for i, line in enumerate(self.lines):
            match = _match(content, line, regex)
            if match:
                del self.lines[: i + 1]
                return match
        match = _match(content, self.current, regex) if unfinished else None
        if match:
            self.current = ""
            self.lines.clear()
        return match


def _match(content: str, line: str, regex: bool) -> Match | None:
    if not regex:
        return {"Line": line, "Groups": []} if content in line else None
    found = re.search(content, line)
    return {"Line": line, "Groups": list(found.groups())} if found else None


def _true(value: object) -> bool:
    """Renode's truth values arrive as text."""
    return str(value).lower() == "true"


class BoardKeywords:
    """The keyword library. Every test gets a new board."""

    ROBOT_LIBRARY_SCOPE = "TEST"

    def __init__(self, strict: bool = False, paced: bool = False) -> None:
        self._options = {"strict": _true(strict), "paced": _true(paced)}
        self.reset_emulation()

    # ---------------------------------------------------------------- emulation
    def reset_emulation(self) -> None:
        self._monitor = Monitor(self._options)
        self._monitor.on_board = self._connect
        self._testers: list[Tester] = []
        self._led_timeouts_s: list[float] = []
        self._default_timeout_s = DEFAULT_TIMEOUT_S
        self._wait_for_echo = True

    def _connect(self, board: Board) -> None:
        """The terminal is at the rate that the firmware starts with; the suites never change it."""
        board.usart.host_baud = DEFAULT_BAUD
        board.usart.listeners.append(self._receive)

    def _receive(self, data: bytes) -> None:
        for tester in self._testers:
            tester.receive(data)

    def execute_command(self, command: str) -> str:
        return self._monitor.execute(command)

    def start_emulation(self) -> None:
        """Time passes in keywords that wait, so there is nothing to start."""

    def pause_emulation(self) -> None:
        """Between keywords the emulation always pauses."""

    def set_default_uart_timeout(self, timeout: float) -> None:
        self._default_timeout_s = float(timeout)

    # ---------------------------------------------------------------- serial line
    def create_terminal_tester(
        self,
        uart: str,
        timeout: float | None = None,
        machine: object = None,
        endLineOption: object = None,
        defaultPauseEmulation: object = None,
        defaultWaitForEcho: object = True,
        defaultMatchNextLine: object = None,
        binaryMode: object = False,
    ) -> int:
        """One machine, paused between keywords, one line end: most options have nothing to choose."""
        self._wait_for_echo = _true(defaultWaitForEcho)
        self._check(uart, "UART", "usart")
        self._testers.append(Tester(self._default_timeout_s if timeout is None else float(timeout)))
        return len(self._testers) - 1

    def _check(self, given: str, kind: str, part: str) -> None:
        """Errors   EmulatorError where the board calls its UART or LED something else"""
        name = self._monitor.name(part)
        if given.removeprefix("sysbus.") != name:
            board = self._monitor.board.chip.board
            raise EmulatorError(f"{board} has no {kind} {given!r}: use sysbus.{name}.")

    def _tester(self, number: int | None) -> Tester:
        if not self._testers:
            raise EmulatorError(
                f"no terminal tester: `Create Terminal Tester  sysbus.{self._monitor.name('usart')}` first."
            )
        return self._testers[int(number or 0)]

    def _search(self, seconds: float, find: Callable[[], Match | None], until: Until) -> Match | None:
        """Run until something is found or the time is up. After a power cut the clock starts anew."""
        board = self._monitor.board
        end_s = board.seconds + seconds
        found = find()
        while found is None and board.seconds < end_s:
            stop = self._monitor.run(end_s - board.seconds, until)
            found = find()
            if stop is Stop.POWER_CUT:
                end_s = board.seconds + seconds
            elif stop is not Stop.OUTPUT:
                break  # also where a rounded sum leaves `seconds` a hair before the end
        return found

    def wait_for_line_on_uart(
        self,
        content: str,
        timeout: float | None = None,
        testerId: int | None = None,
        treatAsRegex: object = False,
        includeUnfinishedLine: object = False,
        pauseEmulation: object = None,
        matchNextLine: object = None,
    ) -> DotDict:
        tester = self._tester(testerId)
        unfinished = _true(includeUnfinishedLine)
        found = self._search(
            tester.timeout_s if timeout is None else float(timeout),
            lambda: tester.find(content, _true(treatAsRegex), unfinished),
            Until.BYTE if unfinished else Until.LINE,
        )
        if found is None:
            said = "\n".join([*tester.report, tester.current])
            raise AssertionError(
                f"Terminal tester failed! It waited for {content!r}.\n\nFull report:\n{said}"
            )
        seconds = self._monitor.board.seconds
        logger.info(f"{found['Line']!r} at {seconds:.6f} virtual seconds")
        return DotDict(found, Timestamp=seconds)

    def wait_for_prompt_on_uart(
        self,
        prompt: str,
        testerId: int | None = None,
        timeout: float | None = None,
        treatAsRegex: object = False,
    ) -> DotDict:
        return self.wait_for_line_on_uart(prompt, timeout, testerId, treatAsRegex, True)

    def wait_for_next_line_on_uart(
        self, timeout: float | None = None, testerId: int | None = None
    ) -> DotDict:
        return self.wait_for_line_on_uart("", timeout, testerId)

    def should_not_be_on_uart(
        self,
        content: str,
        timeout: float | None = None,
        testerId: int | None = None,
        treatAsRegex: object = False,
        includeUnfinishedLine: object = False,
    ) -> None:
        try:
            self.wait_for_line_on_uart(content, timeout, testerId, treatAsRegex, includeUnfinishedLine)
        except AssertionError:
            return
        raise AssertionError(f"{content!r} is on the UART, and should not be")

    def write_to_uart(self, content: str, testerId: int | None = None) -> None:
        self._monitor.board.feed(content.encode("latin1"))

    def write_char_on_uart(self, char: str, testerId: int | None = None) -> None:
        self.write_to_uart(char)

    def write_line_to_uart(
        self,
        content: str = "",
        testerId: int | None = None,
        waitForEcho: object = None,
        pauseEmulation: object = None,
    ) -> None:
        self.write_to_uart(content + "\r")
        if self._wait_for_echo if waitForEcho is None else _true(waitForEcho):
            self.wait_for_line_on_uart(content, testerId=testerId, includeUnfinishedLine=True)

    def test_if_uart_is_idle(self, timeout: float, testerId: int | None = None) -> None:
        tester = self._tester(testerId)
        before = len(tester.report), tester.current
        self._monitor.run(float(timeout))
        if (len(tester.report), tester.current) != before:
            raise AssertionError("the UART was not idle")

    # ---------------------------------------------------------------- LED
    def create_led_tester(self, led: str, defaultTimeout: float = 0, machine: object = None) -> int:
        self._check(led, "LED", "userLed")
        self._led_timeouts_s.append(float(defaultTimeout))
        return len(self._led_timeouts_s) - 1

    def assert_led_state(
        self, state: object, timeout: float | None = None, testerId: int = 0, pauseEmulation: object = None
    ) -> None:
        """Wait until the LED is as it should be."""
        if not self._led_timeouts_s:
            raise EmulatorError(
                f"no LED tester: `Create Led Tester  sysbus.{self._monitor.name('userLed')}` first."
            )
        seconds = self._led_timeouts_s[int(testerId)] if timeout is None else float(timeout)
        board, wanted = self._monitor.board, _true(state)
        end_s = board.seconds + seconds
        while board.led != wanted and board.seconds < end_s:
            self._monitor.run(min(LED_LOOK_S, end_s - board.seconds))
        if board.led != wanted:
            raise AssertionError(
                f"the LED is not {'on' if wanted else 'off'} after {seconds} virtual seconds"
            )
