"""Post-training quantization: ranges by rule, corrected biases, the report beside the float model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_quantize import float_graph, images_of, run_node, store_image
from torch_networks import NETWORKS

from microtrain.convert.execute.batched import run_float, run_int8, stored_pixels
from microtrain.convert.ir import Graph
from microtrain.convert.ops.conv_runs import sums
from microtrain.convert.quantize import ranges
from microtrain.convert.quantize.bias_correction import MOST_IMAGES, correct_biases, count_images
from microtrain.convert.quantize.fidelity import Report, compare
from microtrain.convert.quantize.fidelity_report import answers, draw
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.quantize.ranges import RULES, Profile, measure_ranges, profile_tensors


def pair(name: str, tmp_path: Path, rule: str = "minmax") -> tuple[Graph, Graph, np.ndarray]:
    """A float network, its int8 twin, and images for both that it was not calibrated on."""
    graph = float_graph(name, tmp_path)
    quantized = quantize(graph, measure_ranges(graph, images_of(graph, 24, seed=1), rule))
    return graph, quantized, images_of(graph, 6, seed=2)


def logits_of_twins(graph: Graph, image: np.ndarray) -> np.ndarray:
    """Logits of one image by the kernels' NumPy twins."""
    env = {graph.input.tensor: store_image(graph, image)}
    for node in graph.nodes:
        env[node.outputs[0]] = run_node(graph, node, env)
    return env[graph.output]


@pytest.mark.parametrize("name", NETWORKS)
def test_batches_are_bit_for_bit_the_kernels_twins(name: str, tmp_path: Path) -> None:
    _, quantized, images = pair(name, tmp_path)
    found: dict[str, np.ndarray] = {}
    logits = run_int8(quantized, images, found.__setitem__)
    for i, image in enumerate(images):
        env = {quantized.input.tensor: store_image(quantized, image)}
        assert np.array_equal(found[quantized.input.tensor][i], env[quantized.input.tensor])
        for node in quantized.nodes:
            tensor = node.outputs[0]
            env[tensor] = run_node(quantized, node, env)
            assert found[tensor][i].tobytes() == env[tensor].tobytes(), node.name
        assert logits[i].tobytes() == env[quantized.output].tobytes()


def test_sums_beyond_float32_are_exact_too(tmp_path: Path) -> None:
    """A bias of more than 24 bits: a float32 sum would lose its last ones."""
    quantized = pair("mobilenet", tmp_path)[1]
    node = next(n for n in quantized.nodes if n.name == "blocks.0.project")
    layer = quantized.layers[node.layer or ""]
    large = replace(layer, bias=layer.bias + np.int32(2**25 + 1))
    stored = np.random.default_rng(2).integers(
        -128, 128, (2, *quantized.tensors[node.inputs[0]].shape), np.int8
    )
    wide = quantized.replace(layers={**quantized.layers, node.layer or "": large})
    difference = sums(wide, node, stored) - sums(quantized, node, stored)
    assert (difference == 2**25 + 1).all()
    assert sums(quantized, node, stored).dtype == np.float32 and sums(wide, node, stored).dtype == np.float64


def test_that_comparison_sees_one_unit_of_one_bias(tmp_path: Path) -> None:
    _, quantized, images = pair("mobilenet", tmp_path)
    node = next(n for n in quantized.nodes if n.name == "blocks.0.project")
    layer = quantized.layers[node.layer or ""]
    m = quantized.tensors[node.inputs[0]].scale * np.asarray(layer.weight_scale)
    unit = int(np.ceil(quantized.tensors[node.outputs[0]].scale / m[0]))  # one int8 step of channel 0
    wrong = replace(layer, bias=layer.bias + np.eye(1, len(layer.bias), dtype=np.int32)[0] * unit)
    changed = quantized.replace(layers={**quantized.layers, node.layer or "": wrong})
    runs: list[dict[str, np.ndarray]] = [{}, {}]
    for graph, found in zip((quantized, changed), runs, strict=True):
        run_int8(graph, images, found.__setitem__)
    different = [name for name in runs[0] if not np.array_equal(runs[0][name], runs[1][name])]
    assert different[0] == node.outputs[0]


# ---- ranges


def profile_of(*parts: np.ndarray) -> Profile:
    profile = Profile()
    for part in parts:
        profile.add(part.astype(np.float32))
    return profile


def test_batches_and_their_order_do_not_change_a_histogram() -> None:
    values = np.random.default_rng(3).normal(0, 1, 5000) ** 3
    whole, parts = profile_of(values), profile_of(*np.split(values[::-1], 10))
    assert (whole.low, whole.high, whole.width) == (parts.low, parts.high, parts.width)
    assert np.array_equal(whole.counts, parts.counts) and whole.counts.sum() == 5000
    expected, _ = np.histogram(values.astype(np.float32), whole.edges)
    assert np.array_equal(whole.counts, expected)
    used = np.flatnonzero(whole.counts)
    assert max(abs(used - ranges.BINS // 2)) >= ranges.BINS // 4, "bins are as narrow as they can be"


def test_a_tensor_of_zeros_has_a_range() -> None:
    profile = profile_of(np.zeros(10))
    assert {RULES[rule](profile) for rule in RULES} == {(0.0, 0.0)}


@pytest.mark.parametrize("rule", ["percentile", "mse"])
def test_rare_outliers_are_left_out_and_others_kept(rule: str) -> None:
    values = np.random.default_rng(4).normal(0, 1, 200_000)
    with_outliers = np.append(values, [-20.0, 30.0])
    low, high = RULES[rule](profile_of(with_outliers))
    assert -20 < low <= values.min() * 0.5 and values.max() * 0.5 <= high < 30
    assert RULES["minmax"](profile_of(with_outliers)) == (-20.0, 30.0)


def squared_error(values: np.ndarray, ends: tuple[float, float]) -> float:
    """By the definition, without a histogram: 255 steps between the ends, zero one of them."""
    low, high = min(ends[0], 0.0), max(ends[1], 0.0)
    scale = (high - low) / 255.0
    first = np.rint(low / scale)
    return float(np.square(np.clip(np.rint(values / scale), first, first + 255) * scale - values).sum())


@pytest.mark.parametrize("shape", ["normal", "laplace", "relu"])
def test_mse_has_less_error_than_minmax_and_a_tighter_or_looser_range(shape: str) -> None:
    rng = np.random.default_rng(6)
    values = {
        "normal": rng.normal(0.5, 1, 50_000),
        "laplace": rng.laplace(0, 1, 50_000),
        "relu": np.maximum(rng.laplace(0, 1, 50_000), 0),
    }[shape]
    low, high = RULES["mse"](profile_of(values))
    best = squared_error(values, (low, high))
    assert best < squared_error(values, RULES["minmax"](profile_of(values)))
    for wider in (0.85, 1.15):
        assert best < squared_error(values, (low * wider, high * wider))


# ---- bias correction


def mean_shift(graph: Graph, quantized: Graph, images: np.ndarray) -> float:
    """How far the channels' means are from the float model's, all convolutions together, in int8 steps."""
    real: dict[str, np.ndarray] = {}
    stored: dict[str, np.ndarray] = {}
    run_float(graph, images, real.__setitem__)
    run_int8(quantized, images, stored.__setitem__)
    shifts = []
    for node in graph.nodes:
        if node.op in ("conv2d", "dwconv2d", "gconv2d") and node.act == "none":
            y = quantized.tensors[node.outputs[0]]
            difference = (stored[y.name].astype(np.float64) - y.zero) - real[y.name] / y.scale
            shifts.append(difference.mean(axis=(0, 1, 2)))
    return float(np.abs(np.concatenate(shifts)).mean())


@pytest.mark.parametrize("name", NETWORKS)
def test_correction_moves_the_means_to_the_float_models(name: str, tmp_path: Path) -> None:
    graph, quantized, images = pair(name, tmp_path)
    corrected = correct_biases(graph, quantized, images)
    before, after = (mean_shift(graph, q, images) for q in (quantized, corrected))
    assert after < 0.6 * before
    assert all(np.array_equal(quantized.layers[n].weight, corrected.layers[n].weight) for n in graph.layers)


def test_correction_undoes_any_shift_of_the_biases(tmp_path: Path) -> None:
    graph, quantized, images = pair("mobilenet", tmp_path)
    shifted = {
        name: layer if layer.weight_scale is None else replace(layer, bias=layer.bias + np.int32(1000))
        for name, layer in quantized.layers.items()
    }
    wanted = correct_biases(graph, quantized, images)
    found = correct_biases(graph, quantized.replace(layers=shifted), images)
    for name, layer in wanted.layers.items():
        assert np.abs(found.layers[name].bias - layer.bias).max() <= 1, (
            name
        )  # a half may be rounded either way


def test_constant_channels_keep_their_bias(tmp_path: Path) -> None:
    graph = float_graph("mobilenet", tmp_path)
    name = "blocks.1.depthwise"
    weight = graph.layers[name].weight.copy()
    weight[2] = 1e-9
    graph = graph.replace(layers={**graph.layers, name: replace(graph.layers[name], weight=weight)})
    images = images_of(graph, 8, seed=1)
    with pytest.warns(UserWarning, match="became constants"):
        quantized = quantize(graph, measure_ranges(graph, images))
    corrected = correct_biases(graph, quantized, images)
    assert corrected.layers[name].bias[2] == quantized.layers[name].bias[2]
    assert not np.array_equal(corrected.layers[name].bias, quantized.layers[name].bias)


def test_many_or_large_images_are_thinned_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = float_graph("mobilenet", tmp_path)
    assert count_images(graph, 10) == 10
    assert count_images(graph, 100_000) == MOST_IMAGES
    monkeypatch.setattr("microtrain.convert.quantize.bias_correction.MOST_BYTES", 5 * 3 * 20 * 24 * 7)
    assert count_images(graph, 100) < 7
    monkeypatch.setattr("microtrain.convert.quantize.bias_correction.MOST_BYTES", 1)
    assert count_images(graph, 100) == 1


# ---- the report


def report_of(graph: Graph, quantized: Graph, images: np.ndarray) -> Report:
    layers, accuracy = compare(graph, quantized, images)
    return Report(graph.name, "minmax", False, len(images), tuple(layers), accuracy)


def test_a_spoilt_layer_stands_out(tmp_path: Path) -> None:
    graph, quantized, images = pair("mobilenet", tmp_path)
    name = "blocks.1.project"
    layer = quantized.layers[name]
    coarse = replace(layer, weight=(layer.weight // 32 * 32).astype(np.int8))
    spoilt = report_of(graph, quantized.replace(layers={**quantized.layers, name: coarse}), images)
    good = {row.layer: row for row in report_of(graph, quantized, images).layers}
    for row in spoilt.layers:
        if row.layer == name:
            assert row.own_db < good[name].own_db - 10 and row.total_db < good[name].total_db - 10
            assert row.weights_db is not None and row.weights_db < 20
        else:
            assert row.own_db == good[row.layer].own_db, "what a layer loses alone hangs on no other"
    assert spoilt.layers[-1].total_db < good["head"].total_db


def test_clipping_is_the_share_outside_the_range(tmp_path: Path) -> None:
    graph = float_graph("mobilenet", tmp_path)
    images = images_of(graph, 8, seed=1)
    found = dict(measure_ranges(graph, images))
    name = "blocks.1.project"
    values: dict[str, np.ndarray] = {}
    run_float(graph, images, values.__setitem__)
    found[name] = (found[name][0] / 3, found[name][1] / 3)
    rows = {row.layer: row for row in compare(graph, quantize(graph, found), images)[0]}
    low, high = rows[name].int8_range or (0, 0)
    half = (high - low) / 510
    outside = ((values[name] < low - half) | (values[name] > high + half)).mean()
    assert outside > 0.01 and rows[name].clipped == pytest.approx(outside)
    assert rows["stem.0"].clipped == 0.0
    assert rows[name].float_range == (values[name].min(), values[name].max())


def test_the_report_is_deterministic_and_holds_every_layer(tmp_path: Path) -> None:
    graph, quantized, images = pair("mobilenet", tmp_path)
    report = report_of(graph, quantized, images)
    picture = draw(report)
    assert picture == draw(report_of(graph, quantized, images))
    document = json.loads(json.dumps(report.json()))
    assert [row["layer"] for row in document["layers"]] == [node.name for node in graph.nodes]
    assert all(f"<!-- {node.name} -->" in picture for node in graph.nodes)
    assert answers(report.accuracy) == f"the same answer on {report.accuracy.same:.1%} of 6 samples"


def test_profiles_hold_every_tensor(tmp_path: Path) -> None:
    graph = float_graph("mobilenet", tmp_path)
    images = images_of(graph, 5, seed=1)
    profiles = profile_tensors(graph, images)
    assert set(profiles) == set(graph.tensors)
    assert all(p.counts.sum() == 5 * graph.tensors[n].elements for n, p in profiles.items())
    assert stored_pixels(graph, images).dtype == np.int8
