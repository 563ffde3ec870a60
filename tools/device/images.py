"""Image files as the model's input, and folders of class folders as a data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from device.errors import DeviceError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pgm", ".ppm", ".pnm", ".tif", ".tiff"}


@dataclass(frozen=True)
class Sample:
    """One labelled image file."""

    path: Path
    label: int


@dataclass(frozen=True)
class Dataset:
    """Images sorted by class and name. classes: folder names, in label order."""

    classes: tuple[str, ...]
    samples: tuple[Sample, ...]


def load_image(path: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """Read an image as uint8 [h][w][c]: centre crop to the aspect ratio, bilinear resize, gray or RGB.

    An image that has the size already is not resampled.

    Errors   DeviceError where the file is missing, no image, or the model takes neither 1 nor 3 channels
    """
    h, w, c = shape
    if c not in (1, 3):
        raise DeviceError(f"the model takes {c} channels: image files hold 1 (gray) or 3 (RGB) only.")
    try:
        with Image.open(path) as file:
            image = flatten(ImageOps.exif_transpose(file), "L" if c == 1 else "RGB")
            if image.size != (w, h):
                image = centre_crop(image, w, h).resize((w, h), Image.Resampling.BILINEAR)
    except FileNotFoundError as error:
        raise DeviceError(f"no such image: {path}.") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DeviceError(f"{path} cannot be read as an image: remove or replace it.") from error
    return np.asarray(image, np.uint8).reshape(h, w, c)


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


def scan(folder: Path, classes: int) -> Dataset:
    """A folder with one folder a class; the sorted folder names are the labels 0, 1, 2, ...

    Errors   DeviceError where the folder is missing, has another number of classes, or an empty class
    """
    if not folder.is_dir():
        raise DeviceError(f"no such folder: {folder}.")
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not names:
        raise DeviceError(f"{folder} holds no class folders: it needs one folder of images for each class.")
    if len(names) != classes:
        raise DeviceError(
            f"{folder} has {len(names)} class folders ({shorten(names)}), "
            f"but the model has {classes} classes: use as many folders, or convert the model with --classes."
        )
    samples = tuple(Sample(path, label) for label, name in enumerate(names) for path in files(folder / name))
    empty = set(range(classes)) - {sample.label for sample in samples}
    if empty:
        raise DeviceError(
            f"no images in {', '.join(str(folder / names[k]) for k in sorted(empty))}: "
            f"every class needs at least one ({', '.join(sorted(SUFFIXES))})."
        )
    return Dataset(tuple(names), samples)


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())


def shorten(names: list[str], most: int = 6) -> str:
    return ", ".join(names) if len(names) <= most else ", ".join(names[:most]) + ", ..."
