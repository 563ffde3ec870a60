"""Samples with targets: numbers in the place of a class, from a table beside the files.

`targets.csv` begins with a line of names, `file` and one for each output. Then comes a line a sample; its
file lies in the table's folder or below it.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path

from microtrain.base.errors import Error, short
from microtrain.base.reading import is_file

from .source import HELD_OUT, Dataset, Sample, halves

NAME = "targets.csv"
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Measured(Sample):
    """A file and what it should give. label: 0, there are no classes"""

    target: tuple[float, ...] = ()


def read_table(path: Path, outputs: int, holds: bool) -> Dataset:
    """The samples of a table, whose `classes` are the names of the outputs.

    path     of the table, or of its folder
    outputs  of the model
    holds    targets say of each label whether it holds, 1 or 0
    Errors   Error where the table or a sample is missing, or a line has not what it must
    """
    file = path / NAME if path.is_dir() else path
    lines = _lines(file)
    names = tuple(lines[0][1][1:])
    if lines[0][1][:1] != ["file"] or not all(names) or len(set(names)) != len(names):
        raise Error(f"{file} must begin with a line of names: file, and one for each output.")
    if len(names) != outputs:
        raise Error(f"{file} has {len(names)} columns of targets, and the model {outputs} outputs.")
    samples = tuple(_sample(file, number, words, outputs, holds) for number, words in lines[1:])
    if not samples:
        raise Error(f"{file} names no samples: a line each, FILE and {outputs} numbers.")
    return Dataset(names, samples)


def _lines(file: Path) -> list[tuple[int, list[str]]]:
    """Numbers and words of the lines that are not empty."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise Error(f"{file} has more than {MOST_BYTES >> 20} MB: a table of samples has less.")
        text = file.read_text(encoding="utf-8-sig")
        found = [(n, [w.strip() for w in words]) for n, words in enumerate(csv.reader(io.StringIO(text)), 1)]
    except FileNotFoundError as error:
        raise Error(f"there is no {file}: a line `file,NAME,...`, then one for each sample.") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Error(f"{file} cannot be read as a table of samples with commas between.") from error
    kept = [(number, words) for number, words in found if any(words)]
    return kept or [(1, [])]


def _sample(file: Path, number: int, words: list[str], outputs: int, holds: bool) -> Measured:
    where = f"line {number} of {file}"
    if len(words) != outputs + 1:
        raise Error(f"{where} has {len(words)} columns, and {outputs + 1} are needed.")
    path = file.parent / words[0]
    if Path(words[0]).is_absolute() or ".." in Path(words[0]).parts or not is_file(path):
        raise Error(f"{where} names {short(words[0])}, which is no file in {file.parent}.")
    return Measured(path, 0, tuple(_value(where, word, holds) for word in words[1:]))


def _value(where: str, word: str, holds: bool) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not abs(value) < 3.4e38 or (holds and value not in (0.0, 1.0)):
        raise Error(f"{where} says {short(word)}: {'1 or 0' if holds else 'a number'} is needed.")
    return value


def split_table(folder: Path, outputs: int, holds: bool) -> tuple[Dataset, Dataset]:
    """Samples to learn from and to be tested with: folders train and val (or test) with a table each, or one
    table, of which every HELD_OUT-th sample is held out. Errors as read_table()."""
    found = halves(folder)
    if found is None:
        return hold_out(read_table(folder, outputs, holds))
    training, testing = (read_table(part, outputs, holds) for part in found)
    same_outputs(training, testing)
    return training, testing


def same_outputs(training: Dataset, testing: Dataset) -> None:
    """Error where two tables name their outputs otherwise."""
    if training.classes != testing.classes:
        raise Error(f"the tables to train and to test with name other outputs: {', '.join(testing.classes)}.")


def hold_out(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Every HELD_OUT-th sample apart. Error where there are too few."""
    if len(dataset.samples) < HELD_OUT:
        raise Error(f"there are {len(dataset.samples)} samples: one in {HELD_OUT} is held out, add some.")
    kept = tuple(s for n, s in enumerate(dataset.samples) if n % HELD_OUT)
    return Dataset(dataset.classes, kept), Dataset(dataset.classes, dataset.samples[::HELD_OUT])
