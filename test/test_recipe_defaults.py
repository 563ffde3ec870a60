"""What a session does where nobody says it (device/recipe.py)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from microtrain.device.options import Training, in_words, warn_of_variants
from microtrain.device.recipe import AGAIN, FAST, PASSES, STEPS, TIMES, Situation
from microtrain.samples.source import Dataset, Sample


@pytest.mark.parametrize(
    ("found", "epochs", "rehearse", "replay"),
    [
        (Situation(100, 0, True, "shuffled"), 1, 0, None),
        (Situation(100, 100, True, "shuffled"), 0, TIMES * 100, 1),
        (Situation(60, 100, True, "shuffled"), 0, TIMES * 60, 1),
        (Situation(101, 100, True, "shuffled"), 1, AGAIN * 100, 1),
        (Situation(900, 100, True, "shuffled"), 1, AGAIN * 100, 1),
        (Situation(201, 100, True, "classes"), 1, AGAIN * 100, None),
        (Situation(60, 100, True, "classes"), 0, TIMES * 60, None),
        (Situation(60, 0, True, "classes"), 0, 0, None),
        (Situation(60, 100, False, "shuffled"), 1, 0, None),
    ],
)
def test_what_is_done_depends_on_what_is_there(
    found: Situation, epochs: int, rehearse: int, replay: int | None
) -> None:
    assert (found.epochs, found.rehearse, found.replay) == (epochs, rehearse, replay)


def test_a_rehearsal_makes_the_rate_fall() -> None:
    """So a pass before it needs no schedule, and nobody needs to know how long it will be."""
    passing = Situation(900, 100, True, "shuffled")
    assert (passing.rate, passing.schedule, passing.replay) == (2.0, "constant", 1)
    assert passing.rate * passing.recalled_rate == 1.5
    few = Situation(60, 100, True, "shuffled")
    assert (few.rate, few.recalled_rate, few.views) == (2.0, 1.0, 1)
    fewer = Situation(50, 100, True, "shuffled")
    assert (fewer.rate, fewer.recalled_rate, fewer.views) == (1.5, 1.0, 2)
    in_order = Situation(900, 100, True, "classes")
    assert (in_order.rate, in_order.schedule, in_order.recalled_rate) == (1.5, "constant", 1.0)


def test_passes_that_are_asked_for_end_on_a_cosine() -> None:
    chosen = Situation(60, 300, True, "shuffled").chosen(6)
    assert chosen == {"epochs": 6, "schedule": "cosine", "replay": 1, "rehearse": 0}


def test_few_images_are_looked_at_in_several_ways() -> None:
    views = [Situation(60, records, True, "shuffled").views for records in (0, 30, 60, 179, 180, 9000)]
    assert views == [1, 1, 1, 2, 3, 4]
    found = Situation(60, 180, True, "shuffled")
    assert found.rehearse == TIMES * 180


@pytest.mark.parametrize(
    "found",
    [
        Situation(60, 100, False, "shuffled"),  # a device that has learned already
        Situation(900, 0, True, "shuffled"),
    ],
)
def test_else_the_rate_is_the_schemes(found: Situation) -> None:
    assert (found.rate, found.schedule, found.replay, found.recalled_rate) == (1.0, "cosine", None, 1.0)


@pytest.mark.parametrize(
    ("sounds", "epochs", "rate"),
    [(10, PASSES, 1.0), (25, PASSES, 1.0), (50, 40, FAST), (STEPS // 2, 2, FAST), (STEPS * 2, 1, FAST)],
)
def test_few_sounds_are_shown_again_and_again(sounds: int, epochs: int, rate: float) -> None:
    for looks in (True, False):
        found = Situation(sounds, 0, looks, "shuffled", small=True)
        assert (found.epochs, found.rate, found.schedule) == (epochs, rate, "cosine")


def test_sounds_with_records_or_in_order_are_like_images() -> None:
    for records, order in ((100, "shuffled"), (100, "classes"), (0, "classes")):
        sounds, images = (Situation(60, records, True, order, sounds) for sounds in (True, False))
        assert (sounds.chosen(), sounds.rate) == (images.chosen(), images.rate)


@pytest.mark.parametrize(
    ("classes", "options", "file", "told"),
    [
        (("normal", "anomaly"), {"epochs": 3}, "a.png", True),
        (("normal", "anomaly"), {"epochs": 3, "kinds": ()}, "a.png", False),
        (("normal", "anomaly"), {"epochs": 1}, "a.png", False),  # the first pass sees samples as they are
        (("normal", "anomaly"), {"epochs": 3}, "a.npy", False),  # numbers never vary
        (("cat", "dog"), {"epochs": 3}, "a.png", False),
    ],
)
def test_who_teaches_what_is_normal_hears_of_variants(
    classes: tuple[str, ...],
    options: dict[str, Any],
    file: str,
    told: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    course = replace(Training(kinds=("flip",)), **options)
    warn_of_variants(course, Dataset(classes, (Sample(Path("normal") / file, 0),)))
    assert ("--augment none" in capsys.readouterr().err) == told


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("a.png", r"one look at 4 ways of each image first; .* augmentation flip \(8 variants\)$"),
        ("a.wav", "one look at 4 ways of each sound first; .* augmentation time, loudness"),
        ("a.npy", "4 looks at each sample first; .* augmentation none$"),
    ],
)
def test_a_session_is_told_in_the_words_of_its_samples(file: str, said: str) -> None:
    course = Training(epochs=1, kinds=("flip",), views=4, schedule="constant")
    assert re.match(said, in_words(course, (1.0,), (0.5, 0.5, 0.5), True, (Path(file),)))
