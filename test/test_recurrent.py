"""Recurrent layers: PyTorch's values from every file, the same bytes everywhere, no gradient through them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner
from networks import Builder
from test_executor import run_both
from test_gradients import everything
from test_parallel import assert_simulated, compiled, image_of
from test_stream import assert_same_logits
from torch import nn

from microtrain.convert.cli import main
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import hop, recurrent
from microtrain.convert.passes.accumulators import prove
from microtrain.convert.pipeline import Passes, compile_graph
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.scheme import Scheme, apply, convolutions

ROWS, FEATURES, UNITS = 12, 6, 9
OPS = (*recurrent.LAST, *recurrent.LAST.values())


def network(op: str = "gru", seed: int = 0) -> Graph:
    """Two layers over rows, the cell, and behind it two layers that learn and the head."""
    b = Builder(np.random.default_rng(seed), (ROWS, FEATURES, 1))
    x = b.recurrent(b.conv("x", 4, 3), op, UNITS)
    return b.finish(b.conv(b.conv(x, 8), 7), 5)


class Net(nn.Module):
    """A recurrent layer over the rows of a map, or over an input that is a sequence itself."""

    def __init__(self, cell: str, read: str, layers: int = 1, mapped: bool = False, **about: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1) if mapped else None
        self.cell = getattr(nn, cell)(4 * FEATURES if mapped else FEATURES, UNITS, layers, **about)
        self.head, self.read = nn.Linear(self.cell.hidden_size * (1 + self.cell.bidirectional), 3), read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.conv is not None:
            x = self.conv(x).relu().permute(0, 2, 1, 3).flatten(2)
        first = self.cell.batch_first
        made, state = self.cell(x if first else x.transpose(0, 1))
        made = made if first else made.transpose(0, 1)
        h = state[0] if isinstance(state, tuple) else state
        found: dict[str, Callable[[], torch.Tensor]] = {
            "last": lambda: made[:, -1],
            "state": lambda: h[-1],
            "first state": lambda: h[0],
            "both states": lambda: torch.cat([h[-2], h[-1]], 1),
            "mean": lambda: made.mean(1),
        }
        result: torch.Tensor = self.head(found[self.read]())
        return result


def seeded(*args: Any, **about: Any) -> Net:
    torch.manual_seed(0)
    return Net(*args, **about).eval()


def exported(net: nn.Module, folder: Path, mapped: bool = False) -> Path:
    path, shape = folder / "m.pt2", (1, 1, ROWS, FEATURES) if mapped else (1, ROWS, FEATURES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(net, (torch.zeros(shape),)), path)
    return path


def traced(net: nn.Module, folder: Path, mapped: bool = False) -> Path:
    path, shape = folder / "m.pt", (1, 1, ROWS, FEATURES) if mapped else (1, ROWS, FEATURES)
    torch.jit.trace(net, torch.zeros(shape)).save(str(path))
    return path


def as_onnx(net: nn.Module, folder: Path, mapped: bool = False, opset: int = 17) -> Path:
    path, shape = folder / "m.onnx", (1, 1, ROWS, FEATURES) if mapped else (1, ROWS, FEATURES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (torch.zeros(shape),), str(path), opset_version=opset, dynamo=False)
    return path


def read(path: Path, mapped: bool = False) -> Graph:
    shape = (1, ROWS, FEATURES) if mapped else (ROWS, FEATURES)
    return load_model(path, input_shape=shape if path.suffix == ".pt" else None).graph


def assert_same(net: nn.Module, graph: Graph, mapped: bool = False, most: float = 0.02) -> None:
    """The float graph has PyTorch's values; int8 stays close to them."""
    pixels = np.random.default_rng(1).integers(0, 256, (40, ROWS, FEATURES)).astype(np.uint8)
    real = torch.tensor(pixels / np.float32(255))
    want = net(real[:, None] if mapped else real).detach().numpy()
    images = pixels.reshape(-1, *graph.tensors["input"].shape)
    found = run_float(graph, images).reshape(want.shape)
    np.testing.assert_allclose(found, want, atol=1e-5)
    quantized = quantize_model(graph, images, Choices())
    stored = run_int8(quantized, images).reshape(want.shape)
    assert np.abs(stored - want).max() < most * np.ptp(want)


class OfOne(nn.Module):
    """A recurrent layer over a series of one number a moment."""

    def __init__(self, cell: str, both: bool) -> None:
        super().__init__()
        self.cell = getattr(nn, cell)(1, UNITS, batch_first=True, bidirectional=both)
        self.head = nn.Linear(UNITS * (1 + both), 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.cell(x)[0].mean(1))
        return result


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", ["GRU", "LSTM"])
def test_series_of_one_number_a_moment(cell: str, both: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, path = OfOne(cell, both).eval(), tmp_path / "m.pt2"
    torch.export.save(torch.export.export(net, (torch.zeros(1, ROWS, 1),)), path)
    pixels = np.random.default_rng(1).integers(0, 256, (8, ROWS, 1)).astype(np.uint8)
    want = net(torch.tensor(pixels / np.float32(255))).detach().numpy()
    found = run_float(load_model(path).graph, pixels[:, :, None]).reshape(want.shape)
    np.testing.assert_allclose(found, want, atol=2e-5)


@pytest.mark.parametrize("save", [exported, traced, as_onnx])
@pytest.mark.parametrize("read_out", ["last", "state", "mean"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("cell", ["GRU", "LSTM"])
def test_a_layer_of_pytorch(
    cell: str, mapped: bool, layers: int, read_out: str, save: Callable[..., Path], tmp_path: Path
) -> None:
    net = seeded(cell, read_out, layers, mapped, batch_first=True)
    graph = read(save(net, tmp_path, mapped), mapped)
    assert_same(net, graph, mapped)
    last = recurrent.LAST[cell.lower()] in {n.op for n in graph.nodes}
    assert last == (read_out != "mean"), "what only the last row leaves is not kept for all"


def test_time_first_and_no_biases(tmp_path: Path) -> None:
    net = seeded("GRU", "last", batch_first=False, bias=False)
    assert_same(net, read(exported(net, tmp_path)))


@pytest.mark.parametrize("save", [exported, traced, as_onnx])
@pytest.mark.parametrize("read_out", ["last", "both states", "mean"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", ["GRU", "LSTM", "RNN"])
def test_a_layer_that_also_goes_backward(
    cell: str, layers: int, read_out: str, save: Callable[..., Path], tmp_path: Path
) -> None:
    net = seeded(cell, read_out, layers, batch_first=True, bidirectional=True)
    assert_same(net, read(save(net, tmp_path)), most=0.08)


@pytest.mark.parametrize("save", [exported, traced, as_onnx])
@pytest.mark.parametrize("read_out", ["last", "state", "mean"])
@pytest.mark.parametrize("about", [{}, {"bias": False}, {"layers": 2}])
def test_a_plain_cell_is_a_gru_whose_gates_stay(
    about: dict[str, Any], read_out: str, save: Callable[..., Path], tmp_path: Path
) -> None:
    net = seeded("RNN", read_out, batch_first=True, **about)
    assert_same(net, read(save(net, tmp_path)))


class Columns(nn.Module):
    """A spectrogram [1, bands, time], as CRNNs read it: each column of the map is a moment."""

    def __init__(self, pooled: int, bands_first: bool) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv2d(1, 3, 3, padding=1), nn.MaxPool2d((pooled, 1))
        self.cell = nn.GRU(3 * ROWS // pooled, UNITS, batch_first=True, bidirectional=True)
        self.head, self.bands_first = nn.Linear(2 * UNITS, 3), bands_first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.pool(self.conv(x).relu())
        y = y.permute(0, 3, 2, 1) if self.bands_first else y.permute(0, 3, 1, 2)
        made: torch.Tensor = self.head(self.cell(y.flatten(2))[0][:, -1])
        return made


@pytest.mark.parametrize("save", [exported, traced, as_onnx])
@pytest.mark.parametrize("bands_first", [False, True])
@pytest.mark.parametrize("pooled", [2, ROWS])
def test_columns_of_a_map_are_moments(
    pooled: int, bands_first: bool, save: Callable[..., Path], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    net = Columns(pooled, bands_first).eval()
    graph = read(save(net, tmp_path, mapped=True), mapped=True)
    assert_same(net, graph, mapped=True, most=0.06)


def test_columns_of_a_map_on_the_device(tmp_path: Path) -> None:
    torch.manual_seed(0)
    graph = read(exported(Columns(2, False).eval(), tmp_path, mapped=True), mapped=True)
    pixels = np.random.default_rng(1).integers(0, 256, (40, ROWS, FEATURES, 1)).astype(np.uint8)
    trained = compile_graph(quantize_model(graph, pixels, Choices()), Scheme("head", head="random"), 3)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 6)


def test_a_direction_backward_on_the_device(tmp_path: Path) -> None:
    """The generated code trains what stands behind both directions as the executor does."""
    graph = read(exported(seeded("LSTM", "last", batch_first=True, bidirectional=True), tmp_path))
    pixels = np.random.default_rng(1).integers(0, 256, (40, ROWS, 1, FEATURES)).astype(np.uint8)
    stored = quantize_model(graph, pixels, Choices())
    trained = compile_graph(stored, Scheme("head", head="random"), 3)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 6)


def test_a_wrong_order_of_gates_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    net = seeded("LSTM", "last", batch_first=True)
    with torch.no_grad():
        for name in ("weight_ih_l0", "weight_hh_l0"):
            weight = getattr(net.cell, name)
            weight.copy_(weight.roll(UNITS, 0))
    path = exported(net, tmp_path)
    with pytest.raises(AssertionError):
        assert_same(seeded("LSTM", "last", batch_first=True), read(path))


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a state of an inner layer": (
        {"batch_first": True, "layers": 2},
        "first state",
        "the op linear of what an inner layer of several leaves",
    ),
}


def test_onnx_reads_the_state_of_the_layer_that_is_meant(tmp_path: Path) -> None:
    net = seeded("GRU", "first state", batch_first=True, layers=2)
    with pytest.warns(UserWarning, match=r"the output does not depend on \S*GRU_1, which is left out"):
        assert_same(net, read(as_onnx(net, tmp_path)))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_has_a_sentence(name: str, tmp_path: Path) -> None:
    about, read_out, sentence = REFUSED[name]
    net = seeded("GRU", read_out, **about)
    with pytest.raises(ConvertError, match=sentence):
        read(exported(net, tmp_path))


ODD: dict[str, tuple[str, dict[str, Any], str]] = {
    "reset before": ("GRU", {"linear_before_reset": 0}, "GRU with linear_before_reset 0 is not supported"),
    "a direction of its own": ("LSTM", {"direction": "inward"}, "LSTM with the direction inward is not supp"),
    "activations": ("GRU", {"activations": ["HardSigmoid", "Relu"]}, "GRU with activations, clipping, peep"),
    "clipped": ("LSTM", {"clip": 3.0}, "LSTM with activations, clipping, peepholes or coupled gates"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_onnx_has_besides_is_refused(name: str, tmp_path: Path) -> None:
    cell, changes, sentence = ODD[name]
    path = as_onnx(seeded(cell, "last", batch_first=True), tmp_path)
    model = onnx.load(str(path))
    node = next(n for n in model.graph.node if n.op_type == cell)
    kept = [a for a in node.attribute if a.name not in changes]
    del node.attribute[:]
    node.attribute.extend([*kept, *(onnx.helper.make_attribute(k, v) for k, v in changes.items())])
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ConvertError, match=sentence):
        read(path)


def test_onnx_goes_backward_alone(tmp_path: Path) -> None:
    """As tf2onnx writes Keras' go_backwards: what it leaves at the last moment has seen no other."""
    net = seeded("LSTM", "last", batch_first=True)
    path = as_onnx(net, tmp_path)
    model = onnx.load(str(path))
    node = next(n for n in model.graph.node if n.op_type == "LSTM")
    node.attribute.append(onnx.helper.make_attribute("direction", "reverse"))
    path.write_bytes(model.SerializeToString())
    pixels = np.random.default_rng(1).integers(0, 256, (5, ROWS, 1, FEATURES)).astype(np.uint8)
    want = net.head(net.cell(torch.tensor(pixels[:, -1:, 0] / np.float32(255)))[0][:, -1]).detach().numpy()
    found = run_float(read(path), pixels.reshape(5, *read(path).tensors["input"].shape)).reshape(want.shape)
    np.testing.assert_allclose(found, want, atol=1e-5)


@pytest.mark.parametrize("opset", [13, 18])
def test_onnx_with_time_first(opset: int, tmp_path: Path) -> None:
    net = seeded("LSTM", "state", batch_first=False)
    assert_same(net, read(as_onnx(net, tmp_path, opset=opset)))


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("op", OPS)
def test_generated_code_trains_like_the_executor(op: str, compiler: str, tmp_path: Path) -> None:
    trained = everything(network(op, 1))
    assert len(convolutions(trained.graph)) == 2, "what stands behind it"
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 6)


@pytest.mark.parametrize("op", OPS)
def test_its_rows_stream(op: str, tmp_path: Path) -> None:
    frozen = compile_graph(network(op), Scheme("head", head="random"), 5, Passes())
    first = frozen.graph.nodes[0]
    assert frozen.graph.arriving and op in {part.op for part in first.parts}
    assert_same_logits(frozen, tmp_path)


def test_alone_at_the_input_its_rows_stream() -> None:
    b = Builder(np.random.default_rng(0), (50, 40, 1))
    graph = b.finish(b.recurrent("x", "gru_last", 8), 5)
    frozen = compile_graph(graph, Scheme("head", head="random"), 5, Passes())
    assert frozen.graph.arriving and frozen.plan.arena < 50 * 40, "the window is never whole"


@pytest.mark.parametrize("op", OPS)
def test_the_simulation_has_the_executors_gradients(op: str, tmp_path: Path) -> None:
    graph = network(op)
    assert_simulated(compiled(graph, len(convolutions(graph)), 1.0), image_of(graph, 1), tmp_path)


def test_training_before_it_is_refused() -> None:
    graph = network()
    scheme = Scheme("s", weights={"layer0": 1.0})
    with pytest.raises(ConvertError, match="layer0 stands before gru1, through which no gradient passes"):
        apply(graph, scheme)
    with pytest.raises(ConvertError, match="biases of 3 convolutions, but net has 2"):
        apply(graph, Scheme("s", biases=3))


def test_windows_that_overlap_begin_it_anew() -> None:
    frozen = compile_graph(network(), Scheme("head", head="random"), 5, Passes())
    found = hop.kept(hop.checked(frozen.graph, 2))
    assert not found.goes and found.why == "gru1 begins each window anew"


def test_its_integers_are_proven() -> None:
    graph = network()
    assert prove(graph) is graph
    node = next(n for n in graph.nodes if n.op == "gru")
    real = recurrent.real_of(node)
    large = recurrent.Real(real.x * np.float32(1e4), real.h, real.b)
    grown = recurrent.node_of("gru", node.name, node.inputs[0], node.outputs[0], large)
    nodes = tuple(grown if n is node else n for n in graph.nodes)
    with pytest.raises(
        ConvertError, match=r"a multiplier of a gate can reach .* normalise what the layer reads"
    ):
        prove(graph.replace(nodes=nodes))


def test_conversion_says_what_no_scheme_can_train(tmp_path: Path) -> None:
    path = exported(seeded("GRU", "last", mapped=True, batch_first=True), tmp_path, mapped=True)
    samples = np.random.default_rng(0).integers(0, 256, (8, ROWS, FEATURES, 1)).astype(np.uint8)
    np.savez(tmp_path / "typical.npz", images=samples)
    options = ["--calibration", str(tmp_path / "typical.npz"), "--classes", "3", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(main, [str(path), *options])
    assert done.exit_code == 0, done.output
    assert "frozen      conv: no gradient passes cell.gru_last behind them" in done.output
