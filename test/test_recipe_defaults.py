"""What a session does where nobody says it (device/recipe.py)."""

from __future__ import annotations

import pytest

from microtrain.device.recipe import AGAIN, TIMES, Situation


@pytest.mark.parametrize(
    ("found", "epochs", "rehearse", "head"),
    [
        (Situation(100, 0, True, "shuffled"), 1, 0, 1.0),
        (Situation(100, 100, True, "shuffled"), 0, TIMES * 100, 1.0),
        (Situation(60, 100, True, "shuffled"), 0, TIMES * 60, 1.0),
        (Situation(101, 100, True, "shuffled"), 1, AGAIN * 100, 1.0),
        (Situation(900, 100, True, "shuffled"), 1, AGAIN * 100, 1.0),
        (Situation(201, 100, True, "classes"), 0, TIMES * 100, 0.0),
        (Situation(60, 100, True, "classes"), 0, TIMES * 60, 1.0),
        (Situation(60, 0, True, "classes"), 0, 0, 0.0),
        (Situation(60, 100, False, "shuffled"), 1, 0, 1.0),
    ],
)
def test_what_is_done_depends_on_what_is_there(
    found: Situation, epochs: int, rehearse: int, head: float
) -> None:
    assert (found.epochs, found.rehearse, found.recalled_head) == (epochs, rehearse, head)


def test_a_rehearsal_makes_the_rate_fall() -> None:
    """So a pass before it needs no schedule, and nobody needs to know how long it will be."""
    passing = Situation(900, 100, True, "shuffled")
    assert (passing.rate, passing.schedule, passing.replay) == (2.0, "constant", 1)
    assert passing.rate * passing.recalled_rate == 1.5
    few = Situation(60, 100, True, "shuffled")
    assert (few.rate, few.recalled_rate, few.views) == (2.0, 1.0, 1)
    fewer = Situation(50, 100, True, "shuffled")
    assert (fewer.rate, fewer.recalled_rate, fewer.views) == (1.5, 1.0, 2)


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
        Situation(900, 100, True, "classes"),
    ],
)
def test_else_the_rate_is_the_schemes(found: Situation) -> None:
    assert (found.rate, found.schedule, found.replay, found.recalled_rate) == (1.0, "cosine", None, 1.0)
