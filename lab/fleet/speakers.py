"""Spoken digits, a board for each speaker, from a network that has heard none of them.

The network and its conversion are those of lab/tasks. There it was trained on other speakers; here every
speaker is a board's. So it was trained on words that nobody said: a simulator's (microtrain.demo.voices).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from lab.tasks import spoken
from lab.tasks.speaker import converted, exported
from lab.tasks.spoken import Recording
from microtrain.demo import voices
from microtrain.samples.augment import Augmentation
from microtrain.samples.log_mel import log_mel
from microtrain.samples.source import Dataset, Sample
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.machine import library
from microtrain.simulate.records import Task

from .cases import Speakers
from .study import Scene, together

LETTERS = "aeiyous"
TEXTS, SAID = 30, 40  # made-up words, and how often each is said
HEAD = ("--classes", "10", "--imprint", "off")


def texts(rng: np.random.Generator) -> list[str]:
    """Different words of two to five letters, with a vowel each."""
    found: dict[str, None] = {}
    while len(found) < TEXTS:
        text = "".join(rng.choice(list(LETTERS), int(rng.integers(2, 6))))
        if set(text) - {voices.HISS}:
            found[text] = None
    return list(found)


def made_up(count: int, variants: int) -> tuple[list[Recording], np.ndarray]:
    """Each word so often, by another voice each time, and the rows as features() makes them."""
    rng, sound = np.random.default_rng(spoken.SEED), spoken.front_end()
    needed, given, rows = sound.samples(spoken.ROWS), [], []
    for word, text in enumerate(texts(rng)):
        for number in range(count):
            samples = voices.word(rng, voices.anybody(rng), text)
            given.append(Recording(Path(f"{text}-{number}"), word, "nobody", number))
            rows.append([log_mel(sound, spoken.varied(samples, rng, needed)) for _ in range(variants)])
    return given, np.array(rows)


def start(work: Path) -> Path:
    """The folder that convert wrote of the network that knows made-up words, its head new."""
    generated = work / "generated"
    if not (generated / "plan.json").is_file():
        work.mkdir(parents=True, exist_ok=True)
        given, rows = made_up(SAID, spoken.VARIANTS)
        net = spoken.pretrained(given, rows)
        net[-1] = torch.nn.Linear(spoken.CHANNELS, 10)
        converted(exported(net.eval(), work), rows[:, 0], work, HEAD)
    return generated


def divided(known: list[Recording], case: Speakers) -> tuple[dict[str, Dataset], dict[str, Dataset]]:
    """What each speaker's board learns from, and what it is tested with: recordings drawn by the seed."""
    classes = tuple(sorted({one.path.name.split("_")[0] for one in known}))
    learned: dict[str, Dataset] = {}
    tested: dict[str, Dataset] = {}
    for turn, name in enumerate(sorted({one.speaker for one in known})):
        rng = np.random.default_rng((case.seed, turn))
        parts: tuple[list[Sample], list[Sample]] = ([], [])
        for word in range(len(classes)):
            own = [Sample(one.path, word) for one in known if (one.speaker, one.word) == (name, word)]
            drawn = [own[int(k)] for k in rng.permutation(len(own))]
            parts[0].extend(drawn[: case.samples])
            parts[1].extend(drawn[case.samples : case.samples + case.tests])
        learned[name], tested[name] = (Dataset(classes, tuple(part)) for part in parts)
    return learned, tested


def scene(case: Speakers, data: Path, work: Path) -> Scene:
    """data: the folder with sets/fsdd4.tar"""
    plan = load_blueprint(start(work))
    learned, tested = divided(spoken.recordings(spoken.unpacked(data, work)), case)
    made, all_ = library(plan, work), (together(learned), together(tested))
    task = Task(plan, made, *all_, Augmentation(), 1, work / "records")
    return Scene(case, task, learned, work, tested)
