"""What can go wrong, each one sentence that says what to do; the command line prints it and exits with 1."""

from __future__ import annotations

from collections.abc import Sequence

from microtrain.base.errors import Error, short


class DeviceError(Error):
    """Something the user can mend: one sentence that names the thing and the way out."""


class LinkError(DeviceError):
    """The bytes do not get through: no such port, no permission, cable pulled, program ended."""


class NoAnswerError(DeviceError):
    """The device did not answer in time.

    heard   lines that came instead of an answer
    """

    def __init__(self, sentence: str, heard: Sequence[str] = ()) -> None:
        self.heard = tuple(heard)
        super().__init__(sentence)


class FaultError(DeviceError):
    """The firmware crashed and said why on a line `fault ...`."""


class DamagedError(DeviceError):
    """An answer came, but not what the command is answered with: the line changed it on its way."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"the answer {short(text)} arrived damaged: check the cable or use a lower --baud, "
            "then repeat the command."
        )


class AnswerError(DeviceError):
    """The device answered `err WORD sentence`.

    word    one of command, argument, image, frame, busy, push, flash, selftest (docs/protocol.md)
    """

    def __init__(self, word: str, sentence: str, command: str) -> None:
        self.word = word
        super().__init__(
            f"the device refused `{command}`: {word} {sentence}. {ADVICE.get(word, ADVICE['command'])}"
        )


ADVICE = {
    "command": "Its firmware may be older than this client: build and upload again.",
    "argument": "Correct the value (`help` in `monitor` lists what each command takes).",
    "image": "A row was lost on the way: repeat the command, at a lower --baud if it happens again.",
    "frame": "The line is noisy: check the cable or use a lower --baud, then repeat the command.",
    "busy": "Wait until the device is done, then repeat the command.",
    "selftest": "Upload the firmware again; if it stays so, the chip is damaged.",
    "push": "Nothing on the device has changed: push again, with the file and plan of the model it runs.",
}
