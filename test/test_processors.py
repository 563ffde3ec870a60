"""Conversion makes the same file on every processor, whatever kernels NumPy picks for it.

Real sums are float64 from the input on (execute/batched.py), sums over stored integers exact
(quantize/compress.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import EXAMPLE, ROOT

OLDER = {  # processors that have less than this one, by what NumPy and its BLAS are told
    "AVX2": {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"},
    "SSE": {
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    },
}
SUMS = """
import numpy as np
draw = np.random.default_rng(0)
a, b = (draw.normal(size=(64, 300)).astype(np.float32) for _ in range(2))
print((a @ b.T).tobytes().hex())
"""


@dataclass(frozen=True)
class Elsewhere:
    """What a processor makes: the sums of a float32 product, and the files of a conversion."""

    sums: str
    files: dict[str, bytes]


def made(folder: Path, older: dict[str, str], *options: object) -> Elsewhere:
    environment = os.environ | older
    sums = subprocess.run(
        [sys.executable, "-c", SUMS], env=environment, capture_output=True, text=True, check=True
    )
    convert = [sys.executable, ROOT / "tools/convert", EXAMPLE / "model.pt", *options, "-o", folder]
    subprocess.run([str(word) for word in convert], env=environment, capture_output=True, check=True)
    files = {path.name: path.read_bytes() for path in sorted(folder.glob("*.[ch]"))}
    return Elsewhere(sums.stdout, files)


def test_all_processors_make_the_same_model(tmp_path: Path) -> None:
    """By ranges, corrected biases, and weights in four bits, of all layers but the head."""
    options = "--scheme", EXAMPLE / "head.yaml", "--bias-correction", "--weights-bits", "auto"
    here = made(tmp_path / "here", {}, *options)
    others = [made(tmp_path / name, older, *options) for name, older in OLDER.items()]
    if all(other.sums == here.sums for other in others):
        pytest.skip("this NumPy sums in one order, whatever processor it is told of")
    assert len(here.files) > 2
    assert [other.files for other in others] == [here.files] * len(others)
