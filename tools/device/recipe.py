"""What a session does where nobody says it: how often it shows the images, and how long it rehearses."""

from __future__ import annotations

from dataclasses import dataclass

REHEARSED = 12  # times that each record comes, where the records are all there is
IN_ORDER = 3  # the same where they are some of many images that came class by class


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

    @property
    def epochs(self) -> int:
        """Passes over the images behind the look. Where all of them are records, these are shown again
        instead; where classes come one after the other, a pass would end with the last of them alone."""
        return 0 if self.records and self.looks and (self.holds_all or self.order == "classes") else 1

    @property
    def rehearse(self) -> int:
        """Steps on records at the end of a session without passes; 0 in any other."""
        held = min(self.records, self.images)
        return 0 if self.epochs else held * (REHEARSED if self.holds_all else IN_ORDER)

    @property
    def holds_all(self) -> bool:
        return self.images <= self.records
