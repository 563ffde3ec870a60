"""Calibration images: typical ones, from a folder or an .npz."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from microtrain.base.errors import Error, FileError
from microtrain.base.npz import read_npz
from microtrain.base.shapes import by
from microtrain.convert.ir import ConvertError, Shape
from microtrain.samples.images import KIND, MODES
from microtrain.samples.numbers import KIND as NUMBERS
from microtrain.samples.numbers import read_numbers
from microtrain.samples.source import evenly, kind_of, load, shorten, suffixes, training_part

MAX_IMAGES = 1024
TESTING = ("test", "tests", "testing", "val", "valid", "validation", "eval")


def load_calibration(path: Path, shape: Shape) -> np.ndarray:
    """Images uint8 [N, h, w, c] from a folder of image files (any depth) or an .npz with `images`.

    Of a folder with a folder `train` in it, that part alone.

    shape  (h, w, c) of the model's input; image files of another size or mode are made to fit, which is said
    Of more than MAX_IMAGES files that many are taken, evenly spaced in the order of their names.
    Raises ConvertError for no images, arrays of another shape and files that cannot be read.
    """
    if path.is_dir():
        return _folder(path, shape)
    if not path.is_file():
        raise ConvertError(f"no such file or folder of calibration samples: {path}")
    try:
        images = read_npz(path)["images"]
    except (KeyError, FileError) as error:
        raise ConvertError(
            f"{path} is not an .npz with `images` uint8 [N, h, w, c]; give such a file or a folder of samples"
        ) from error
    return check_images(images, shape, str(path))


def check_images(images: np.ndarray, shape: Shape, where: str) -> np.ndarray:
    """The images unchanged if there are any, of the model's size; else a ConvertError."""
    h, w, c = shape
    if images.dtype != np.uint8 or images.ndim != 4:
        raise ConvertError(
            f"{where}: calibration samples are {images.dtype} {list(images.shape)}; "
            f"they must be uint8 [N, {h}, {w}, {c}]"
        )
    if len(images) == 0:
        raise ConvertError(f"{where}: 0 calibration samples; some typical ones, 16 or more, are needed")
    if images.shape[1:] != shape:
        raise ConvertError(
            f"{where}: calibration samples are {by(images.shape[1:])} (height x width x channels) but the "
            f"model's input is {by(shape)}; resize them"
        )
    return images


def image_files(folder: Path) -> list[Path]:
    """Image files of a folder at any depth, by name; a folder in it without any is warned of."""
    found = _files(folder)
    filled = {parent for path in found for parent in path.parents}
    empty = [p for p in sorted(folder.rglob("*")) if p.is_dir() and p not in filled]
    if found and empty:
        warnings.warn(f"{shorten([str(p) for p in empty])} holds no samples", stacklevel=3)
    return found


def _files(folder: Path) -> list[Path]:
    kinds = suffixes()
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in kinds and p.is_file())


def number_range(folder: Path, shape: Shape) -> tuple[np.ndarray, np.ndarray] | None:
    """The smallest and the largest number of each channel, [c], of the calibration samples in a folder; None:
    it holds images, or what is stored already."""
    files = [p for p in _files(training_part(folder)) if kind_of(p) is NUMBERS]
    arrays = (read_numbers(p, shape) for p in evenly(files, MAX_IMAGES))
    found = [(a.min((0, 1)), a.max((0, 1))) for a in arrays if a.dtype.itemsize > 1]
    if not found:
        return None
    low, high = (np.array(each, np.float64) for each in zip(*found, strict=True))
    return low.min(0), high.max(0)


def _folder(whole: Path, shape: Shape) -> np.ndarray:
    folder = training_part(whole)
    if folder != whole:
        warnings.warn(f"calibrating on {folder}; what else {whole} holds is left to test with", stacklevel=3)
    held = [p.name for p in folder.iterdir() if p.is_dir() and p.name.lower() in TESTING]
    if held:
        warnings.warn(
            f"calibrating on all of {folder}, also on {', '.join(sorted(held))}: name another folder if "
            "those samples are to test with",
            stacklevel=3,
        )
    files = image_files(folder)
    if not files:
        raise ConvertError(f"{folder} holds 0 calibration samples; put some typical ones there, 16 or more")
    if len(files) > MAX_IMAGES:
        warnings.warn(f"calibrating on {MAX_IMAGES} of {len(files)} samples of {folder}", stacklevel=3)
    return read_images(evenly(files, MAX_IMAGES), shape, str(folder))


def read_images(files: list[Path], shape: Shape, where: str) -> np.ndarray:
    """Image files as the device tool shows them to the board; one warning counts those that were changed."""
    h, w, c = shape
    if c not in MODES and all(kind_of(path) is KIND for path in files):
        raise ConvertError(
            f"image files cannot have {c} channels; pass an .npz with `images` uint8 [N, {h}, {w}, {c}]"
        )
    images = np.empty((len(files), *shape), np.uint8)
    made: Counter[str] = Counter()
    for image, path in zip(images, files, strict=True):
        try:
            image[:] = load(path, shape)
            made.update(kind_of(path).changes(path, shape))
        except Error as error:
            raise ConvertError(str(error).removesuffix(".")) from error
    changes = [f"{count} {change}" for change, count in sorted(made.items(), reverse=True)]
    if changes:
        warnings.warn(
            f"of {len(files)} samples of {where}: {', '.join(changes)}, as tools/device does", stacklevel=3
        )
    return images
