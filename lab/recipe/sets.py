"""The images: sets of the test data, public ones beside them, anybody's own folder."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from lab.golden.data import find
from microtrain.base.errors import Error
from microtrain.base.files import unpacked
from microtrain.samples.source import Dataset, class_folders, read_list, split

ARCHIVES = {
    "cifar10": "cifar10.tar",
    "clothing10": "clothing10_144.tar",
    "gtsrb17": "gtsrb17_144.tar",
    "textures10": "textures10_144.tar",
}


@dataclass(frozen=True)
class Source:
    """A public set that is not in the test data.

    address  where it is; words: what of it is used, and how it lies in the folder
    """

    address: str
    words: str


FURTHER = {
    "signs": Source(
        "https://github.com/ardamavi/Sign-Language-Digits-Dataset",
        "2,062 photographs of hands that show a digit, 100x100 pixels, ten classes: the folder `Dataset`, "
        "renamed",
    ),
    "groceries19": Source(
        "https://github.com/marcusklasson/GroceryStoreDataset",
        "3,829 photographs of fruit, vegetables and cartons in shops, 348x348 pixels: the 19 kinds with at "
        "least 40 images in `dataset/train`, their varieties together, `train` and `test` as they are there",
    ),
}


def test_sets(work: Path) -> dict[str, Path]:
    """The sets of the test data, unpacked into a folder."""
    archives = find().folder / "sets"
    for name, archive in ARCHIVES.items():
        unpacked(archives / archive, work / name)
    return {name: work / name for name in ARCHIVES}


def parted(data: Path) -> tuple[Dataset, Dataset]:
    """Images to learn from and images to judge by, of as many classes as are there.

    Errors   as split(), and Error where there is but one class
    """
    listed, folder = data / "train.txt", data / "train"
    folder = folder if folder.is_dir() else data
    names = read_list(listed, None).classes if listed.is_file() else tuple(class_folders(folder))
    found = split(data, len(names))
    if len(names) < 2:
        raise Error(
            f"{data} has one class, {names[0]}: there is nothing to tell apart, add a folder of others."
        )
    return found


def scarce(training: Dataset, shots: int) -> list[str]:
    """Classes with fewer images to learn from than a protocol asks for, and how many they have."""
    found = Counter(sample.label for sample in training.samples)
    return [f"{name} ({found[k]})" for k, name in enumerate(training.classes) if found[k] < shots]


def print_of_folder(data: Path) -> str:
    """A fingerprint: the names and sizes of all its files."""
    files = sorted(path for path in data.rglob("*") if path.is_file())
    known = "".join(f"{path.relative_to(data).as_posix()}\0{path.stat().st_size}\n" for path in files)
    return sha256(known.encode()).hexdigest()


def print_of_file(model: Path) -> str:
    """A fingerprint: its content."""
    return sha256(model.read_bytes()).hexdigest()
