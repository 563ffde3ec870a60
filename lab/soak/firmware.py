"""The firmwares that the soak tries: the example, and one with next to no model."""

from __future__ import annotations

from pathlib import Path

from microtrain.base.build import Firmware, build, convert
from microtrain.base.paths import ROOT

EXAMPLE = ROOT / "examples/digits"
NULL_MODEL = ROOT / "test/fixtures/null_model"
CLASSES = 10


def example(folder: Path) -> Firmware:
    """The digits example with its sparse scheme. Error where it does not build."""
    convert(EXAMPLE / "model.pt", EXAMPLE / "scheme.yaml", CLASSES, folder / "example")
    return build(folder / "example", folder / "pio-example", board=True)


def smallest(folder: Path) -> Firmware:
    """The firmware around a model of 64 weights: what is left is the serial line and the checkpoints."""
    return build(NULL_MODEL, folder / "pio-null", board=True)
