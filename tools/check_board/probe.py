"""What is asked of a board. Every answer is exact: two boards with one model give the same, to the bit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from microtrain.base.progress import Bars
from microtrain.device.client import Device
from microtrain.device.errors import AnswerError, DeviceError

INFERENCES, STEPS = 10, 50  # of the firmware's test patterns
LOOKS, REHEARSED = 20, 10  # patterns for the statistics of features; steps on records
SEED = 20
CLOCK_S = 2.0  # the board's tick is compared with another clock over as long as this at least
CYCLES = ("infer_cycles", "step_cycles")
TARGETS = ("00000000", "3f800000")  # float32 of 0 and 1


@dataclass
class Found:
    """What a board answered.

    board, model  as it calls them, the model with its id
    groups        group -> item -> answer
    measured      what is not exact: cycles; seconds by the board's tick and by another clock
    ended         why it stopped before the end; "": it did not
    """

    board: str
    model: str
    groups: dict[str, dict[str, str]] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    ended: str = ""

    def put(self, group: str, item: str, answer: str) -> None:
        self.groups.setdefault(group, {})[item] = answer

    @property
    def answers(self) -> int:
        return sum(len(items) for items in self.groups.values())


def must_be_new(device: Device) -> None:
    """Errors   DeviceError where the board has learned something, which the probe would replace"""
    stats = device.stats()
    if int(stats["steps"]) or int(stats["saves"]):
        raise DeviceError(
            f"{device.where} has learned: {stats['steps']} steps, checkpoint {stats['saves']}. The check "
            "would replace that. Fetch it with `microtrain device ... pull -o mine.npz`, then `forget` and "
            "`reset`; after the check, `push mine.npz` brings it back."
        )


def probe(device: Device, clock: Callable[[], float], bars: Bars, title: str) -> Found:
    """Ask a board that has learned nothing everything, and leave it so.

    clock   the time in seconds that passes on a sound board too
    title   of the bar
    """
    found = Found(device.info.board, f"{device.info.model} {device.info.model_id}")
    try:
        _Probe(device, clock, bars, title, found).run()
    except DeviceError as error:
        found.ended = str(error)
    return found


class _Probe:
    def __init__(
        self, device: Device, clock: Callable[[], float], bars: Bars, title: str, found: Found
    ) -> None:
        self._device, self._clock, self._found = device, clock, found
        looks = LOOKS if device.info.imprint else 0
        self._bar = bars.add(title, INFERENCES + STEPS + looks + 1)

    def run(self) -> None:
        self._begin()
        self._about()
        self._ask("weights as converted", "sha")
        self._selftest()
        for number in range(INFERENCES):
            self._shown("inference", number, "infer")
        self._train()
        self._ask("weights after training", "sha")
        if self._device.info.records:
            self._ask("records", f"rehearse {REHEARSED}")
            self._ask("records", "sha")
        if self._device.info.imprint:
            self._look()
        self._over_the_line()
        self._restart()
        self._leave_as_new()
        self._bar.end()

    def _begin(self) -> None:
        settings = ("reset", f"seed {SEED}", "rate 1", "autosave 0")
        for command in (*settings, *(["replay 0"] if self._device.info.records else [])):
            self._device.exchange(command)

    def _ask(self, group: str, command: str) -> None:
        """What the board answers to a command."""

        def answer() -> str:
            given = self._device.exchange(command)
            return "; ".join([*given.lines, given.final])

        self._put(group, command, answer)

    def _put(self, group: str, item: str, answer: Callable[[], str]) -> None:
        """An answer, or why the board refuses it."""
        try:
            said = answer()
        except AnswerError as error:
            said = f"err {error}"
        self._found.put(group, item, said)

    def _shown(self, group: str, number: int, command: str) -> None:
        """A command on the test pattern of a number."""
        self._device.exchange(f"pattern {number}")
        self._ask(group, command)
        answers = self._found.groups[group]
        answers[f"pattern {number}"] = answers.pop(command)
        self._bar.advance()

    def _about(self) -> None:
        about = self._device.info
        h, w, c = about.shape
        said = {
            "model": self._found.model,
            "input": f"{h} x {w} x {c}",
            "classes": about.classes,
            "arena": about.arena_bytes,
            "trainables": about.trainable_bytes,
            "records": about.records,
            "statistics": about.imprint,
        }
        for item, value in said.items():
            self._found.put("model", item, str(value))

    def _selftest(self) -> None:
        self._put("self-test", "selftest", lambda: "; ".join(self._device.selftest()))

    def _train(self) -> None:
        """Training steps; how long they take, and how long the board says that they took."""
        tick, began = _uptime(self._device.stats()), self._clock()
        for number in range(STEPS):
            self._shown("training", number, self._to_learn(number))
        took = self._clock() - began
        self._device.rest(max(0.0, CLOCK_S - took))
        stats = self._device.stats()
        self._found.measured |= {
            "training_s": took,
            "clock_s": self._clock() - began,
            "tick_s": _uptime(stats) - tick,
            **{key: int(stats[key]) for key in CYCLES},
        }

    def _to_learn(self, number: int) -> str:
        """The command of a training step: with a label, or on targets of 0 and 1 that are sent before it."""
        outputs = self._device.info.classes
        if not self._device.info.task:
            return f"train {number % outputs}"
        for place in range(outputs):
            self._device.exchange(f"target {place} {TARGETS[(number >> place) % 2]}")
        return "train"

    def _look(self) -> None:
        """A head of the statistics of features."""
        for number in range(LOOKS):
            self._shown("one look", number, f"imprint {number % self._device.info.classes}")
        self._ask("one look", "imprint head")
        self._ask("one look", "sha")

    def _over_the_line(self) -> None:
        """All weights fetched and sent back."""
        block = self._device.pull()
        self._found.put("weights over the line", "pull", hashlib.sha256(block).hexdigest())
        self._device.push(block)
        self._found.put("weights over the line", "push", self._device.sha())

    def _restart(self) -> None:
        self._save()
        self._device.reboot()
        self._found.put("after a restart", "steps", self._device.stats()["steps"])
        self._ask("after a restart", "sha")
        self._shown("after a restart", 0, "infer")

    def _save(self) -> None:
        """A checkpoint; its number depends on what was in flash before."""
        self._put("checkpoint", "save", lambda: "ok" if self._device.save() else "")

    def _leave_as_new(self) -> None:
        """As after conversion. Where `save` was refused, what is in flash belongs to somebody else."""
        if self._found.groups["checkpoint"]["save"] == "ok":
            self._device.forget()
        self._device.reset()


def _uptime(stats: dict[str, str]) -> float:
    """By the board's tick, in seconds."""
    return int(stats["uptime_ms"]) / 1000
