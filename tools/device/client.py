"""The device as a Python object: every command of docs/protocol.md as a method."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from microtrain.base.errors import Error
from microtrain.samples.kind import sound_of

from .answers import (
    NO_HOP,
    NO_IMPRINT,
    NO_RECORDS,
    REPLAY_MAX,
    Info,
    Prediction,
    Shared,
    Step,
    decimal,
    parse_info,
    split_pair,
)
from .conversation import COMPUTE_S, PROBE_S, Answer, Conversation, greet, says_diverged
from .errors import AnswerError, DamagedError, DeviceError, NoAnswerError
from .frames import Frames
from .link import DEFAULT_BAUD, Port
from .protocol import Frame, crc32
from .rate import Rate


class Device:
    """A microtrain device at the other end of a port. Use as a context manager."""

    def __init__(self, port: Port, where: str = "the port", baud: int = DEFAULT_BAUD) -> None:
        self.port = port
        self.where = where
        self._talk = Conversation(port)
        self._rate = Rate(port, self._talk)
        self._frames = Frames(self._talk, self._rate)
        self._rate.find(where)
        self.set_baud(baud)
        self.info = self._read_info()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the device at its default rate, so that the next program finds it."""
        try:
            self.set_baud(DEFAULT_BAUD)
        except DeviceError:
            pass  # it is gone already: nothing to leave in order
        finally:
            self.port.close()

    def infer(self, image: np.ndarray) -> Prediction:
        """Logits of one image, uint8 [h][w][c]."""
        return self._prediction(self._with_image(image, "infer"))

    def follow(self, new: np.ndarray) -> Prediction:
        """Logits of the next of overlapping windows, behind an inference: the last one moves on by `info.hop`
        rows, and `new` are those that are missing, uint8 [hop][w][c], or the int16 samples that make them.

        Errors   AnswerError where there is no window to move on; DeviceError where the model has no windows
                 that overlap. After any error the next window must come whole, by infer()
        """
        height, width, channels = self.info.shape
        if not self.info.hop:
            raise DeviceError(NO_HOP)
        stays = height - self.info.hop
        sound = sound_of(self.info.shape)
        if new.dtype == np.int16 and sound is not None:
            self._talk.command("slide", "ok slide", COMPUTE_S)
            self._frames.send_samples(new, sound.samples(stays), sound.samples(height))
        else:
            self._must_be_rows(new, (self.info.hop, width, channels))
            self._talk.command("slide", "ok slide", COMPUTE_S)
            self._frames.send_image_rows(new, stays)
        return self._prediction(self._talk.command("infer", "ok infer", COMPUTE_S))

    def _prediction(self, answer: Answer) -> Prediction:
        logits = next((line.split()[1:] for line in answer.lines if line.startswith("logits ")), [])
        if len(logits) != self.info.classes:
            raise DeviceError(
                f"the device sent {len(logits)} logits, not {self.info.classes}: {answer.lines!r}."
            )
        try:
            values = [struct.unpack(">f", bytes.fromhex(digits))[0] for digits in logits]
        except (ValueError, struct.error) as error:
            raise DamagedError(" ".join(logits)) from error
        return Prediction(np.array(values, np.float32), *answer.values(int))

    def train(self, image: np.ndarray, label: int) -> Step:
        """One training step on one image, uint8 [h][w][c]."""
        answer = self._with_image(image, f"train {label}")
        _, predicted, loss = answer.values(int, int, float)
        return Step(predicted, loss, says_diverged(answer))

    def scores(self, image: np.ndarray) -> np.ndarray:
        """What the model makes of one image, float32: outputs in their units, or logits."""
        return self.infer(image).logits

    def teach(self, image: np.ndarray, target: Sequence[float]) -> Step:
        """One training step on one image and its target, numbers in the place of a label.

        Errors   DeviceError where the firmware learns from labels, or another number of targets
        """
        if not self.info.task or len(target) != self.info.classes:
            wanted = f"{self.info.classes} numbers" if self.info.task else "a label"
            raise DeviceError(f"the model learns from {wanted}, not from a target of {len(target)} numbers.")
        for place, digits in enumerate(struct.pack(">f", number).hex() for number in target):
            self._talk.command(f"target {place} {digits}", f"ok target {place} {digits}")
        answer = self._with_image(image, "train")
        loss: float = answer.values(int, int, float)[2]
        return Step(0, loss, says_diverged(answer))

    def evaluate(self, image: np.ndarray, label: int) -> int:
        """Class predicted for one image, counted in the device's statistics."""
        predicted: int = self._with_image(image, f"eval {label}").values(int, int)[1]
        return predicted

    def imprint(self, image: np.ndarray, label: int) -> int:
        """Look once at an image, uint8 [h][w][c]: its features join the statistics of its class. A training
        step makes them begin anew.

        Returns  the class predicted for it
        Errors   DeviceError where the firmware has no such statistics
        """
        self._must_imprint()
        predicted: int = self._with_image(image, f"imprint {label}").values(int, int)[1]
        return predicted

    def imprint_head(self) -> int:
        """Replace the head by the one that the statistics of features make.

        Returns  how many classes it knows
        Errors   DeviceError where nothing was looked at, or the firmware has no such statistics
        """
        self._must_imprint()
        answer = self._talk.command("imprint head", "ok imprint head", COMPUTE_S)
        classes: int = answer.values(str, int, int)[2]
        return classes

    def _must_imprint(self) -> None:
        if not self.info.imprint:
            raise DeviceError(NO_IMPRINT)

    def send_image(self, image: np.ndarray) -> None:
        """Send an image row by row, uint8 [h][w][c] of the model's size; a corrupt row is sent again.

        Where the board has a front end, int16 [samples] of sound will do: the board makes the rows.
        """
        sound = sound_of(self.info.shape)
        if image.dtype == np.int16 and sound is not None:
            needed = sound.samples(self.info.shape[0])
            self._talk.command("image", "ok image")
            self._frames.send_samples(image, 0, needed)
            return
        self._must_be_rows(image, self.info.shape)
        self._talk.command("image", "ok image")
        self._frames.send_image_rows(image, 0)

    @staticmethod
    def _must_be_rows(rows: np.ndarray, shape: tuple[int, int, int]) -> None:
        if rows.dtype != np.uint8 or rows.shape != shape:
            raise DeviceError(f"a sample must be uint8 {shape}, not {rows.dtype} {rows.shape}.")

    def stats(self) -> dict[str, str]:
        """The device's counters by name."""
        return dict(split_pair(line) for line in self._talk.command("stats").lines)

    def skipped(self) -> int:
        """Steps that ended at their loss (`info.gate`), replayed ones included, since `stats clear`."""
        return int(self.stats()["skipped"]) if self.info.gate else 0

    def sha(self) -> str:
        """SHA-256 of the trainables, 64 hex digits."""
        digits: str = self._talk.command("sha", "ok sha").values(str)[0]
        return digits

    def selftest(self) -> tuple[str, ...]:
        """Kernels, flash and memory, a line each; images on their way are lost.

        Errors   AnswerError where one of them is wrong, with these lines
        """
        self._talk.send(b"selftest\n")
        lines: list[str] = []
        while (item := self._talk.next(COMPUTE_S)) is not None:
            if isinstance(item, Frame) or not item.intact:
                continue
            if item.text == "ok selftest":
                return tuple(lines)
            if item.text.startswith("err "):
                word, _, sentence = item.text[4:].partition(" ")
                raise AnswerError(word, "; ".join([*lines, sentence]), "selftest")
            lines.append(item.text)
        raise NoAnswerError("the self-test does not end: press the reset button and try again.", lines)

    def join(self, fleet: str, number: int, arrived: int) -> bool:
        """Begin a round of a fleet from the trainables that were pushed, with what the board holds back.

        fleet    8 hex digits
        arrived  the last round whose update the server has; what the board said in a later one is not lost
        Returns  whether the round is over already: share() says its update again
        Errors   AnswerError where a later round was begun, or this one with other trainables
        """
        answer = self._talk.command(f"join {fleet} {number} {arrived}", "ok join", COMPUTE_S)
        return answer.final.endswith("done")

    def share(self, room: int, momentum: int) -> Shared:
        """End the round: the update that the board makes of it (tools/fleet/dgc.py).

        room      bytes that it may have
        momentum  in 1/256
        Errors    AnswerError where no round was begun, training has diverged, or something else was saved
                  meanwhile; DamagedError where it arrives corrupt, and then it may be asked for again
        """
        answer = self._talk.command(f"share {room} {momentum}", "ok share", COMPUTE_S)
        said = dict(split_pair(line) for line in answer.lines if not line.startswith("update "))
        digits = "".join(split_pair(line)[1] for line in answer.lines if line.startswith("update "))
        try:
            body = bytes.fromhex(digits)
            shared = Shared(body, int(said["steps"]), float(said["loss"]))
        except (KeyError, ValueError) as error:
            raise DamagedError(digits) from error
        if crc32(body) != answer.values(int)[0]:
            raise DamagedError(digits)
        return shared

    def reset(self) -> None:
        """Trainables and counters as after conversion."""
        self._talk.command("reset", "ok reset")

    def save(self) -> int:
        """Checkpoint to flash; returns its number.

        Errors   AnswerError where the flash holds what another model has learned, or is worn out
        """
        number: int = self._talk.command("save", "ok save").values(int)[0]
        return number

    def autosave(self, steps: int) -> None:
        """Checkpoint after every so many training steps; 0: never."""
        self._talk.command(f"autosave {steps}", "ok autosave")

    def guard(self, on: bool) -> None:
        """Whether the device goes back to its last checkpoint where training diverges."""
        self._talk.command(f"guard {int(on)}", "ok guard")

    def reboot(self) -> None:
        """Restart; steps since the last checkpoint are saved first."""
        self._talk.command("reboot", "ok reboot")
        self._talk.listen(PROBE_S)
        greet(self._talk, self.where)

    def forget(self) -> None:
        """Erase all checkpoints; what the device has learned stays until it restarts."""
        self._talk.command("forget", "ok forget")

    def rate(self, factor: float) -> None:
        """Multiply the scheme's learning rates by `factor`, 0..1000."""
        self._talk.command(f"rate {decimal(factor)}", "ok rate")

    def seed(self, number: int) -> None:
        """Seed of the stochastic rounding, uint32."""
        self._talk.command(f"seed {number}", "ok seed")

    def _must_remember(self) -> None:
        if not self.info.records:
            raise DeviceError(NO_RECORDS)

    def replay(self, count: int) -> None:
        """Training steps on old records behind each new one.

        Errors   DeviceError where the firmware has no replay buffer
        """
        self._must_remember()
        self._talk.command(f"replay {count}", "ok replay")

    def rehearse(self, count: int) -> bool:
        """Training steps on old records alone. Returns whether training has diverged (answers.Step).

        Errors   DeviceError where the firmware has no replay buffer, or nothing is in it
        """
        self._must_remember()
        for start in range(0, count, REPLAY_MAX):
            some = min(REPLAY_MAX, count - start)
            if says_diverged(self._talk.command(f"rehearse {some}", "ok rehearse", COMPUTE_S)):
                return True
        return False

    def keep(self, on: bool) -> None:
        """Whether images that come may become records, as after boot.

        Errors   DeviceError where the firmware has no replay buffer
        """
        self._must_remember()
        self._talk.command(f"keep {int(on)}", "ok keep")

    def idle(self, steps: int) -> None:
        """Let the device take so many steps on old records while the line is silent; the rate falls to 0.

        Errors   DeviceError where the firmware has no replay buffer
        """
        self._must_remember()
        self._talk.command(f"idle {steps}", "ok idle")

    def pull(self) -> bytes:
        """All trainables, as they lie in the device's memory."""
        return self._frames.pull()

    def push(self, block: bytes) -> None:
        """Replace all trainables. Where they do not arrive intact, the device has its old ones afterwards."""
        if len(block) != self.info.trainable_bytes:
            raise DeviceError(
                f"{len(block)} bytes for a device with {self.info.trainable_bytes} of trainables."
            )
        if self.info.arena_bytes >= self.info.trainable_bytes:  # the device stages them
            self._frames.push(block, self.info.model_id)
            return
        before = self._copy()
        try:
            self._frames.push(block, self.info.model_id)
        except DeviceError:
            self._talk.settle()
            if before:
                self._frames.push(before, self.info.model_id)
            raise

    def _copy(self) -> bytes | None:
        """The trainables, or None where an earlier push left them incomplete."""
        try:
            return self.pull()
        except AnswerError as error:
            if error.word != "push":
                raise
            return None

    def set_baud(self, baud: int) -> None:
        """Change the rate of the line at both ends (Rate.change)."""
        self._rate.change(baud)

    def hurry(self) -> int:
        """Take the fastest rate that the line bears; returns it. Where it then loses a frame it goes back."""
        return self._frames.hurry()

    @property
    def has_rate(self) -> bool:
        """Whether the line has a baud rate."""
        return self._rate.is_there

    def bears(self, baud: int) -> bool:
        """Whether the line loses nothing at a rate, in a short test; afterwards it is at the first rate."""
        clean = self._rate.takes(baud)
        self.set_baud(DEFAULT_BAUD)
        return clean

    def exchange(self, command: str) -> Answer:
        """A line of docs/protocol.md and what it is answered with, for tools that compare boards.

        Errors   AnswerError where it is refused
        """
        return self._talk.command(command, f"ok {command.split()[0]}", COMPUTE_S)

    def rest(self, seconds: float) -> None:
        """Let the device's time pass."""
        if seconds:
            self._talk.listen(seconds)

    def _read_info(self) -> Info:
        answer = self._talk.command("info")
        try:
            return parse_info(dict(split_pair(line) for line in answer.lines))
        except (KeyError, ValueError, Error) as error:
            raise DeviceError(
                f"{self.where} answers `info` in a way this client does not know ({error}): "
                "build and upload the firmware of this checkout."
            ) from error

    def _with_image(self, image: np.ndarray, command: str) -> Answer:
        """Send an image and what shall be done with it; once more where the device misses rows."""
        word = command.split()[0]
        for attempt in range(2):
            self.send_image(image)
            try:
                return self._talk.command(
                    command, f"ok {command}" if word != "infer" else "ok infer", COMPUTE_S
                )
            except AnswerError as error:
                if error.word != "image" or attempt:
                    raise
        raise AssertionError("unreachable")
