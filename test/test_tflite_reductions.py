"""Sums, means and maxima of TFLite files, float and int8, as its own interpreter makes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")

from test_model_copy import interpreted

from lab.attack.tflite_files import Int8
from lab.attack.tflite_networks import Float
from lab.tasks.logits import int8_graph, logits
from lab.tasks.logits import interpreted as integers
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError

KINDS = ("MEAN", "SUM", "REDUCE_MAX")


def assert_as_interpreted(net: Float, folder: Path, h: int, w: int, c: int) -> None:
    path, outputs = net.file(folder), net.shape[-1]
    pixels = np.random.default_rng(1).integers(0, 256, (4, h, w, c)).astype(np.uint8)
    wanted = interpreted(path, pixels / 255.0)
    found = run_float(load_model(path).graph, pixels).reshape(4, outputs)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("axes", [(1, 2), (2, 1), (1,), (2,)])
@pytest.mark.parametrize("kind", KINDS)
def test_over_a_map_or_one_of_its_sides(kind: str, axes: tuple[int, ...], tmp_path: Path) -> None:
    net = Float(7, 6, 2).conv(4, 3, 3).over(kind, *axes)
    if len(axes) == 1:
        net.view(1, 4 * net.shape[1])
    assert_as_interpreted(net.linear(3), tmp_path, 7, 6, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_over_time(kind: str, tmp_path: Path) -> None:
    net = Float(12, 3).view(1, 12, 1, 3).conv(5, 3, 1)
    net.view(1, 10, 5).over(kind, 1)
    assert_as_interpreted(net.linear(3), tmp_path, 12, 1, 3)


def reduced(kind: str, scale: tuple[float, int], folder: Path) -> Path:
    """An int8 network whose map is reduced to a scale of its own."""
    net = Int8.input((9, 8, 3)).conv(6, (3, 3), 2, (5, 4), (0.03, -128))
    made = net.w.tensor("made", (1, 6), scale=(scale[0],), zero=(scale[1],))
    axes = net.w.tensor("axes", (2,), "int32", np.array([1, 2]))
    net.w.op(kind, (net.x, axes), (made,), "ReducerOptions", KeepDims=False)
    net.x, net.shape, net.scale, net.zero = made, (6,), *scale
    path = folder / "model.tflite"
    path.write_bytes(net.linear(4, (0.05, 0)).file())
    return path


@pytest.mark.parametrize(("kind", "scale"), [("MEAN", (0.02, -128)), ("REDUCE_MAX", (0.03, -128))])
def test_int8_files_keep_the_integers_of_their_interpreter(
    kind: str, scale: tuple[float, int], tmp_path: Path
) -> None:
    path = reduced(kind, scale, tmp_path)
    samples = np.random.default_rng(1).integers(-128, 128, (20, 216)).astype(np.int8)
    wanted, said = integers(path, samples, reference=True)
    assert len(np.unique(wanted)) > 10, "the logits say something"
    np.testing.assert_array_equal(logits(int8_graph(path), samples, said), wanted)


@pytest.mark.parametrize("scale", [(0.03, -128), (0.02, -128)])
@pytest.mark.parametrize("axis", [1, 2])
def test_a_mean_over_one_side_is_rounded_as_one_over_both(
    axis: int, scale: tuple[float, int], tmp_path: Path
) -> None:
    """As converters write it that take the mean of rows, and then that of columns."""
    net = Int8.input((9, 8, 3)).conv(6, (3, 3), 2, (5, 4), (0.03, -128))
    for side, made in ((axis, (3 + axis, 6)), (1, (6,))):
        y = net.w.tensor("made", (1, *made), scale=(scale[0],), zero=(scale[1],))
        axes = net.w.tensor("axes", (1,), "int32", np.array([side]))
        net.w.op("MEAN", (net.x, axes), (y,), "ReducerOptions", KeepDims=False)
        net.x, net.shape, net.scale, net.zero = y, made, *scale
    path = tmp_path / "model.tflite"
    path.write_bytes(net.linear(4, (0.05, 0)).file())
    samples = np.random.default_rng(1).integers(-128, 128, (50, 216)).astype(np.int8)
    wanted, said = integers(path, samples, reference=True)
    assert len(np.unique(wanted)) > 10, "the logits say something"
    np.testing.assert_array_equal(logits(int8_graph(path), samples, said), wanted)


@pytest.mark.parametrize("scale", [0.11, 0.35, 0.6])
def test_a_sum_of_int8_rounds_once(scale: float, tmp_path: Path) -> None:
    """A sum was the mean, rounded, times the pixels: a sixth of the logits differed. Now a tie may, rarely.

    TFLite's reference kernel makes numbers of it that are no sums.
    """
    path = reduced("SUM", (scale, -128), tmp_path)
    samples = np.random.default_rng(1).integers(-128, 128, (50, 216)).astype(np.int8)
    wanted, said = integers(path, samples)
    assert len(np.unique(wanted)) > 10, "the logits say something"
    assert np.mean(logits(int8_graph(path), samples, said) != wanted) < 0.03


def test_over_other_axes_is_one_sentence(tmp_path: Path) -> None:
    net = Float(7, 6, 2).conv(4, 3, 3).over("SUM", 1, 3)
    with pytest.raises(ConvertError, match=r"layer sum1: SUM of \[1, 5, 4, 4\] over \[1, 3\] is not supp"):
        load_model(net.view(1, 4).linear(3).file(tmp_path))
