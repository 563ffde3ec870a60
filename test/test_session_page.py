"""The page of a session, and the view of a device that learns by itself."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from microtrain.device.client import Device
from microtrain.device.learning import evaluate
from microtrain.device.session import Evaluation, Log, Settings, TrainStep
from microtrain.device.session_page import confusion, save_page
from microtrain.device.watch import watch
from microtrain.samples.source import Dataset, Sample

CLASSES = ("ant", "bee", "<cat>")
SHAPE = (6, 6, 1)


@pytest.fixture
def images(tmp_path: Path) -> Dataset:
    samples = []
    for label, name in enumerate(CLASSES):
        folder = tmp_path / name.strip("<>")
        folder.mkdir()
        for number in range(3):
            path = folder / f"{number}.png"
            Image.fromarray(np.full(SHAPE[:2], 40 * label + number, np.uint8)).save(path)
            samples.append(Sample(path, label))
    return Dataset(CLASSES, tuple(samples))


class Guesser:
    """A learner that takes all for bees."""

    info = SimpleNamespace(shape=SHAPE)

    def evaluate(self, image: np.ndarray, label: int) -> int:
        return 1


class Nobody:
    def begin(self, what: str, total: int) -> None: ...
    def advance(self, text: str) -> None: ...
    def end(self) -> None: ...


def log_of(images: Dataset) -> Log:
    result = evaluate(cast(Any, Guesser()), images, Nobody())
    steps = [TrainStep(n + 1, 0, f"bee/{n}.png", 1, n % 2, float(n)) for n in range(3)]
    return Log({"model": "<m>", "board": "b"}, CLASSES, Settings(), steps, [result], noun=images.noun)


def test_an_evaluation_names_what_is_wrong(images: Dataset) -> None:
    result = log_of(images).evaluations[0]
    assert (result.correct, result.total, result.by_class) == (3, 9, ((0, 3), (3, 3), (0, 3)))
    assert result.misses[0] == ("ant/0.png", 0, 1) and len(result.misses) == 6


def cells(table: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", table)[1:]
    return [re.findall(r"<td[^>]*>(\d*)</td>", row) for row in rows]


def test_the_matrix_counts_every_held_out_image(images: Dataset) -> None:
    result = log_of(images).evaluations[0]
    assert cells(confusion(result, CLASSES)) == [["0", "3", ""], ["", "3", ""], ["", "3", "0"]]
    assert cells(
        confusion(Evaluation(1, 1, 2, ((1, 1), (0, 1), (0, 0)), (("bee/0.png", 1, 2),)), CLASSES)
    ) == [
        ["1", "", ""],
        ["", "0", "1"],
        ["", "", "0"],
    ]


def test_the_page_shows_the_images_that_went_worst(images: Dataset, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    save_page(page, log_of(images), SHAPE, [images])
    text = page.read_text(encoding="utf-8")
    assert "<cat>" not in text and "&lt;cat&gt;" in text and "&lt;m&gt; on b" in text
    assert text.count("<figure>") == 6 + 3 and text.count("data:image/png;base64,") == 9
    dearest = text[text.index("Training images that cost most") :]
    assert re.findall(r"loss (\d\.\d\d)", dearest) == ["2.00", "1.00", "0.00"]
    assert "bee: loss 2.00, taken for ant" in dearest and "bee: loss 1.00<" in dearest
    assert "<svg" in text and "3 of 9 held-out images are right" in text
    assert "http" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("shape", [(20, 1, 6), (1, 1, 10), (7, 5, 2)])
def test_samples_that_are_no_pictures_are_drawn_too(shape: tuple[int, int, int], tmp_path: Path) -> None:
    """A series of six channels was an exception, behind a session that was over."""
    samples = []
    for label, name in enumerate(CLASSES):
        folder = tmp_path / name.strip("<>")
        folder.mkdir()
        for number in range(3):
            np.save(folder / f"{number}.npy", np.full(shape, 40 * label + number, np.uint8))
            samples.append(Sample(folder / f"{number}.npy", label))
    series = Dataset(CLASSES, tuple(samples))
    guesser = Guesser()
    guesser.info = SimpleNamespace(shape=shape)
    log = Log(
        {"model": "m", "board": "b"},
        CLASSES,
        Settings(),
        [],
        [evaluate(cast(Any, guesser), series, Nobody())],
    )
    save_page(tmp_path / "page.html", log, shape, [series])
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("data:image/png;base64,") == 6


def test_a_page_without_held_out_images_says_how_to_name_some(images: Dataset, tmp_path: Path) -> None:
    log = log_of(images)
    log.evaluations.clear()
    save_page(tmp_path / "page.html", log, SHAPE, [images])
    assert "--eval FOLDER" in (tmp_path / "page.html").read_text()


class Counting:
    """A device whose counters go on from look to look."""

    def __init__(self, looks: list[dict[str, str]]) -> None:
        self.looks = iter(looks)

    def stats(self) -> dict[str, str]:
        return next(self.looks)


def test_a_device_is_watched_as_it_changes() -> None:
    quiet = {
        "steps": "3",
        "loss": "2.0000",
        "evaluated": "0",
        "correct": "0",
        "records_held": "7",
        "idle": "9",
    }
    later = {**quiet, "steps": "5", "loss": "0.5000", "idle": "0", "evaluated": "8", "correct": "6"}
    waited: list[float] = []
    device = cast(Device, Counting([quiet, quiet, later]))
    lines = list(islice(watch(device, 2.5, waited.append), 2))
    assert lines[0] == "step 3  loss 2.0000 █  7 records  9 idle steps left"
    assert lines[1] == "step 5  loss 0.5000 █▃  right 75.0% of 8  7 records"
    assert waited == [2.5, 2.5]
