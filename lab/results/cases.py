"""What is trained: data set x network x scheme x arithmetic, and how long."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lab.bench.cases import SCHEMES
from microtrain.simulate.rules import FLOAT, Rules

CLASSES = 10
EPOCHS = {"cifar10": 2, "clothing10": 5}
STUDY_EPOCHS = {"cifar10": 1, "clothing10": 5}
ARCHIVES = {"cifar10": "cifar10.tar", "clothing10": "clothing10_144.tar"}
GRID = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)  # learning rates, the same for every arithmetic
FRONT_GRID = GRID[1:4]
SEEDS = (0, 1, 2)
BAR = {"mcunet-5fps": "mcunet-99kb", "proxyless-w0.3": "proxyless-98kb", "mbv2-w0.35": "mbv2-99kb"}
# What a user without a search would train in the same all-in SRAM: the last convolutions, or biases alone.
# The smallest last-K of at least the scheme's SRAM, so that it has no less, and the largest bias-K that fits.
RIVALS = {
    "mcunet-5fps": {"mcunet-49kb": ("last-1", "bias-28"), "mcunet-99kb": ("last-1", "bias-34")},
    "proxyless-w0.3": {"proxyless-49kb": ("last-1", "bias-47"), "proxyless-98kb": ("last-3", "bias-52")},
    "mbv2-w0.35": {"mbv2-49kb": ("last-1", "bias-34"), "mbv2-99kb": ("last-4", "bias-43")},
}
# Arithmetic and fraction bits of the core table.
COLUMNS = (("device", 0), ("device", 4), ("float", 0), ("device-no-qas", 0), ("truncating", 0))


def family(scheme: str) -> str:
    """Schemes that share a learning rate: "sparse", "last", "bias", "head", or found on one data set."""
    kind, *_, last = scheme.split("-")
    if last in EPOCHS:
        return f"found on {last}"
    return kind if kind in ("last", "bias", "head") else "sparse"


@dataclass(frozen=True)
class Cell:
    """Sessions that differ in seed and learning rate alone.

    scheme     a name that `convert --scheme` knows
    ratios     learning rates of weights, biases and head, in units of `lr`
    rules      of an arithmetic called "study", in PyTorch; variant: its name
    warmup     steps over which the learning rate rises
    """

    dataset: str
    network: str
    scheme: str
    fraction_bits: int = 0
    arithmetic: str = "device"
    ratios: tuple[float, float, float] = (1.0, 1.0, 1.0)
    rules: Rules = FLOAT
    variant: str = ""
    warmup: int = 0

    @property
    def epochs(self) -> int:
        """Passes over the images."""
        return STUDY_EPOCHS[self.dataset] if self.variant else EPOCHS[self.dataset]

    @property
    def plan(self) -> str:
        """Names the folder of its converted model."""
        return f"{self.network}-{self.scheme}-{self.fraction_bits}"

    @property
    def key(self) -> str:
        """Names it in files."""
        arithmetic = self.variant or self.arithmetic
        return f"{self.dataset}/{self.network}/{self.scheme}+{self.fraction_bits}/{arithmetic}"


@dataclass(frozen=True)
class Session:
    """validation: judged on a fifth of the training images, held out, instead of the test images."""

    lr: float
    seed: int
    validation: bool = False


@dataclass(frozen=True)
class Job:
    """Sessions of a cell that share their records; what one process does."""

    cell: Cell
    sessions: tuple[Session, ...]

    @property
    def steps(self) -> int:
        images = {"cifar10": 5000, "clothing10": 1000}[self.cell.dataset]
        share = 0.8 if self.sessions[0].validation else 1.0
        return int(len(self.sessions) * images * share * self.cell.epochs)


def core() -> list[Cell]:
    """Both data sets, three networks, the 99 KB schemes, every column of the core table."""
    return [
        Cell(dataset, network, scheme, bits, arithmetic)
        for arithmetic, bits in COLUMNS
        for dataset in EPOCHS
        for network, scheme in BAR.items()
    ]


def front() -> list[Cell]:
    """What accuracy costs in memory, in the device's arithmetic: other schemes, and fraction bits."""
    cells = []
    for network, published in SCHEMES.items():
        schemes = [*published, "head-only", *(name for names in RIVALS[network].values() for name in names)]
        small = published[0]
        for dataset in EPOCHS:
            base = Cell(dataset, network, "")
            cells += [replace(base, scheme=s) for s in dict.fromkeys(schemes) if s != BAR[network]]
            cells += [replace(base, scheme=small, fraction_bits=bits) for bits in (4, 8)]
            cells += [replace(base, scheme=BAR[network], fraction_bits=8)]
    return cells
