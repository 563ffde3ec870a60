"""Channels that no input changes are left out: answers stay, and what is learned goes back to its place."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from drawn_networks import FloatBuilder, float_networks
from hypothesis import given, settings
from hypothesis import strategies as st
from test_model_copy import agree, interpreted
from test_onnx import export, reference
from torch import nn
from torch_networks import images_for, randomise, torch_logits, write

from lab.attack.tflite_files import Int8
from microtrain.base.plan import Origin, read_plan
from microtrain.convert.cli import main
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import document
from microtrain.convert.execute.batched import run_int8
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import ConvertError, Graph, Window
from microtrain.convert.loading import known, load, quantized_with_report
from microtrain.convert.passes.constant_channels import left_out, without_constants
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.quantize.ranges import measure_ranges
from microtrain.convert.reference.kernels import Sgd
from microtrain.convert.scheme import ALL, Scheme
from microtrain.convert.verify import verify
from microtrain.device.model_copy import save_model
from microtrain.device.weights import Arrays, unpack

DATA = Path(os.environ.get("MICROTRAIN_DATA", ""))
needs_data = pytest.mark.skipif(
    not (DATA / "mlperf_tiny").is_dir(), reason="the published models are not here (MICROTRAIN_DATA)"
)
STILL = (1.5, -40.0)  # biases of channels without weights, and of one that a ReLU never lets through


def quantized(graph: Graph, images: np.ndarray, way: str = "float") -> Graph:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quantize(graph, measure_ranges(graph, images)).replace(requantize=way)


def with_still_channels(graph: Graph, seed: int, share: float = 0.5) -> Graph:
    """A float network of whose layers some channels do not vary: without weights, or with a low bias."""
    rng, layers = np.random.default_rng(seed), dict(graph.layers)
    for node in graph.nodes[:-1]:
        if not node.layer:
            continue
        layer = layers[node.layer]
        weight, bias = layer.weight.copy(), layer.bias.copy()
        for channel in np.flatnonzero(rng.random(len(bias)) < share):
            kind = rng.integers(3)
            weight[channel] *= float(kind == 2)
            bias[channel] = (0.0, rng.normal(), STILL[1])[kind]
        layers[node.layer] = replace(layer, weight=weight, bias=bias)
    return graph.replace(layers=layers)


@settings(max_examples=60)
@given(float_networks(), st.integers(0, 2**16), st.sampled_from(["float", "fixed"]))
def test_answers_stay_as_they_were(graph: Graph, seed: int, way: str) -> None:
    """In networks of every op, by each way of rounding, of any image."""
    shape = graph.tensors[graph.input.tensor].shape
    images = np.random.default_rng(seed).integers(0, 256, (12, *shape)).astype(np.uint8)
    images[0], images[1] = 0, 255
    whole = quantized(with_still_channels(graph, seed), images[:6], way)
    made = verify(without_constants(whole))
    np.testing.assert_array_equal(run_int8(made, images), run_int8(whole, images))


def chain(
    channels: int = 24, pad: int = 1, act: str = "relu", still: int = 16, bias: float = 0.0, end: int = 5
) -> Graph:
    """A dense layer of whose channels the first `still` do not vary, a depthwise one, a dense one, the head.

    bias  of those channels
    """
    b = FloatBuilder(np.random.default_rng(0), (9, 8, 3))
    wide = b.conv("x", channels, Window(3, 3, 1, 1, 1, 1), act)
    layer = b.layers[b.nodes[-1].name]
    layer.weight[:still], layer.bias[:still] = 0, bias
    between = b.conv(wide, 0, Window(3, 3, 1, 1, pad, pad), act, depthwise=True)
    b.layers[b.nodes[-1].name].bias[:] = np.abs(b.layers[b.nodes[-1].name].bias) + 0.1
    return b.finish(b.conv(between, end, Window(1, 1), "none"))


def images_of(graph: Graph, count: int = 24) -> np.ndarray:
    shape = graph.tensors[graph.input.tensor].shape
    return np.random.default_rng(3).integers(0, 256, (count, *shape)).astype(np.uint8)


def narrowed(graph: Graph) -> tuple[Graph, Graph]:
    whole = quantized(graph, images_of(graph))
    made = verify(without_constants(whole))
    np.testing.assert_array_equal(run_int8(made, images_of(graph)), run_int8(whole, images_of(graph)))
    return whole, made


def test_a_chain_loses_its_still_channels() -> None:
    """What the depthwise layer makes of zeros is its bias, and part of the biases behind."""
    whole, made = narrowed(chain())
    assert left_out(whole, made) == {"layer0": 16, "layer1": 16}
    assert made.tensors["t1"].shape == (9, 8, 8) == made.tensors["t2"].shape
    reader = made.layers["layer2"]
    assert reader.folded is not None and reader.folded.any()
    assert reader.source.left_out is not None and reader.source.left_out.inputs == tuple(range(16))
    sizes = [g.layers["layer2"].weight.size for g in (whole, made)]
    assert sizes == [24 * 5, 8 * 5]


def test_words_stay_whole() -> None:
    """Of 13 that do not vary eight are left out of 24, as kernels read four channels at once."""
    whole, made = narrowed(chain(still=13))
    assert left_out(whole, made) == {"layer0": 12, "layer1": 12}
    whole, made = narrowed(chain(still=3))
    assert left_out(whole, made) == {}


def test_one_word_stays_where_nothing_varies() -> None:
    whole, made = narrowed(chain(still=24))
    assert left_out(whole, made) == {"layer0": 20, "layer1": 20}


def test_a_constant_that_padding_interrupts_stays() -> None:
    """At the edge of the image a window reads zeros in its place: what it makes is no constant."""
    whole, made = narrowed(chain(bias=STILL[0]))
    assert left_out(whole, made) == {}
    whole, made = narrowed(chain(bias=STILL[0], pad=0))
    assert left_out(whole, made) == {"layer0": 16, "layer1": 16}


@pytest.mark.parametrize("bias", [-40.0, 40.0])
def test_what_saturates_always(bias: float) -> None:
    """It has weights, but no gradient reaches them."""
    graph = chain(pad=0, act="relu6", still=0)
    graph.layers["layer0"].bias[:16] = bias
    whole, made = narrowed(graph)
    assert left_out(whole, made) == {"layer0": 16, "layer1": 16}


def test_a_dense_window_over_padding_reads_constants_other_than_0() -> None:
    for pad, gone in ((1, 0), (0, 12)):
        b = FloatBuilder(np.random.default_rng(0), (8, 8, 3))
        x = b.conv("x", 16, Window(1, 1), "relu")
        layer = b.layers[b.nodes[-1].name]
        layer.weight[:12], layer.bias[:12] = 0, STILL[0]
        whole, made = narrowed(b.finish(b.conv(x, 5, Window(3, 3, 1, 1, pad, pad), "none")))
        assert sum(left_out(whole, made).values()) == gone


def test_what_a_residual_sum_reads_stays() -> None:
    b = FloatBuilder(np.random.default_rng(0), (6, 6, 8))
    first = b.conv("x", 8, Window(3, 3, 1, 1, 1, 1), "relu")
    layer = b.layers[b.nodes[-1].name]
    layer.weight[:4], layer.bias[:4] = 0, 0
    whole, made = narrowed(b.finish(b.add(first, "x", "relu")))
    assert made is whole


def test_through_tables_and_poolings() -> None:
    """An activation by table and a pooling make each channel of the one channel."""
    b = FloatBuilder(np.random.default_rng(0), (8, 8, 3))
    x = b.conv("x", 16, Window(3, 3, 1, 1, 1, 1), "none")
    layer = b.layers[b.nodes[-1].name]
    layer.weight[4:], layer.bias[4:] = 0, STILL[0]
    x = b.pool("maxpool", b.table(x, "silu"), Window(2, 2, 2, 2))
    whole, made = narrowed(b.finish(b.conv(x, 6, Window(1, 1), "relu")))
    assert left_out(whole, made) == {"layer0": 12}
    assert all(made.tensors[n.outputs[0]].channels == 4 for n in made.nodes[:3])


def test_features_that_are_never_there_leave_the_head() -> None:
    """Of others than 0 a head has weights that it may need: floats are not added up in advance."""
    b = FloatBuilder(np.random.default_rng(0), (8, 8, 3))
    x = b.conv("x", 16, Window(3, 3, 1, 1, 1, 1), "relu")
    layer = b.layers[b.nodes[-1].name]
    layer.weight[:8], layer.bias[:8] = 0, -1.0
    layer.weight[8:12], layer.bias[8:12] = 0, 1.0
    whole, made = narrowed(b.finish(x))
    assert left_out(whole, made) == {"layer0": 8}
    assert made.layers["head"].weight.shape == (3, 8)


def test_what_a_coarse_step_hides_may_still_learn() -> None:
    """A channel whose weights count, but not beside the largest: it is constant, and would grow."""
    small = chain(still=0)
    layer = small.layers["layer0"]
    layer.weight[:16] *= np.float32(0.0005)
    layer.bias[:16] = 0.3
    whole, made = narrowed(small)
    assert made is whole


def test_what_is_made_of_such_channels_may_learn_too() -> None:
    """As the last layers of an untrained network, in whose first ones the signal fades."""
    b = FloatBuilder(np.random.default_rng(0), (8, 8, 3))
    x = b.conv("x", 16, Window(3, 3), "relu6")
    graph = b.finish(b.conv(b.conv(x, 24, Window(1, 1), "relu6"), 5, Window(1, 1), "none"))
    faint = b.layers["layer0"]
    faint.weight[:], faint.bias[:] = 2e-4 * np.sign(faint.weight), 0.0
    b.layers["layer1"].bias[:] = 0.0
    ranges = {**measure_ranges(graph, images_of(graph)), "t1": (0.0, 6.0)}
    whole = quantize(graph, ranges)
    values = dict[str, np.ndarray]()
    run_int8(whole, images_of(graph), values.__setitem__)
    assert len(np.unique(values["t1"])) == 1
    assert without_constants(whole) is whole


def test_numbers_of_a_scheme_are_those_of_the_model() -> None:
    _, made = narrowed(chain())
    scheme = Scheme("s", -1, {"layer2": (3, 17, 20), "layer1": (16, 23)}, head="random")
    graph = compile_graph(made, scheme, 3).graph
    assert graph.layers["layer2"].trained == (1, 4) and graph.layers["layer1"].trained == (0, 7)
    with pytest.raises(ConvertError, match="no input changes the channels that it trains of layer2"):
        compile_graph(made, Scheme("s", -1, {"layer2": (3, 4)}), 3)
    with pytest.raises(ConvertError, match="channel 24 of layer2 does not exist; it has channels 0 to 23"):
        compile_graph(made, Scheme("s", -1, {"layer2": (3, 24)}), 3)


class Narrow(nn.Module):
    """Of its hidden channels every other pair has a batch norm without a gain."""

    shape = (3, 12, 10)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
        self.depthwise = nn.Sequential(
            nn.Conv2d(16, 16, 3, 1, 1, groups=16, bias=False), nn.BatchNorm2d(16), nn.ReLU6()
        )
        self.pointwise = nn.Sequential(nn.Conv2d(16, 24, 1), nn.ReLU())
        self.head = nn.Linear(24 * 6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.avg_pool2d(self.pointwise(self.depthwise(self.stem(x))), 2)
        result: torch.Tensor = self.head(torch.flatten(y, 1))
        return result


def narrow() -> Any:
    net: Any = randomise(Narrow(), 4)
    with torch.no_grad():
        norm, last = net.stem[1], net.pointwise[0]
        norm.weight[[0, 1, 4, 5, 8, 9, 12, 13]] = 0.0
        norm.bias[[0, 1, 4, 5, 8, 9, 12, 13]] = -0.5
        last.weight[::3], last.bias[::3] = 0.0, -0.1
    return net


class Learned:
    """What a device has learned of a model's file, all or part of its columns, and its answers."""

    def __init__(self, model: Path, images: np.ndarray, scheme: Scheme, classes: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = load(model, False, None)
            samples = model.parent / "samples.npz"
            np.savez(samples, images=images)
            graph, _ = quantized_with_report(loaded, Choices(samples), False, None)
        compiled = compile_graph(graph, scheme, classes)
        self.graph, self.model = graph, model
        self.plan = document(compiled, generate(compiled, "a test"), Origin(model.name, "", ""), None)
        self.run = Executor(compiled.graph)
        before = unpack(self.plan, self.run.trainables())
        for step in range(6):
            self.run.forward((images[step].astype(np.int16) - 128).astype(np.int8))
            self.run.backward(step % classes, Sgd(0.02, 0.02, 0.02, 3, step))
        self.arrays: Arrays = unpack(self.plan, self.run.trainables())
        moved = [(before[k] != v).any() for k, v in self.arrays.items()]
        assert sum(moved) > len(moved) // 2

    def logits(self, images: np.ndarray) -> np.ndarray:
        stored = (images.astype(np.int16) - 128).astype(np.int8)
        return np.stack([self.run.forward(x).reshape(-1) for x in stored])


@pytest.mark.parametrize("part", [1.0, 0.5])
@pytest.mark.parametrize("bits", [0, 4, 8])
def test_what_is_learned_goes_back_into_a_state_dict(part: float, bits: int, tmp_path: Path) -> None:
    """PyTorch answers as the device does, and what the device does not have is as it was."""
    net, model = narrow(), tmp_path / "narrow.pt2"
    write(net, model, "exported")
    images = images_for(net, 48, 1)
    learned = Learned(model, images, Scheme("s", -1, {ALL: part}, fraction_bits=bits, head="keep"), 4)
    assert [learned.graph.layers[n].weight.shape[0] for n in learned.graph.layers][:3] == [8, 8, 16]
    save_model("state_dict", learned.plan, learned.arrays, model, tmp_path / "out.pt")
    state = torch.load(tmp_path / "out.pt", weights_only=True)
    old = {k: v.clone() for k, v in net.state_dict().items()}
    net.load_state_dict(state)
    found, wanted = torch_logits(net, images), learned.logits(images)
    apart = np.abs(found - wanted).mean() / wanted.std()
    assert apart < 0.1, apart
    net.load_state_dict(old)
    assert np.abs(torch_logits(net, images) - wanted).mean() / wanted.std() > 2 * apart, "it learned"
    gone = [0, 1, 4, 5, 8, 9, 12, 13]
    for name in ("stem.0.weight", "depthwise.0.weight", "stem.1.bias", "depthwise.1.bias"):
        assert torch.equal(state[name][gone], old[name][gone]), name
        assert not torch.equal(state[name], old[name]), name
    assert torch.equal(state["pointwise.0.weight"][:, gone], old["pointwise.0.weight"][:, gone])


@pytest.mark.parametrize(("classes", "part"), [(4, 1.0), (4, 0.5), (6, 1.0)])
def test_what_is_learned_goes_back_into_onnx(classes: int, part: float, tmp_path: Path) -> None:
    net = narrow()
    model, images = export(net, tmp_path / "narrow.onnx"), images_for(net, 48, 1)
    learned = Learned(model, images, Scheme("s", -1, {ALL: part}, fraction_bits=4, head="keep"), classes)
    assert [learned.graph.layers[n].weight.shape[0] for n in learned.graph.layers][:3] == [8, 8, 16]
    save_model("onnx", learned.plan, learned.arrays, model, tmp_path / "out.onnx")
    wanted = learned.logits(images)
    before, found = (
        reference(path, images.transpose(0, 3, 1, 2) / 255.0) for path in (model, tmp_path / "out.onnx")
    )
    apart = np.abs(found - wanted).mean() / wanted.std()
    assert apart < 0.1, apart
    if classes == 4:
        assert np.abs(before - wanted).mean() / wanted.std() > 2 * apart, "it learned"


@pytest.mark.parametrize(("classes", "part"), [(4, 1.0), (4, 0.5), (7, 1.0)])
def test_what_is_learned_goes_back_into_an_int8_file(classes: int, part: float, tmp_path: Path) -> None:
    """By TFLite's own kernels: to the last unit of its softmax."""
    net = replace(Int8.input((8, 6, 3), seed=2), still=8)
    net = net.conv(16, (3, 3), 1, (8, 6), (0.04, -128)).depthwise((3, 3), 1, (8, 6), (0.04, -128))
    net = replace(net.conv(16, (1, 1), 1, (8, 6), (0.03, -128)), still=0).linear(4, (0.05, 0))
    model = tmp_path / "narrow.tflite"
    model.write_bytes(net.map("SOFTMAX", (1 / 256, -128), "SoftmaxOptions", Beta=1.0).file())
    images = np.random.default_rng(1).integers(0, 256, (32, 8, 6, 3)).astype(np.uint8)
    learned = Learned(model, images, Scheme("s", -1, {ALL: part}, head="random"), classes)
    assert [learned.graph.layers[n].weight.shape[0] for n in learned.graph.layers][:3] == [8, 8, 8]
    save_model("tflite", learned.plan, learned.arrays, model, tmp_path / "out.tflite")
    found = interpreted(tmp_path / "out.tflite", images.astype(int) - 128)
    logits = learned.logits(images)
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    agree(found, e / e.sum(axis=1, keepdims=True), 1.5 / 256)


@needs_data
def test_two_of_three_channels_of_visual_wake_words(tmp_path: Path) -> None:
    model = DATA / "mlperf_tiny/vww96_int8.tflite"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = load(model, False, None)
        graph, _ = quantized_with_report(loaded, Choices(), False, None)
        whole = quantize_model(loaded.graph, np.empty(0), Choices())
    assert sum(left_out(whole, graph).values()) == 1520
    images = images_of(graph, 40)
    np.testing.assert_array_equal(run_int8(graph, images), run_int8(whole, images))
    assert known(loaded).layers["conv24"].weight.shape == (60, 1, 1, 44), "seen before calibration too"


@pytest.mark.parametrize("each", [True, False])
def test_constants_of_channels_in_an_int8_file_keep_them(each: bool, tmp_path: Path) -> None:
    """A batch norm behind an activation: its constants are those of all channels."""
    net = replace(Int8.input((8, 6, 3), seed=2), still=8)
    net = net.conv(16, (3, 3), 1, (8, 6), (0.04, -128))
    net = net.by_constant("MUL", each, (0.012, -100), (0.06, -40))
    net = net.by_constant("ADD", True, (0.01, 9), (0.05, -30))
    net = replace(net, still=0).conv(8, (1, 1), 1, (8, 6), (0.03, -128)).linear(4, (0.05, 0))
    model = tmp_path / "norm.tflite"
    model.write_bytes(net.file())
    loaded = load(model, False, None)
    graph, _ = quantized_with_report(loaded, Choices(), False, None)
    whole = quantize_model(loaded.graph, np.empty(0), Choices())
    assert "mul_add" in [node.op for node in graph.nodes]
    np.testing.assert_array_equal(run_int8(graph, images_of(graph)), run_int8(whole, images_of(graph)))


class Blocks(nn.Module):
    shape = (3, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(16, 24, 1), nn.ReLU())
        self.head = nn.Linear(24, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.head(self.block(self.stem(x)).mean((2, 3))))


def test_modules_beside_blocks_keep_all_channels(tmp_path: Path) -> None:
    """They are new, and of the sizes that the model has."""
    model, data, net = tmp_path / "net.pt2", tmp_path / "samples.npz", randomise(Blocks(), 4)
    with torch.no_grad():
        first: Any = net.stem
        first[0].weight[:8], first[0].bias[:8] = 0.0, -0.1
    write(net, model, "exported")
    np.savez(data, images=images_for(net, 24, 1))
    scheme = tmp_path / "lite.yaml"
    scheme.write_text("lite_residuals: {blocks: [block.0], groups: 3}\n")
    sizes = {}
    for words in ([], ["--scheme", str(scheme)]):
        out = tmp_path / "out"
        done = CliRunner().invoke(
            main, [str(model), "--calibration", str(data), "--classes", "4", "-o", str(out), *words]
        )
        assert done.exit_code == 0, done.output
        sizes[len(words)] = {row.layer: row.output[2] for row in read_plan(out / "plan.json").layers}
        assert ("left out" in done.output) == (not words), done.output
    assert sizes[0]["stem.0"] == 8 and sizes[2]["stem.0"] == 16
