"""What is compared: data sets x networks x protocols x arms x seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from microtrain.device.recipe import Situation
from microtrain.device.session import Settings

SCHEMES = {"mcunet-5fps": "mcunet-49kb", "proxyless-w0.3": "proxyless-49kb", "mbv2-w0.35": "mbv2-49kb"}
HEAD_ONLY = "head-only"
CHOSEN = "default"  # no scheme is named: conversion chooses one
SEARCHED_ON = "-clothing10"  # how the schemes are called that tools/search found there
SEEDS = (0, 1, 2)
TESTED = 400  # images at most, evenly of all classes
TYPICAL = 128  # images at most, for ranges and codes
SRAM_KB = 90  # all in: what the default has, statistics of features included
WHOLE_KB, PART_KB = 320, 128  # the same with a replay buffer in what is left: all of a board's, or less


@dataclass(frozen=True)
class Protocol:
    """How many images of each class are there, and how often each is seen.

    remembers  the default has a replay buffer in what so many KB leave; 0: it has none
    """

    shots: int
    epochs: int
    order: str = "shuffled"
    remembers: int = 0


PROTOCOLS = {
    "one-look": Protocol(40, 1, remembers=WHOLE_KB),
    "shots-10": Protocol(10, 1, remembers=WHOLE_KB),
    "shots-5": Protocol(5, 1, remembers=WHOLE_KB),
    "six-passes": Protocol(40, 6, remembers=WHOLE_KB),
    "in-order": Protocol(40, 1, "classes", remembers=PART_KB),
}
DEFAULT = Settings(schedule="cosine", imprint=True)
# What `device train` did before there was a look first: a constant rate; what was known to be better.
SESSIONS = {
    "default": DEFAULT,
    "before": replace(DEFAULT, schedule="constant", imprint=False),
    "cosine": replace(DEFAULT, rate=2.0, imprint=False),
    "head": DEFAULT,
    "six-passes-before": replace(DEFAULT, epochs=6, rate=2.0, imprint=False),
}
EXACT = "exact"  # as default, with records as they are: fewer in the same memory
SCHEMED = FOUND, UNSEARCHED = "found", "unsearched"  # as default, but for the scheme
GATES = {"gate-0.1": 0.1, "gate-0.3": 0.3}  # as default, but a step ends where its loss is smaller
REMEMBERING = ("default", "shuffled", EXACT, *SCHEMED, *GATES)
LOOK = "look"  # the head that the device makes, without any training
CLOSED = ("lda", "ridge", "ncm")  # of all features in float64
PC = "pc-tail"  # PyTorch in float32
RATES = (0.0003, 0.001, 0.003)  # of AdamW
ARMS = {
    "one-look": ("default", *SCHEMED, *GATES, LOOK, "before", "cosine", "head", *CLOSED),
    "shots-10": ("default", EXACT, UNSEARCHED, LOOK, "before", "cosine", *CLOSED, "six-passes-before"),
    "shots-5": ("default", UNSEARCHED, LOOK, "before", "cosine", *CLOSED, "six-passes-before"),
    "six-passes": ("default", UNSEARCHED, *GATES, "cosine", "head", PC),
    "in-order": ("default", "shuffled", LOOK, "before"),
}


@dataclass(frozen=True)
class Case:
    """One session, or one head without training."""

    dataset: str
    network: str
    protocol: str
    arm: str
    seed: int

    @property
    def scheme(self) -> str:
        if self.arm == "head":
            return HEAD_ONLY
        if self.arm == UNSEARCHED or self.network not in SCHEMES:
            return CHOSEN
        return SCHEMES[self.network] + SEARCHED_ON * (self.arm == FOUND)

    @property
    def file(self) -> str | Path:
        """What --scheme is given."""
        return self.scheme

    @property
    def key(self) -> str:
        return f"{self.dataset}/{self.network}/{self.protocol}/{self.arm}/{self.seed}"

    @property
    def remembers(self) -> int:
        """KB of SRAM in which it has a replay buffer too; 0: it has none."""
        return PROTOCOLS[self.protocol].remembers if self.arm in REMEMBERING else 0

    def settings(self, images: int, records: int) -> Settings:
        """Of the session; an arm that is none has those of the default.

        images   to learn from; records: of the replay buffer
        """
        about, chosen = PROTOCOLS[self.protocol], SESSIONS.get(self.arm, DEFAULT)
        order = "shuffled" if self.arm == "shuffled" else about.order
        settings = replace(chosen, order=order, seed=self.seed)
        if not self.remembers:
            return replace(settings, epochs=max(about.epochs, chosen.epochs))
        found = Situation(images, records, settings.imprint, order)
        if about.epochs > 1:
            return replace(settings, **found.chosen(about.epochs))
        return replace(settings, rate=found.rate, backs_off=True, **found.chosen())


def cases(
    datasets: Sequence[str], networks: Sequence[str], protocols: Sequence[str], seeds: Sequence[int]
) -> Iterator[Case]:
    """All of them; other schemes than the default's only of networks that have a published one."""
    for seed, protocol, dataset, network in product(seeds, protocols, datasets, networks):
        for arm in ARMS[protocol]:
            if network in SCHEMES or arm not in SCHEMED:
                yield Case(dataset, network, protocol, arm, seed)
