"""The example's data and network: pools that never mix, the same bytes every time, a complete model file."""

from __future__ import annotations

import base64
import hashlib
import importlib
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

EXAMPLE = Path(__file__).resolve().parent.parent / "examples/digits"
PRETRAIN_SHA256 = "f17999cb9f4530fb3613c48d519f617b6bb83d6f63de0d204776721dd810fb6d"
DEVICE_SHA256 = "658c156b72995e40b568a91904215bd0f95aba6f7ea85c44b721b99aff91db7f"


@pytest.fixture(scope="module")
def dataset() -> ModuleType:
    return load_module("dataset")


@pytest.fixture(scope="module")
def make_model(dataset: ModuleType) -> ModuleType:
    return load_module("make_model")


@pytest.fixture(scope="module")
def loaded() -> tuple[torch.export.ExportedProgram, dict[str, Any]]:
    """The exported program and what travels beside it."""
    extra = {"microtrain.json": ""}
    program = torch.export.load(io.BytesIO((EXAMPLE / "model.pt").read_bytes()), extra_files=extra)
    return program, json.loads(extra["microtrain.json"])


def load_module(name: str) -> ModuleType:
    """A module of the example, which is a folder of scripts and no package."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLE))


def digest(arrays: tuple[np.ndarray, ...]) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()


def test_no_digit_is_in_two_pools(dataset: ModuleType) -> None:
    pools = [dataset.pool(name) for name in ("pretrain", "train", "test")]
    numbers = np.concatenate(pools)
    assert len(np.unique(numbers)) == len(numbers)
    assert numbers.min() >= 0
    assert numbers.max() < 1797


def test_no_image_is_trained_and_tested(dataset: ModuleType) -> None:
    """Pixel by pixel, so that a digit that stands twice in scikit-learn's set would be seen too."""
    for train, _, test, _ in (dataset.pretrain_split(), dataset.device_split()):
        assert not {image.tobytes() for image in train} & {image.tobytes() for image in test}
    seen = {image.tobytes() for image in dataset.pretrain_split()[0]}
    written = dataset._written()[0]
    assert not seen & {written[n].tobytes() for n in dataset.pool("test")}


def test_sizes_and_classes(dataset: ModuleType) -> None:
    for split, classes in ((dataset.pretrain_split(), 7), (dataset.device_split(), 10)):
        for images, labels in (split[:2], split[2:]):
            assert images.dtype == np.uint8
            assert images.shape == (len(labels), 32, 32, 1)
            assert len(set(np.bincount(labels, minlength=classes))) == 1, "the classes are balanced"
            assert set(labels) == set(range(classes))
    assert len(dataset.device_split()[3]) >= 300
    assert len(dataset.device_split()[1]) <= 1200


def test_the_same_bytes_every_time(dataset: ModuleType) -> None:
    assert digest(dataset.pretrain_split()) == PRETRAIN_SHA256
    assert digest(dataset.device_split()) == DEVICE_SHA256


def test_the_device_world_is_inverted_thicker_and_slanted(dataset: ModuleType) -> None:
    world = dataset.DEVICE_WORLD
    stroke = np.zeros((32, 32), np.uint8)
    stroke[:, 15:17] = 255
    seen = dataset.change(stroke, 0)
    assert (seen.min(), seen.max()) == (world.ink, world.paper)
    darkest = seen.argmin(axis=1)
    assert darkest[0] - darkest[-1] >= (world.slant - world.slant_jitter) * 31 - 1, (
        "the top leans to the right"
    )
    assert (seen[16] < (world.ink + world.paper) // 2).sum() == 2 + world.pen - 1
    assert not np.array_equal(seen, dataset.change(stroke, 1)), "every digit has its own slant"


def test_enlarging_keeps_flat_images_and_means(dataset: ModuleType) -> None:
    digits = np.stack([np.full((8, 8), 200, np.uint8), np.eye(8, dtype=np.uint8) * 160])
    large = dataset.enlarge(digits)
    assert (large[0] == 200).all()
    assert large[1].mean() == pytest.approx(digits[1].mean(), abs=1.5)


def test_the_file_is_small_and_names_no_machine() -> None:
    data = (EXAMPLE / "model.pt").read_bytes()
    assert len(data) < 200_000
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            assert b'File \\"' not in archive.read(name), f"{name} holds stack traces"


def test_the_file_carries_its_calibration(
    loaded: tuple[torch.export.ExportedProgram, dict[str, Any]], make_model: ModuleType
) -> None:
    extra = loaded[1]
    assert extra["calibration"]["format"] == "npz-base64"
    with np.load(io.BytesIO(base64.b64decode(extra["calibration"]["data"])), allow_pickle=False) as arrays:
        images = arrays["images"]
    assert np.array_equal(images, make_model.calibration_images()), (
        "run make_model.py again: the data changed"
    )
    assert extra["input"] == {"mean": [0.5], "std": [0.5]}
    assert extra["classes"] == [str(k) for k in range(7)]


def test_pretrained_accuracy(
    loaded: tuple[torch.export.ExportedProgram, dict[str, Any]], dataset: ModuleType, make_model: ModuleType
) -> None:
    _, _, images, labels = dataset.pretrain_split()
    module = loaded[0].module()
    assert make_model.accuracy(module, images, labels) > 0.95
    assert make_model.accuracy(module, images[:50], (labels[:50] + 1) % 7) < 0.2, (
        "the measure itself can fail"
    )


def test_the_network_is_what_the_example_promises(
    loaded: tuple[torch.export.ExportedProgram, dict[str, Any]],
) -> None:
    state = loaded[0].state_dict
    convolutions = {name[: -len(".weight")]: w for name, w in state.items() if w.dim() == 4}
    assert sum(w.numel() for w in convolutions.values()) < 40_000
    assert {w.shape[-1] for w in convolutions.values()} == {1, 3, 5}
    targets = [str(node.target) for node in loaded[0].graph.nodes]
    assert targets.count("aten.add.Tensor") >= 1
    for name in ("scheme", "head", "bias"):
        scheme = yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text(encoding="utf-8"))
        assert set(scheme.get("weights", {})) <= set(convolutions), (
            f"{name}.yaml names a layer that is not there"
        )


def test_a_seed_decides_the_training(make_model: ModuleType, dataset: ModuleType) -> None:
    images, labels = dataset.pretrain_split()[:2]
    heads = [make_model.train(images[:50], labels[:50], 1, seed).head.weight for seed in (3, 3, 4)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_export_images(digits: Path, dataset: ModuleType) -> None:
    _, _, images, labels = dataset.device_split()
    files = sorted((digits / "test").glob("*/*.png"), key=lambda p: p.name)
    assert [int(p.parent.name) for p in files] == list(labels)
    assert np.array_equal(np.asarray(Image.open(files[-1])), images[-1, :, :, 0])
    command = [sys.executable, str(EXAMPLE / "export_images.py"), str(digits)]
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode != 0
    assert "is not empty" in again.stderr
    assert "Traceback" not in again.stderr
