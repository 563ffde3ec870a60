"""A constant for each place of a map: a mean image, a window over time, slopes, a norm's scale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper
from test_executor import partly_trained, run_both
from test_gradients import assert_as_autograd, everything
from test_model_copy import Session, interpreted
from test_onnx import constants, export, load, reference, saved
from torch import nn

from lab.attack.tflite_files import Int8
from lab.attack.tflite_networks import Float
from lab.networks import Builder
from lab.tasks.logits import int8_graph, logits
from lab.tasks.logits import interpreted as integers
from microtrain.base.plan import FLOAT, TFLITE
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import scale_values
from microtrain.convert.ops.normalise import GROUP_NORM
from microtrain.convert.ops.scale_values import VALUES
from microtrain.device.errors import DeviceError
from microtrain.device.merging import merge

Made = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
WAYS: dict[str, Made] = {
    "added": lambda x, t: x + t,
    "subtracted": lambda x, t: x - t,
    "less the map": lambda x, t: t - x,
    "rsub": torch.rsub,
    "times": lambda x, t: x * t,
    "from the left": lambda x, t: t * x,
    "divided": lambda x, t: x / (t + 3.0 * torch.sign(t)),
    "rows": lambda x, t: x * t[:1, :, :1],
}


class Own(nn.Module):
    """A mean image in front, or a constant map behind a convolution."""

    shape = (2, 6, 5)

    def __init__(self, way: str, front: bool) -> None:
        super().__init__()
        self.way, self.front = way, front
        self.conv, self.last = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(4, 3)
        self.map = nn.Parameter(torch.randn(2 if front else 4, 6, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = WAYS[self.way](x, self.map) if self.front else x
        x = self.conv(x)
        x = x if self.front else WAYS[self.way](x, self.map)
        return torch.as_tensor(self.last(torch.relu(x).mean((2, 3))))


def made(way: str, front: bool) -> tuple[nn.Module, np.ndarray]:
    torch.manual_seed(0)
    images = np.random.default_rng(1).integers(0, 256, (4, 6, 5, 2)).astype(np.uint8)
    return Own(way, front).eval(), images


@pytest.mark.parametrize(
    ("way", "front"),
    [*((w, False) for w in WAYS), *((w, True) for w in ("added", "subtracted", "less the map", "times"))],
)
def test_pytorchs_values(way: str, front: bool, tmp_path: Path) -> None:
    net, images = made(way, front)
    samples = torch.tensor(np.moveaxis(images / 255.0, -1, 1).astype(np.float32))
    path = tmp_path / "own.pt2"
    torch.export.save(torch.export.export(net, (samples[:1],)), path)
    wanted = np.concatenate([net(each[None]).detach().numpy() for each in samples])
    found = run_float(load_model(path).graph, images).reshape(4, 3)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("way", [w for w in WAYS if w != "rsub"])
def test_onnx_values(way: str, tmp_path: Path) -> None:
    net, images = made(way, False)
    path = export(net, tmp_path / "own.onnx")
    wanted = reference(path, np.moveaxis(images / 255.0, -1, 1))
    np.testing.assert_allclose(run_float(load(path), images).reshape(4, 3), wanted, atol=1e-5)


def graph_of(net: nn.Module, shape: tuple[int, ...], path: Path) -> Graph:
    torch.export.save(torch.export.export(net.eval(), (torch.rand(1, *shape),)), path)
    return load_model(path).graph


def assert_as_pytorch(net: nn.Module, shape: tuple[int, ...], path: Path) -> Graph:
    """shape: of a sample, channels first"""
    graph = graph_of(net, shape, path)
    c, h, w = (*shape, 1)[:3]
    images = np.random.default_rng(1).integers(0, 256, (6, h, w, c)).astype(np.uint8)
    samples = torch.tensor(np.moveaxis(images / 255.0, -1, 1).astype(np.float32)).reshape(6, *shape)
    wanted = np.concatenate([net(each[None]).detach().numpy() for each in samples])
    found = run_float(graph, images).reshape(wanted.shape)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * max(1.0, np.abs(wanted).max()))
    assert np.ptp(wanted, axis=0).min() > 1e-3, "the logits say something"
    return graph


class Windowed(nn.Module):
    """A window over raw sound, before the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.window = nn.Buffer(torch.hann_window(40))
        self.conv, self.last = nn.Conv1d(2, 6, 5, 2), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.last(torch.relu(self.conv(x * self.window)).mean(2)))


def test_a_window_over_time(tmp_path: Path) -> None:
    torch.manual_seed(0)
    graph = assert_as_pytorch(Windowed().eval(), (2, 40), tmp_path / "own.pt2")
    assert VALUES in [node.op for node in graph.nodes]


class Tokens(nn.Module):
    """A factor for each of as many tokens as features, or for each of both."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(shape) + 0.5)
        self.conv, self.inner, self.last = nn.Conv2d(2, 6, 3, 3), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x).flatten(2).transpose(1, 2)
        return torch.as_tensor(self.last(torch.relu(self.inner(x * self.scale)).mean(1)))


@pytest.mark.parametrize("shape", [(6, 1), (1, 6), (6, 6), (1, 6, 1)])
def test_factors_of_tokens(shape: tuple[int, ...], tmp_path: Path) -> None:
    torch.manual_seed(0)
    assert_as_pytorch(Tokens(shape).eval(), (2, 9, 6), tmp_path / "own.pt2")


class Less(nn.Module):
    """Less a constant for each channel, behind a layer without biases: of an image, or of tokens."""

    def __init__(self, tokens: bool) -> None:
        super().__init__()
        self.tokens = tokens
        self.conv, self.inner = nn.Conv2d(2, 6, 3, 3, bias=False), nn.Linear(6, 6, bias=False)
        self.last, self.own = nn.Linear(6, 3), nn.Parameter(torch.rand(6) * 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        if self.tokens:
            x = self.inner(x.flatten(2).transpose(1, 2)) - self.own
            return torch.as_tensor(self.last(torch.relu(x).mean(1)))
        return torch.as_tensor(self.last(torch.relu(x - self.own[:, None, None]).mean((2, 3))))


def less(tokens: bool, folder: Path) -> tuple[Less, Session, dict[str, np.ndarray]]:
    """The network, what a device made of it, and what it had before."""
    torch.manual_seed(0)
    net, path = Less(tokens).eval(), folder / "own.pt2"
    assert_as_pytorch(net, (2, 9, 6), path)
    session = Session(path, 3, rate=0.1)
    return net, session, {name: value.numpy().copy() for name, value in net.state_dict().items()}


def test_what_is_subtracted_does_not_come_back_with_another_sign(tmp_path: Path) -> None:
    """The bias that a layer learns is what is added: it is the layer's, not the constant's."""
    net, session, state = less(True, tmp_path)
    merged, notes = merge(session.plan, session.arrays, state)
    assert "own" not in merged and [note for note in notes if "inner.bias" in note]
    net.conv.bias, net.inner.bias = nn.Parameter(torch.zeros(6)), nn.Parameter(torch.zeros(6))
    net.load_state_dict({k: torch.tensor(np.float32(v)) for k, v in (state | merged).items()})
    samples = torch.tensor(np.moveaxis(session.images / 255.0, -1, 1).astype(np.float32))
    found, logits = net(samples).detach().numpy(), session.logits()
    assert np.abs(found - logits).max() < 0.1 * np.ptp(logits)


def test_a_constant_that_is_subtracted_from_an_image_is_refused_on_the_way_back(tmp_path: Path) -> None:
    _, session, state = less(False, tmp_path)
    with pytest.raises(DeviceError, match="was scaled by the constant sub"):
        merge(session.plan, session.arrays, state)


class Series(nn.Module):
    """A series less its mean for each channel, and a shift behind a convolution without biases."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv1d(2, 6, 5, 2, bias=False), nn.Linear(6, 3)
        self.mean, self.shift = nn.Buffer(torch.full((2, 1), 0.4)), nn.Parameter(torch.rand(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.last(torch.relu(self.conv(x - self.mean) + self.shift).mean(2)))


@pytest.mark.parametrize("shape", [(6, 1), (1, 6, 1)])
def test_a_constant_for_each_channel_of_a_series(shape: tuple[int, ...], tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, path = Series(shape).eval(), tmp_path / "own.pt2"
    assert_as_pytorch(net, (2, 18), path)
    session = Session(path, 3, rate=0.1)
    state = {name: value.numpy().copy() for name, value in net.state_dict().items()}
    merged, _ = merge(session.plan, session.arrays, state)
    assert merged["shift"].shape == shape and np.abs(merged["shift"] - state["shift"]).max() > 1e-3
    net.load_state_dict({k: torch.tensor(np.float32(v)) for k, v in (state | merged).items()})
    samples = torch.tensor(np.moveaxis(session.images[:, :, 0] / 255.0, -1, 1).astype(np.float32))
    found, logits = net(samples).detach().numpy(), session.logits()
    assert np.abs(found - logits).max() < 0.1 * np.ptp(logits)


SIDES = [(), (1,), (5,), *((a, b) for a in (1, 5) for b in (1, 5))]
SIDES += [(a, b, c) for a in (1, 5) for b in (1, 5) for c in (1, 5)]
TWO: dict[str, Made] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": torch.maximum,
    "where": lambda a, b: torch.where(a > 0.1, a, b) if a.dim() == 4 else torch.where(b > 0.1, a, b),
}


class Beside(nn.Module):
    """A constant on one side of a map of five rows, columns and channels."""

    shape = (2, 5, 5)

    def __init__(self, op: str, first: bool, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.op, self.first, self.own = op, first, nn.Parameter(torch.rand(shape) + 0.5)
        self.conv, self.last = nn.Conv2d(2, 5, 3, padding=1), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        x = TWO[self.op](*((self.own, x) if self.first else (x, self.own)))
        return torch.as_tensor(self.last(torch.relu(x).mean((2, 3))))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("op", TWO)
def test_each_shape_that_a_constant_may_have(op: str, first: bool, tmp_path: Path) -> None:
    """Where a map has as many rows and columns as channels, nothing but its axes tells what it is for."""
    images = np.random.default_rng(1).integers(0, 256, (2, 5, 5, 2)).astype(np.uint8)
    samples = torch.tensor(np.moveaxis(images / 255.0, -1, 1).astype(np.float32))
    torch.manual_seed(0)
    for shape in SIDES:
        net = Beside(op, first, shape).eval()
        wanted = np.concatenate([net(each[None]).detach().numpy() for each in samples])
        torch.export.save(torch.export.export(net, (samples[:1],)), tmp_path / "own.pt2")
        graphs = (load_model(tmp_path / "own.pt2").graph, load(export(net, tmp_path / "own.onnx")))
        for graph in graphs:
            found = run_float(graph, images).reshape(wanted.shape)
            np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=f"{shape}")


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL", "SELECT_V2"])
def test_each_shape_that_one_of_tflite_may_have(op: str, first: bool, tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (4, 7, 7, 2)).astype(np.uint8)
    for shape in SIDES:
        net = Float(7, 7, 2).conv(5, 3, 3, act=0)
        values = net.rng.uniform(0.5, 1.5, shape).astype(np.float32)
        sides = (net.x, net.w.tensor("own", shape, "float32", values))
        sides = sides[::-1] if first else sides
        if op == "SELECT_V2":
            more = net.w.tensor("more", net.shape, "bool")
            limit = net.w.tensor("limit", (), "float32", np.array(0.2, np.float32))
            net.w.op("GREATER", (net.x, limit), (more,), "GreaterOptions")
            net.op(op, (more, *sides), net.shape, "SelectV2Options")
        else:
            net.op(op, sides, net.shape, f"{op.capitalize()}Options")
        path = net.conv(4, 2, 2).over("MEAN", 1, 2).linear(3).file(tmp_path)
        found = run_float(load_model(path).graph, pixels).reshape(4, 3)
        np.testing.assert_allclose(found, interpreted(path, pixels / 255.0), atol=2e-5, err_msg=f"{shape}")


class Normed(nn.Module):
    """A layer norm of a whole map, with a scale and a shift for each number."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        conv = nn.Conv2d if len(shape) == 3 else nn.Conv1d
        self.conv, self.last = conv(2, shape[0], 3, padding=1), nn.Linear(shape[0], 3)
        self.norm = nn.LayerNorm(shape)
        for own in self.norm.parameters():
            own.data = torch.rand(shape) + 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.last(torch.relu(self.norm(self.conv(x))).flatten(2).mean(2)))


@pytest.mark.parametrize("shape", [(4, 6, 5), (4, 9)])
def test_a_layer_norm_of_a_whole_map(shape: tuple[int, ...], tmp_path: Path) -> None:
    torch.manual_seed(0)
    graph = assert_as_pytorch(Normed(shape).eval(), (2, *shape[1:]), tmp_path / "own.pt2")
    assert [node.op for node in graph.nodes][1:4] == [GROUP_NORM, VALUES, "position"]


@pytest.mark.parametrize("most", [0.4, 1.8])
@pytest.mark.parametrize("shape", [(4, 6, 5), (1, 6, 5), (4, 1, 5)])
def test_slopes_of_places_in_onnx(shape: tuple[int, int, int], most: float, tmp_path: Path) -> None:
    """Keras' PReLU has one for each number, unless it is told otherwise."""
    rng = np.random.default_rng(0)
    arrays = constants(
        w=rng.normal(0, 0.4, (4, 2, 3, 3)).astype(np.float32),
        slope=rng.uniform(-0.3, most, shape).astype(np.float32),
        v=rng.normal(0, 0.4, (3, 4)).astype(np.float32),
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("PRelu", ["a", "slope"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "v"], ["y"], transB=1),
    ]
    path = saved(tmp_path / "slopes.onnx", nodes, arrays, [1, 2, 6, 5])
    images = np.random.default_rng(1).integers(0, 256, (4, 6, 5, 2)).astype(np.uint8)
    wanted = reference(path, np.moveaxis(images / 255.0, -1, 1))
    np.testing.assert_allclose(run_float(load(path), images).reshape(4, 3), wanted, atol=1e-5)


def test_slopes_of_places_in_tflite(tmp_path: Path) -> None:
    net = Float(8, 7, 2).conv(5, 3, 3, act=0)
    slopes = net.rng.uniform(-0.3, 0.6, net.shape[1:]).astype(np.float32)
    net.op("PRELU", (net.x, net.w.tensor("slopes", slopes.shape, "float32", slopes)), net.shape)
    path = net.conv(4, 2, 2).over("MEAN", 1, 2).linear(3).file(tmp_path)
    pixels = np.random.default_rng(1).integers(0, 256, (8, 8, 7, 2)).astype(np.uint8)
    found = run_float(load_model(path).graph, pixels).reshape(8, 3)
    np.testing.assert_allclose(found, interpreted(path, pixels / 255.0), atol=2e-5)


def network(rng: np.random.Generator) -> Graph:
    b = Builder(rng, (9, 7, 3))
    return b.finish(b.conv(b.scaled(b.conv(b.scaled(b.conv("x", 6, 3, 2)), 11)), 5), 3)


@pytest.mark.parametrize("requantize", [FLOAT, TFLITE])
@pytest.mark.parametrize("fraction_bits", [0, 4])
def test_c_learns_what_numpy_learns(fraction_bits: int, requantize: str, tmp_path: Path) -> None:
    graph = network(np.random.default_rng(fraction_bits)).replace(requantize=requantize)
    compiled = partly_trained(graph, fraction_bits)
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path), 8)


def test_errors_go_through_it_as_in_autograd() -> None:
    assert_as_autograd(everything(network(np.random.default_rng(3))).graph)


def test_a_table_of_zeros_and_one_of_large_numbers() -> None:
    graph = network(np.random.default_rng(0))
    node = next(n for n in graph.nodes if n.op == VALUES)
    shape = graph.tensors[node.inputs[0]].shape
    none = scale_values.node_of("none", "x", "y", np.zeros(shape))
    assert scale_values.scale_of(none) == 1.0
    large = scale_values.node_of("large", "x", "y", np.full(shape, -1e6))
    assert scale_values.scale_of(large) == pytest.approx(1e6 / 127)


def test_a_division_by_zero_is_a_sentence(tmp_path: Path) -> None:
    class Divided(Windowed):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.last(torch.relu(self.conv(x / self.window)).mean(2)))

    with pytest.raises(ConvertError, match="window has a 0, by which nothing can be divided"):
        graph_of(Divided(), (2, 40), tmp_path / "own.pt2")


def test_slopes_of_places_in_int8(tmp_path: Path) -> None:
    """The table has a scale of its own, so an output in some may be a unit off."""
    net = Int8.input((8, 7, 2), zero=3).conv(5, (3, 3), 1, (8, 7), (0.05, 0), act=0)
    codes = net.rng.integers(-127, 128, net.shape)
    slopes = net.w.tensor("slopes", net.shape, data=codes, scale=(0.004,), zero=(0,))
    made = net.w.tensor("made", (1, *net.shape), scale=(0.04,), zero=(-60,))
    net.w.op("PRELU", (net.x, slopes), (made,))
    net.x, net.scale, net.zero = made, 0.04, -60
    path = tmp_path / "int8.tflite"
    path.write_bytes(net.mean((0.02, 4)).linear(3, (0.02, 0)).file())
    samples = np.random.default_rng(1).integers(-128, 128, (20, 8 * 7 * 2)).astype(np.int8)
    wanted, said = integers(path, samples, reference=True)
    found = logits(int8_graph(path), samples, said)
    assert np.ptp(wanted) > 20 and np.abs(found - wanted).max() <= 1
