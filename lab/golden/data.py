"""The published checkpoints and the vectors of an independent simulator, from the folder MICROTRAIN_DATA.

Layout: models/NET.pkl, golden/NET_nips17_logits.npy, golden/NET_train_step.npz, sets/*.tar.
"""

from __future__ import annotations

import csv
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from microtrain.base.errors import Error

VARIABLE = "MICROTRAIN_DATA"
NETWORKS = ("mcunet-5fps", "proxyless-w0.3", "mbv2-w0.35")
IMAGENET = "nips17_imagenet_labels_176"
SIDE = 128


@dataclass(frozen=True)
class Data:
    """The folder of test data."""

    folder: Path

    def checkpoint(self, network: str) -> Path:
        return self.folder / f"models/{network}.pkl"

    def logits(self, network: str) -> np.ndarray:
        """int8 [images, 1000]."""
        return np.asarray(np.load(self.folder / f"golden/{network}_nips17_logits.npy"))

    def train_step(self, network: str) -> dict[str, np.ndarray]:
        with np.load(self.folder / f"golden/{network}_train_step.npz") as file:
            return dict(file)

    def imagenet(self, count: int = 0) -> Iterator[tuple[np.ndarray, int]]:
        """(stored image int8 [128, 128, 3], class 0..999) in the order of the golden logits; count 0: all."""
        with tarfile.open(self.folder / f"sets/{IMAGENET}.tar") as archive:
            table = archive.extractfile(f"{IMAGENET}/labels.csv")
            assert table is not None
            rows = list(csv.DictReader(io.TextIOWrapper(table)))
            for row in rows[: count or None]:
                file = archive.extractfile(f"{IMAGENET}/{row['file']}")
                assert file is not None
                image = Image.open(file).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
                yield stored(np.asarray(image)), int(row["index"])


def stored(image: np.ndarray) -> np.ndarray:
    """uint8 pixels as the published networks store them: pixel - 128."""
    return (image.astype(np.int16) - 128).astype(np.int8)


def find() -> Data:
    """The test data; Error where the variable is unset or names no such folder."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise Error(f"{VARIABLE} is not set: it names the folder with models/, golden/ and sets/")
    if not (Path(folder) / "models").is_dir():
        raise Error(f"{VARIABLE} is {folder}, which holds no models/")
    return Data(Path(folder))
