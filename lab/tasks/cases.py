"""The four networks of MLPerf Tiny, and what each is to learn."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from microtrain.base.files import unpacked

FRAMES, MELS = 5, 128  # of a sample of the autoencoder


@dataclass(frozen=True)
class Case:
    """A task.

    model     file in mlperf_tiny/
    data      makes the folder of class folders, or of `normal`, `new` and `odd` for an autoencoder
    classes   of the new task; 0: an autoencoder
    budget    KB of SRAM that convert may use
    limit     training samples of an epoch; 0: all
    until     layer at which the network ends; "": at its own end
    """

    name: str
    model: str
    data: Callable[[Path, Path], Path]
    classes: int
    budget: int
    limit: int = 0
    until: str = ""


def keywords(data: Path, work: Path) -> Path:
    """1,000 spectrograms of the keyword benchmark, a folder a class; the head starts from nothing."""
    folder = work / "keywords"
    if not folder.is_dir():
        with tarfile.open(data / "mlperf_tiny/kws01.tar") as archive:
            for member in archive:
                label = Path(member.name).stem.split("_")[-1]
                file = archive.extractfile(member) if label.isdecimal() else None
                if file is not None:
                    (folder / f"{int(label):02d}").mkdir(parents=True, exist_ok=True)
                    (folder / f"{int(label):02d}" / Path(member.name).name).write_bytes(file.read())
    return folder


def photos(name: str) -> Callable[[Path, Path], Path]:
    """A set of images, of which the network has not seen all kinds."""
    return lambda data, work: unpacked(data / f"sets/{name}.tar", work / name)


def spectra(rng: np.random.Generator, count: int, shift: float) -> np.ndarray:
    """Made up: log-mel frames of a humming machine, in dB, as int8 of ad01's input. shift: of its timbre."""
    mels = np.arange(MELS)
    hum = -20.0 + 10.0 * np.sin(mels / 9.0) + 8.0 * shift * np.cos(mels / 5.0)
    noise = rng.normal(0.0, 3.0, (count, FRAMES, MELS)) + rng.normal(0.0, 2.0, (count, 1, 1))
    stored = np.rint((hum + noise) / 0.391015) + 89
    made: np.ndarray = np.clip(stored, -128, 127).astype(np.int8)
    return made.reshape(count, -1)


def machines(data: Path, work: Path) -> Path:
    """A machine that the autoencoder was calibrated on, another that becomes normal, and a third, as far from
    the first."""
    folder, rng = work / "machines", np.random.default_rng(0)
    parts = (("normal", 64, 0.0), ("new", 400, 1.0), ("test", 100, 1.0), ("odd", 100, -1.0))
    for name, count, shift in parts:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, sample in enumerate(spectra(rng, count, shift)):
            np.save(folder / name / f"{number:03d}.npy", sample)
    return folder


CASES = (
    Case("keywords", "kws_dscnn_int8.tflite", keywords, 12, 64),
    Case("objects", "resnet8_int8.tflite", photos("gtsrb17_144"), 17, 128, 800),
    Case("clothes", "vww96_int8.tflite", photos("clothing10_144"), 10, 192, 800),
    Case("clothes-middle", "vww96_int8.tflite", photos("clothing10_144"), 10, 64, 800, "dwconv13"),
    Case("anomaly", "ad01_int8.tflite", machines, 0, 64),
)
