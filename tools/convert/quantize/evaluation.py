"""Labelled images of a model's own classes: one folder per class."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from microtrain.base.errors import Error
from microtrain.convert.ir import ConvertError, Graph
from microtrain.samples.source import evenly, scan, shorten

from .calibrate import read_images

MOST_IMAGES = 2000


@dataclass(frozen=True, eq=False)
class Labelled:
    """images uint8 [N, h, w, c]; labels int64 [N], rows of the model's head; folder: where they come from"""

    images: np.ndarray
    labels: np.ndarray
    folder: Path


def class_folders(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted; none where it is no folder."""
    if not folder.is_dir():
        return []
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def own_classes(folder: Path, graph: Graph) -> bool:
    """Whether a folder holds a folder for each of the model's own classes and no other."""
    names = class_folders(folder)
    if graph.classes:
        return names == sorted(graph.classes)
    return len(names) == graph.tensors[graph.output].channels


def load_labelled(folder: Path, graph: Graph, most: int | None = None) -> Labelled:
    """Images of a folder with one folder per class, evenly spaced ones where there are too many.

    most  images; None: MOST_IMAGES, and a warning where there are more

    Folders are matched with the class names that the model's file gives, else in sorted order.
    Raises ConvertError for fewer than two classes, a class that the model lacks or that has no images, and
    files that cannot be read.
    """
    rows = label_rows(folder, graph)
    try:
        samples = list(scan(folder, len(rows)).samples)
    except Error as error:
        raise ConvertError(str(error).removesuffix(".")) from error
    if most is None and len(samples) > MOST_IMAGES:
        warnings.warn(f"evaluating on {MOST_IMAGES} of {len(samples)} samples of {folder}", stacklevel=2)
    samples = evenly(samples, most or MOST_IMAGES)
    shape = graph.sample_shape
    images = read_images([s.path for s in samples], shape, str(folder))
    return Labelled(images, np.array([rows[s.label] for s in samples]), folder)


def label_rows(folder: Path, graph: Graph) -> list[int]:
    """The row of the model's head for each class folder, in sorted order of the folders."""
    names, outputs = class_folders(folder), graph.tensors[graph.output].channels
    if len(names) < 2:
        raise ConvertError(
            f"{folder} has {len(names)} class folders: accuracy needs one folder of samples for each class, "
            "two at least"
        )
    if len(names) > outputs:
        raise ConvertError(
            f"{folder} has {len(names)} class folders, but the head of {graph.name} has {outputs} outputs: "
            "labels would go beyond it; evaluate on the classes that the model was trained on"
        )
    if not graph.classes:
        if len(names) < outputs:
            raise ConvertError(
                f"{folder} has {len(names)} class folders for the {outputs} outputs of {graph.name}, whose "
                "file names no classes: give a folder for each, or write the names into the file "
                "(docs/own-model.md)"
            )
        return list(range(outputs))
    unknown = [name for name in names if name not in graph.classes]
    if unknown:
        raise ConvertError(
            f"{folder} has class folders that {graph.name} does not know ({shorten(unknown)}); its classes "
            f"are {shorten(list(graph.classes))}"
        )
    return [graph.classes.index(name) for name in names]
