"""Series of thousands of steps are converted, streamed and learned from as short ones are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from networks import Builder
from pio_build import build, host_program
from planting import planted
from test_executor import images
from test_resample import assert_as_pytorch, exported
from test_stream import HEAD, assert_same_logits
from torch import nn
from torch.nn import functional

from lab.attack import gradients as attack
from lab.attack.gradients import Extreme, extreme_graph
from microtrain.base.plan import read_plan
from microtrain.convert.cli import main as convert
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import SIDE_MOST, ConvertError, Graph, Window
from microtrain.convert.native_model import NativeModel, Sgd
from microtrain.convert.pipeline import Passes, compile_graph, training_graph
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.quantize.ranges import measure_ranges
from microtrain.convert.reference import kernels as reference
from microtrain.convert.scheme import Scheme
from microtrain.device.client import Device
from microtrain.device.learning import train
from microtrain.device.link import EmulatorPort, ProgramPort
from microtrain.device.session import Settings, Silent, new_log
from microtrain.native import model as native
from microtrain.samples.source import Dataset, Sample, load, scan
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.machine import Machine, library

SAMPLES, CLASSES, LEARNED = 8000, 3, 6
Pooling = Callable[[torch.Tensor], torch.Tensor]


def mean(x: torch.Tensor) -> torch.Tensor:
    return functional.avg_pool1d(x, x.shape[-1])


class M5(nn.Module):
    """Raw sound as M5 takes it: a kernel of 80 samples, poolings by 4, in the end a pooling over all time."""

    def __init__(self, wide: int = 8, blocks: int = 4, over_time: Pooling = mean) -> None:
        super().__init__()
        sizes = ((1, wide, 80, 4), *[(wide, wide, 3, 1)] * (blocks - 1))
        self.layers = nn.ModuleList(nn.Conv1d(*size) for size in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm1d(wide) for _ in sizes)
        self.head, self.over_time = nn.Linear(wide, CLASSES), over_time

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = functional.max_pool1d(functional.relu(norm(layer(x))), 4)
        result: torch.Tensor = self.head(self.over_time(x).flatten(1))
        return result


def made(model: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """With statistics of batch norms that a training would have left."""
    torch.manual_seed(2)
    for _ in range(8):
        model.train()(torch.rand(4, *shape) * 2)
    return model.eval()


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_m5_is_that_of_pytorch(suffix: str, tmp_path: Path) -> None:
    graph = assert_as_pytorch(made(M5(), (1, SAMPLES)), tmp_path / f"m5{suffix}", (1, SAMPLES))
    assert graph.tensors[graph.input.tensor].shape == (SAMPLES, 1, 1)


def longest(x: torch.Tensor) -> torch.Tensor:
    return functional.max_pool1d(x, x.shape[-1])


def in_tens(x: torch.Tensor) -> torch.Tensor:
    return functional.max_pool1d(x, 490, 490).mean(-1)


@pytest.mark.parametrize("over_time", [mean, longest, in_tens])
def test_poolings_over_all_time_are_those_of_pytorch(over_time: Pooling, tmp_path: Path) -> None:
    """Of 4,967 steps: more than a byte counts, and a prime number of them."""
    shape = (1, 79 + 4 * 4967 * 4 - 3)
    graph = assert_as_pytorch(made(M5(3, 1, over_time), shape), tmp_path / "pool.pt2", shape)
    windows = [node.window for node in graph.nodes if node.op != "conv2d" and node.window is not None]
    assert {4967, 71, 245} & {window.kh for window in windows}


@pytest.mark.parametrize(("window", "stride"), [(300, 100), (257, 257)])
def test_windows_of_maxima_that_fall_into_no_parts_stay_small(
    window: int, stride: int, tmp_path: Path
) -> None:
    """They overlap, or are of a prime number of steps."""
    net = M5(3, 1, lambda x: functional.max_pool1d(x, window, stride).mean(-1))
    model = exported(made(net, (1, SAMPLES)), tmp_path / "m.pt2", (1, SAMPLES))
    code, said = converted(model, tmp_path, "--check")
    assert code == 1 and "use a window of 256 pixels at most" in said


def converted(model: Path, folder: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(convert, [str(model), "-o", str(folder / "out"), *words])
    return done.exit_code, done.output


@pytest.mark.parametrize(("kernel", "fits"), [(80, True), (255, True), (400, False)])
def test_a_wide_kernel_is_taken_or_named(kernel: int, fits: bool, tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv1d(1, 4, kernel, 50), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    net.append(nn.Linear(4, CLASSES))
    model = exported(net, tmp_path / "m.pt2", (1, SAMPLES))
    if fits:
        assert load_model(model).graph.nodes[0].window == Window(kernel, 1, 50, 1)
        return
    with pytest.raises(ConvertError, match=r"a window of 400x1 every 50x1 .* 255 pixels per side"):
        load_model(model)


def long_network(rows: int) -> Graph:
    """Strides, padding and a pooling over so many rows; the padding above is counted with them."""
    b = Builder(np.random.default_rng(3), (rows, 1, 2))
    x = b.depthwise(b.conv("x", 4, 3, 1), 3)
    x = b.conv(x, 3, 5, 4)
    return b.finish(b.pool_rows("maxpool", x, 4), CLASSES)


@pytest.mark.parametrize("arriving", [True, False])
def test_rows_are_counted_in_all_of_their_16_bits(arriving: bool, tmp_path: Path) -> None:
    compiled = compile_graph(long_network(SIDE_MOST - 4), HEAD, CLASSES, Passes(arriving=arriving))
    assert compiled.graph.arriving == arriving and compiled.graph.nodes[0].parts
    assert_same_logits(compiled, tmp_path)


def test_rows_that_are_counted_in_15_bits_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: one bit less for the row that enters the first stage."""
    compiled = compile_graph(long_network(40_000), HEAD, CLASSES, Passes(arriving=False))
    assert_same_logits(compiled, tmp_path / "sound")
    fault = ("stream.c", "at->x + row * bytes", "at->x + (row & 0x7fff) * bytes")
    folder = planted(tmp_path / "kernels", fault)
    sources = tuple(sorted(folder.glob("*.c")))
    monkeypatch.setattr(native, "kernels", lambda: sources)
    with pytest.raises(AssertionError):
        assert_same_logits(compiled, tmp_path / "planted")


def counted(rows: int) -> Graph:
    """A stream whose first stage leaves its last row unread, and has one of padding."""
    b = Builder(np.random.default_rng(4), (rows, 1, 1))
    return b.finish(b.conv(b.conv("x", 2, 2, 4, pad=1), 2), CLASSES)


def test_rows_that_nothing_reads_are_counted() -> None:
    """65,535 rows and one of padding, of which windows read 65,534: the counter was thought to hold them."""
    assert compile_graph(counted(SIDE_MOST - 1), HEAD, CLASSES)
    with pytest.raises(ConvertError, match="a number of rows of layer0 can reach 65536"):
        compile_graph(counted(SIDE_MOST), HEAD, CLASSES)


LONGEST = (
    Extreme("conv2d", (SIDE_MOST, 1, 1), 2, Window(80, 1, 16, 1)),
    Extreme("conv2d", (SIDE_MOST, 1, 1), 2, Window(3, 1, 1, 1, 1, 0), 0),
    Extreme("dwconv2d", (SIDE_MOST, 1, 2), 2, Window(3, 1, 1, 1, 1, 0)),
    Extreme("avgpool", (SIDE_MOST, 1, 1), 1, Window(SIDE_MOST, 1)),
)


@pytest.mark.parametrize("case", LONGEST)
def test_sums_over_all_time_are_those_of_64_bits(case: Extreme) -> None:
    assert training_graph(extreme_graph(case), Scheme("all", -1, {"all": 1.0}), attack.CLASSES)
    wrong, cases = attack.overflow_cases_wrong((case,))
    assert wrong == 0 and cases > 1


def test_m5_learns_in_c_what_it_learns_in_numpy(tmp_path: Path) -> None:
    """All layers learn, from 8,000 samples each step."""
    model = exported(made(M5(4), (1, SAMPLES)), tmp_path / "m5.pt2", (1, SAMPLES))
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (4, SAMPLES, 1, 1)).astype(np.uint8)
    graph = load_model(model).graph
    quantized = quantize(graph, measure_ranges(graph, pixels))
    compiled = compile_graph(quantized, Scheme("all", -1, {"all": 1.0}, fraction_bits=4), CLASSES)
    native, executor = NativeModel(generate(compiled, "a test"), tmp_path / "c"), Executor(compiled.graph)
    for step, image in enumerate(images(compiled.graph, 3)):
        assert native.forward(image, train=True).tobytes() == executor.forward(image).tobytes()
        native.backward(step, Sgd(0.1, 0.1, 0.1, 1, step))
        executor.backward(step, reference.Sgd(0.1, 0.1, 0.1, 1, step))
        assert native.trainables() == executor.trainables()


def sounds(label: int, count: int, seed: int) -> np.ndarray:
    """Tones of three heights in noise, as bytes."""
    rng, at = np.random.default_rng([seed, label]), np.arange(SAMPLES) / 8000
    tones = np.sin(2 * np.pi * (150 * (label + 1) * at + rng.random((count, 1))))
    made_of = 128 + 50 * tones + rng.normal(0, 20, (count, SAMPLES))
    return np.clip(np.rint(made_of), 0, 255).astype(np.uint8)[..., None, None]


def session(learner: Device | Machine, training: Dataset) -> str:
    """SHA-256 of what was learned, without steps on records. A simulator takes what its front leaves."""
    at_board = isinstance(learner, Device) and learner.info.records > 0
    log = new_log(learner, training, Settings(limit=LEARNED, seed=7, replay=0 if at_board else None))

    def show(sample: Sample, _: int | None) -> np.ndarray:
        values = load(sample.path, (SAMPLES, 1, 1))
        return learner.look(values) if isinstance(learner, Machine) else values

    train(learner, training, None, log, Silent(), show)
    assert len(log.steps) == LEARNED
    return log.sha256


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--replay", "off", "--scheme", "head-only")])
def test_the_board_learns_m5_as_this_machine_does(words: tuple[str, ...], tmp_path: Path) -> None:
    """With a buffer the samples stay in memory; without, they enter the first layers as they come."""
    model = exported(made(M5(), (1, SAMPLES)), tmp_path / "m5.pt2", (1, SAMPLES))
    for label in range(CLASSES):
        (tmp_path / f"typical/{label}").mkdir(parents=True)
        for number, sound in enumerate(sounds(label, 6, 3)):
            np.save(tmp_path / f"typical/{label}/{number}.npy", sound[:, 0])
    code, said = converted(model, tmp_path, "--calibration", str(tmp_path / "typical"), *words)
    assert code == 0, said
    plan = read_plan(tmp_path / "out/plan.json")
    assert plan.steps[0].op == "stream" if words else plan.replay
    training = scan(tmp_path / "typical", CLASSES)
    blueprint = load_blueprint(tmp_path / "out")
    simulated = session(Machine(blueprint, library(blueprint, tmp_path)), training)
    elf = build(tmp_path / "pio", "disco_f746ng", tmp_path / "out")
    for port in (EmulatorPort(elf), ProgramPort(host_program(tmp_path / "out", tmp_path))):
        with Device(port) as device:
            assert device.sha() != simulated
            assert session(device, training) == simulated
