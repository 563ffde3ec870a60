"""Image files as the model's input, and folders of class folders as a data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from microtrain.base.errors import Error

HELD_OUT = 5  # one image in so many of a class, where nothing says which ones to test with
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

    Errors   Error where the file is missing, no image, or the model takes neither 1 nor 3 channels
    """
    h, w, c = shape
    image = open_image(path, c)
    if image.size != (w, h):
        image = centre_crop(image, w, h).resize((w, h), Image.Resampling.BILINEAR)
    return np.asarray(image, np.uint8).reshape(h, w, c)


def open_image(path: Path, channels: int) -> Image.Image:
    """An image file as 8-bit gray or RGB, upright, in its own size. Errors as load_image()."""
    if channels not in (1, 3):
        raise Error(f"the model takes {channels} channels: image files hold 1 (gray) or 3 (RGB) only.")
    try:
        with Image.open(path) as file:
            return flatten(ImageOps.exif_transpose(file), "L" if channels == 1 else "RGB")
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


def class_folders(folder: Path) -> list[str]:
    """Sorted names of the class folders. Error where there is no such folder."""
    if not folder.is_dir():
        raise Error(f"no such folder: {folder}.")
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def scan(folder: Path, classes: int) -> Dataset:
    """A folder with one folder a class; the sorted folder names are the labels 0, 1, 2, ...

    Errors   Error where the folder is missing, has another number of classes, or an empty class
    """
    names = class_folders(folder)
    if not names:
        raise Error(f"{folder} holds no class folders: it needs one folder of images for each class.")
    if len(names) != classes:
        raise Error(
            f"{folder} has {len(names)} class folders ({shorten(names)}), "
            f"but the model has {classes} classes: use as many folders, or convert the model with --classes."
        )
    samples = tuple(Sample(path, label) for label, name in enumerate(names) for path in files(folder / name))
    empty = set(range(classes)) - {sample.label for sample in samples}
    if empty:
        raise Error(
            f"no images in {', '.join(str(folder / names[k]) for k in sorted(empty))}: "
            f"every class needs at least one ({', '.join(sorted(SUFFIXES))})."
        )
    return Dataset(tuple(names), samples)


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())


def shorten(names: list[str], most: int = 6) -> str:
    return ", ".join(names) if len(names) <= most else ", ".join(names[:most]) + ", ..."


def split(folder: Path, classes: int) -> tuple[Dataset, Dataset]:
    """Images to learn from and images to be tested with, of one folder.

    It holds lists train.txt and val.txt, a line "CLASS/FILE" an image; or folders train and val (or test) of
    class folders; or class folders, of which every HELD_OUT-th image is held out.

    Errors   Error where the folder is none of these, or as scan()
    """
    if (folder / "train.txt").is_file():
        training, testing = (read_list(folder / name, classes) for name in ("train.txt", "val.txt"))
    elif (folder / "train").is_dir():
        held = next((folder / name for name in ("val", "test") if (folder / name).is_dir()), folder / "val")
        training, testing = scan(folder / "train", classes), scan(held, classes)
    else:
        return hold_out(scan(folder, classes))
    if training.classes != testing.classes:
        raise Error(f"{folder} trains and tests with different classes: name them alike.")
    return training, testing


def hold_out(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Every HELD_OUT-th image of each class apart, to be tested with."""
    training: list[Sample] = []
    testing: list[Sample] = []
    for label, name in enumerate(dataset.classes):
        own = [sample for sample in dataset.samples if sample.label == label]
        if len(own) < HELD_OUT:
            raise Error(f"class {name} has {len(own)} images: one in {HELD_OUT} is held out, add some.")
        testing += own[::HELD_OUT]
        training += [sample for number, sample in enumerate(own) if number % HELD_OUT]
    return Dataset(dataset.classes, tuple(training)), Dataset(dataset.classes, tuple(testing))


def read_list(file: Path, classes: int | None) -> Dataset:
    """The images that a list names, one CLASS/FILE a line, relative to its folder; sorted classes are labels.

    classes  that it must name; None: any number

    Errors   Error where the list or an image is missing, or it has another number of classes
    """
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{file} cannot be read as a list of images, a line CLASS/FILE each.") from error
    for line in lines:
        if "/" not in line or not (file.parent / line).is_file():
            raise Error(f"{file} names {line[:60]!r}, which is no image CLASS/FILE in {file.parent}.")
    names = sorted({line.split("/")[0] for line in lines})
    if classes is not None and len(names) != classes:
        raise Error(
            f"{file} names {len(names)} classes ({shorten(names)}), but the model has {classes} classes: "
            "list as many, or convert the model with --classes."
        )
    return Dataset(tuple(names), tuple(Sample(file.parent / x, names.index(x.split("/")[0])) for x in lines))
