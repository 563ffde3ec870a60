"""The commands of Renode's monitor that suites use, on this board model."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .board import Board
from .errors import EmulatorError
from .loop import Stop, Until

IGNORED = {"using", "mach", "showAnalyzer", "logLevel", "logFile", "include", "i", "pause", "start"}
IGNORED_PAIRS = {"machine LoadPlatformDescription", "cpu PerformanceInMips", "sysbus.cpu PerformanceInMips"}
WIDTHS = {"Byte": 1, "Word": 2, "DoubleWord": 4}


class Monitor:
    """Carries out one command per line. The board exists once `sysbus LoadELF` has been given.

    options   how the board is made
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._variables: dict[str, str] = {}
        self._board: Board | None = None
        self.on_board: Callable[[Board], None] = lambda board: None

    @property
    def board(self) -> Board:
        if self._board is None:
            raise EmulatorError(
                "no firmware is loaded: `Execute Command  sysbus LoadELF @firmware.elf` first."
            )
        return self._board

    def execute(self, line: str) -> str:
        """One command. Returns what Renode would print.

        Errors   EmulatorError where this board model has no such command
        """
        line = re.sub(r"\$(\w+)(?!\s*\??=)", self._expand, line.split("#")[0].strip())
        assigned = re.match(r"\$(\w+)\s*(\?)?=\s*(.*)", line)
        if assigned:
            if not (assigned[2] and assigned[1] in self._variables):
                self._variables[assigned[1]] = assigned[3]
            return ""
        words = shlex.split(line)
        if not words or words[0] in IGNORED or " ".join(words[:2]) in IGNORED_PAIRS:
            return ""
        return self._dispatch(line, " ".join(words[:2]), words[2:])

    def _expand(self, found: re.Match[str]) -> str:
        return self._variables.get(found[1], found[0])

    def _dispatch(self, line: str, head: str, arguments: list[str]) -> str:
        target, _, verb = head.removeprefix("sysbus.").partition(" ")
        if (target, verb) == ("sysbus", "LoadELF") and arguments:
            self._board = Board(Path(arguments[0].removeprefix("@")), **self._options)
            self.on_board(self._board)
            return ""
        if target == "sysbus" and arguments:
            return self._memory(line, verb, arguments)
        if (target, verb) == ("cpu", "ExecutedInstructions"):
            return f"0x{self.board.instructions:016X}"
        if (target, verb) == ("cpu", "PC"):
            return f"0x{self.board.pc:X}"
        if (target, verb) == ("emulation", "RunFor") and arguments:
            self.run(seconds(arguments[0]))
        elif not self._outside(target, verb, arguments):
            raise _unknown(line)
        return ""

    def _outside(self, target: str, verb: str, arguments: list[str]) -> bool:
        """What a user does to the board: buttons, power, a scene, a byte. False where it is none of these."""
        match target, verb, arguments:
            case "machine", "Reset", []:
                self.board.press_reset()
            case "resetAndClock", "PowerCycle", []:
                self.board.power_on()
            case "flashController", "PowerFailsIn", [operations]:
                self.board.power_cut_at(flash_operation=int(operations, 0))
            case button, "Press" | "Release", [] if button == self.name("userButton"):
                self.board.button(verb == "Press")
            case "gpioPortG.labelButton", "Press" | "Release", [] if self.board.chip.has_camera:
                self.board.label_button(verb == "Press")
            case "spi2.camera", "ImageSource", [file]:
                camera = self.board.camera or self.board.connect_camera()
                camera.show_file(Path(file.removeprefix("@")))
            case line, "WriteChar", [byte] if line == self.name("usart"):
                self.board.feed(bytes([int(byte, 0)]))
            case _:
                return False
        return True

    def name(self, part: str) -> str:
        """What a part of the board is called, as on Renode: usart, userLed or userButton."""
        chip = self.board.chip
        pins = {"userLed": chip.led, "userButton": chip.button}
        return f"gpioPort{pins[part][0]}.{part}" if part in pins else chip.serial.name.lower()

    def run(self, seconds: float, until: Until | None = None) -> Stop:
        """Run the board; where its power is cut it comes back at once."""
        stop = self.board.run(seconds=seconds, until=until)
        if stop is Stop.POWER_CUT:
            self.board.power_on()
        return stop

    def _memory(self, line: str, verb: str, arguments: list[str]) -> str:
        if verb == "GetSymbolAddress":
            symbols = self.board.image.symbols
            if arguments[0] not in symbols:
                raise EmulatorError(f"the firmware has no symbol {arguments[0]!r}: {line}")
            return f"0x{symbols[arguments[0]]:X}"
        access = re.fullmatch(r"(Read|Write)(Byte|Word|DoubleWord)", verb)
        if access is None:
            raise _unknown(line)
        width, address = WIDTHS[access[2]], int(arguments[0], 0)
        if access[1] == "Read":
            return f"0x{self.board.debug_read(address, width):0{2 * width}X}"
        self.board.debug_write(address, width, int(arguments[1], 0))
        return ""


def seconds(text: str) -> float:
    """ "1.5" or "00:01:30"."""
    result: float = sum(float(part) * 60**i for i, part in enumerate(reversed(text.strip('"').split(":"))))
    return result


def _unknown(line: str) -> EmulatorError:
    return EmulatorError(
        f"the board model has no monitor command `{line}`: keep suites to what both backends know."
    )
