"""The camera demo on an emulated board, and the person before it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from microtrain.emulator import Board, Stop, Until
from microtrain.emulator.peripherals.camera import CameraFault


class Demo:
    """A board with a camera, booted, and a person before it."""

    def __init__(self, elf: Path, fault: CameraFault = CameraFault.NONE) -> None:
        self.board = Board(elf)
        self.camera = self.board.connect_camera()
        self.camera.set_fault(fault)

    def boot(self) -> list[str]:
        return self.lines(("ready",))

    def lines(self, last: tuple[str, ...]) -> list[str]:
        """What the board says, up to a line that begins with one of `last`."""
        said: list[str] = []
        while not said or not said[-1].startswith(last):
            assert self.board.run(seconds=10.0, until=Until.LINE) is Stop.OUTPUT, said
            said += self.board.take_output().decode("ascii").splitlines()
        return said

    def ask(self, command: str) -> list[str]:
        self.board.feed(command.encode("ascii") + b"\n")
        return self.lines(("ok", "err"))

    def answer(self, command: str) -> str:
        return self.ask(command)[-1]

    def wait(self, seconds: float) -> str:
        """What is said meanwhile."""
        self.board.run(seconds=seconds)
        return self.board.take_output().decode("ascii")

    def press(self, button: int, seconds: float = 0.1, rest: float = 1.0) -> str:
        """What a press brings, and the time behind it: a millisecond of a board that sleeps is as dear as one
        of a board that works."""
        hold = (self.board.button, self.board.label_button)[button]
        hold(True)
        said = self.wait(seconds)
        hold(False)
        return said + self.wait(rest)

    def logits(self) -> np.ndarray:
        """Of the image that is in."""
        (line,) = (line for line in self.ask("infer") if line.startswith("logits "))
        return np.frombuffer(bytes.fromhex("".join(line.split()[1:])), ">f4")
