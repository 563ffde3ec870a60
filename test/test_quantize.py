"""Calibration and quantization: rules of scales and zero points, the int8 network beside the float one."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch_networks import NETWORKS, images_for, randomise, write

from microtrain.convert.execute import batched
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph, Input, Layer, Node, Source, Tensor
from microtrain.convert.ops import channels, grouped
from microtrain.convert.quantize import calibrate
from microtrain.convert.quantize.calibrate import check_images, load_calibration
from microtrain.convert.quantize.int8 import quantize, quantize_input, quantize_layer, scale_and_zero
from microtrain.convert.quantize.ranges import measure_ranges
from microtrain.convert.reference import kernels as reference
from microtrain.convert.verify import verify
from microtrain.samples.images import load_image

torch.set_num_threads(1)


def float_graph(name: str, tmp_path: Path, seed: int = 7) -> Graph:
    net = randomise(NETWORKS[name](), seed)
    return load_model(write(net, tmp_path / "model.pt", "scripted"), input_shape=net.shape).graph  # type: ignore[arg-type]


def images_of(graph: Graph, count: int, seed: int) -> np.ndarray:
    h, w, c = graph.tensors[graph.input.tensor].shape
    return images_for(type("Shape", (), {"shape": (c, h, w)})(), count, seed)


def store_image(graph: Graph, image: np.ndarray) -> np.ndarray:
    """uint8 [h, w, c] to the stored int8 input."""
    gain, offset = (np.array(v, np.float32) for v in (graph.input.gain, graph.input.offset))
    result: np.ndarray = np.clip(np.rint(image.astype(np.float32) * gain + offset), -128, 127).astype(np.int8)
    return result


def run_node(graph: Graph, node: Node, env: dict[str, np.ndarray]) -> np.ndarray:
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    if node.op == "add":
        b = graph.tensors[node.inputs[1]]
        sums = reference.Add(x.zero, b.zero, y.zero, x.scale, b.scale, y.scale)
        return reference.add_fwd(sums, env[x.name], env[b.name])[0]
    if node.op == "head":
        head = graph.layers[node.layer or ""]
        return reference.head_fwd(env[x.name], x.zero, x.scale, head.weight, head.bias)
    if node.op == "take":
        return reference.gather(env[x.name], np.array(node.channels))
    if node.op == "concat":
        maps = zip(channels.parts(graph, node), node.inputs, strict=True)
        return np.concatenate([channels.concat_fwd(p, env[name])[0] for p, name in maps], axis=-1)
    assert node.window is not None
    if node.op == "avgpool":
        return reference.avgpool_fwd(reference.Pool(x.shape, y.shape, node.window, x.zero), env[x.name])
    if node.op == "maxpool":
        return reference.maxpool_fwd(reference.Pool(x.shape, y.shape, node.window, x.zero), env[x.name])[0]
    layer = graph.layers[node.layer or ""]
    m = (x.scale * np.asarray(layer.weight_scale) / y.scale).astype(np.float32)
    conv = reference.Conv(x.shape, y.shape, node.window, x.zero, y.zero, m)
    if node.op == "gconv2d":
        groups = grouped.groups_of(graph, node).groups
        return grouped.gconv2d_fwd(conv, groups, env[x.name], layer.weight, layer.bias)[0]
    kernel = reference.conv2d_fwd if node.op == "conv2d" else reference.dwconv2d_fwd
    return kernel(conv, env[x.name], layer.weight, layer.bias)[0]


def run_int8(graph: Graph, image: np.ndarray) -> dict[str, np.ndarray]:
    """Real values of every tensor of the quantized graph, by the kernels' NumPy twins."""
    env = {graph.input.tensor: store_image(graph, image)}
    for node in graph.nodes:
        env[node.outputs[0]] = run_node(graph, node, env)
    return {
        n: graph.tensors[n].scale * (v.astype(np.float64) - graph.tensors[n].zero) for n, v in env.items()
    }


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def likeness(quantized: Graph, graph: Graph, images: np.ndarray) -> tuple[float, float]:
    """Cosine to the float network of the worst tensor, and of the logits less what all images share."""
    wanted: dict[str, np.ndarray] = {}
    run_float(graph, images, lambda name, values: wanted.update({name: values.copy()}))
    runs = [run_int8(quantized, image) for image in images]
    found = {name: np.stack([run[name] for run in runs]).reshape(wanted[name].shape) for name in wanted}
    worst = min(cosine(found[name], wanted[name]) for name in wanted)
    logits, expected = found[graph.output], wanted[graph.output]
    return worst, cosine(logits - logits.mean(axis=0), expected - expected.mean(axis=0))


@pytest.mark.parametrize("name", NETWORKS)
def test_int8_network_follows_the_float_one(name: str, tmp_path: Path) -> None:
    """Every tensor, on images that it was not calibrated on."""
    graph = float_graph(name, tmp_path)
    quantized = verify(quantize(graph, measure_ranges(graph, images_of(graph, 24, seed=1))))
    worst, differences = likeness(quantized, graph, images_of(graph, 8, seed=2))
    assert worst > 0.995 and differences > 0.95


@pytest.mark.parametrize("name", NETWORKS)
def test_planted_faults_are_seen_by_that_comparison(name: str, tmp_path: Path) -> None:
    graph = float_graph(name, tmp_path)
    quantized = quantize(graph, measure_ranges(graph, images_of(graph, 24, seed=1)))
    images = images_of(graph, 4, seed=2)
    for key, layer in quantized.layers.items():
        if layer.weight_scale is None:
            continue
        for fault in (
            replace(layer, weight=-layer.weight),
            replace(layer, bias=-8 * layer.bias),
            replace(layer, weight_scale=layer.weight_scale[::-1] * np.linspace(0.3, 3.0, len(layer.bias))),
        ):
            wrong = quantized.replace(layers={**quantized.layers, key: fault})
            same = np.array_equal(fault.bias, layer.bias) and np.array_equal(fault.weight, layer.weight)
            if not same or fault.weight_scale is not layer.weight_scale:
                assert likeness(wrong, graph, images)[0] < 0.99, key


@pytest.mark.parametrize("name", NETWORKS)
def test_rules_of_scales_and_zero_points(name: str, tmp_path: Path) -> None:
    graph = float_graph(name, tmp_path)
    ranges = measure_ranges(graph, images_of(graph, 8, seed=1))
    quantized = quantize(graph, ranges)
    for node in quantized.nodes:
        y = quantized.tensors[node.outputs[0]]
        if node.op == "head":
            assert y.dtype == "f32" and quantized.layers[node.layer or ""].weight.dtype == np.float32
            continue
        assert y.dtype == "s8" and type(y.scale) is float and type(y.zero) is int
        assert y.scale == float(np.float32(y.scale)) > 0 and -128 <= y.zero <= 127
        if node.op in ("avgpool", "maxpool", "take"):
            x = quantized.tensors[node.inputs[0]]
            assert (y.scale, y.zero) == (x.scale, x.zero)
            continue
        low, high = (min(ranges[y.name][0], 0.0), max(ranges[y.name][1], 0.0))
        assert y.scale * (-128 - y.zero) == pytest.approx(low, abs=0.51 * y.scale)
        assert y.scale * (127 - y.zero) == pytest.approx(high, abs=0.51 * y.scale)
        if node.act != "none":
            assert y.zero == -128
        if node.act == "relu6":
            assert y.scale * 255 <= 6.0001


def test_rules_of_weights_and_biases(tmp_path: Path) -> None:
    graph = float_graph("mobilenet", tmp_path)
    quantized = quantize(graph, measure_ranges(graph, images_of(graph, 8, seed=1)))
    for node in quantized.nodes[:-1]:
        if not node.layer:
            continue
        real, layer = graph.layers[node.layer], quantized.layers[node.layer]
        x = quantized.tensors[node.inputs[0]]
        assert layer.weight.dtype == np.int8 and layer.bias.dtype == np.int32
        assert layer.weight_scale is not None and layer.weight_scale.dtype == np.float64
        assert layer.dead is not None and not layer.dead.any()
        flat = np.abs(layer.weight.reshape(len(layer.weight), -1).astype(int))
        assert (flat.max(axis=1) == 127).all()
        shape = (-1,) + (1,) * (layer.weight.ndim - 1)
        step = layer.weight_scale.reshape(shape)
        assert (np.abs(layer.weight * step - real.weight) <= 0.5001 * step).all()
        assert np.array_equal(layer.bias, np.rint(real.bias / (x.scale * layer.weight_scale)))
        assert layer.source == real.source and layer.weight.shape == real.weight.shape


def test_quantization_is_deterministic_and_leaves_its_input_alone(tmp_path: Path) -> None:
    graph = float_graph("pooled", tmp_path)
    ranges = measure_ranges(graph, images_of(graph, 4, seed=1))
    before = {n: layer.weight.copy() for n, layer in graph.layers.items()}
    one, two = quantize(graph, ranges), quantize(graph, ranges)
    assert dict(one.tensors) == dict(two.tensors) and one.input == two.input
    for name in graph.layers:
        assert np.array_equal(one.layers[name].weight, two.layers[name].weight)
        assert np.array_equal(graph.layers[name].weight, before[name])


@pytest.mark.parametrize(
    ("mean", "std", "zero"),
    [
        ((0.0,), (1.0,), -128),
        ((0.5,), (0.5,), 0),
        ((1.0,), (0.1,), 127),
        ((0.1307,), (0.3081,), -95),
        ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25), 0),
        ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), None),
        ((0.2, 0.5, 0.8), (0.25, 0.25, 0.25), None),
        ((-0.5,), (0.5,), None),
        ((1.7,), (0.5,), None),
    ],
)
def test_stored_pixels_stand_for_normalised_ones(
    mean: tuple[float, ...], std: tuple[float, ...], zero: int | None
) -> None:
    """Every pixel value of every channel, to half a step; one normalisation for all keeps all 256 values."""
    channels = len(mean)
    gain = tuple(1 / (255 * s) for s in std)
    offset = tuple(-m / s for m, s in zip(mean, std, strict=True))
    tensor = Tensor("input", (256, 1, channels))
    graph = Graph("net", Input("input", gain, offset), "input", {"input": tensor}, (), {})
    entry, stored = quantize_input(graph)
    pixels = np.arange(256, dtype=np.uint8)[:, None, None].repeat(channels, axis=2)
    q = store_image(graph.replace(input=entry), pixels)
    real = stored.scale * (q.astype(np.float64) - stored.zero)
    assert np.abs(real - (pixels / 255 - np.array(mean)) / np.array(std)).max() <= 0.5001 * stored.scale
    assert -128 <= stored.zero <= 127 and stored.scale == float(np.float32(stored.scale))
    assert all(v == float(np.float32(v)) for v in (*entry.gain, *entry.offset))
    if zero is not None:
        assert stored.zero == zero and set(entry.gain) == {1.0} and set(entry.offset) == {-128.0}
        assert len(np.unique(q)) == 256


@pytest.mark.parametrize(
    ("low", "high", "scale", "zero"),
    [
        (0.0, 2.55, 0.01, -128),
        (1.0, 2.55, 0.01, -128),  # real zero is always a value
        (-2.55, 0.0, 0.01, 127),
        (-2.55, -1.0, 0.01, 127),
        (-1.28, 1.27, 0.01, 0),
        (0.0, 0.0, 1 / 255, -128),
        (-1e-9, 1e-9, 1 / 255, -128),
    ],
)
def test_scale_and_zero_of_a_range(low: float, high: float, scale: float, zero: int) -> None:
    found = scale_and_zero(low, high)
    assert found[0] == pytest.approx(scale, rel=1e-6) and found[1] == zero


X = Tensor("x", (1, 1, 4), "s8", float(np.float32(0.02)), -20)
Y = Tensor("y", (1, 1, 2), "s8", float(np.float32(0.05)), 5)


def quantized_layer(weight: list[list[float]], bias: list[float], x: Tensor = X, y: Tensor = Y) -> Layer:
    values = np.array(weight, np.float32)[:, None, None, :]
    return quantize_layer("conv", Layer(values, np.array(bias, np.float32), Source("conv.weight")), x, y)


def channel_output(layer: Layer, stored: np.ndarray, x: Tensor = X, y: Tensor = Y) -> np.ndarray:
    """int8 outputs of a 1x1 convolution for stored inputs [n, c], exact."""
    sums = (stored.astype(np.int64) - x.zero) @ layer.weight[:, 0, 0].astype(np.int64).T + layer.bias
    assert np.abs(sums).max() < 2**31
    m = (x.scale * np.asarray(layer.weight_scale) / y.scale).astype(np.float32)
    result: np.ndarray = np.clip(np.rint(sums.astype(np.float32) * m) + y.zero, -128, 127)
    return result


def test_dead_channels_become_the_same_constant() -> None:
    layer = quantized_layer(
        [[1e-9, -1e-9, 0, 0], [0, 0, 0, 0], [0.5, 0, 0, 0.1], [1e-30, 0, 0, 0]], [1.5, -2.0, 0, 1e6]
    )
    assert layer.dead is not None and layer.dead.tolist() == [True, True, False, True]
    assert not layer.weight[[0, 1, 3]].any() and layer.weight[2].any()
    scale = np.asarray(layer.weight_scale)
    assert np.isfinite(scale).all() and (scale > 1e-6).all()
    inputs = np.random.default_rng(0).integers(-128, 128, (50, 4))
    outputs = channel_output(layer, inputs)
    assert (outputs[:, [0, 1, 3]] == [35, -35, 127]).all()  # rint(b / s_y) + zero


def test_weights_that_round_to_zero_beside_their_bias_are_a_dead_channel() -> None:
    """A scale that the bias has made so large says nothing of what the weights could learn."""
    layer = quantized_layer([[1e-3, -2e-3, 0, 1e-3], [0.5, 0, 0, 0.1]], [1e7, 0.0])
    assert layer.dead is not None and layer.dead.tolist() == [True, False]
    outputs = channel_output(layer, np.random.default_rng(0).integers(-128, 128, (50, 4)))
    assert (outputs[:, 0] == 127).all()


def test_a_files_own_channel_whose_sums_leave_int32_is_a_constant() -> None:
    """In units of its tiny scale the bias is above 2^31. Cut to what fits it would be another constant."""
    scale, taps = 1e-7, 1000
    y = replace(Y, zero=0)
    real = np.float32(3e9 * X.scale * scale)
    given = Layer(
        np.full((1, 1, 1, taps), 127 * scale, np.float32),
        np.array([real]),
        Source("conv.weight"),
        np.array([scale]),
    )
    layer = quantize_layer("conv", given, X, y)
    assert layer.dead is not None and layer.dead.all() and not layer.weight.any()
    assert (channel_output(layer, np.full((2, taps), [[-128], [127]]), X, y) == np.rint(real / y.scale)).all()


def test_dead_channels_are_counted_in_one_warning(tmp_path: Path) -> None:
    graph = float_graph("mobilenet", tmp_path)
    layers = dict(graph.layers)
    for name, count in (("blocks.0.project", 2), ("blocks.1.depthwise", 3)):
        weight = layers[name].weight.copy()
        weight[:count] = 1e-8
        layers[name] = replace(layers[name], weight=weight)
    graph = graph.replace(layers=layers)
    ranges = measure_ranges(graph, images_of(graph, 4, seed=1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quantize(graph, ranges)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "5 channels" in text and "blocks.0.project: 2" in text and "blocks.1.depthwise: 3" in text


def test_no_sum_can_leave_int32_whatever_the_bias() -> None:
    """Random extremes: the bound holds for the worst input, and the output stays what the real values say."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        weight = rng.normal(0, 10.0 ** rng.uniform(-4, 3), (3, 4))
        bias = rng.choice([-1.0, 1.0], 3) * 10.0 ** rng.uniform(-3, 9, 3)
        zero = int(rng.integers(-128, 128))
        x, y = replace(X, zero=zero), replace(Y, scale=float(np.float32(10.0 ** rng.uniform(-3, 2))))
        layer = quantized_layer(weight.tolist(), bias.tolist(), x, y)
        worst = np.concatenate(
            [np.where(layer.weight[:, 0, 0] > 0, 127, -128), np.where(layer.weight[:, 0, 0] > 0, -128, 127)]
        )
        outputs = channel_output(layer, worst, x, y)
        trained = np.abs(layer.bias.astype(np.int64)) + 4 * 255 * 128
        assert (trained < 2**31).all()  # also for any weights that training may reach
        real = (x.scale * (worst - zero)) @ weight.T + bias
        error = np.abs(outputs - np.clip(np.rint(real / y.scale) + y.zero, -128, 127))
        room = 1 + 4 * 255 * x.scale * 0.51 * np.asarray(layer.weight_scale) / y.scale
        assert (error <= room + 1e-6 * np.abs(real) / y.scale)[:, ~np.asarray(layer.dead)].all()


def test_a_huge_bias_costs_weight_resolution_not_correctness() -> None:
    small = quantized_layer([[0.01, 0.02, 0, 0]], [3.0])
    huge = quantized_layer([[0.01, 0.02, 0, 0]], [1e5])
    assert np.abs(small.weight).max() == 127 and 0 < np.abs(huge.weight).max() < 127
    assert abs(int(huge.bias[0])) <= 2**30


def test_layers_that_cannot_be_quantized_are_named() -> None:
    wide = Layer(np.ones((1, 1, 1, 66_000), np.float32), np.zeros(1, np.float32), Source("w"))
    with pytest.raises(ConvertError, match="layer fc sums 66000 products"):
        quantize_layer("fc", wide, X, Y)
    with pytest.raises(ConvertError, match="layer conv: the requantization multiplier of channel 1"):
        quantized_layer([[1e30, 0, 0, 0], [1e-5 * 127, 0, 0, 0]], [0, 0], X, replace(Y, scale=1e35))


def test_missing_and_nan_ranges_are_named(tmp_path: Path) -> None:
    graph = float_graph("mobilenet", tmp_path)
    ranges = measure_ranges(graph, images_of(graph, 2, seed=1))
    with pytest.raises(ConvertError, match=r"tensor stem\.0 .* has no finite range"):
        quantize(graph, {n: r for n, r in ranges.items() if n != "stem.0"})
    with pytest.raises(ConvertError, match=r"tensor stem\.0 .* has no finite range"):
        quantize(graph, {**ranges, "stem.0": (0.0, float("nan"))})
    layers = {**graph.layers, "stem.0": replace(graph.layers["stem.0"], bias=np.full(7, np.nan, np.float32))}
    with pytest.raises(ConvertError, match=r"tensor stem\.0 becomes NaN or infinite"):
        measure_ranges(graph.replace(layers=layers), images_of(graph, 2, seed=1))


def test_ranges_do_not_depend_on_the_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = float_graph("pooled", tmp_path)
    images = images_of(graph, 7, seed=3)
    whole = measure_ranges(graph, images)
    assert set(whole) == set(graph.tensors)
    monkeypatch.setattr(batched, "BATCH_BYTES", 1)
    assert batched.batch_size(graph) == 1
    single = measure_ranges(graph, images)
    for name, (low, high) in whole.items():
        assert single[name] == pytest.approx((low, high), rel=1e-5, abs=1e-6)
    assert whole["input"] == pytest.approx((images.min() / 255, images.max() / 255))


def save_image(path: Path, size: tuple[int, int], mode: str = "RGB", value: int = 90) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, (value,) * len(mode) if len(mode) > 1 else value).save(path)


def test_images_of_a_folder(tmp_path: Path) -> None:
    save_image(tmp_path / "b" / "deep" / "2.PNG", (6, 4), "L", 20)
    save_image(tmp_path / "a" / "1.bmp", (6, 4), value=10)
    (tmp_path / "a" / "labels.txt").write_text("1")
    with pytest.warns(UserWarning, match=r"of 2 samples of .*: 1 converted to RGB, as tools/device does"):
        images = load_calibration(tmp_path, (4, 6, 3))
    assert images.shape == (2, 4, 6, 3) and images.dtype == np.uint8
    assert images[0].max() == 10 and images[1].min() == 20
    with pytest.warns(UserWarning, match=r": 1 converted to L,"):
        assert load_calibration(tmp_path, (4, 6, 1)).shape == (2, 4, 6, 1)


def test_images_of_another_size_are_what_the_device_is_shown_and_that_is_said(tmp_path: Path) -> None:
    pixels = np.random.default_rng(5).integers(0, 256, (10, 9, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    save_image(tmp_path / "b.png", (6, 4))
    (tmp_path / "nothing").mkdir()
    with pytest.warns(UserWarning) as caught:
        images = load_calibration(tmp_path, (4, 6, 3))
    assert np.array_equal(images[0], load_image(tmp_path / "a.png", (4, 6, 3)))
    assert [str(w.message).replace(str(tmp_path), "IMAGES") for w in caught] == [
        "IMAGES/nothing holds no samples",
        "of 2 samples of IMAGES: 1 cropped and resized to 4x6, as tools/device does",
    ]


def test_wrong_images_of_a_folder_are_sentences(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConvertError, match="empty holds 0 calibration samples"):
        load_calibration(tmp_path / "empty", (4, 6, 3))
    with pytest.raises(ConvertError, match="no such file or folder"):
        load_calibration(tmp_path / "nowhere", (4, 6, 3))
    save_image(tmp_path / "size" / "x.png", (6, 4))
    with pytest.raises(ConvertError, match="cannot have 2 channels"):
        load_calibration(tmp_path / "size", (4, 6, 2))
    (tmp_path / "torn").mkdir()
    save_image(tmp_path / "torn" / "whole.png", (64, 64))
    data = (tmp_path / "torn" / "whole.png").read_bytes()
    (tmp_path / "torn" / "part.png").write_bytes(data[: len(data) // 2])
    with pytest.raises(ConvertError, match=r"part\.png cannot be read as an image: remove or replace it$"):
        load_calibration(tmp_path / "torn", (64, 64, 3))


def test_many_images_are_thinned_out_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "MAX_IMAGES", 3)
    for i in range(7):
        save_image(tmp_path / f"{i}.png", (4, 4), "L", i)
    with pytest.warns(UserWarning, match="calibrating on 3 of 7 samples"):
        images = load_calibration(tmp_path, (4, 4, 1))
    assert images[:, 0, 0, 0].tolist() == [0, 2, 4]


def test_images_of_an_npz(tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    np.savez(path, images=np.zeros((5, 4, 6, 3), np.uint8))
    assert load_calibration(path, (4, 6, 3)).shape == (5, 4, 6, 3)
    with pytest.raises(ConvertError, match=r"are 4x6x3 .* input is 8x8x3"):
        load_calibration(path, (8, 8, 3))
    np.savez(path, images=np.zeros((0, 4, 6, 3), np.uint8))
    with pytest.raises(ConvertError, match="0 calibration samples"):
        load_calibration(path, (4, 6, 3))
    np.savez(path, images=np.zeros((5, 4, 6, 3)))
    with pytest.raises(ConvertError, match=r"are float64 .*must be uint8 \[N, 4, 6, 3\]"):
        load_calibration(path, (4, 6, 3))
    for data in (b"", b"hello", b"PK\x03\x04 cut"):
        path.write_bytes(data)
        with pytest.raises(ConvertError, match=r"is not an .npz"):
            load_calibration(path, (4, 6, 3))
    np.savez(path, pictures=np.zeros(3))
    with pytest.raises(ConvertError, match=r"is not an .npz with `images`"):
        load_calibration(path, (4, 6, 3))


def test_images_carried_in_the_file_are_checked_too(tmp_path: Path) -> None:
    graph = float_graph("pooled", tmp_path)
    with pytest.raises(ConvertError, match=r"model: calibration samples are 8x8x1 .* input is 24x16x1"):
        measure_ranges(graph, np.zeros((2, 8, 8, 1), np.uint8))
    with pytest.raises(ConvertError, match="0 calibration samples"):
        check_images(np.zeros((0, 24, 16, 1), np.uint8), (24, 16, 1), "model")
