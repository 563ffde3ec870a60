"""Two worlds of handwritten digits, made from scikit-learn's 1,797 real ones; nothing is downloaded.

Pretraining world: the digits 0 to 6 as they were written, bright ink on black, 8x8 enlarged to 32x32.
Device's world:    all ten digits, written with a thicker pen, slanted, dark ink on light paper.

Every written digit belongs to exactly one of three pools, so that no image the network was pretrained
on comes back in the device's world and no test image is ever trained on.

Images are uint8 [N, 32, 32, 1], labels int64 [N]. All arithmetic is exact or rounds the same way on
every machine, so that the arrays are the same bytes everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.ndimage import grey_dilation
from sklearn.datasets import load_digits

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

SIDE = 32
ENLARGE = 4
PRETRAIN_CLASSES = 7
CLASSES = 10


@dataclass(frozen=True)
class DeviceWorld:
    """How a digit changes on its way to the device. Frozen before the network or a rate was tuned.

    slant         pixels that a row moves to the right for every row it is higher, at 32x32
    slant_jitter  a writer's slant lies in slant +- slant_jitter, uniformly
    pen           side of the square pen tip in pixels: strokes grow by (pen - 1) / 2 on each side
    paper, ink    grey value of the paper and of the darkest ink (the pretraining world: 0 and 255)
    seed          of the draw of the slant, together with the digit's number
    """

    slant: float = 0.30
    slant_jitter: float = 0.10
    pen: int = 3
    paper: int = 230
    ink: int = 25
    seed: int = 746


@dataclass(frozen=True)
class Pools:
    """Written digits of each class that go into each pool; what is left of a class stays unused.

    pretrain  pretraining world, train (digits 0 to 6 only)
    train     device's world, train
    test      device's world, test; as written, digits 0 to 6 of them test the pretrained network
    """

    pretrain: int = 50
    train: int = 80
    test: int = 40
    seed: int = 32


DEVICE_WORLD = DeviceWorld()
POOLS = Pools()


def pretrain_split() -> Split:
    """Digits 0 to 6 as written: (train_images, train_labels, test_images, test_labels)."""
    return (*_as_written("pretrain"), *_as_written("test"))


def device_split() -> Split:
    """All ten digits as the device sees them: (train_images, train_labels, test_images, test_labels)."""
    return (*_as_seen("train"), *_as_seen("test"))


def pool(name: str) -> np.ndarray:
    """Numbers in scikit-learn's set of the digits of a pool ("pretrain", "train", "test"), int64 [N]."""
    sizes = {"pretrain": POOLS.pretrain, "train": POOLS.train, "test": POOLS.test}
    start = sum(list(sizes.values())[: list(sizes).index(name)])
    labels = _written()[1]
    chosen = []
    for label in range(CLASSES):
        order = np.random.default_rng([POOLS.seed, label]).permutation(np.flatnonzero(labels == label))
        chosen.append(order[start : start + sizes[name]])
    return np.random.default_rng([POOLS.seed, CLASSES, start]).permutation(np.concatenate(chosen))


def enlarge(digits: np.ndarray) -> np.ndarray:
    """Linear interpolation of uint8 [N, 8, 8] to uint8 [N, 32, 32], half-pixel centres, edges repeated."""
    rows = _interpolation(digits.shape[1])
    result: np.ndarray = np.rint(rows @ digits.astype(np.float64) @ rows.T).astype(np.uint8)
    return result


def change(image: np.ndarray, number: int, world: DeviceWorld = DEVICE_WORLD) -> np.ndarray:
    """What the device sees of one written digit.

    image   uint8 [32, 32], bright ink on black
    number  the digit's number in scikit-learn's set; with the world's seed it decides the slant
    """
    rng = np.random.default_rng([world.seed, number])
    slant = world.slant + world.slant_jitter * rng.uniform(-1.0, 1.0)
    thick = grey_dilation(image, size=(world.pen, world.pen), mode="constant")
    slanted = shear(thick, slant)
    return np.rint(world.paper + slanted * ((world.ink - world.paper) / 255.0)).astype(np.uint8)


def shear(image: np.ndarray, slant: float) -> np.ndarray:
    """Move each row of [H, W] right by slant * (rows above the lowest half), interpolated; black comes in."""
    height, width = image.shape
    columns = np.arange(width, dtype=np.float64)
    shifts = slant * ((height - 1) / 2.0 - np.arange(height))
    return np.stack(
        [np.interp(columns - s, columns, row, left=0, right=0) for row, s in zip(image, shifts, strict=True)]
    )


@cache
def _written() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's digits, enlarged: uint8 [1797, 32, 32] and labels int64 [1797]."""
    data = load_digits()
    return enlarge(np.rint(data.images * (255.0 / 16.0)).astype(np.uint8)), data.target.astype(np.int64)


def _interpolation(size: int) -> np.ndarray:
    """Matrix [size * ENLARGE, size] of linear interpolation: multiples of 1/8, so that sums are exact."""
    position = (np.arange(size * ENLARGE) + 0.5) / ENLARGE - 0.5
    return np.maximum(0.0, 1.0 - np.abs(np.clip(position, 0, size - 1)[:, None] - np.arange(size)))


def _as_written(name: str) -> tuple[np.ndarray, np.ndarray]:
    images, labels = _written()
    numbers = pool(name)
    numbers = numbers[labels[numbers] < PRETRAIN_CLASSES]
    return images[numbers, :, :, None], labels[numbers]


def _as_seen(name: str) -> tuple[np.ndarray, np.ndarray]:
    images, labels = _written()
    numbers = pool(name)
    seen = np.stack([change(images[n], int(n)) for n in numbers])
    return seen[..., None], labels[numbers]
