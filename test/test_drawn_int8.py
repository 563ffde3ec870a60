"""Drawn TFLite files in int8: the integers of TFLite's reference kernels, but for few roundings of one."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import drawn_layers
import drawn_moves
import numpy as np
import pytest
from drawing import TIMES
from drawn_int8 import Integers, fits, ranges
from drawn_tflite import Drawn, Piece, UnfitError, draw
from test_drawn_tflite import check_sentence

from lab.attack.tflite_files import Writer
from lab.tasks.logits import int8_graph, interpreted, logits
from microtrain.convert.ir import ConvertError

FLOAT = ("norm", "attention", "compared", "summed", "softmax", "by_matrix", "length", "woven", "broadcast")
PIECES: dict[str, Piece] = {
    name: piece for name, piece in {**drawn_layers.PIECES, **drawn_moves.PIECES}.items() if name not in FLOAT
}
OTHERS = list(PIECES.values())
FILES = 20 * TIMES  # of each kind that say something
APART = 6  # units by which a logit may be off, where some numbers before it are one off
USUAL = 0.6  # of those that convert, as many are equal in every unit, of these kinds fewer
EQUAL = {"concatenation": 0.4, "reduced": 0.4}
LEAST = 0.2  # of all, as many convert
MOST = 0.05  # of all, so many may ask for calibration samples
NO_RANGE = "has no finite range: calibrate on more images"


def drawn(
    name: str, seed: int, folder: Path
) -> tuple[Path, np.ndarray, np.ndarray, tuple[float, int]] | None:
    """A file, samples for it, what TFLite makes of these and its units; None: it says nothing here."""
    try:
        net = draw(PIECES[name], OTHERS, (list(PIECES).index(name), seed))
    except UnfitError:
        return None
    if net.first or not fits(kind for kind, *_ in net.w.steps):
        return None
    path, rng, shape = folder / f"drawn{seed}.tflite", np.random.default_rng(seed), net.w.shapes[0][1:]
    known = ranges(net, net.file(folder, "float"), rng.integers(0, 256, (8, *shape)).astype(np.uint8))
    if not np.isfinite(list(known.values())).all():
        return None
    path.write_bytes(Integers(net, known).file())
    samples = rng.integers(-128, 128, (6, math.prod(shape))).astype(np.int8)
    try:
        expected, said = interpreted(path, samples, reference=True)
    except RuntimeError:  # kernels of int8 want more than those of floats
        return None
    ends_there = expected.shape == (6, 3) and _read(net)
    return (path, samples, expected, said) if ends_there and len(np.unique(expected)) > 4 else None


def _read(net: Drawn) -> bool:
    """Whether the file's last operator makes its result."""
    return bool(net.w.steps[-1][2] == (net.x,))


@pytest.mark.parametrize("name", PIECES)
def test_drawn_files(name: str, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    seed = 0
    while counts.total() < FILES:
        seed += 1
        made = drawn(name, seed, tmp_path)
        if made is None:
            continue
        path, samples, expected, said = made
        try:
            graph = int8_graph(path)
        except ConvertError as error:
            asks = NO_RANGE in str(error)
            if not asks:
                check_sentence(str(error))
            counts["asks" if asks else "refused"] += 1
            continue
        off = np.abs(logits(graph, samples, said) - expected).max()
        assert off <= APART, (path, off)
        counts["equal" if off == 0 else "close"] += 1
    found = counts["equal"] + counts["close"]
    assert counts["asks"] <= MOST * FILES and found >= LEAST * FILES, counts
    assert counts["equal"] >= EQUAL.get(name, USUAL) * found, counts


def test_a_view_times_a_number_has_a_scale_of_its_own(tmp_path: Path) -> None:
    """The product's was given to what it is a view of, which was cut off there."""
    w, rng, one = Writer(), np.random.default_rng(0), (1 / 255,)
    x = w.tensor("input", (1, 4, 3, 5), scale=one, zero=(-128,))
    turned = w.tensor("turned", (1, 4, 5, 3), scale=one, zero=(-128,))
    w.op("TRANSPOSE", (x, w.tensor("axes", (4,), "int32", np.array([0, 1, 3, 2]))), (turned,))
    half = w.tensor("half", (1,), "int8", np.array([127]), (0.5 / 255,), (-128,))
    less = w.tensor("less", (1, 4, 5, 3), scale=(0.5 / 255,), zero=(-128,))
    w.op("MUL", (turned, half), (less,), "MulOptions")
    flat = w.tensor("flat", (1, 60), scale=(0.5 / 255,), zero=(-128,))
    w.op("RESHAPE", (less, w.tensor("shape", (2,), "int32", np.array([1, 60]))), (flat,), "ReshapeOptions")
    weights = w.tensor("weights", (3, 60), "int8", rng.integers(-127, 128, (3, 60)), (0.005,), (0,))
    biases = w.tensor("biases", (3,), "int32", np.zeros(3), (0.0025 / 255,), (0,))
    out = w.tensor("out", (1, 3), scale=(0.03,), zero=(3,))
    w.op("FULLY_CONNECTED", (flat, weights, biases), (out,), "FullyConnectedOptions")
    path = tmp_path / "net.tflite"
    path.write_bytes(w.file((x,), (out,)))
    samples = rng.integers(-128, 128, (12, 60)).astype(np.int8)
    expected, said = interpreted(path, samples, reference=True)
    assert np.ptp(expected) > 20
    np.testing.assert_array_equal(logits(int8_graph(path), samples, said), expected)


def test_an_input_that_is_turned_keeps_its_scale(tmp_path: Path) -> None:
    """YAMNet's spectrogram, rows and columns exchanged first of all: it asked for calibration samples."""
    w, rng, entry = Writer(), np.random.default_rng(0), (0.05,)
    x = w.tensor("input", (1, 4, 6, 1), scale=entry, zero=(40,))
    turned = w.tensor("turned", (1, 6, 4, 1), scale=entry, zero=(40,))
    w.op("TRANSPOSE", (x, w.tensor("axes", (4,), "int32", np.array([0, 2, 1, 3]))), (turned,))
    kernel = w.tensor("kernel", (3, 3, 3, 1), "int8", rng.integers(-127, 128, 27), (0.005,), (0,))
    shift = w.tensor("shift", (3,), "int32", np.zeros(3), (0.00025,), (0,))
    conv = w.tensor("conv", (1, 4, 2, 3), scale=(0.05,), zero=(-100,))
    w.op("CONV_2D", (turned, kernel, shift), (conv,), "Conv2DOptions", Padding=1, StrideW=1, StrideH=1)
    flat = w.tensor("flat", (1, 24), scale=(0.05,), zero=(-100,))
    w.op("RESHAPE", (conv, w.tensor("shape", (2,), "int32", np.array([1, 24]))), (flat,), "ReshapeOptions")
    weights = w.tensor("weights", (3, 24), "int8", rng.integers(-127, 128, (3, 24)), (0.005,), (0,))
    biases = w.tensor("biases", (3,), "int32", np.zeros(3), (0.00025,), (0,))
    out = w.tensor("out", (1, 3), scale=(0.03,), zero=(3,))
    w.op("FULLY_CONNECTED", (flat, weights, biases), (out,), "FullyConnectedOptions")
    path = tmp_path / "net.tflite"
    path.write_bytes(w.file((x,), (out,)))
    samples = rng.integers(-128, 128, (12, 24)).astype(np.int8)
    expected, said = interpreted(path, samples, reference=True)
    assert np.ptp(expected) > 20
    off = np.abs(logits(int8_graph(path), samples, said) - expected)
    assert off.max() <= 1 and off.mean() < 0.05, "but for ties of a head in floats"


@pytest.mark.parametrize("seed", range(4))
def test_a_map_added_to_itself_is_rounded_as_a_sum(seed: int, tmp_path: Path) -> None:
    """It was a factor of the layer before, whose own scale was lost: up to 79 units of the logits."""
    w, rng = Writer(), np.random.default_rng(seed)
    before, zero = float(rng.uniform(0.02, 0.04)), int(rng.integers(-128, 60))
    after = before * float(rng.uniform(0.8, 2.4))
    x = w.tensor("input", (1, 6, 6, 2), scale=(0.02,), zero=(-10,))
    kernel = w.tensor("kernel", (3, 3, 3, 2), "int8", rng.integers(-127, 128, 54), (0.005,), (0,))
    shift = w.tensor("shift", (3,), "int32", np.zeros(3), (0.0001,), (0,))
    conv = w.tensor("conv", (1, 4, 4, 3), scale=(before,), zero=(zero,))
    w.op("CONV_2D", (x, kernel, shift), (conv,), "Conv2DOptions", Padding=1, StrideW=1, StrideH=1)
    twice = w.tensor("twice", (1, 4, 4, 3), scale=(after,), zero=(-20,))
    w.op("ADD", (conv, conv), (twice,), "AddOptions", FusedActivationFunction=seed % 2)
    flat = w.tensor("flat", (1, 48), scale=(after,), zero=(-20,))
    w.op("RESHAPE", (twice, w.tensor("shape", (2,), "int32", np.array([1, 48]))), (flat,), "ReshapeOptions")
    weights = w.tensor("weights", (3, 48), "int8", rng.integers(-127, 128, (3, 48)), (0.005,), (0,))
    biases = w.tensor("biases", (3,), "int32", np.zeros(3), (0.005 * after,), (0,))
    out = w.tensor("out", (1, 3), scale=(0.2,), zero=(3,))
    w.op("FULLY_CONNECTED", (flat, weights, biases), (out,), "FullyConnectedOptions")
    path = tmp_path / "net.tflite"
    path.write_bytes(w.file((x,), (out,)))
    samples = rng.integers(-128, 128, (20, 72)).astype(np.int8)
    expected, said = interpreted(path, samples, reference=True)
    off = np.abs(logits(int8_graph(path), samples, said) - expected)
    assert np.ptp(expected) > 20 and off.max() <= 1 and off.mean() < 0.05
