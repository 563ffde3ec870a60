"""Where samples come from: folders of class folders, and lists; images, or arrays of numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from microtrain.base.errors import Error
from microtrain.base.reading import is_file

from . import images, numbers, sounds
from .kind import ANY, KNOWN_ORDER, NORMAL, UNKNOWN, Kind, Shape

KINDS: tuple[Kind, ...] = (
    images.KIND,
    numbers.KIND,
    sounds.KIND,
)  # a file of none of them is read as the first
Item = TypeVar("Item")
TRAINING, TESTING = "train", ("val", "test")  # folders to learn from, and to be tested with
LABELS = "labels.txt"  # of an open set: names of its classes, a line each, from label 1 on
MOST_LABELS = 20  # that are said
HELD_OUT = 5  # one sample in so many of a class, where nothing says which ones to test with


@dataclass(frozen=True)
class Sample:
    """One labelled file."""

    path: Path
    label: int


@dataclass(frozen=True)
class Dataset:
    """Samples sorted by class and name. classes: folder names, in label order."""

    classes: tuple[str, ...]
    samples: tuple[Sample, ...]

    @property
    def noun(self) -> str:
        """Of one of them, in sentences."""
        return noun_of(self.files)

    @property
    def labels(self) -> str:
        """Of the classes that have samples, in words."""
        own = sorted({sample.label for sample in self.samples})
        return shorten([f"{label} {self.classes[label]}" for label in own], MOST_LABELS)

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(sample.path for sample in self.samples)


def suffixes() -> frozenset[str]:
    """Of every kind."""
    return frozenset[str]().union(*(kind.suffixes for kind in KINDS))


def kind_of(path: Path) -> Kind:
    return next((kind for kind in KINDS if path.suffix.lower() in kind.suffixes), KINDS[0])


def noun_of(paths: Iterable[Path]) -> str:
    """What one of these files is called, in sentences."""
    nouns = {kind_of(path).noun for path in paths}
    return nouns.pop() if len(nouns) == 1 else ANY


def varied(paths: Iterable[Path], ways: tuple[str, ...]) -> str:
    """What changes of these files where they are seen once more in some ways, in words; "": nothing."""
    found = (kind_of(path).varied(ways) for path in paths)
    return ", ".join(dict.fromkeys(words for words in found if words))


def load(path: Path, shape: Shape) -> np.ndarray:
    """A file as the model's input, uint8 [h][w][c]. Error where it cannot be read or does not fit."""
    return kind_of(path).load(path, shape)


def vary(path: Path, shape: Shape, ways: tuple[str, ...], variant: int) -> np.ndarray:
    """The same, seen once more. Errors as load()."""
    return kind_of(path).vary(path, shape, ways, variant)


def class_folders(folder: Path) -> list[str]:
    """Names of the class folders in the order of their labels. Error where there is no such folder."""
    if not folder.is_dir():
        raise Error(f"no such folder: {folder}.")
    return by_label({p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")})


def by_label(names: set[str]) -> list[str]:
    """Class names sorted; those of an autoencoder as it counts them, what is normal first."""
    return list(KNOWN_ORDER) if names == set(KNOWN_ORDER) else sorted(names)


def scan(folder: Path, classes: int, whole: bool = True, known: int = 0) -> Dataset:
    """A folder with one folder per class; the sorted folder names are the labels 0, 1, 2, ...

    Of `normal` and `anomaly` the second may be left out, as an autoencoder learns nothing from it.

    whole    every class must have a sample; otherwise one of them, where others see the rest
    known    of an open set: classes that there is room for beside `unknown`, as in open_names()
    Errors   Error where the folder is missing, has another number of classes, or an empty class
    """
    names = class_folders(folder)
    if not names:
        raise Error(f"{folder} holds no class folders: it needs one folder of samples for each class.")
    if known:
        names, whole = open_names(folder, names, known), False
    if names == [NORMAL] and classes == len(KNOWN_ORDER):
        names, whole = list(KNOWN_ORDER), False
    if len(names) != classes:
        hint = f" Is {folder / TRAINING} meant?" if TRAINING in names else ""
        raise Error(
            f"{folder} has {counted(len(names))} ({shorten(names)}), but the model has {classes} classes: "
            f"use as many folders, or convert the model with --classes.{hint}"
        )
    samples = tuple(Sample(path, label) for label, name in enumerate(names) for path in files(folder / name))
    empty = set(range(classes)) - {sample.label for sample in samples}
    if empty and (whole or not samples):
        within = folder / names[0]
        hint = f" Is {within} meant?" if len(names) == 1 and class_folders(within) else ""
        raise Error(
            f"no samples in {', '.join(str(folder / names[k]) for k in sorted(empty))}: "
            f"every class needs at least one ({', '.join(sorted(suffixes()))}).{hint}"
        )
    return Dataset(tuple(names), samples)


def open_names(folder: Path, found: Collection[str], known: int) -> list[str]:
    """Classes of an open set by their labels: `unknown`, which may be left out, then the others.

    Those are named by the folder's labels.txt, or that beside it, or else sorted. A class that nothing
    names is called by its label.

    found    names of class folders
    known    how many there is room for beside `unknown`
    Errors   Error where there are more, or a name is not in labels.txt, or twice
    """
    listed = next((file for file in (folder / LABELS, folder.parent / LABELS) if file.is_file()), None)
    others = sorted(set(found) - {UNKNOWN})
    names = others if listed is None else lines_of(listed, "names, one a line")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Error(f"{listed} names {shorten(twice)} twice: leave one line of it.")
    missing = [name for name in others if name not in names]
    if missing and listed is not None:
        raise Error(
            f"{folder} holds {shorten(missing)}, which {listed} does not name: add it as its last line."
        )
    if len(names) > known:
        raise Error(
            f"{listed or folder} has {len(names)} classes ({shorten(names)}) beside {UNKNOWN}, and the model "
            f"has room for {known}: use fewer, or convert the model with --classes {len(names)}."
        )
    return [UNKNOWN, *names, *(f"class {label}" for label in range(len(names) + 1, known + 1))]


def lines_of(file: Path, what: str) -> list[str]:
    """Lines of a list of `what` that are not empty. Error where it cannot be read."""
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{file} cannot be read as a list of {what}.") from error


def counted(folders: int) -> str:
    return f"{folders} class folder{'s' if folders != 1 else ''}"


def files(folder: Path) -> list[Path]:
    inside = folder.iterdir() if folder.is_dir() else ()
    return sorted(p for p in inside if p.suffix.lower() in suffixes() and p.is_file())


def evenly(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many of the items, evenly spaced."""
    count = min(len(items), most)
    return [items[i * len(items) // count] for i in range(count)]


def shorten(names: list[str], most: int = 6) -> str:
    return ", ".join(names) if len(names) <= most else ", ".join(names[:most]) + ", ..."


def training_part(folder: Path) -> Path:
    """The folder `train` in a folder that has one; what lies beside it is there to test with."""
    inner = folder / TRAINING
    return inner if inner.is_dir() else folder


def halves(folder: Path) -> tuple[Path, Path] | None:
    """The folder `train` and, beside it, `val` or `test`; None where there is no `train`."""
    if training_part(folder) == folder:
        return None
    held = next((folder / name for name in TESTING if (folder / name).is_dir()), folder / TESTING[0])
    return training_part(folder), held


def split(folder: Path, classes: int, known: int = 0) -> tuple[Dataset, Dataset]:
    """Samples to learn from and samples to be tested with, of one folder.

    It holds lists train.txt and val.txt, a line "CLASS/FILE" a sample; or folders train and val (or test) of
    class folders; or class folders, of which every HELD_OUT-th sample is held out.

    known    of an open set, as in scan()
    Errors   Error where the folder is none of these, or as scan()
    """
    if (folder / "train.txt").is_file():
        training, testing = (read_list(folder / name, classes, known) for name in ("train.txt", "val.txt"))
    elif found := halves(folder):
        training, testing = (scan(part, classes, known=known) for part in found)
    else:
        return hold_out(scan(folder, classes, known=known))
    if training.classes != testing.classes:
        raise Error(f"{folder} trains and tests with different classes: name them alike.")
    return training, testing


def hold_out(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Every HELD_OUT-th sample of each class apart, to be tested with."""
    training: list[Sample] = []
    testing: list[Sample] = []
    for label, name in enumerate(dataset.classes):
        own = [sample for sample in dataset.samples if sample.label == label]
        if own and len(own) < HELD_OUT:
            raise Error(f"class {name} has {len(own)} samples: one in {HELD_OUT} is held out, add some.")
        testing += own[::HELD_OUT]
        training += [sample for number, sample in enumerate(own) if number % HELD_OUT]
    return Dataset(dataset.classes, tuple(training)), Dataset(dataset.classes, tuple(testing))


def read_list(file: Path, classes: int | None, known: int = 0) -> Dataset:
    """The samples of a list, one CLASS/FILE a line, relative to its folder; sorted classes are labels.

    classes  that it must name; None: any number
    known    of an open set, as in scan()
    Errors   Error where the list or a sample is missing, or it has another number of classes
    """
    lines = lines_of(file, "samples, a line CLASS/FILE each")
    for line in lines:
        if "/" not in line or not is_file(file.parent / line):
            raise Error(f"{file} names {line[:60]!r}, which is no sample CLASS/FILE in {file.parent}.")
    names = by_label({line.split("/")[0] for line in lines})
    if known:
        names = open_names(file.parent, names, known)
    if classes is not None and len(names) != classes:
        raise Error(
            f"{file} names {len(names)} classes ({shorten(names)}), but the model has {classes} classes: "
            "list as many, or convert the model with --classes."
        )
    return Dataset(tuple(names), tuple(Sample(file.parent / x, names.index(x.split("/")[0])) for x in lines))
