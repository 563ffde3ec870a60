"""TFLite files that are drawn: the values of TFLite's own interpreter, or a sentence that names a layer.

MICROTRAIN_DRAWN=n in the environment: n times as many files of each kind.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from pathlib import Path

import drawn_layers
import drawn_moves
import drawn_norms
import numpy as np
import pytest
from drawing import TIMES
from drawn_tflite import Drawn, Piece, UnfitError, draw
from interpreted import interpreted, sample_shape

from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError

PIECES: dict[str, Piece] = {**drawn_layers.PIECES, **drawn_moves.PIECES, **drawn_norms.PIECES}
OTHERS = list(PIECES.values())
FILES = 50 * TIMES  # of each kind that say something
CLOSE = 5e-5  # of the largest logit
STEPS = {"FLOOR", "CEIL", "ROUND", "SIGN", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"}
USUAL = 0.5  # of those, as many convert, of these kinds fewer
LEAST = {
    "gate": 0.2,
    "nearly_norm": 0.2,
    "stacked": 0.25,
    "joined": 0.35,
    "concatenation": 0.4,
    "compared": 0.3,
}


def files(name: str, folder: Path, many: int) -> list[tuple[Drawn, Path, np.ndarray, np.ndarray]]:
    """Files around an operator, samples for each, and what TFLite makes of these."""
    found: list[tuple[Drawn, Path, np.ndarray, np.ndarray]] = []
    seed = 0
    while len(found) < many:
        seed += 1
        try:
            net = draw(PIECES[name], OTHERS, (list(PIECES).index(name), seed))
        except UnfitError:
            continue
        path = net.file(folder, f"drawn{seed}")
        pixels = np.random.default_rng(seed).integers(0, 256, (3, *sample_shape(path))).astype(np.uint8)
        wanted = interpreted(path, pixels)
        if np.isfinite(wanted).all() and np.abs(wanted).max() < 1e4 and np.ptp(wanted, axis=0).max() > 1e-4:
            found.append((net, path, pixels, wanted))
    return found


@pytest.mark.parametrize("name", PIECES)
def test_drawn_files(name: str, tmp_path: Path) -> None:
    counts: Counter[bool] = Counter()
    for net, path, pixels, wanted in files(name, tmp_path, FILES):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                graph = load_model(path).graph
            except ConvertError as error:
                check_sentence(str(error))
                counts[False] += 1
                continue
        images = np.moveaxis(pixels, 1, -1) if net.first else pixels
        found = run_float(graph, images.reshape(3, *graph.tensors["input"].shape)).reshape(wanted.shape)
        assert alike(net, found, wanted), (path, net.kinds)
        counts[True] += 1
    print(name, counts)
    assert counts[True] >= LEAST.get(name, USUAL) * FILES, counts


def alike(net: Drawn, found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether samples have the same logits; all but one where a number may lie right at a step."""
    apart = np.sort(np.abs(found - wanted).max(1)) / np.abs(wanted).max()
    return bool(apart[-2 if set(net.kinds) & STEPS else -1] < CLOSE)


def check_sentence(text: str) -> None:
    """Each obstacle is a line that names a layer, and no more than a line."""
    lines = text.split("\n")
    obstacles = lines[1:] if len(lines) > 1 else lines
    assert len(lines) == 1 or re.search(r"cannot be converted, \d+ obstacles:$", lines[0]), text
    for line in obstacles:
        assert re.search(r"layers? \(?\w+\d|outputs of an operator", line) and len(line) < 500, text
