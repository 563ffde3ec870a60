"""What a session does where nobody says it (device/recipe.py)."""

from __future__ import annotations

import pytest

from microtrain.device.recipe import TIMES, Situation


@pytest.mark.parametrize(
    ("found", "epochs", "rehearse", "head"),
    [
        (Situation(100, 0, True, "shuffled"), 1, 0, 1.0),
        (Situation(100, 100, True, "shuffled"), 0, TIMES * 100, 1.0),
        (Situation(60, 100, True, "shuffled"), 0, TIMES * 60, 1.0),
        (Situation(170, 100, True, "shuffled"), 0, TIMES * 100, 1.0),
        (Situation(201, 100, True, "shuffled"), 1, 0, 1.0),
        (Situation(201, 100, True, "classes"), 0, TIMES * 100, 0.0),
        (Situation(60, 100, True, "classes"), 0, TIMES * 60, 1.0),
        (Situation(60, 0, True, "classes"), 1, 0, 1.0),
        (Situation(60, 100, False, "shuffled"), 1, 0, 1.0),
    ],
)
def test_what_is_done_depends_on_what_is_there(
    found: Situation, epochs: int, rehearse: int, head: float
) -> None:
    assert (found.epochs, found.rehearse, found.recalled_head) == (epochs, rehearse, head)


def test_few_images_are_learned_faster() -> None:
    assert Situation(60, 100, True, "shuffled").recalled_rate == 1.5
    for other in (Situation(400, 100, True, "classes"), Situation(60, 100, False, "shuffled")):
        assert other.recalled_rate == 1.0
