"""The emulated board and this machine learn the same weights, bit for bit."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import EXAMPLE, ROOT, Built
from pio_build import named_by_content

from microtrain.base.objects import objects
from microtrain.device.client import Device
from microtrain.device.link import EmulatorPort, Port, ProgramPort

STEPS = 200
SEED = 12345
FLAGS = ["-std=c11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]


def samples() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training images and labels, and a test image, of the device's world."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        from dataset import device_split
    finally:
        sys.path.remove(str(EXAMPLE))
    train_images, train_labels, test_images, _ = device_split()
    return train_images[:STEPS], train_labels[:STEPS], test_images[0]


def learn(port: Port, steps: int = STEPS, seed: int = SEED) -> tuple[str, bytes, bytes]:
    """SHA-256 that the device computes, its trainables, and logits after some steps."""
    images, labels, test = samples()
    with Device(port) as device:
        device.seed(seed)
        for image, label in zip(images[:steps], labels[:steps], strict=True):
            device.train(image, int(label))
        return device.sha(), device.pull(), device.infer(test).logits.tobytes()


@pytest.fixture(scope="module")
def board(example: Built) -> tuple[str, bytes, bytes]:
    return learn(EmulatorPort(example.elf))


def test_the_host_build_learns_what_the_board_learns(example: Built, board: tuple[str, bytes, bytes]) -> None:
    host = learn(ProgramPort(example.program))
    print(f"board {board[0]}\nhost  {host[0]}")
    assert host == board
    assert hashlib.sha256(board[1]).hexdigest() == board[0]


def test_clang_learns_the_same(example: Built, board: tuple[str, bytes, bytes], tmp_path: Path) -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    firmware, model = ROOT / "firmware", named_by_content(example.folder)
    sources = [p for p in sorted((firmware / "src").rglob("*.c")) if "board" not in p.parts]
    sources += sorted((firmware / "src/board/host").glob("*.c")) + sorted(model.glob("*.c"))
    include = [f"-I{firmware / 'include'}", f"-I{firmware / 'src'}", f"-I{model}"]
    program = tmp_path / "program"
    parts = objects("clang", (*FLAGS, *include), sources, ROOT, tmp_path / "objects")
    subprocess.run(["clang", *map(str, parts), "-lm", "-o", str(program)], check=True)
    assert learn(ProgramPort(program)) == board


def test_another_seed_is_noticed(example: Built) -> None:
    assert learn(ProgramPort(example.program), 5)[0] != learn(ProgramPort(example.program), 5, SEED + 1)[0]
