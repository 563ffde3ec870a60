"""What is measured: each published network with its schemes, and the full update that no board holds."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from microtrain.base.plan import FIXED, FLOAT

CLASSES = 10
BUDGET_KB = 128
BEST = f"best-{BUDGET_KB}"
FULL = "full"
SCHEMES = {
    "mcunet-5fps": ("mcunet-49kb", "mcunet-74kb", "mcunet-99kb", "mcunet-124kb", "mcunet-148kb"),
    "proxyless-w0.3": (
        "proxyless-49kb",
        "proxyless-74kb",
        "proxyless-98kb",
        "proxyless-120kb",
        "proxyless-148kb",
    ),
    "mbv2-w0.35": ("mbv2-49kb", "mbv2-73kb", "mbv2-99kb", "mbv2-123kb", "mbv2-138kb"),
}
GENERIC = ("head-only", "bias-only", "last-6", BEST)
BAR = ("mcunet-49kb", "mcunet-99kb", "proxyless-98kb", "mbv2-99kb")
BAR_BITS = (4, 8)
CODED = "mcunet-49kb"  # with weights in fewer bits too, and in fixed point
# All-in SRAM that recomputation reaches, by scheme and fraction bits.
TIGHT_KB = {
    ("mcunet-49kb", 0): 63,
    ("mcunet-99kb", 0): 107,
    ("mcunet-99kb", 4): 127,
    ("proxyless-98kb", 0): 108,
    ("mbv2-99kb", 0): 100,
}


@dataclass(frozen=True)
class Case:
    """A network and how it is trained.

    scheme          a name that `convert --scheme` knows, or BEST: what it chooses by itself for BUDGET_KB
    fraction_bits   of trained weights; BEST has its own
    budget_kb       of all-in SRAM, to be kept by recomputation; None: the whole board
    requantize      as convert --requantize says it
    weights_bits    of frozen weights, as convert --weights-bits says it; None: all are int8
    """

    network: str
    scheme: str
    fraction_bits: int = 0
    budget_kb: int | None = None
    weights_bits: str | None = None
    requantize: str = FLOAT

    @property
    def name(self) -> str:
        coded = f"+w{self.weights_bits}" if self.weights_bits else ""
        coded += "" if self.requantize == FLOAT else f"+{self.requantize}"
        bits = f"+{self.fraction_bits}b" if self.fraction_bits else ""
        budget = "" if self.budget_kb is None else f"@{self.budget_kb}KB"
        return f"{self.network}/{self.scheme}{bits}{budget}{coded}"

    @property
    def folder(self) -> str:
        return self.name.replace("/", "-")

    @property
    def on_board(self) -> bool:
        """False where the board must refuse it, and this machine runs it instead."""
        return self.scheme != FULL

    def options(self, photos: Path | None = None) -> list[str]:
        """Options of tools/convert. photos: what weights in fewer bits are chosen on"""
        common = ["--classes", str(CLASSES), "--imprint", "off"]
        if self.requantize != FLOAT:
            common += ["--requantize", self.requantize]
        if self.weights_bits:
            common += ["--weights-bits", self.weights_bits, "--calibration", str(photos)]
        if self.scheme == BEST:
            return [*common, "--budget-sram", str(BUDGET_KB)]
        bits = ["--fraction-bits", str(self.fraction_bits)]
        budget = [] if self.budget_kb is None else ["--budget-sram", str(self.budget_kb)]
        return [*common, "--scheme", self.scheme, *bits, *budget]


def all_cases() -> list[Case]:
    """Every case, in the order of the table."""
    cases = []
    for network, published in SCHEMES.items():
        for scheme in (*published, *GENERIC, FULL):
            cases.append(Case(network, scheme))
            if scheme in BAR:
                cases += [Case(network, scheme, bits) for bits in BAR_BITS]
            for (tight, bits), kb in TIGHT_KB.items():
                if tight == scheme:
                    cases.append(Case(network, scheme, bits, budget_kb=kb))
            if scheme == CODED:
                cases.append(Case(network, scheme, weights_bits="auto"))
                cases.append(Case(network, scheme, requantize=FIXED))
    return cases


def choose(patterns: tuple[str, ...]) -> list[Case]:
    """The cases whose name holds one of the patterns, * and ? standing for anything. None: all."""
    wanted = [f"*{pattern}*" for pattern in patterns] or ["*"]
    return [case for case in all_cases() if any(fnmatch(case.name, pattern) for pattern in wanted)]
