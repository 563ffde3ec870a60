"""The TFLite front end: int8 files give the same integers; whatever is wrong with one is a sentence."""

from __future__ import annotations

import json
import os
import resource
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import damaged
import numpy as np
import pytest
from click.testing import CliRunner

from lab.attack.tflite_files import Int8, Writer, small_network
from lab.tasks.logits import int8_graph, interpreted, logits
from microtrain.convert.cli import main as convert
from microtrain.convert.execute.batched import run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError
from microtrain.convert.ops import forward_op
from microtrain.convert.ops.functions import CLIP
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.quantize.ptq import (
    FEW,
    Choices,
    calibration_images,
    eased,
    knows_ranges,
    quantize_model,
)
from microtrain.simulate.cli import main as simulate

DATA = Path(os.environ.get("MICROTRAIN_DATA", "")) / "mlperf_tiny"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the published models are not here (MICROTRAIN_DATA)"
)


def small(folder: Path) -> Path:
    """A network with everything that tells TFLite from PyTorch: padding on one side, a mean with a scale."""
    path = folder / "small.tflite"
    path.write_bytes(small_network())
    return path


def test_int8_file_gives_the_integers_of_tflite(tmp_path: Path) -> None:
    path = small(tmp_path)
    samples = np.random.default_rng(1).integers(-128, 128, (40, 9 * 10 * 3)).astype(np.int8)
    graph = int8_graph(path)
    expected, said = interpreted(path, samples, reference=True)
    assert len(np.unique(expected)) > 50, "the logits say something"
    assert np.abs(logits(graph, samples, said) - expected).max() == 0
    first = graph.nodes[0]
    assert first.window is not None and (first.window.pad_h, first.window.more_h) == (1, 0)
    assert (first.window.pad_w, first.window.more_w) == (0, 1), "the odd pixel is at the right"


def test_from_the_file_to_a_session_on_arrays(tmp_path: Path) -> None:
    """Nothing is calibrated, samples are .npy, and the session learns to tell them apart."""
    for label in range(2):
        (tmp_path / f"data/{label}").mkdir(parents=True)
        for n in range(20):
            sample = np.random.default_rng([label, n]).normal(60 * label - 30, 30, (9, 10, 3))
            np.save(tmp_path / f"data/{label}/{n}.npy", np.clip(sample, -128, 127).astype(np.int8))
    generated = tmp_path / "generated"
    words = [str(small(tmp_path)), "--classes", "2", "-o", str(generated), "--board", "native"]
    done = CliRunner().invoke(convert, words)
    assert done.exit_code == 0, done.output
    assert "int8 as in the file, 0.05 * (q - 3)" in done.output
    session = ["--data", str(tmp_path / "data"), "--epochs", "2", "-o", str(tmp_path / "out"), "--jobs", "1"]
    done = CliRunner().invoke(simulate, [str(generated), *session])
    assert done.exit_code == 0, done.output
    accuracy = json.loads((tmp_path / "out/results.json").read_text())["runs"][0]["accuracy"]
    assert accuracy["after"] > 0.9 > accuracy["before"], accuracy


def test_relu_that_does_not_saturate_at_zero_is_a_table(tmp_path: Path) -> None:
    net = Int8.input((6, 6, 2)).conv(5, (3, 3), 1, (6, 6), (0.03, -90), act=1)
    net.zero = -90
    path = tmp_path / "odd.tflite"
    path.write_bytes(net.linear(3, (0.05, 0)).file())
    graph = int8_graph(path)
    samples = np.random.default_rng(2).integers(-128, 128, (20, 72)).astype(np.int8)
    expected, said = interpreted(path, samples, reference=True)
    assert [n.op for n in graph.nodes] == ["conv2d", CLIP, "head"]
    assert np.abs(logits(graph, samples, said) - expected).max() == 0


def test_a_quotient_has_no_scale_in_the_file(tmp_path: Path) -> None:
    """It is two ops here, so samples say the range of the first; that none were taken was a refusal."""
    net = Int8.input((6, 6, 2)).conv(5, (3, 3), 1, (6, 6), (0.03, -128))
    x = net.x
    net.conv(5, (3, 3), 1, (6, 6), (0.03, -128))
    one = net.w.tensor("one", (1,), data=np.array([127]), scale=(1 / 127,), zero=(0,))
    more, made = (
        net.w.tensor(name, (1, 6, 6, 5), scale=(0.04,), zero=(-128,)) for name in ("more", "quotient")
    )
    net.w.op("ADD", (net.x, one), (more,), "AddOptions")
    net.w.op("DIV", (x, more), (made,), "DivOptions")
    net.x, net.zero, net.scale = made, -128, 0.04
    path = tmp_path / "quotient.tflite"
    path.write_bytes(net.linear(3, (0.05, 0)).file())
    loaded = load_model(path).graph
    assert not knows_ranges(loaded)
    with pytest.raises(
        ConvertError, match=r"is quantized, but says no scale of [\w.]+, and carries no calib.* DIR"
    ):
        calibration_images(loaded, None, None)
    images = np.random.default_rng(1).integers(0, 256, (40, 6, 6, 2)).astype(np.uint8)
    graph = quantize_model(loaded, images, Choices())
    assert all(graph.tensors[n.outputs[0]].scale for n in graph.nodes[:-1])


def test_series_of_keras_streams_in_time(tmp_path: Path) -> None:
    """A Conv1D is a Conv2D over one row there; here its steps in time are rows."""
    net = Int8.input((24, 3))
    net.w.tensor("row", (1, 1, 24, 3), scale=(0.05,), zero=(3,))
    net.w.op("EXPAND_DIMS", (0, net.w.tensor("axis", (1,), "int32", np.array([1]))), (1,))
    net.x, net.shape = 1, (1, 24, 3)
    net.conv(4, (1, 5), 2, (1, 12), (0.03, -128)).linear(3, (0.05, 0))
    path = tmp_path / "series.tflite"
    path.write_bytes(net.file())
    graph = int8_graph(path)
    assert graph.tensors[graph.input.tensor].shape == (24, 1, 3)
    samples = np.random.default_rng(3).integers(-128, 128, (20, 72)).astype(np.int8)
    expected, said = interpreted(path, samples, reference=True)
    assert np.abs(logits(graph, samples, said) - expected).max() == 0


def test_groups_multipliers_and_taps_apart(tmp_path: Path) -> None:
    """A depthwise convolution of two outputs a channel, one with taps apart, and one in groups."""
    net = Int8.input((11, 12, 4))
    plain: dict[str, Any] = {"Padding": 1, "StrideH": 1, "StrideW": 1, "FusedActivationFunction": 1}
    apart: dict[str, Any] = {"DilationHFactor": 2, "DilationWFactor": 3}
    near: dict[str, Any] = {"DilationHFactor": 1, "DilationWFactor": 1}
    name, options = "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions"
    net.layer(name, (1, 3, 3, 8), (9, 10, 8), (0.04, -128), 3, options, DepthMultiplier=2, **plain, **near)
    net.layer("CONV_2D", (6, 3, 3, 8), (5, 4, 6), (0.03, -128), 0, "Conv2DOptions", **plain, **apart)
    net.layer("CONV_2D", (9, 3, 3, 2), (3, 2, 9), (0.03, -128), 0, "Conv2DOptions", **plain, **near)
    path = tmp_path / "groups.tflite"
    path.write_bytes(net.linear(3, (0.05, 0)).file())
    graph = int8_graph(path)
    assert [n.op for n in graph.nodes] == ["gconv2d", "gconv2d", "gconv2d", "head"]
    samples = np.random.default_rng(3).integers(-128, 128, (20, 11 * 12 * 4)).astype(np.int8)
    expected, said = interpreted(path, samples, reference=True)
    assert np.abs(logits(graph, samples, said) - expected).max() == 0


def float_file(folder: Path) -> tuple[Path, list[np.ndarray]]:
    """A float network of two linear layers behind a normalisation."""
    rng, w = np.random.default_rng(5), Writer()
    values = [rng.normal(0, 0.4, s).astype(np.float32) for s in ((6, 5), (6,), (3, 6), (3,))]
    x = w.tensor("x", (1, 5), "float32")
    hidden, out = w.tensor("hidden", (1, 6), "float32"), w.tensor("out", (1, 3), "float32")
    first = [w.tensor("c", v.shape, "float32", v) for v in values]
    table = "FullyConnectedOptions"
    w.op("FULLY_CONNECTED", (x, *first[:2]), (hidden,), table, FusedActivationFunction=1)
    w.op("FULLY_CONNECTED", (hidden, *first[2:]), (out,), table, FusedActivationFunction=0)
    path = folder / "float.tflite"
    path.write_bytes(w.file((x,), (out,)))
    return path, values


def test_float_features_and_dense_layers(tmp_path: Path) -> None:
    from microtrain.convert.execute.batched import run_float

    path, (w1, b1, w2, b2) = float_file(tmp_path)
    graph = load_model(path).graph
    assert graph.tensors[graph.input.tensor].shape == (1, 1, 5)
    pixels = np.random.default_rng(6).integers(0, 256, (4, 1, 1, 5)).astype(np.uint8)
    real = pixels.reshape(4, 5) / 255.0
    expected = np.maximum(real @ w1.T + b1, 0) @ w2.T + b2
    np.testing.assert_allclose(run_float(graph, pixels).reshape(4, 3), expected, atol=1e-5)


@needs_data
@pytest.mark.parametrize("name", ["ad01", "kws_dscnn", "resnet8", "vww96", "streaming_wakeword"])
def test_published_layers_are_those_of_tflite(name: str) -> None:
    """Every layer, given the input of TFLite's reference kernel, makes its integers."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    path = DATA / f"{name}_int8.tflite"
    graph = int8_graph(path)
    kind = interpreter.OpResolverType.BUILTIN_REF
    run = interpreter.Interpreter(
        str(path), experimental_op_resolver_type=kind, experimental_preserve_all_tensors=True
    )
    run.allocate_tensors()
    steps = [s for s in run._get_ops_details() if s["op_name"] != "DELEGATE"]
    entry = run.get_input_details()[0]
    sample = np.random.default_rng(0).integers(-128, 128, entry["shape"]).astype(np.int8)
    run.set_tensor(entry["index"], sample)
    run.invoke()
    env = {graph.input.tensor: sample.reshape(1, *graph.tensors[graph.input.tensor].shape)}
    for node in graph.nodes[:-1]:
        made = forward_op(node).int8_run(graph, node, env)
        place = int("".join(c for c in node.name if c.isdigit()))
        expected = run.get_tensor(int(steps[place]["outputs"][0])).reshape(made.shape)
        np.testing.assert_array_equal(made, expected, node.name)
        env[node.outputs[0]] = expected


@needs_data
def test_keywords_are_named_as_tflite_names_them() -> None:
    path = DATA / "kws_dscnn_int8.tflite"
    with tarfile.open(DATA / "kws01.tar") as tar:
        members = [m for m in tar if m.isfile()][:60]
        files = [tar.extractfile(m) for m in members]
        samples = np.array([np.frombuffer(f.read(), np.int8) for f in files if f])
    expected, said = interpreted(path, samples, reference=True)
    made = logits(int8_graph(path), samples, said)
    assert np.abs(made - expected).max() == 0
    assert (np.argmax(made, axis=1) == np.argmax(expected, axis=1)).all()


def refusal(path: Path) -> str:
    with pytest.raises(ConvertError) as caught:
        load_model(path)
    text = str(caught.value)
    assert "\n" not in text.strip() and len(text) < 400, text
    return text


def test_bad_files_are_sentences(tmp_path: Path) -> None:
    path = small(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    refusal(path)
    path.write_bytes(b"nothing of TFLite")
    assert "TFL3" in refusal(path)
    w = Writer()
    x, y = w.tensor("x", (1, 4), "float32"), w.tensor("y", (1, 4), "float32")
    w.op("CUMSUM", (x,), (y,))
    path.write_bytes(w.file((x,), (y,)))
    text = refusal(path)
    assert "cumsum" in text and "supported" in text


def test_weights_without_their_zeros_are_a_sentence(tmp_path: Path) -> None:
    """As Optimize.EXPERIMENTAL_SPARSITY writes them, behind DENSIFY."""
    net = Int8.input((6, 6, 2))
    net.w.sparse = True
    path = tmp_path / "sparse.tflite"
    path.write_bytes(net.conv(5, (3, 3), 2, (3, 3), (0.03, -128)).linear(3, (0.05, 0)).file())
    with pytest.raises(ConvertError, match=r"keeps .* without its zeros, which is not supported"):
        load_model(path)


def test_huge_declared_tensors_take_no_memory(tmp_path: Path) -> None:
    w = Writer()
    x = w.tensor("x", (1, 4), "float32")
    big = w.tensor("big", (1 << 15, 1 << 15, 64), "float32")
    w.op("RELU", (x,), (big,))
    path = tmp_path / "big.tflite"
    path.write_bytes(w.file((x,), (big,)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "more than fits" in refusal(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_constants_behind_the_flatbuffer(tmp_path: Path) -> None:
    """As ai-edge-quantizer writes them, with operators whose kind only the newer field of their code says."""
    plain, apart = small(tmp_path), tmp_path / "apart.tflite"
    apart.write_bytes(small_network(apart=True))
    samples = np.random.default_rng(1).integers(-128, 128, (20, 9 * 10 * 3)).astype(np.int8)
    expected, said = interpreted(apart, samples, reference=True)
    found = logits(int8_graph(apart), samples, said)
    assert (
        np.array_equal(expected, interpreted(plain, samples, reference=True)[0])
        and np.abs(found - expected).max() == 0
    )
    apart.write_bytes(apart.read_bytes()[:-8])
    with pytest.raises(ConvertError, match=r"b lies at byte [\d,]+ of [\d,]+; the file is cut short"):
        load_model(apart)


def test_damaged_bytes_never_escape_as_another_exception(tmp_path: Path) -> None:
    def read(path: Path) -> object:
        return quantize(load_model(path).graph, {})

    files = [small(tmp_path).read_bytes()]
    refused = damaged.refused(files, tmp_path / "damaged.tflite", read, trials=150, places=3, kept=8)
    assert 10 < refused < 150, "some are refused, some only change a weight"


def test_an_input_in_bytes_is_learned_in_units_of_a_few(tmp_path: Path) -> None:
    """ResNet-8 of MLPerf Tiny takes bytes as they are. The rate that suits its other layers threw the first
    one about: 65 % after one look at traffic signs, 6 % after 400 steps. The integers stay the file's."""
    graph = load_model(small(tmp_path)).graph
    entry = graph.tensors[graph.input.tensor]
    assert entry.given is not None
    factor = 64.0 / entry.given[0]
    first = graph.readers(entry.name)[0].layer or ""
    layer = graph.layers[first]
    assert layer.weight_scale is not None
    large = graph.replace(
        input=replace(
            graph.input,
            gain=tuple(v * factor for v in graph.input.gain),
            offset=tuple(v * factor for v in graph.input.offset),
        ),
        tensors={**graph.tensors, entry.name: replace(entry, given=(64.0, entry.given[1]))},
        layers={
            **graph.layers,
            first: replace(layer, weight=layer.weight / factor, weight_scale=layer.weight_scale / factor),
        },
    )
    plain, less = quantize(large, {}), quantize_model(large, np.empty(0), Choices())
    ends = 127 * less.tensors[entry.name].scale
    assert 127 * plain.tensors[entry.name].scale > 1000 and 0.5 < ends <= 4
    real = eased(large).input
    most = max(abs(o + g * p) for g, o in zip(real.gain, real.offset, strict=True) for p in (0.0, 255.0))
    assert FEW / 2 < most <= FEW
    for name, made in less.layers.items():
        np.testing.assert_array_equal(made.weight, plain.layers[name].weight)
    images = np.random.default_rng(0).integers(0, 256, (3, *entry.shape)).astype(np.uint8)
    np.testing.assert_array_equal(run_int8(less, images), run_int8(plain, images))
    assert eased(graph) is graph, "an input of a few is left as it is"
