"""An image as a camera in a user's hand would take it once more: mirrored, closer, in another light."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from microtrain.samples.images import centre_crop, load_image, open_image

KINDS = ("flip", "crop", "light")
CROP_LEAST = 0.8  # of the sides of the centre crop
CONTRAST, BRIGHTNESS = 0.2, 20.0  # most deviation: a factor around mid-gray, and grey values


@dataclass(frozen=True)
class Augmentation:
    """kinds: of KINDS; variants: of each image at most, the first of which is the image as it is."""

    kinds: tuple[str, ...] = KINDS
    variants: int = 8

    def of_epoch(self, epoch: int) -> int:
        """The variant that is seen in an epoch."""
        return epoch % self.variants if self.kinds else 0

    def needed(self, epochs: int) -> int:
        """Variants that a session of so many epochs sees."""
        return min(epochs, self.variants) if self.kinds else 1


def photograph(path: Path, shape: tuple[int, int, int], kinds: tuple[str, ...], variant: int) -> np.ndarray:
    """A variant of an image file, uint8 [h][w][c]; the same for the same class, file name and variant.

    Errors   as device.images.load_image
    """
    if variant == 0:
        return load_image(path, shape)
    h, w, c = shape
    name = zlib.crc32(f"{path.parent.name}/{path.name}".encode())
    random = np.random.default_rng((name, variant))
    side, right, down, mirror, contrast, brightness = random.uniform(0.0, 1.0, 6)
    image = centre_crop(open_image(path, c), w, h)
    if "crop" in kinds:
        image = crop(image, CROP_LEAST + (1.0 - CROP_LEAST) * side, right, down)
    if image.size != (w, h):
        image = image.resize((w, h), Image.Resampling.BILINEAR)
    if "flip" in kinds and mirror < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = np.asarray(image, np.uint8).reshape(h, w, c)
    return relight(pixels, 2.0 * contrast - 1.0, 2.0 * brightness - 1.0) if "light" in kinds else pixels


def crop(image: Image.Image, side: float, right: float, down: float) -> Image.Image:
    """A part of the image with sides `side` as long, at 0..1 of the way to the right and down."""
    width, height = max(1, round(image.width * side)), max(1, round(image.height * side))
    left, top = round((image.width - width) * right), round((image.height - height) * down)
    return image.crop((left, top, left + width, top + height))


def relight(pixels: np.ndarray, contrast: float, brightness: float) -> np.ndarray:
    """Other contrast and brightness, each -1..1 of the most there is."""
    values = (pixels - 128.0) * (1.0 + CONTRAST * contrast) + 128.0 + BRIGHTNESS * brightness
    return np.rint(np.clip(values, 0.0, 255.0)).astype(np.uint8)
