"""Image files as the model's input, and as a camera in a user's hand would take them once more."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from microtrain.base.errors import Error

from .kind import Kind, Shape

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pgm", ".ppm", ".pnm", ".tif", ".tiff"}
)
MODES = {1: "L", 3: "RGB"}  # by channels
WAYS = ("flip", "crop", "light")
CROP_LEAST = 0.8  # of the sides of the centre crop
CONTRAST, BRIGHTNESS = 0.2, 20.0  # most deviation: a factor around mid-gray, and grey values


def load_image(path: Path, shape: Shape) -> np.ndarray:
    """Read an image as uint8 [h][w][c]: centre crop to the aspect ratio, bilinear resize, gray or RGB.

    An image that has the size already is not resampled.

    Errors   Error where the file is missing, no image, or the model takes neither 1 nor 3 channels
    """
    h, w, c = shape
    image = open_image(path, c)
    if image.size != (w, h):
        image = centre_crop(image, w, h).resize((w, h), Image.Resampling.BILINEAR)
    return np.asarray(image, np.uint8).reshape(h, w, c)


def open_image(path: Path, channels: int) -> Image.Image:
    """An image file as 8-bit gray or RGB, upright, in its own size. Errors as load_image()."""
    if channels not in MODES:
        raise Error(f"the model takes {channels} channels: image files hold 1 (gray) or 3 (RGB) only.")
    try:
        with Image.open(path) as file:
            return flatten(ImageOps.exif_transpose(file), MODES[channels])
    except FileNotFoundError as error:
        raise Error(f"no such image: {path}.") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Error(f"{path} cannot be read as an image: remove or replace it.") from error


def centre_crop(image: Image.Image, w: int, h: int) -> Image.Image:
    """The largest part around the centre with the aspect ratio w : h."""
    width, height = image.size
    crop_w = min(width, max(1, round(height * w / h)))
    crop_h = min(height, max(1, round(width * h / w)))
    left, top = (width - crop_w) // 2, (height - crop_h) // 2
    return image.crop((left, top, left + crop_w, top + crop_h))


def flatten(image: Image.Image, mode: str) -> Image.Image:
    """An 8-bit image of one or three channels; 16-bit gray is scaled, transparency lies on black."""
    if image.mode.startswith("I;16") or image.mode == "I":
        values = np.asarray(image, np.float64)
        image = Image.fromarray(np.clip(values / 257.0, 0, 255).round().astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        black = Image.new("RGBA", image.size, (0, 0, 0, 255))
        image = Image.alpha_composite(black, image)
    return image if image.mode == mode else image.convert(mode)


def changes(path: Path, shape: Shape) -> tuple[str, ...]:
    """What load_image() does to a file beside reading it."""
    h, w, c = shape
    with Image.open(path) as header:
        resized, converted = header.size != (w, h), header.mode != MODES[c]
    found = (f"cropped and resized to {h}x{w}",) if resized else ()
    return (*found, f"converted to {MODES[c]}") if converted else found


def photograph(path: Path, shape: Shape, ways: tuple[str, ...], variant: int) -> np.ndarray:
    """A variant of an image file, uint8 [h][w][c]; the same for the same class, file name and variant.

    Errors   as load_image()
    """
    if variant == 0:
        return load_image(path, shape)
    h, w, c = shape
    name = zlib.crc32(f"{path.parent.name}/{path.name}".encode())
    random = np.random.default_rng((name, variant))
    side, right, down, mirror, contrast, brightness = random.uniform(0.0, 1.0, 6)
    image = centre_crop(open_image(path, c), w, h)
    if "crop" in ways:
        image = crop(image, CROP_LEAST + (1.0 - CROP_LEAST) * side, right, down)
    if image.size != (w, h):
        image = image.resize((w, h), Image.Resampling.BILINEAR)
    if "flip" in ways and mirror < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = np.asarray(image, np.uint8).reshape(h, w, c)
    return relight(pixels, 2.0 * contrast - 1.0, 2.0 * brightness - 1.0) if "light" in ways else pixels


def crop(image: Image.Image, side: float, right: float, down: float) -> Image.Image:
    """A part of the image with sides `side` as long, at 0..1 of the way to the right and down."""
    width, height = max(1, round(image.width * side)), max(1, round(image.height * side))
    left, top = round((image.width - width) * right), round((image.height - height) * down)
    return image.crop((left, top, left + width, top + height))


def relight(pixels: np.ndarray, contrast: float, brightness: float) -> np.ndarray:
    """Other contrast and brightness, each -1..1 of the most there is."""
    values = (pixels - 128.0) * (1.0 + CONTRAST * contrast) + 128.0 + BRIGHTNESS * brightness
    return np.rint(np.clip(values, 0.0, 255.0)).astype(np.uint8)


KIND = Kind("image", SUFFIXES, load_image, photograph, changes, ", ".join)
