"""Lite residual modules: what stands beside which block, that it changes no answer, and how it learns."""

from __future__ import annotations

import importlib
import sys
import textwrap
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import EXAMPLE, ROOT, run
from networks import Builder, residual_network
from test_executor import images, run_both
from test_gradients import LEAST, cosines
from test_model_copy import Session
from test_parallel import assert_simulated, image_of
from torch import nn
from torch.nn import functional

from lab.bench.build import BOARD, build
from microtrain.base.plan import LITE, read_plan
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.summary import choices
from microtrain.convert.execute.batched import run_int8
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.lite import LiteResiduals
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import conv_constants
from microtrain.convert.passes.blocks import blocks
from microtrain.convert.passes.lite_residuals import with_lite_residuals
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.reference.kernels import Sgd
from microtrain.convert.scheme import Scheme, load
from microtrain.device.client import Device
from microtrain.device.errors import DeviceError
from microtrain.device.link import EmulatorPort
from microtrain.device.model_copy import save_model
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.machine import Machine, library

CLASSES = 5
TWO = LiteResiduals((1, 2), groups=2)


def network(seed: int = 0, size: int = 16) -> Graph:
    """Inverted residuals, called as PyTorch calls them: one with a stride, one with a residual, one that
    widens."""
    b = Builder(np.random.default_rng(seed), (size, size, 3))
    x = b.conv("x", 8, 3, 2)
    x = b.conv(b.depthwise(b.conv(x, 16), 3, 2), 6, relu=False)
    x = b.add(b.conv(b.depthwise(b.conv(x, 24), 3, 1), 6, relu=False), x)
    x = b.conv(b.depthwise(b.conv(x, 18), 3, 1), 10, relu=False)
    return b.finish(b.conv(x, 20), CLASSES)


def scheme_of(wanted: LiteResiduals | None, biases: int = 3, bits: int = 4) -> Scheme:
    return Scheme("lite", biases, fraction_bits=bits, head="random", lite=wanted)


def begun(graph: Graph, wanted: LiteResiduals, bits: int = 4) -> Graph:
    """The graph with modules that have learned something."""
    rng = np.random.default_rng(9)
    made = with_lite_residuals(graph, wanted, bits)
    layers = {
        name: replace(layer, weight=rng.integers(-90, 90, layer.weight.shape).astype(np.int8))
        for name, layer in made.layers.items()
        if name.endswith(f"{LITE}project")
    }
    return made.replace(layers={**made.layers, **layers})


def compiled(graph: Graph, biases: int = 3) -> Compiled:
    """Of a graph that has its modules: all of them learn, whatever the scheme."""
    return compile_graph(graph, scheme_of(None, biases), CLASSES, Passes(fused=False))


# ---------------------------------------------------------------- blocks and shapes


def test_blocks_lie_between_bottlenecks() -> None:
    found = blocks(network())
    assert [len(block.layers) for block in found] == [1, 3, 3, 3, 1]
    for block, following in pairwise(found):
        assert block.y == following.x


@pytest.mark.parametrize("residual", ["features.2.add", "skip"])
def test_a_block_is_called_after_the_module_that_holds_it(residual: str) -> None:
    """features.2 holds a residual add too, features.1 and .3 hold nothing beside their layers."""
    graph, places = network(), (0, *[1] * 3, *[2] * 3, *[3] * 3, 4)
    names = {f"layer{i}" for i in range(12)} & set(graph.layers)
    ordered = [n.name for n in graph.nodes if n.name in names]
    renamed = {name: f"features.{k}.conv.{name}" for name, k in zip(ordered, places, strict=True)}
    renamed["add7"] = residual
    nodes = tuple(
        replace(n, name=renamed.get(n.name, n.name), layer=renamed.get(n.layer or "", n.layer))
        for n in graph.nodes
    )
    layers = {renamed.get(name, name): layer for name, layer in graph.layers.items()}
    found = [block.name for block in blocks(graph.replace(nodes=nodes, layers=layers))]
    assert found == [f"features.{k}" for k in range(5)]


def test_the_last_block_is_that_of_the_last_map() -> None:
    graph = residual_network()
    last = blocks(graph)[-1]
    assert graph.tensors[last.y].pixels > 1
    assert last.layers[-1] == "layer15"


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("reduce", [1, 2])
def test_answers_are_those_of_the_network_alone(groups: int, reduce: int) -> None:
    graph, wanted = network(), LiteResiduals((2, 3), groups=groups, reduce=reduce)
    shown = np.random.default_rng(2).integers(0, 256, (20, 16, 16, 3)).astype(np.uint8)
    expected = run_int8(graph, shown)
    np.testing.assert_array_equal(run_int8(with_lite_residuals(graph, wanted, 4), shown), expected)
    assert not np.array_equal(run_int8(begun(graph, wanted), shown), expected), "a module that says something"


def test_a_module_has_room_for_what_it_sums() -> None:
    """On images of a real network nothing saturates in front of the normalisation, nor is it coarse."""
    loaded = load_model(EXAMPLE / "model.pt")
    assert loaded.calibration is not None
    graph = quantize_model(loaded.graph, loaded.calibration, Choices())
    found: dict[str, np.ndarray] = {}
    wanted = LiteResiduals((1, 2, 3, 4))
    run_int8(with_lite_residuals(graph, wanted, 4), loaded.calibration, found.__setitem__)
    sums = [values for name, values in found.items() if name.endswith(f"{LITE}conv")]
    assert len(sums) == 4
    for values in sums:
        assert np.mean((values == 127) | (values == -128)) < 0.002
        assert values.std() > 6


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (LiteResiduals(("nowhere",)), "no block 'nowhere' for lite_residuals; there are layer0, .* 0 to 4"),
        (LiteResiduals((9,)), "no block 9"),
        (LiteResiduals((-6,)), "no block -6"),
        (LiteResiduals(6), "5 blocks, fewer than the 6 of lite_residuals"),
        (
            LiteResiduals((2,), groups=4),
            "6 channels do not fall into the 4 groups .* `groups: 3` is the near",
        ),
        (LiteResiduals((2,), groups=2, reduce=8), "4x4x6, which 8x8 pixels do not tile: say `reduce: 1`"),
    ],
)
def test_modules_that_do_not_fit_are_refused(wanted: LiteResiduals, said: str) -> None:
    with pytest.raises(ConvertError, match=said):
        with_lite_residuals(network(), wanted, 4)


def test_sides_that_are_no_multiples_are_refused() -> None:
    with pytest.raises(
        ConvertError, match="block layer3 takes 7x7x8 and gives 4x4x6: a lite residual beside"
    ):
        with_lite_residuals(network(size=14), LiteResiduals(("layer3",), groups=2, reduce=1), 4)


def test_modules_that_no_gradient_reaches_are_refused() -> None:
    b = Builder(np.random.default_rng(0), (8, 6, 1))
    x = b.recurrent(b.conv(b.conv(b.conv("x", 4), 1), 4), "gru", 5)
    graph = b.finish(b.conv(x, 7), 5)
    scheme = scheme_of(LiteResiduals((0,), groups=1), 0)
    with pytest.raises(ConvertError, match="learns nothing, as no gradient passes through gru"):
        compile_graph(graph, scheme, 5)


def test_a_network_without_maps_has_no_blocks() -> None:
    b = Builder(np.random.default_rng(0), (1, 1, 6))
    graph = b.finish(b.conv("x", 7), 3)
    with pytest.raises(ConvertError, match="no block for lite_residuals: none of its layers makes a map"):
        with_lite_residuals(graph, LiteResiduals((0,)), 4)


def test_a_series_is_averaged_along_its_one_axis() -> None:
    b = Builder(np.random.default_rng(0), (16, 1, 4))
    x = b.conv(b.conv("x", 12), 4, relu=False)
    graph = with_lite_residuals(b.finish(b.conv(x, 9), 3), LiteResiduals((0,), groups=2), 4)
    shapes = {name.split(LITE)[1]: t.shape for name, t in graph.tensors.items() if LITE in name}
    assert shapes["pool"] == (8, 1, 4) and shapes["larger"] == shapes["block"] == (16, 1, 4)


# ---------------------------------------------------------------- learning


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("wanted", [TWO, LiteResiduals((1, 2, 3), groups=2, reduce=1, kernel=5)])
def test_gradients_are_those_of_autograd(wanted: LiteResiduals, errors: str) -> None:
    found = cosines(compiled(begun(network(), wanted)).graph, errors)
    modules = {name for name, kind in found if LITE in name}
    assert len(modules) == 2 * len(wanted.blocks if isinstance(wanted.blocks, tuple) else ())
    assert min(found.values()) > LEAST[errors], found


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("bits", [0, 4, 8])
def test_generated_code_trains_like_the_executor(bits: int, compiler: str, tmp_path: Path) -> None:
    trained = compile_graph(network(), scheme_of(replace(TWO, rate=3.0), 6, bits), CLASSES)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 8)


def test_all_of_a_module_learns_and_the_block_stays() -> None:
    trained = compile_graph(network(), scheme_of(TWO, 0), CLASSES)
    executor = Executor(trained.graph)
    before = {name: state.weight.copy() for name, state in executor.env.state.items()}
    for step, image in enumerate(images(trained.graph, 20)):
        executor.forward(image)
        executor.backward(step % CLASSES, Sgd(0.5, 0.5, 0.5, 7, step))
    changed = {name for name, w in before.items() if not np.array_equal(w, executor.env.state[name].weight)}
    assert changed == {name for name in before if LITE in name} | {"head"}


def test_the_rate_is_that_of_the_modules_weights_alone() -> None:
    plain, fast = (tables(replace(TWO, rate=rate)) for rate in (1.0, 4.0))
    for name, values in fast.items():
        factor = 4.0 if name.startswith("qas_w") else 1.0
        np.testing.assert_array_equal(values, plain[name] * values.dtype.type(factor))
    assert sum(name.startswith("qas_w") for name in fast) == 4


def tables(wanted: LiteResiduals) -> dict[str, np.ndarray]:
    """Those of all layers, by their names in C."""
    graph = compile_graph(network(), scheme_of(wanted), CLASSES).graph
    nodes = [node for node in graph.forward_layers if node.layer in graph.layers and node.layer != "head"]
    return {table.name: table.values for node in nodes for table in conv_constants.tables(graph, node)}


def test_the_simulation_has_the_executors_gradients(tmp_path: Path) -> None:
    graph = begun(network(), replace(TWO, rate=4.0))
    assert_simulated(compiled(graph, 6), image_of(graph, 1), tmp_path)


# ---------------------------------------------------------------- scheme files


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("lite_residuals: 3", LiteResiduals(3)),
        ("lite_residuals: [blocks.3, -1]", LiteResiduals(("blocks.3", -1))),
        (
            "lite_residuals: {blocks: 2, groups: 4, kernel: 5, reduce: 1, rate: 2}",
            LiteResiduals(2, 4, 5, 1, 2.0),
        ),
        ("lite_residuals: ", None),
    ],
)
def test_a_scheme_names_its_modules(text: str, meant: LiteResiduals | None, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    assert load(path).lite == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "blocks of lite_residuals are 0"),
        ("many", "blocks of lite_residuals are 'many'"),
        ("[]", "list of different names or places"),
        ("[1, 1]", "list of different names"),
        ('[" "]', "list of different names"),
        ("[true]", "list of different names"),
        ("{groups: 4}", "blocks of lite_residuals are None"),
        ("{blocks: 1, groups: 0}", "groups of lite_residuals is 0; it must be 1 or more"),
        ("{blocks: 1, groups: 2.0}", "groups of lite_residuals is 2.0"),
        ("{blocks: 1, kernel: 2}", "kernel of lite_residuals is 2; it must be 1, 3, 5 or 7"),
        ("{blocks: 1, reduce: 9}", "reduce of lite_residuals is 9; it must be 1 to 8"),
        ("{blocks: 1, rate: 0}", "rate of lite_residuals is 0; it must be above 0"),
        ("{blocks: 1, rate: .nan}", "rate of lite_residuals is nan"),
        ("{blocks: 1, rate: fast}", "rate of lite_residuals is 'fast'"),
        ("{blocks: 1, expand: 2}", "lite_residuals has no key 'expand'; there are blocks, groups"),
    ],
)
def test_wrong_modules_are_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"lite_residuals: {text}")
    with pytest.raises(ConvertError, match=said):
        load(path)


# ---------------------------------------------------------------- what was learned, in PyTorch


def documented() -> dict[str, Any]:
    """What docs/schemes.md shows of PyTorch."""
    text = (ROOT / "docs/schemes.md").read_text(encoding="utf-8")
    start = text.index("    class LiteResidual")
    code = textwrap.dedent(text[start : text.index("\n\nThere is no scale", start)])
    names: dict[str, Any] = {"nn": nn, "F": functional}
    exec(code, names)
    return names


def example_net(blocks: tuple[str, ...]) -> nn.Module:
    """The example's network, with modules of these blocks beside them as the page puts them."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        net: nn.Module = importlib.import_module("model").DigitNet()
    finally:
        sys.path.remove(str(EXAMPLE))
    for name in blocks:
        block: Any = net.get_submodule(name)
        c_in, c_out = block.expand.in_channels, block.project.out_channels
        documented()["put_beside"](block, c_in, c_out, block.depthwise.stride[0])
    return net.eval()


def test_what_was_learned_runs_in_pytorch(tmp_path: Path) -> None:
    """The state dict in the model of docs/schemes.md gives the device's logits, but for int8."""
    names = ("blocks.1", "blocks.2", "blocks.4")
    session = Session(EXAMPLE / "model.pt", 7, lite=LiteResiduals(names, rate=64.0))
    notes = save_model("state_dict", session.plan, session.arrays, session.model, tmp_path / "out.pt")
    assert sum("is new: docs/schemes.md" in note for note in notes) == 2 * len(names)
    net = example_net(names)
    net.load_state_dict(torch.load(tmp_path / "out.pt"))
    pixels = torch.tensor(session.images.transpose(0, 3, 1, 2) / np.float32(127.5) - 1)
    with torch.no_grad():
        found = np.stack([net(x[None])[0].numpy() for x in pixels])
        for name in names:
            block: Any = net.get_submodule(name)
            nn.init.zeros_(block.lite_residual.project.weight)
        without = np.stack([net(x[None])[0].numpy() for x in pixels])
    wanted = session.logits()
    off, blind = (float(np.abs(made - wanted).mean()) for made in (found, without))
    assert off < 0.05 * np.abs(wanted).mean(), (off, blind)
    assert blind > 3 * off, "the modules matter"


def test_a_file_without_a_place_for_modules_says_so(tmp_path: Path) -> None:
    session = Session(EXAMPLE / "model.pt", 7, lite=LiteResiduals(("blocks.1", "blocks.3")))
    with pytest.raises(
        DeviceError, match=r"no place for the lite residual modules beside blocks\.1, blocks\.3"
    ):
        save_model("onnx", session.plan, session.arrays, Path("net.onnx"), tmp_path / "out.onnx")


# ---------------------------------------------------------------- on the board


def test_the_emulated_board_learns_what_the_simulator_learns(tmp_path: Path) -> None:
    """The very firmware, and the very bits, through plan.json and the command line."""
    folder = tmp_path / "generated"
    scheme = tmp_path / "lite.yaml"
    scheme.write_text(
        "biases: 4\nfraction_bits: 4\nlite_residuals: {blocks: [blocks.1, blocks.2, blocks.3], rate: 8}\n"
    )
    options = ["--scheme", str(scheme), "--classes", "4", "--imprint", "off", "--replay", "off"]
    run(["python", "tools/convert", str(EXAMPLE / "model.pt"), *options, "-o", str(folder)])
    said = dict(choices(read_plan(folder / "plan.json"), asked_for=True))
    assert said["trained"].endswith("biases of 4 layers, 3 lite residual modules")
    assert said["rate"] == "0.002; weights keep 4 fraction bits; modules learn at 8 times that of weights"
    plan = load_blueprint(folder)
    assert plan.scheme.lite_residuals is not None and plan.scheme.lite_residuals.rate == 8
    machine = Machine(plan, library(plan, tmp_path))
    rng = np.random.default_rng(5)
    shown = rng.integers(0, 256, (6, *plan.shape)).astype(np.uint8)
    with Device(EmulatorPort(build(folder, tmp_path / "firmware", BOARD))) as device:
        for number, image in enumerate(shown):
            device.train(image, number % 4)
            machine.train(machine.look(image), number % 4)
        assert device.pull() == machine.pull()
        before = device.sha()
        device.train(shown[0], 0)
        assert device.sha() != before, "the comparison can fail"
