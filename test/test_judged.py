"""A session that learns from a look judges itself by what it learned from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from microtrain.device.answers import Info, Step
from microtrain.device.learning import JUDGED, SLACK, train
from microtrain.device.session import Log, Settings, Silent, new_log, setback
from microtrain.samples.source import Dataset, Sample

SAMPLES = 100
IMAGES = Dataset(("a", "b"), tuple(Sample(Path(f"a/{i}"), i % 2) for i in range(SAMPLES)))
LOOK = 50  # of JUDGED that its head knows


class Learner:
    """Knows so many of those that it is asked by the rate at which it has learned. rates: of its sessions"""

    def __init__(self, knows: dict[float, int]) -> None:
        self.knows, self.now, self.factor, self.asked = knows, LOOK, 1.0, 0
        self.rates: list[float] = []
        self.info = Info("b", "m", "00000000", (1, 1, 1), 2, 1, 1, 8, 1, 1, imprint=1)

    def evaluate(self, image: np.ndarray, label: int) -> int:
        self.asked += 1
        return label if (self.asked - 1) % JUDGED < self.now else -1

    def rehearse(self, count: int) -> bool:
        if not self.rates or self.rates[-1] < self.factor or self.now == LOOK:
            self.rates.append(self.factor)
            self.now = self.knows[self.factor]
        return False

    def rate(self, factor: float) -> None:
        self.factor = factor

    def pull(self) -> bytes:
        return bytes([self.now])

    def push(self, block: bytes) -> None:
        self.now = block[0]

    def train(self, image: np.ndarray, label: int) -> Step:
        raise AssertionError("there is no pass")

    def imprint(self, image: np.ndarray, label: int) -> int:
        return 0

    def imprint_head(self) -> int:
        return 2

    def seed(self, number: int) -> None: ...
    def replay(self, count: int) -> None: ...
    def keep(self, on: bool) -> None: ...

    def skipped(self) -> int:
        return 0

    def sha(self) -> str:
        return ""


def learned(knows: dict[float, int], backs_off: bool = True) -> tuple[Log, Learner]:
    learner = Learner(knows)
    settings = Settings(epochs=0, imprint=True, rehearse=10, rate=2.0, backs_off=backs_off)
    log = new_log(learner, IMAGES, settings)
    train(learner, IMAGES, None, log, Silent(), lambda sample, epoch: np.zeros(1, np.uint8))
    return log, learner


@pytest.mark.parametrize("now", [LOOK - SLACK, LOOK, JUDGED])
def test_what_knows_as_much_stays(now: int) -> None:
    log, learner = learned({2.0: now})
    assert (learner.rates, learner.now, log.halvings, setback(log, "")) == ([2.0], now, 0, "")
    assert learner.asked == 2 * JUDGED


def test_where_it_knows_less_there_is_less_of_the_rate() -> None:
    log, learner = learned({2.0: LOOK - SLACK - 1, 0.5: 60})
    assert (learner.rates, learner.now, log.halvings, log.gave_up) == ([2.0, 0.5], 60, 2, False)
    assert "knew less than the look: the rate was halved 2 times" in setback(log, "")


def test_where_no_rate_helps_the_head_of_the_look_stays() -> None:
    log, learner = learned({2.0: 10, 0.5: 20, 0.125: LOOK - SLACK - 1})
    assert (learner.rates, learner.now, log.gave_up) == ([2.0, 0.5, 0.125], LOOK, True)
    assert "at each rate: its head stays" in setback(log, "")


def test_a_rate_that_somebody_asked_for_is_not_judged() -> None:
    log, learner = learned({2.0: 10}, backs_off=False)
    assert (learner.rates, learner.now, learner.asked, log.halvings) == ([2.0], 10, 0, 0)
