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


def apart(
    w: Writer, ends: tuple[int, int], sizes: tuple[int, int], side: tuple[float, int], folder: Path
) -> np.ndarray:
    """By how many units logits of what a file makes are off.

    ends  the input and what is made; sizes: their numbers; side: scale and zero point of what is made
    """
    rng, (scale, zero), (x, made), size = np.random.default_rng(5), side, ends, sizes[1]
    flat = w.tensor("flat", (1, size), scale=(scale,), zero=(zero,))
    w.op("RESHAPE", (made, w.tensor("size", (2,), "int32", np.array([1, size]))), (flat,), "ReshapeOptions")
    weights = w.tensor("weights", (3, size), "int8", rng.integers(-127, 128, (3, size)), (0.005,), (0,))
    biases = w.tensor("biases", (3,), "int32", np.zeros(3), (0.005 * scale,), (0,))
    out = w.tensor("out", (1, 3), scale=(3 * scale,), zero=(3,))
    w.op("FULLY_CONNECTED", (flat, weights, biases), (out,), "FullyConnectedOptions")
    path = folder / "net.tflite"
    path.write_bytes(w.file((x,), (out,)))
    samples = rng.integers(-128, 128, (20, sizes[0])).astype(np.int8)
    expected, said = interpreted(path, samples, reference=True)
    assert len(np.unique(expected)) > 20
    return np.asarray(np.abs(logits(int8_graph(path), samples, said) - expected))


def convolved(w: Writer, x: int, channels: int, made: tuple[int, ...], side: tuple[float, int]) -> int:
    """3x3, of inputs of one pixel's step of 0.02."""
    rng, n = np.random.default_rng(6), made[-1]
    kernel = w.tensor(
        "kernel", (n, 3, 3, channels), "int8", rng.integers(-127, 128, 9 * n * channels), (0.005,), (0,)
    )
    shift = w.tensor("shift", (n,), "int32", np.zeros(n), (0.0001,), (0,))
    conv = w.tensor("conv", made, scale=(side[0],), zero=(side[1],))
    w.op("CONV_2D", (x, kernel, shift), (conv,), "Conv2DOptions", Padding=1, StrideW=1, StrideH=1)
    return conv


def test_a_view_times_a_number_has_a_scale_of_its_own(tmp_path: Path) -> None:
    """The product's was given to what it is a view of, which was cut off there."""
    w, one = Writer(), (1 / 255,)
    x = w.tensor("input", (1, 4, 3, 5), scale=one, zero=(-128,))
    turned = w.tensor("turned", (1, 4, 5, 3), scale=one, zero=(-128,))
    w.op("TRANSPOSE", (x, w.tensor("axes", (4,), "int32", np.array([0, 1, 3, 2]))), (turned,))
    half = w.tensor("half", (1,), "int8", np.array([127]), (0.5 / 255,), (-128,))
    less = w.tensor("less", (1, 4, 5, 3), scale=(0.5 / 255,), zero=(-128,))
    w.op("MUL", (turned, half), (less,), "MulOptions")
    assert apart(w, (x, less), (60, 60), (0.5 / 255, -128), tmp_path).max() == 0


def test_an_input_that_is_turned_keeps_its_scale(tmp_path: Path) -> None:
    """YAMNet's spectrogram, rows and columns exchanged first of all: it asked for calibration samples."""
    w = Writer()
    x = w.tensor("input", (1, 4, 6, 1), scale=(0.02,), zero=(40,))
    turned = w.tensor("turned", (1, 6, 4, 1), scale=(0.02,), zero=(40,))
    w.op("TRANSPOSE", (x, w.tensor("axes", (4,), "int32", np.array([0, 2, 1, 3]))), (turned,))
    conv = convolved(w, turned, 1, (1, 4, 2, 3), (0.05, -100))
    assert apart(w, (x, conv), (24, 24), (0.05, -100), tmp_path).max() == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_map_added_to_itself_is_rounded_as_a_sum(seed: int, tmp_path: Path) -> None:
    """It was a factor of the layer before, whose own scale was lost: up to 79 units of the logits."""
    w, rng = Writer(), np.random.default_rng(seed)
    before, zero = float(rng.uniform(0.02, 0.04)), int(rng.integers(-128, 60))
    after = (before * float(rng.uniform(0.8, 2.4)), -20)
    x = w.tensor("input", (1, 6, 6, 2), scale=(0.02,), zero=(-10,))
    conv = convolved(w, x, 2, (1, 4, 4, 3), (before, zero))
    twice = w.tensor("twice", (1, 4, 4, 3), scale=after[:1], zero=after[1:])
    w.op("ADD", (conv, conv), (twice,), "AddOptions", FusedActivationFunction=seed % 2)
    assert apart(w, (x, twice), (72, 48), after, tmp_path).max() == 0


@pytest.mark.parametrize("kind", ["MINIMUM", "MAXIMUM"])
def test_the_smaller_of_a_map_and_constants_is_exact(kind: str, tmp_path: Path) -> None:
    """It asked for calibration samples; how much one is above the other is a whole number from 0 to 255."""
    w, side = Writer(), (0.05, -30)
    x = w.tensor("input", (1, 6, 6, 2), scale=(0.02,), zero=(-10,))
    conv = convolved(w, x, 2, (1, 4, 4, 3), side)
    bounds = w.tensor("bounds", (3,), "int8", np.array([-128, 20, 127]), side[:1], side[1:])
    made = w.tensor("made", (1, 4, 4, 3), scale=side[:1], zero=side[1:])
    w.op(kind, (conv, bounds), (made,), "MaximumMinimumOptions")
    assert apart(w, (x, made), (72, 48), side, tmp_path).max() == 0
