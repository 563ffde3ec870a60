"""Samples of any kind: images, arrays, and one that exists only here and goes through every reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from microtrain.base.errors import Error
from microtrain.convert.ir import ConvertError
from microtrain.convert.quantize.calibrate import load_calibration
from microtrain.samples import source
from microtrain.samples.kind import Kind, Shape
from microtrain.samples.source import load, scan, split, vary

SHAPE = (1, 8, 1)


def read_window(path: Path, shape: Shape) -> np.ndarray:
    """Eight bytes of motion."""
    data = path.read_bytes()
    if len(data) != shape[1]:
        raise Error(f"{path} holds {len(data)} values, the model takes {shape[1]}.")
    return np.frombuffer(data, np.uint8).reshape(shape)


def later(path: Path, shape: Shape, ways: tuple[str, ...], variant: int) -> np.ndarray:
    return np.roll(read_window(path, shape), variant if "shift" in ways else 0, axis=1)


MOTION = Kind("window", frozenset({".motion"}), read_window, later, lambda path, shape: (), ", ".join)


@pytest.fixture
def motion(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more entry in the list of kinds."""
    monkeypatch.setattr(source, "KINDS", (*source.KINDS, MOTION))


@pytest.fixture
def windows(tmp_path: Path) -> Path:
    for label, name in enumerate(("walk", "run")):
        (tmp_path / "data" / name).mkdir(parents=True)
        for n in range(10):
            (tmp_path / "data" / name / f"{n}.motion").write_bytes(bytes(range(label + n, label + n + 8)))
    return tmp_path / "data"


@pytest.mark.usefixtures("motion")
def test_another_kind_is_scanned_loaded_varied_and_calibrated_on(windows: Path) -> None:
    found = scan(windows, 2)
    assert found.classes == ("run", "walk") and len(found.samples) == 20
    training, testing = split(windows, 2)
    assert (len(training.samples), len(testing.samples)) == (16, 4)
    first = found.samples[0].path
    assert load(first, SHAPE).tolist() == [[[n] for n in range(1, 9)]]
    assert vary(first, SHAPE, ("shift",), 1)[0, 0, 0] == 8
    assert load_calibration(windows, SHAPE).shape == (20, *SHAPE)
    first.write_bytes(b"short")
    with pytest.raises(ConvertError, match="holds 5 values, the model takes 8"):
        load_calibration(windows, SHAPE)


def test_without_its_entry_it_is_no_sample(windows: Path) -> None:
    with pytest.raises(Error, match="no samples in"):
        scan(windows, 2)
    with pytest.raises(Error, match="cannot be read as an image"):
        load(windows / "run/0.motion", SHAPE)


def test_what_is_done_to_images_is_counted(tmp_path: Path) -> None:
    for name, mode, width in (("a", "L", 4), ("b", "RGB", 4), ("c", "RGB", 9)):
        Image.new(mode, (width, 4)).save(tmp_path / f"{name}.png")
    said = r"of 3 samples of .*: 1 cropped and resized to 4x4, 2 converted to L,"
    with pytest.warns(UserWarning, match=said):
        load_calibration(tmp_path, (4, 4, 1))


def test_arrays_of_numbers_are_samples(tmp_path: Path) -> None:
    """int8 and uint8, in .npy and .bin: what the model stores, plus 128."""
    stored = np.arange(-60, 60, dtype=np.int8)
    shape = (6, 5, 4)
    np.save(tmp_path / "a.npy", stored.reshape(6, 20))
    np.save(tmp_path / "b.npy", (stored.astype(np.int16) + 128).astype(np.uint8))
    (tmp_path / "c.bin").write_bytes(stored.tobytes())
    for name in ("a.npy", "b.npy", "c.bin"):
        found = vary(tmp_path / name, shape, ("flip", "light"), 3)
        assert found.shape == shape and (found.reshape(-1) == stored.astype(int) + 128).all(), name
    assert load_calibration(tmp_path, shape).shape == (3, *shape), "four channels are no matter"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros(120, np.float32), "not been told how they become bytes"),
        (np.zeros(119, np.int8), "119 numbers, and the model takes 120"),
        (
            np.zeros((4, 6, 5)),
            r"is \[4\]\[6\]\[5\], and the model takes \[6\]\[5\]\[4\]: store it with its channels last",
        ),
        (
            np.zeros((6, 4, 5)),
            r"is \[6\]\[4\]\[5\], and the model takes \[6\]\[5\]\[4\]: store it in that order",
        ),
        (np.zeros(1 << 21, np.int8), "2,097,"),
        (np.array([{}], object), "damaged"),
    ],
)
def test_other_arrays_are_refused_in_a_sentence(values: np.ndarray, words: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", values, allow_pickle=True)
    with pytest.raises(Error, match=words):
        load(tmp_path / "a.npy", (6, 5, 4))
    with pytest.raises(Error, match="cannot read"):
        load(tmp_path / "gone.bin", (6, 5, 4))
