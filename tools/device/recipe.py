"""What a session does where nobody says it: how often it shows the images, and how long it rehearses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TIMES = 12  # that each record comes in a session without passes
FASTER = 1.5  # with few images there is far to go in few steps


@dataclass(frozen=True)
class Situation:
    """What a session finds.

    images   to learn from
    records  that the replay buffer holds; 0: there is none
    looks    it begins with one look at each image (Settings.imprint)
    order    as Settings.order
    """

    images: int
    records: int
    looks: bool
    order: str

    def chosen(self) -> dict[str, Any]:
        """All of it, by the names that Settings and the options have for it."""
        names = ("epochs", "rehearse", "recalled_rate", "recalled_head")
        return {name: getattr(self, name) for name in names}

    @property
    def epochs(self) -> int:
        """Passes over the images behind the look. Where most of them are records, these are shown again
        instead; where classes come one after the other, a pass would end with the last of them alone."""
        return 0 if self.records and self.looks and (self.holds_most or self.order == "classes") else 1

    @property
    def rehearse(self) -> int:
        """Steps on records at the end of a session without passes; 0 in any other."""
        return 0 if self.epochs else TIMES * min(self.records, self.images)

    @property
    def recalled_head(self) -> float:
        """Factor on the head's rate in these. A head that is made of far more images than the buffer holds
        knows more than its records: it stays."""
        return 1.0 if self.epochs or self.holds_most else 0.0

    @property
    def recalled_rate(self) -> float:
        """Factor on the rate in these."""
        return FASTER if self.rehearse and self.holds_most else 1.0

    @property
    def holds_most(self) -> bool:
        return self.images <= 2 * self.records
