"""Autoencoders whose last linear layer makes a map of several channels: from files of each kind, and back."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner
from onnx import helper
from onnx.reference import ReferenceEvaluator
from pio_build import build, host_program
from test_anomaly import scores
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_model_copy import interpreted
from test_onnx import constants, saved
from test_resample import exported
from torch import nn

from lab.attack.tflite_files import Int8
from microtrain.base.plan import Origin, Plan, read_plan
from microtrain.base.rows import by_pixels
from microtrain.convert.cli import main
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import document
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import unflatten
from microtrain.convert.ops.aten.channels import TAKE
from microtrain.convert.ops.aten.unflatten import UNFLATTEN
from microtrain.convert.ops.reconstruct import ANOMALY, NORMAL, calibrated, closed
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.reference.numeric import Sgd
from microtrain.convert.scheme import ALL, Scheme
from microtrain.device.client import Device
from microtrain.device.link import EmulatorPort, Port, ProgramPort
from microtrain.device.merging import merge
from microtrain.device.model_copy import save_copy
from microtrain.device.weights import unpack

IMAGE, SERIES = (3, 8, 6), (3, 20)
RATE = 0.2


class Dense(nn.Module):
    """Convolutions down to a vector, and linear layers up to all numbers of the input. way: how it ends"""

    def __init__(self, way: str = "view", shape: tuple[int, ...] = IMAGE) -> None:
        super().__init__()
        self.way, self.shape, numbers = way, shape, math.prod(shape)
        self.down = (nn.Conv1d if len(shape) == 2 else nn.Conv2d)(shape[0], 6, 3, 2, 1)
        self.vector = nn.Linear(6 * math.prod((side + 1) // 2 for side in shape[1:]), 10)
        self.wide, self.out = nn.Linear(10, 24), nn.Linear(24, numbers)
        for values in (p for p in self.parameters() if p.ndim > 1):
            nn.init.normal_(values, 0, 1.2 / values[0].numel() ** 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.vector(torch.relu(self.down(x)).flatten(1)))
        x = self.out(torch.relu(self.wide(x)))
        if self.way == "pixels first":
            return x.view(-1, *self.shape[1:], self.shape[0]).movedim(-1, 1)
        if self.way == "bounded first":
            return torch.as_tensor(nn.Sigmoid()(x).view(-1, *self.shape))
        x = x.unflatten(1, self.shape) if self.way == "unflatten" else x.reshape(-1, *self.shape)
        behind = {"bounded": nn.Sigmoid(), "about 0": nn.Tanh()}
        return behind[self.way](x) if self.way in behind else x


WAYS = ("view", "unflatten", "bounded", "bounded first", "about 0", "pixels first")


def model_of(way: str, shape: tuple[int, ...] = IMAGE) -> Dense:
    torch.manual_seed(3)
    return Dense(way, shape).eval()


def images_of(count: int, shape: tuple[int, ...] = IMAGE, seed: int = 0) -> np.ndarray:
    """uint8 [count, h, w, c]"""
    c, h, w = (*shape, 1)[:3]
    made: np.ndarray = np.random.default_rng(seed).integers(0, 256, (count, h, w, c)).astype(np.uint8)
    return made


def as_torch(images: np.ndarray, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor(images.transpose(0, 3, 1, 2).reshape(-1, *shape) / np.float32(255))


def error_of(model: nn.Module, images: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Mean squared error of each image, by PyTorch."""
    x = as_torch(images, shape)
    with torch.no_grad():
        made: np.ndarray = (model(x) - x).square().flatten(1).mean(1).numpy()
    return made


def quantized(way: str, folder: Path, shape: tuple[int, ...] = IMAGE) -> Graph:
    path = exported(model_of(way, shape), folder / "model.pt2", shape)
    return quantize_model(closed(load_model(path).graph), images_of(32, shape), Choices())


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
@pytest.mark.parametrize("shape", [IMAGE, SERIES])
@pytest.mark.parametrize("way", WAYS)
def test_the_score_is_pytorchs_error(way: str, shape: tuple[int, ...], suffix: str, tmp_path: Path) -> None:
    model, images = model_of(way, shape), images_of(6, shape, seed=1)
    graph = closed(load_model(exported(model, tmp_path / f"model.{suffix}", shape)).graph)
    wanted = error_of(model, images, shape)
    np.testing.assert_allclose(run_float(graph, images).reshape(6, 2)[:, ANOMALY], wanted, rtol=1e-4)
    ops, rows = [n.op for n in graph.nodes], graph.layers["out"].source.rows
    assert ops.count(UNFLATTEN) == 1 and TAKE not in ops, "map and vector are one memory"
    c, h, w = (*shape, 1)[:3]
    assert rows == (None if way == "pixels first" else (h, w, c))
    whole = quantize_model(graph, images_of(32, shape), Choices())
    np.testing.assert_allclose(run_int8(whole, images).reshape(6, 2)[:, ANOMALY], wanted, rtol=0.05)


def test_one_channel_and_vectors_have_no_map(tmp_path: Path) -> None:
    for shape in ((1, 6, 5), (1, 20)):
        path = exported(model_of("view", shape), tmp_path / "model.pt2", shape)
        assert UNFLATTEN not in [n.op for n in closed(load_model(path).graph).nodes]


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("way", ["view", "bounded", "bounded first", "pixels first"])
def test_gradients_are_those_of_autograd(way: str, errors: str, tmp_path: Path) -> None:
    found = cosines(everything(quantized(way, tmp_path)).graph, errors, label=NORMAL)
    assert {("out", "weight"), ("out", "bias"), ("down", "bias")} <= set(found)
    assert min(found.values()) > LEAST[errors], found


@pytest.mark.parametrize("way", ["view", "bounded"])
def test_generated_code_trains_like_the_executor(way: str, tmp_path: Path) -> None:
    trained = partly_trained(quantized(way, tmp_path), 4)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 6)


# ---------------------------------------------------------------- it learns, as in float


def waves(count: int, seed: int) -> np.ndarray:
    """uint8 [count, 8, 6, 3] of what is normal of a new machine: a wave down each channel, and noise."""
    c, h, w = IMAGE
    wave = 128 + 80 * np.sin(np.arange(h)[:, None, None] / 2.0 + np.arange(c) * 1.5) * np.ones((h, w, c))
    noisy = wave + np.random.default_rng(seed).normal(0, 6, (count, h, w, c))
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


def learned(executor: Executor, shown: np.ndarray, rate: float) -> None:
    for step, image in enumerate(shown):
        executor.forward((image.astype(int) - 128).astype(np.int8))
        executor.backward(NORMAL, Sgd(rate, rate, rate, 1, step))


def learned_in_float(model: nn.Module, shown: np.ndarray, unit: float, rate: float) -> None:
    """The same steps by PyTorch. unit: in which the device counts its loss"""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for image in as_torch(shown, IMAGE):
        x = image[None]
        optimizer.zero_grad()
        ((model(x) - x).square().mean() / unit).backward()
        optimizer.step()


@pytest.mark.parametrize(("way", "most"), [("view", 0.5), ("bounded", 0.75)])
def test_the_loss_falls_as_in_float(way: str, most: float, tmp_path: Path) -> None:
    graph = quantized(way, tmp_path)
    graph = calibrated(graph, run_int8(graph, images_of(32)).reshape(-1, 2)[:, ANOMALY])
    unit, executor, model = graph.nodes[-1].factors[0], Executor(everything(graph).graph), model_of(way)
    shown, normal = waves(150, 1), waves(20, 2)
    before = error_of(model, normal, IMAGE).mean()
    assert abs(scores(executor, normal).mean() * unit - before) < 0.05 * before
    learned(executor, shown, RATE)
    learned_in_float(model, shown, unit, RATE)
    found, wanted = scores(executor, normal).mean() * unit, error_of(model, normal, IMAGE).mean()
    assert wanted < most * before and found < 1.15 * wanted, (before, wanted, found)


def session(port: Port) -> tuple[str, float, float]:
    """SHA-256 of what was learned, and the mean score of normal samples before and after."""
    with Device(port) as device:
        device.seed(7)
        device.rate(RATE / 0.002)
        first = np.mean([device.infer(image).logits[ANOMALY] for image in waves(8, 2)])
        for image in waves(60, 1):
            device.train(image, NORMAL)
        last = np.mean([device.infer(image).logits[ANOMALY] for image in waves(8, 2)])
        return device.sha(), float(first), float(last)


@pytest.mark.slow
def test_the_board_learns_what_this_machine_learns(tmp_path: Path) -> None:
    path, generated = exported(model_of("view"), tmp_path / "model.pt2", IMAGE), tmp_path / "generated"
    np.savez(tmp_path / "normal.npz", images=images_of(32))
    words = (path, "--task", "anomaly", "--calibration", tmp_path / "normal.npz", "-o", generated)
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    assert {UNFLATTEN, unflatten.BACKWARD} <= {step.op for step in read_plan(generated / "plan.json").steps}
    board = session(EmulatorPort(build(tmp_path / "pio", "disco_f746ng", generated)))
    host = session(ProgramPort(host_program(generated, tmp_path)))
    assert board == host and board[2] < 0.7 * board[1], (board, host)


# ---------------------------------------------------------------- back into the file


def trained(path: Path) -> tuple[Plan, Executor, float]:
    """A conversion in which all learns, what has learned a little with it, and the unit of its scores."""
    graph = closed(load_model(path).graph)
    h, w, c = graph.tensors[graph.input.tensor].shape
    images = images_of(32, (c, h, w))
    graph = quantize_model(graph, images, Choices())
    graph = calibrated(graph, run_int8(graph, images).reshape(-1, 2)[:, ANOMALY])
    compiled = compile_graph(graph, Scheme("full", biases=-1, weights={ALL: 1.0}), 2)
    plan = document(compiled, generate(compiled, "a test"), Origin("", "", ""), None)
    executor = Executor(compiled.graph)
    learned(executor, images_of(12, (c, h, w), seed=5), RATE)
    return plan, executor, graph.nodes[-1].factors[0]


@pytest.mark.parametrize("way", ["view", "bounded first", "pixels first"])
def test_what_was_trained_goes_back_as_it_came(way: str, tmp_path: Path) -> None:
    """PyTorch with the merged weights makes the errors that the device scores."""
    model = model_of(way)
    plan, executor, unit = trained(exported(model, tmp_path / "model.pt2", IMAGE))
    state = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    arrays = unpack(plan, executor.trainables())
    merged, _ = merge(plan, arrays, state)
    for name in ("out.weight", "out.bias"):
        moved, turned = merged[name] - state[name], by_pixels(merged[name], (8, 6, 3)) - state[name]
        assert 0 < np.abs(moved).max() < 0.2 < np.abs(turned).max(), name
    images = images_of(8, seed=2)
    before = error_of(model, images, IMAGE)
    model.load_state_dict({name: torch.tensor(value) for name, value in merged.items()}, strict=True)
    after, found = error_of(model.float(), images, IMAGE), scores(executor, images) * unit
    np.testing.assert_allclose(after, found, rtol=0.04)
    assert np.abs(after - before).min() > 2 * np.abs(after - found).max()


@pytest.mark.parametrize("way", ["view", "bounded first"])
def test_a_trained_onnx_file_makes_the_errors_of_the_device(way: str, tmp_path: Path) -> None:
    path = exported(model_of(way), tmp_path / "model.onnx", IMAGE)
    assert_copied(path, tmp_path)


def keras_like(folder: Path) -> Path:
    """As tf2onnx writes Keras: the input is turned, and a Reshape makes an image of rows at the end."""
    rng, (c, h, w) = np.random.default_rng(0), IMAGE
    arrays = constants(
        a=rng.normal(0, 0.3, (6, c, 3, 3)).astype(np.float32),
        flat=np.array([-1, 36]),
        d=rng.normal(0, 0.25, (36, 10)).astype(np.float32),
        e=rng.normal(0, 0.4, (10, h * w * c)).astype(np.float32),
        f=rng.normal(0.5, 0.2, h * w * c).astype(np.float32),
        image=np.array([-1, h, w, c]),
    )
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "a"], ["v"], strides=[2, 2]),
        helper.make_node("Relu", ["v"], ["r"]),
        helper.make_node("Transpose", ["r"], ["u"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["u", "flat"], ["g"]),
        helper.make_node("MatMul", ["g", "d"], ["m"]),
        helper.make_node("Relu", ["m"], ["n"]),
        helper.make_node("MatMul", ["n", "e"], ["o"]),
        helper.make_node("Add", ["o", "f"], ["p"]),
        helper.make_node("Sigmoid", ["p"], ["q"]),
        helper.make_node("Reshape", ["q", "image"], ["y"]),
    ]
    return saved(folder / "keras.onnx", nodes, arrays, ["batch", h, w, c])


def made_by(path: Path, x: np.ndarray) -> np.ndarray:
    """What ONNX's evaluator makes of samples, one by one."""
    run, name = ReferenceEvaluator(str(path)), onnx.load(str(path)).graph.input[0].name
    return np.concatenate([np.asarray(run.run(None, {name: each[None].astype(np.float32)}))[0] for each in x])


def assert_copied(path: Path, folder: Path) -> None:
    """A copy of the file with what was learned makes the errors that the device scores."""
    plan, executor, unit = trained(path)
    out, images = folder / "out.onnx", images_of(8, seed=2)
    save_copy("onnx", plan, unpack(plan, executor.trainables()), path, out)
    x = images / 255.0 if path.stem == "keras" else images.transpose(0, 3, 1, 2) / 255.0
    before, after = (np.square(made_by(f, x) - x).reshape(8, -1).mean(1) for f in (path, out))
    found = scores(executor, images) * unit
    np.testing.assert_allclose(after, found, rtol=0.05)
    assert np.abs(after - before).min() > 2 * np.abs(after - found).max()


def test_an_image_of_keras_is_made_in_its_order(tmp_path: Path) -> None:
    path, images = keras_like(tmp_path), images_of(5, seed=1)
    graph, x = closed(load_model(path).graph), images / 255.0
    wanted = np.square(made_by(path, x) - x).reshape(5, -1).mean(1)
    np.testing.assert_allclose(run_float(graph, images).reshape(5, 2)[:, ANOMALY], wanted, rtol=1e-4)
    assert TAKE not in [n.op for n in graph.nodes]
    assert_copied(path, tmp_path)


def of_tflite(folder: Path) -> Path:
    """An int8 autoencoder of Keras: Conv, Flatten, Dense, Dense, Reshape; in units of its input's scale."""
    net = Int8.input((8, 6, 3), scale=0.02, zero=-5).conv(5, (3, 3), 2, (4, 3), (0.03, -128))
    net.linear(7, (0.05, -128), 1).dense(144, (0.02, -5), 0)
    made = net.w.tensor("map", (1, 8, 6, 3), scale=(0.02,), zero=(-5,))
    to = net.w.tensor("to", (4,), "int32", np.array([1, 8, 6, 3]))
    net.w.op("RESHAPE", (net.x, to), (made,))
    net.x, path = made, folder / "model.tflite"
    path.write_bytes(net.file())
    return path


def test_an_int8_tflite_file_makes_the_map_of_its_interpreter(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    path, images = of_tflite(tmp_path), images_of(10, seed=1)
    graph, real = quantize(closed(load_model(path).graph), {}), (images.astype(int) - 128 + 5) * 0.02
    wanted = np.square(interpreted(path, images.astype(int) - 128) - real.reshape(10, -1)).mean(1)
    np.testing.assert_allclose(run_int8(graph, images).reshape(10, 2)[:, ANOMALY], wanted, rtol=0.01)
    plan, executor, unit = trained(path)
    save_copy("tflite", plan, unpack(plan, executor.trainables()), path, tmp_path / "out.tflite")
    after = interpreted(tmp_path / "out.tflite", images.astype(int) - 128) - real.reshape(10, -1)
    found = scores(executor, images) * unit
    np.testing.assert_allclose(np.square(after).mean(1), found, rtol=0.01)
    assert np.abs(found - wanted).mean() > 0.05 * wanted.mean(), "it has learned"


# ---------------------------------------------------------------- what is no autoencoder


def test_a_vector_of_several_channels_is_told_the_way_out(tmp_path: Path) -> None:
    class Flat(Dense):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).flatten(1)

    path = exported(Flat().eval(), tmp_path / "model.pt2", IMAGE)
    with pytest.raises(ConvertError, match=r"end it with view\(n, 3, 8, 6\)"):
        closed(load_model(path).graph)


def test_a_map_is_no_head(tmp_path: Path) -> None:
    path = exported(model_of("view"), tmp_path / "model.pt2", IMAGE)
    done = CliRunner().invoke(main, [str(path), "--check"])
    said = " ".join(done.output.split())
    assert done.exit_code == 1 and "must end with a linear layer" in said and "--task anomaly" in said, said
