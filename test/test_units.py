"""Samples that are numbers in the model's units: how they become bytes, in Python, on a board and in C."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from pio_build import host_program
from torch_networks import write

from microtrain.base.errors import Error
from microtrain.base.units import Units, parse
from microtrain.convert.cli import main as convert_main
from microtrain.convert.frontends.module import load_model
from microtrain.convert.loading import in_units
from microtrain.convert.normalisation import Origin, of_range
from microtrain.device.cli import main as device_main
from microtrain.samples.kind import told
from microtrain.samples.source import kind_of, load
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.cli import main as simulate_main

TIME, AXES = 24, 3
SHAPE = (TIME, 1, AXES)
LOW, HIGH = -3.5, 9.25


class Motion(torch.nn.Module):
    """A small network of a series."""

    shape = (AXES, TIME)

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv1d(AXES, 8, 5, stride=2, padding=2)
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(torch.relu(self.conv(x)).mean(2))
        return scores


def run(command: object, *words: object) -> tuple[int, str]:
    result = CliRunner().invoke(command, list(map(str, words)))  # type: ignore[arg-type]
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


def recorded(folder: Path, count: int, dtype: type = np.float32) -> Path:
    """Windows of two movements in m/s2, of which the first ones reach LOW and HIGH."""
    rng, t = np.random.default_rng(1), np.arange(TIME)[:, None]
    for n in range(count):
        name, pace = (("slow", 0.2), ("fast", 1.1))[n % 2]
        window = 2.5 * np.sin(pace * t + rng.uniform(0, 6)) + rng.normal(0, 0.2, (TIME, AXES)) + (0, 0, 3)
        window[0, 0] = (LOW, HIGH)[n % 2]
        (folder / name).mkdir(parents=True, exist_ok=True)
        np.save(folder / name / f"{n:03}.npy", np.clip(window, LOW, HIGH).astype(dtype))
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    return write(Motion(), tmp_path / "motion.pt2", "exported")


def test_a_number_is_the_nearest_byte_and_what_lies_outside_is_clipped() -> None:
    units = Units((0.5,), (-1.0,))
    assert units.bytes(np.array([-9.0, -1.0, -0.76, -0.74, 0.0, 126.5, 999.0])).tolist() == [
        0,
        0,
        0,
        1,
        2,
        255,
        255,
    ]
    assert units.outside(np.array([-1.2, -1.3, 126.7, 126.8])) == 0.5
    each = Units((0.5, 2.0), (0.0, 1.0))
    assert each.bytes(np.array([[1.0, 1.0], [2.0, 5.0]])).tolist() == [[2, 0], [4, 2]]
    assert parse(each.text()) == each
    for wrong in ("", "1", "1;2;3", "0;1", "1,2;3", "nan;1", "x;1"):
        with pytest.raises(Error, match="are no units"):
            parse(wrong)


def test_the_range_of_the_samples_is_that_of_the_input(model: Path, tmp_path: Path) -> None:
    loaded = in_units(load_model(model), recorded(tmp_path / "data", 6))
    said = loaded.normal.sentence(loaded.graph.sample_shape)
    assert loaded.normal.origin is Origin.SAMPLES and f"from {LOW} to {HIGH}" in said
    gain, offset = loaded.graph.input.gain, loaded.graph.input.offset
    numbers = np.load(tmp_path / "data/slow/000.npy")
    bytes_ = load(tmp_path / "data/slow/000.npy", loaded.graph.sample_shape).reshape(TIME, AXES)
    assert np.abs(bytes_ * np.array(gain) + np.array(offset) - numbers).max() <= (HIGH - LOW) / 510 + 1e-6
    assert in_units(load_model(model), recorded(tmp_path / "stored", 4, np.int8)).graph.units is None
    alike = of_range(4.0, 4.0, 1).units()
    assert alike.low == (4.0,) and alike.bytes(np.array([4.0])).tolist() == [0]


def test_what_the_user_says_of_the_input_stays(model: Path, tmp_path: Path) -> None:
    """--mean and --std are of bytes 0..1: they give the units too."""
    loaded = in_units(load_model(model, given=((0.5,), (0.05,))), recorded(tmp_path / "data", 4))
    assert loaded.normal.origin is Origin.OPTION and loaded.graph.units is not None
    assert np.allclose((loaded.graph.units.low[0], loaded.graph.units.high[0]), (-10, 10))


def test_a_device_learns_from_numbers_what_the_simulator_does(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And C makes the same bytes of them."""
    generated, data = tmp_path / "generated", recorded(tmp_path / "data/train", 40)
    recorded(tmp_path / "data/val", 8)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MICROTRAIN_FLASH", str(tmp_path / "flash"))
    library = tmp_path / "library"
    asked = ("--calibration", data, "--classes", 2, "-o", generated, "--library", library)
    code, said = run(convert_main, model, *asked)
    assert code == 0 and f"numbers from {LOW} to {HIGH}" in said, said
    same = ("--epochs", 2, "--seed", 3)
    code, said = run(simulate_main, generated, "--data", tmp_path / "data", *same, "-o", tmp_path / "sim")
    assert code == 0, said
    found = json.loads((tmp_path / "sim/results.json").read_text())["runs"][0]
    device = ("--native", host_program(generated, tmp_path), "--plan", generated / "plan.json")
    code, said = run(device_main, *device, "train", data, *same)
    assert code == 0 and found["trained_sha256"] in said, said
    sample = data / "slow/000.npy"
    assert run(device_main, *device, "infer", sample)[0] == 0
    assert_same_bytes(library, np.load(sample), load(sample, load_blueprint(generated).shape), tmp_path)


class Table(torch.nn.Module):
    """Features of a table; normalised by itself, or not."""

    def __init__(self, features: int, normalised: bool) -> None:
        super().__init__()
        self.shape = (features,)
        sizes = sizes_of(features)
        self.norm = torch.nn.BatchNorm1d(features) if normalised else torch.nn.Identity()
        if normalised:
            self.norm.running_var = torch.tensor(sizes**2, dtype=torch.float32)
        self.inner, self.head = torch.nn.Linear(features, 8), torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(torch.relu(self.inner(self.norm(x))))
        return scores


def sizes_of(features: int) -> np.ndarray:
    """Deviations of features, from hundredths to thousands."""
    return np.logspace(-2, 3, features)


def tabled(folder: Path, features: int, count: int = 40) -> Path:
    """Samples of two classes, which the smallest feature tells apart."""
    rng, sizes = np.random.default_rng(1), sizes_of(features)
    for n in range(count):
        sample = rng.normal(0, 0.5, features)
        sample[0] += (-1.0, 1.0)[n % 2]
        (folder / "ab"[n % 2]).mkdir(parents=True, exist_ok=True)
        np.save(folder / "ab"[n % 2] / f"{n:03}.npy", (sample * sizes).astype(np.float32))
    return folder


def test_features_of_other_sizes_have_ranges_of_their_own(tmp_path: Path) -> None:
    """In a range of all the smallest would be a constant."""
    torch.manual_seed(0)
    path = write(Table(4, True).eval(), tmp_path / "table.pt2", "exported")
    data = tabled(tmp_path / "data", 4)
    loaded = in_units(load_model(path), data)
    assert loaded.graph.units is not None and len(loaded.graph.units.low) == 4
    assert "each channel in its own range" in loaded.normal.sentence(loaded.graph.sample_shape)
    files = sorted(data.rglob("*.npy"))
    numbers = np.stack([np.load(f) for f in files])
    bytes_ = np.stack([load(f, loaded.graph.sample_shape).reshape(4) for f in files])
    assert (np.ptp(bytes_, axis=0) == 255).all()
    made = bytes_ * np.array(loaded.graph.input.gain) + np.array(loaded.graph.input.offset)
    wanted = numbers / np.sqrt(sizes_of(4) ** 2 + 1e-5)
    assert (np.abs(made - wanted).max(0) <= np.ptp(wanted, axis=0) / 510 + 1e-5).all()


def test_features_that_nothing_normalises_are_announced(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path, data = write(Table(4, False), tmp_path / "table.pt2", "exported"), tabled(tmp_path / "data", 4)
    with pytest.warns(UserWarning, match=r"channel 0 lie between .* has 0 of them\. Let the model normalise"):
        loaded = in_units(load_model(path), data)
    assert loaded.graph.units is not None and len(loaded.graph.units.low) == 1


def test_a_device_is_told_the_range_of_every_feature(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path, data = write(Table(60, True).eval(), tmp_path / "table.pt2", "exported"), tmp_path / "data"
    generated, same = tmp_path / "generated", ("--epochs", 2, "--seed", 3)
    tabled(data / "train", 60)
    tabled(data / "val", 60, 8)
    code, said = run(convert_main, path, "--calibration", data / "train", "-o", generated)
    assert code == 0 and "each channel in its own range" in said, said
    code, said = run(simulate_main, generated, "--data", data, *same, "-o", tmp_path / "sim")
    assert code == 0, said
    found = json.loads((tmp_path / "sim/results.json").read_text())["runs"][0]
    device = ("--native", host_program(generated, tmp_path), "--plan", generated / "plan.json")
    code, said = run(device_main, *device, "train", data / "train", *same)
    assert code == 0 and found["trained_sha256"] in said, said


def assert_same_bytes(library: Path, numbers: np.ndarray, expected: np.ndarray, folder: Path) -> None:
    """Of a sample, and of numbers about every edge between two bytes."""
    (header,) = (p for p in (library / "src").glob("*.h") if not p.name.startswith("microtrain"))
    name = header.stem
    source = (
        f'#include "{header.name}"\nuint8_t f(float x);\nuint8_t f(float x) {{ return {name}_byte(x); }}\n'
    )
    (folder / "f.c").write_text(source)
    flags = [
        "-O2",
        "-ffp-contract=off",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        f"-I{library / 'src'}",
    ]
    subprocess.run(
        ["gcc", *flags, "-shared", "-fPIC", str(folder / "f.c"), "-o", str(folder / "f.so")], check=True
    )
    f = ctypes.CDLL(str(folder / "f.so")).f
    f.argtypes, f.restype = [ctypes.c_float], ctypes.c_uint8
    assert [f(float(x)) for x in numbers.ravel()] == expected.ravel().tolist()
    edges = np.float32(LOW) + (np.arange(-2, 258, dtype=np.float32) + 0.5) * np.float32((HIGH - LOW) / 255)
    asked = np.concatenate([np.nextafter(edges, np.float32(side)) for side in (-99, 99)]).astype(np.float32)
    units = of_range(LOW, HIGH, 1).units()
    assert [f(float(x)) for x in asked] == units.bytes(asked).tolist()


def test_numbers_that_cannot_be_bytes_are_one_sentence(tmp_path: Path) -> None:
    path, shape = tmp_path / "a.npy", told(SHAPE, None, Units((0.1,), (0.0,)))
    np.save(path, np.full(SHAPE, 99.0))
    assert kind_of(path).changes(path, shape) == ("clipped to 0 .. 25.5",)
    with pytest.raises(Error, match="has not been told how they become bytes: convert it again"):
        load(path, SHAPE)
    np.save(path, np.full(SHAPE, np.nan))
    with pytest.raises(Error, match="infinite, or none"):
        load(path, shape)
    np.save(path, np.array(["x"] * (TIME * AXES)))
    with pytest.raises(Error, match="no numbers"):
        load(path, shape)
