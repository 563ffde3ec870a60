"""What a session does where nobody says it (device/recipe.py)."""

from __future__ import annotations

import pytest

from microtrain.device.recipe import IN_ORDER, REHEARSED, Situation


@pytest.mark.parametrize(
    ("found", "epochs", "rehearse"),
    [
        (Situation(100, 0, True, "shuffled"), 1, 0),
        (Situation(100, 100, True, "shuffled"), 0, REHEARSED * 100),
        (Situation(60, 100, True, "shuffled"), 0, REHEARSED * 60),
        (Situation(101, 100, True, "shuffled"), 1, 0),
        (Situation(101, 100, True, "classes"), 0, IN_ORDER * 100),
        (Situation(60, 100, True, "classes"), 0, REHEARSED * 60),
        (Situation(60, 0, True, "classes"), 1, 0),
        (Situation(60, 100, False, "shuffled"), 1, 0),
    ],
)
def test_what_is_done_depends_on_what_is_there(found: Situation, epochs: int, rehearse: int) -> None:
    assert (found.epochs, found.rehearse) == (epochs, rehearse)
