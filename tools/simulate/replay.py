"""The device's replay buffer (firmware/src/runtime/replay.c): the same records, drawn with the same numbers.

A record here is whatever the machine takes for an image: the frozen layers make the same of it once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from microtrain.base.errors import Error
from microtrain.device.answers import NO_RECORDS, REPLAY_DEFAULT, Step

from .blueprint import Blueprint
from .machine import Machine

KEEP, RECALL = 0x80000000, 0x80000001  # what the random numbers are for, beyond all tensor ids
MASK = 0xFFFFFFFF


def buffer_size(plan: Blueprint, records: int | None, wanted: bool) -> int:
    """Records of the buffer that a simulation has.

    records  asked for, None: those of the plan
    wanted   something is to be replayed
    Errors   Error where it is and there are no records, or too few for the classes
    """
    size = plan.records if records is None else records
    if wanted and not size:
        raise Error(f"{plan.name}: {NO_RECORDS} --records N tries one out.")
    if 0 < size < plan.classes:
        raise Error(f"{size} records are fewer than the {plan.classes} classes: pass a larger --records.")
    return size


def hash32(x: int) -> int:
    """hash32 of kernels/numeric.h."""
    x = ((x ^ x >> 16) * 0x7FEB352D) & MASK
    x = ((x ^ x >> 15) * 0x846CA68B) & MASK
    return x ^ x >> 16


def random_key(seed: int, step: int, what: int) -> int:
    """random_key of kernels/numeric.h."""
    return hash32((hash32((hash32(seed) + step) & MASK) + what) & MASK)


def below(random: int, n: int) -> int:
    """A number below n of 32 random bits."""
    return random * n >> 32


def draws(i: int, n: int, key: int) -> Iterator[int]:
    """What in_order of replay.c draws for number i of 0 .. n - 1, until one is below n."""
    bits = max(1, (n - 1).bit_length())
    mask, half = (1 << bits) - 1, (bits + 1) // 2
    while True:
        turn = key
        while turn:
            i = (i + turn) * (turn >> 3 | 1) & mask
            i ^= i >> half
            turn >>= 8
        yield i
        if i < n:
            return


def in_order(i: int, n: int, key: int) -> int:
    """in_order of replay.c: the place of number i of 0 .. n - 1 in an order that the key draws."""
    *_, found = draws(i, n, key)
    return found


class Buffer:
    """Which images are kept, class by class, and which is shown again.

    labels   of the records held, by place
    """

    def __init__(self, records: int, classes: int) -> None:
        self.records = records
        self.labels: list[int] = []
        self._seen = [0] * classes

    def keep(self, label: int, seed: int, step: int) -> int | None:
        """Let in an image of a class; returns its place, None where it is left out."""
        self._seen[label] += 1
        place = self._place(label, random_key(seed, step, KEEP))
        if place == len(self.labels):
            self.labels.append(label)
        elif place is not None:
            self.labels[place] = label
        return place

    def recall(self, seed: int, step: int) -> int:
        """The place of the record for a replayed step."""
        held = len(self.labels)
        return in_order(step % held, held, random_key(seed, step // held, RECALL))

    def _place(self, label: int, random: int) -> int | None:
        if len(self.labels) < self.records:
            return len(self.labels)
        stored = [self.labels.count(k) for k in range(len(self._seen))]
        own, most = stored[label], max(stored)
        if own + 1 < most:
            largest = [i for i, k in enumerate(self.labels) if stored[k] == most]
            return largest[below(random, len(largest))]
        n = below(random, self._seen[label])
        return [i for i, k in enumerate(self.labels) if k == label][n] if n < own else None


class Rehearsing:
    """A machine with a replay buffer: a learner (device.session), as a firmware converted with --replay."""

    def __init__(self, machine: Machine, records: int) -> None:
        self.info = replace(machine.info, records=records)
        self._machine = machine
        self._buffer = Buffer(records, machine.info.classes)
        self._records = np.zeros((records, machine.record_bytes), np.uint8)
        self._count, self._keeping = REPLAY_DEFAULT, True

    def train(self, image: np.ndarray, label: int) -> Step:
        """One training step on what look() returned, then the replayed ones."""
        self._remember(image, label, self._machine.steps)
        result = self._machine.train(image, label)
        self._recall(self._count if self._buffer.labels else 0)
        return replace(result, diverged=self._machine.settle())

    def _remember(self, image: np.ndarray, label: int, draw: int) -> None:
        """Keep a record of the image, or not, as the buffer decides."""
        place = self._buffer.keep(label, self._machine.seed_now, draw) if self._keeping else None
        if place is not None:
            self._records[place] = self._machine.recorded(image)

    def rehearse(self, count: int) -> bool:
        """Training steps on records alone; there is one at least. Returns whether training has diverged."""
        self._recall(count)
        return self._machine.settle()

    def _recall(self, count: int) -> None:
        for _ in range(count):
            place = self._buffer.recall(self._machine.seed_now, self._machine.steps)
            self._machine.train(self._records[place], self._buffer.labels[place])

    def idle(self, steps: int) -> None:
        """What a device does while nothing comes: steps on records at a rate that falls to 0."""
        for left in range(steps, 0, -1):
            rate = self._machine.rate_now
            self._machine.rate_now = rate * (np.float32(left) / np.float32(steps))
            self._recall(1)
            self._machine.rate_now = rate
            self._machine.settle()

    def evaluate(self, image: np.ndarray, label: int) -> int:
        return self._machine.evaluate(image, label)

    def imprint(self, image: np.ndarray, label: int) -> int:
        self._remember(image, label, self._machine.steps + self._machine.seen)
        return self._machine.imprint(image, label)

    def imprint_head(self) -> int:
        return self._machine.imprint_head()

    def rate(self, factor: float) -> None:
        self._machine.rate(factor)

    def seed(self, number: int) -> None:
        self._machine.seed(number)

    def replay(self, count: int) -> None:
        """Replayed steps behind each new one."""
        self._count = count

    def keep(self, on: bool) -> None:
        """Whether images that come may become records."""
        self._keeping = on

    def pull(self) -> bytes:
        """All trainables, as they lie in the device's memory."""
        return self._machine.pull()

    def push(self, block: bytes) -> None:
        """Put back what pull() returned."""
        self._machine.push(block)

    def skipped(self) -> int:
        """Steps that ended at their loss (`convert --gate`)."""
        return self._machine.skipped()

    def sha(self) -> str:
        return self._machine.sha()
