"""What a session does where nobody says it: its rates, and how often it shows images and records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .session import BY_CLASS, CONSTANT, COSINE

TIMES = 8  # that each record comes in a session without passes
AGAIN = 6  # that each comes at the end of one with a pass
VIEWS = 4  # of each image, at most
BEHIND = 1  # steps on records behind each image of that pass
FAST = 2.0  # on the scheme's rates: what it makes rough a falling rate smooths
FALLING = 1.5  # the same with few images, in order, and where the rehearsal behind a pass begins
STEPS, PASSES = (
    2000,
    80,
)  # on small samples that nothing remembers: passes for so many steps, at most


@dataclass(frozen=True)
class Situation:
    """What a session finds.

    images   to learn from
    records  that the replay buffer holds; 0: there is none
    looks    it begins with one look at each image (Settings.imprint)
    order    as Settings.order
    small    they are sent in no time: sounds of more than one class, or small samples of what is normal
    normal   an autoencoder learns from them what is normal
    enrols   that look lets them join prototypes, which are sure of an image that they have seen
    """

    images: int
    records: int
    looks: bool
    order: str
    small: bool = False
    normal: bool = False
    enrols: bool = False

    def chosen(self, epochs: int | None = None) -> dict[str, Any]:
        """All of it but the rate, by the names that Settings and the options have for it.

        epochs  passes that somebody asked for: then the rate falls over them, and nothing comes behind
        """
        if epochs is not None:
            return {"epochs": epochs, "schedule": COSINE, "replay": self.replay, "rehearse": 0}
        names = ("views", "epochs", "schedule", "replay", "rehearse", "recalled_rate")
        return {name: getattr(self, name) for name in names}

    @property
    def views(self) -> int:
        """Ways of each image in the look: where records are many and images few, as many as are kept."""
        if self.enrols or not self.remembers:
            return 1
        return max(1, min(VIEWS, self.records // max(1, self.images)))

    @property
    def epochs(self) -> int:
        """Passes over the images behind the look. There is none where all images are records, which are
        shown again, nor where classes come one after the other and nothing is remembered: it would end with
        the last of them alone."""
        if self.remembers:
            return 0 if self.holds_all else 1
        if self.again:
            return max(1, min(PASSES, STEPS // max(1, self.images)))
        return 0 if self.looks and self.in_order else 1

    @property
    def schedule(self) -> str:
        """Of the pass: where records are rehearsed behind it, nobody needs to know how long it will be."""
        return CONSTANT if self.remembers and self.epochs else COSINE

    @property
    def rate(self) -> float:
        """Factor on the scheme's rates."""
        if self.again:
            return FAST if self.epochs < PASSES else 1.0
        if not self.remembers:
            return 1.0
        return FALLING if self.views > 1 or self.in_order else FAST

    @property
    def replay(self) -> int | None:
        """Steps on records behind each image of a pass; None: as many as the device takes by itself, of which
        an order needs every one."""
        return BEHIND if self.remembers and not self.in_order else None

    @property
    def rehearse(self) -> int:
        """Steps on records at the end of a session; 0 where there are none, or no look made the head."""
        times = AGAIN if self.epochs else TIMES
        return times * min(self.records, self.images * self.views) if self.remembers else 0

    @property
    def recalled_rate(self) -> float:
        """Factor on the rate in these."""
        return FALLING / self.rate if self.remembers and self.epochs else 1.0

    @property
    def remembers(self) -> bool:
        """Whether it rehearses."""
        return bool(self.records and self.looks)

    @property
    def again(self) -> bool:
        """Whether the host shows the samples again and again: small ones that are not rehearsed."""
        return self.small and not self.remembers and not self.in_order

    @property
    def in_order(self) -> bool:
        return self.order == BY_CLASS

    @property
    def holds_all(self) -> bool:
        return self.images <= self.records
