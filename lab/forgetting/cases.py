"""What is measured: training on shuffled classes, one class after the other, and the same with replay."""

from __future__ import annotations

from dataclasses import dataclass

CLASSES = 10
SPARE = -1
MAIN = "mcunet-49kb"
SEEDS = (0, 1, 2)
RATES = (0.5, 1.0, 2.0)  # factors on the scheme's rates
REHEARSE = 2000


@dataclass(frozen=True)
class Case:
    """A session.

    order     of the images: "shuffled" or "classes"
    records   of the replay buffer, SPARE: as many as the board's SRAM leaves, 0: none
    replay    steps on records behind each new one
    rehearse  steps on records at the end
    epochs    passes over the images, or over those of each class
    """

    scheme: str
    order: str
    records: int = 0
    replay: int = 0
    rehearse: int = 0
    epochs: int = 1

    @property
    def name(self) -> str:
        if self.order == "shuffled":
            return f"{self.scheme}-shuffled-{self.epochs}"
        size = "spare" if self.records == SPARE else self.records
        return f"{self.scheme}-classes-{size}x{self.replay}+{self.rehearse}"

    def options(self, records: int) -> list[str]:
        """Options of tools/simulate, rates and seeds left out. records: what SPARE comes to."""
        options = ["--order", self.order, "--epochs", str(self.epochs), "--schedule", "constant"]
        options += ["--records", str(records if self.records == SPARE else self.records)]
        if self.records:
            options += ["--replay", str(self.replay), "--rehearse", str(self.rehearse)]
        return [*options, "--augment", "none"]


def family(case: Case) -> Case:
    """The case with whose best rate this one is run."""
    if case.records:
        return Case(MAIN, "classes", SPARE, 4, REHEARSE)
    return Case(MAIN, "shuffled")


def triple(scheme: str) -> tuple[Case, ...]:
    """Shuffled, one class after the other, and that with all the replay that fits."""
    return (
        Case(scheme, "shuffled"),
        Case(scheme, "classes"),
        Case(scheme, "classes", SPARE, 4, REHEARSE),
    )


CASES = (
    *triple(MAIN),
    *triple("mcunet-99kb"),
    Case(MAIN, "classes", 50, 4, REHEARSE),
    Case(MAIN, "classes", 20, 4, REHEARSE),
    Case(MAIN, "classes", SPARE, 1, REHEARSE),
    Case(MAIN, "shuffled", epochs=5),
)
