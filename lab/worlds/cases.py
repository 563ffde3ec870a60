"""What is measured: MCUNet at larger inputs, MCUNet with weights beside the chip, and larger networks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lab.golden.data import Data
from microtrain.base.errors import Error

from .networks import MobileNetV2

CLASSES = 10
CALIBRATION = 4  # images of noise: sizes and instructions do not depend on them
MCUNET, SCHEME = "mcunet-5fps", "mcunet-49kb"
EXTERNAL = ("--external-flash", "qspi")


@dataclass(frozen=True)
class Case:
    """A network at an input size.

    width     of MobileNetV2; None: the published MCUNet
    scheme    None: what convert chooses for all of the board
    flash_kb  of the chip, so that the rest lies beside it; None: all
    """

    side: int
    width: float | None = None
    scheme: str | None = None
    flash_kb: int | None = None

    @property
    def name(self) -> str:
        network = "MCUNet-5FPS" if self.width is None else f"MobileNetV2 {self.width}"
        return f"{network}, {self.side}x{self.side}" + (f", {self.flash_kb} KB" if self.flash_kb else "")

    @property
    def folder(self) -> str:
        return self.name.replace(", ", "-").replace(" ", "-").lower()

    def model(self, data: Data, folder: Path) -> Path:
        """The file to convert; a network of our own is exported there, with what it is calibrated on."""
        if self.width is None:
            return data.checkpoint(MCUNET)
        torch.manual_seed(0)
        network, path = MobileNetV2(self.width, CLASSES).eval(), folder / "model.pt2"
        example = (torch.zeros(1, 3, self.side, self.side),)
        torch.export.save(torch.export.export(network, example), path)
        shape = (CALIBRATION, self.side, self.side, 3)
        images = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
        np.savez(folder / "noise.npz", images=images)
        return path

    def options(self, folder: Path) -> list[str]:
        """Of convert."""
        common = [*EXTERNAL, "--classes", str(CLASSES), "--replay", "off"]
        if self.scheme:
            common += ["--scheme", self.scheme, "--fraction-bits", "0", "--imprint", "off"]
        if self.flash_kb:
            common += ["--budget-flash", str(self.flash_kb)]
        if self.width is None:
            return [*common, "--input", f"3x{self.side}x{self.side}"]
        return [
            *common,
            "--calibration",
            str(folder / "noise.npz"),
            "--mean",
            "imagenet",
            "--std",
            "imagenet",
        ]


CASES = (
    *(Case(side, scheme=SCHEME) for side in (128, 160, 176, 224)),
    *(Case(128, scheme=SCHEME, flash_kb=kb) for kb in (440, 280)),
    Case(176, 0.5),
    *(Case(side, 1.0) for side in (160, 224)),
)


def choose(patterns: tuple[str, ...]) -> list[Case]:
    """The cases whose name holds one of the patterns; all without. Error where none does."""
    found = [case for case in CASES if not patterns or any(p.lower() in case.name.lower() for p in patterns)]
    if not found:
        raise Error(f"no case holds {' or '.join(patterns)}; the first is {CASES[0].name}.")
    return found
