"""docs/own-model.md as a new user meets it: all its blocks, in order, in a fresh copy of this repository."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from PIL import Image

from microtrain.base.files import unpacked
from microtrain.base.pio import with_ccache

GUIDE = ROOT / "docs/own-model.md"
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETS = {"photos": "cifar10", "clothes": "clothing10_144"}
SMALL = {  # what the quick test does less of: words of the guide -> words that it runs
    "own/model.pt2 40": "own/model.pt2 1",
    "--epochs 8": "--epochs 1",
    "--lr 0.01 --lr 0.04 --lr 0.16": "--lr 0.04",
    "--limit 400": "--limit 8",
    "--budget-sram 64": "--budget-sram 40",  # fewer bytes to pull
}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file it stands for, its text."""

    language: str
    file: str
    text: str


def guide() -> list[Block]:
    return [Block(*match) for match in BLOCK.findall(GUIDE.read_text(encoding="utf-8"))]


def fresh_copy(folder: Path) -> Path:
    """What git would clone, with the environment that is installed here."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in listed.stdout.decode().split("\0"):
        if name and ((ROOT / name).is_file() or (ROOT / name).is_symlink()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    return folder


def follow(folder: Path, changes: Mapping[str, str]) -> str:
    """Write the guide's files and run its commands; returns what they printed. Each change must apply."""
    printed, unused = "", set(changes)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MICROTRAIN_", "PLATFORMIO_"))}
    environment |= with_ccache()
    for block in guide():
        text = block.text
        for old, new in changes.items():
            if old in text:
                unused.discard(old)
                text = text.replace(old, new)
        if block.file:
            (folder / block.file).write_text(text)
        elif block.language == "sh":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", f"source .venv/bin/activate\n{text}"],
                cwd=folder, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
            printed += done.stdout
    assert not unused, f"the guide no longer says {unused}"
    return printed


def float_accuracy(printed: str) -> tuple[float, int]:
    """What PyTorch said of the pretrained model: share of right answers, images."""
    found = re.search(r"([0-9.]+)% of (\d+) held-out images", printed)
    assert found, printed
    return float(found[1]) / 100, int(found[2])


def check(folder: Path, printed: str) -> dict[str, float]:
    """The report agrees with PyTorch, and what was pulled was trained; returns the report's accuracies."""
    accuracy = json.loads((folder / "firmware/generated/quantization.json").read_text())["accuracy"]
    right, images = float_accuracy(printed)
    assert accuracy["images"] == images
    assert abs(accuracy["float_right"] - right) <= 1.01 / images, "PyTorch's, but for its rounding and a tie"
    trained = np.load(folder / "own/trained.npz")
    assert trained["classifier.1.weight"].any(), "the head starts with zeros"
    for file in ("firmware/generated/quantization.svg", "own/curve.svg"):
        assert (folder / file).stat().st_size > 1000
    assert "images in float" in printed
    simulated, learned = re.findall(r"sha256 ([0-9a-f]+)", printed)[-2:]
    assert learned.startswith(simulated), "the board learned what the simulator says"
    result: dict[str, float] = accuracy
    return result


def tiny_set(folder: Path, seed: int) -> None:
    """Ten classes of two images to learn from and one to be tested with: a colour each, and some noise."""
    rng = np.random.default_rng(seed)
    for label in range(10):
        colour = rng.integers(0, 256, 3)
        for part, count in (("train", 2), ("val", 1)):
            (folder / part / f"class{label}").mkdir(parents=True)
            for i in range(count):
                pixels = np.clip(colour + rng.normal(0, 20, (32, 32, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / part / f"class{label}" / f"{i}.png")


@pytest.mark.slow
def test_the_guide_on_a_tiny_set(tmp_path: Path) -> None:
    folder = fresh_copy(tmp_path)
    for seed, name in enumerate(SETS):
        tiny_set(folder / "own" / name, seed)
    check(folder, follow(folder, SMALL))


def test_a_fresh_copy_runs_its_own_package(tmp_path: Path) -> None:
    """Not the one that is installed: `microtrain` at the root is a link, which belongs to the copy."""
    folder = fresh_copy(tmp_path)
    done = subprocess.run(
        [sys.executable, "tools/convert", "--help"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = "import microtrain; print(microtrain.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", shown], cwd=folder, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).is_relative_to(folder)


def test_the_guide_runs_all_that_it_shows() -> None:
    """Only what programs print, and folders to have, stand in blocks that are not run."""
    languages = {block.language for block in guide()}
    assert languages == {"sh", "python", "text"}
    for block in guide():
        if block.language == "python":
            assert block.file.startswith("own/")
            ast.parse(block.text)


UNTRAINED = """
from mobilenet import MobileNetV2
from pretrain import save

save(MobileNetV2(10).eval(), [f"class{label}" for label in range(10)], "own/model.pt2")
"""


def test_the_sizes_are_those_that_the_guide_shows(tmp_path: Path) -> None:
    """They depend on no weight and on no image: an untrained network has them too."""
    tiny_set(tmp_path / "own/photos", 0)
    for block in guide():
        if block.file:
            (tmp_path / block.file).write_text(block.text)
    (tmp_path / "own/untrained.py").write_text(UNTRAINED)
    subprocess.run([sys.executable, "own/untrained.py"], cwd=tmp_path, check=True)
    commands = [b.text for b in guide() if b.language == "sh" and "tools/convert" in b.text]
    shown = [b.text for b in guide() if b.language == "text" and b.text.startswith(("own on", "arena"))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for command, text in zip(commands, shown, strict=True):
        words = [sys.executable, "-m", "microtrain", "convert", *command.split()[2:], "-o", "out"]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert text in done.stdout, done.stdout


def unpack(archive: Path, scratch: Path, folder: Path) -> None:
    """The images that an archive's train.txt and val.txt list, as class folders."""
    source = unpacked(archive, scratch / archive.stem)
    for part in ("train", "val"):
        for line in (source / f"{part}.txt").read_text().split():
            (folder / part / line).parent.mkdir(parents=True, exist_ok=True)
            (source / line).rename(folder / part / line)


@pytest.mark.slow
def test_the_guide_as_it_stands(tmp_path: Path) -> None:
    if "MICROTRAIN_DATA" not in os.environ:
        pytest.skip("MICROTRAIN_DATA names no folder with sets/")
    folder = fresh_copy(tmp_path)
    for name, archive in SETS.items():
        unpack(
            Path(os.environ["MICROTRAIN_DATA"]) / f"sets/{archive}.tar",
            tmp_path / "sets",
            folder / "own" / name,
        )
    printed = follow(folder, {})
    print(printed)
    accuracy = check(folder, printed)
    assert accuracy["float_right"] > 0.6
    assert accuracy["int8_right"] > accuracy["float_right"] - 0.02
