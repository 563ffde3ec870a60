"""The camera demo's scaler, compiled for this machine, against its NumPy twin."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from camera_twin import CAMERA_HEIGHT, CAMERA_WIDTH, scale

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "examples/camera/scaler.c"
SHAPES = [
    (128, 128, 3),
    (32, 32, 1),
    (8, 8, 1),
    (240, 240, 3),
    (96, 160, 3),
    (160, 96, 3),
    (7, 13, 3),
    (240, 320, 1),
]
BUGS = {
    "no rounding": ("+ n / 2) / n", ") / n"),
    "crop at the left": ("pixels + 2 * CROP_LEFT", "pixels"),
    "low byte first": ("(uint32_t)pixel[0] << 8 | pixel[1]", "(uint32_t)pixel[1] << 8 | pixel[0]"),
    "five bits shifted only": ("red << 3 | red >> 2", "red << 3"),
    "sums not cleared": ("s->sums[i] = 0;", ""),
}


def build(folder: Path, shape: tuple[int, int, int], source: str) -> ctypes.CDLL:
    """scaler.c for a network with this input."""
    names = ("HEIGHT", "WIDTH", "CHANNELS")
    sizes = (f"#define MODEL_{name} {size}\n" for name, size in zip(names, shape, strict=True))
    (folder / "model.h").write_text("".join(sizes))
    (folder / "scaler.c").write_text(source)
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    includes = [f"-I{folder}", f"-I{SOURCE.parent}", f"-I{ROOT / 'firmware/include'}"]
    made = folder / "scaler.so"
    subprocess.run(["cc", *flags, *includes, "-o", made, folder / "scaler.c"], check=True)
    return ctypes.CDLL(str(made))


def compiled(library: ctypes.CDLL, picture: bytes, shape: tuple[int, int, int]) -> np.ndarray:
    """What the C scaler makes of a picture, row by row as it comes."""
    _, width, channels = shape
    size = width * channels
    state = ctypes.create_string_buffer(4 * size + size + 8)
    library.scaler_begin(state)
    rows = []
    for y in range(CAMERA_HEIGHT):
        line = picture[2 * CAMERA_WIDTH * y : 2 * CAMERA_WIDTH * (y + 1)]
        if library.scaler_take(state, y, line):
            rows.append(np.frombuffer(state.raw[4 * size : 5 * size], np.uint8))
    return np.stack(rows).reshape(len(rows), width, channels)


def noise(seed: int) -> bytes:
    return np.random.default_rng(seed).bytes(2 * CAMERA_WIDTH * CAMERA_HEIGHT)


@pytest.mark.parametrize("shape", SHAPES)
def test_scaler_equals_its_twin(shape: tuple[int, int, int], tmp_path: Path) -> None:
    library = build(tmp_path, shape, SOURCE.read_text())
    for picture in (noise(1), b"\xff" * len(noise(1)), bytes(len(noise(1))), noise(2)):
        assert np.array_equal(compiled(library, picture, shape), scale(picture, *shape))


@pytest.mark.parametrize("bug", list(BUGS))
def test_planted_bugs_are_caught(bug: str, tmp_path: Path) -> None:
    text = SOURCE.read_text()
    before, after = BUGS[bug]
    assert before in text
    shape = (32, 32, 3)
    wrong = compiled(build(tmp_path, shape, text.replace(before, after)), noise(3), shape)
    assert not np.array_equal(wrong, scale(noise(3), *shape))


def test_white_stays_white_and_grey_grey() -> None:
    assert (scale(b"\xff\xff" * CAMERA_WIDTH * CAMERA_HEIGHT, 16, 16, 3) == 255).all()
    assert (scale(b"\x84\x10" * CAMERA_WIDTH * CAMERA_HEIGHT, 16, 16, 1) == 131).all()


def test_a_network_larger_than_the_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        build(tmp_path, (256, 256, 3), SOURCE.read_text())
