"""MobileNetV3-Small through the front ends, onto the board where it fits, refused by its bytes where not."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from mobilenet_v3 import MobileNetV3Small
from test_executor import RATES, images, run_both
from torch_networks import randomise

from lab.golden.board import build_elf, shown
from microtrain.convert import boards, obstacles
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.pipeline import Compiled, compile_graph
from microtrain.convert.quantize.fidelity import compare
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.quantize.ranges import measure_ranges
from microtrain.convert.reference import kernels as reference
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.device.client import Device
from microtrain.emulator import EmulatedPort

BOARD = boards.find("disco_f746ng")
LIMITS = boards.limits(BOARD, None, None)
OPS = {"conv2d": 42, "dwconv2d": 11, "hardswish": 19, "hardsigmoid": 9, "scale_channels": 9, "avgpool": 10}


def network(**sizes: float) -> MobileNetV3Small:
    net = MobileNetV3Small(**sizes)  # type: ignore[arg-type]
    randomise(net, 7)
    return net


def small() -> MobileNetV3Small:
    return network(width=0.35, classes=10, hidden=128, side=64)


def pixels(side: int, count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3)).astype(np.uint8)


def exported(net: MobileNetV3Small, folder: Path) -> Graph:
    path = folder / "model.pt2"
    torch.export.save(torch.export.export(net, (torch.zeros(1, *net.shape),)), path)
    return load_model(path).graph


def quantized(net: MobileNetV3Small, folder: Path) -> Graph:
    graph = exported(net, folder)
    return quantize(graph, measure_ranges(graph, pixels(net.shape[1], 4)))


def tail_trained(graph: Graph) -> Compiled:
    """The biases of the last blocks, and columns of two excitations, a pointwise and the hidden layer."""
    names = convolutions(graph)
    excited = [i for i, n in enumerate(names) if n.endswith((".fc1", ".fc2"))][-4:]
    weights: dict[str | int, float] = {names[i]: (1.0, 0.5)[i % 2] for i in excited}
    scheme = Scheme("tail", 12, {**weights, names[-1]: 0.25, names[-2]: 0.5}, head="random")
    return compile_graph(graph, scheme, 10)


@pytest.mark.parametrize("way", ["exported", "scripted", "traced"])
def test_every_way_into_the_front_end_computes_what_torch_does(way: str, tmp_path: Path) -> None:
    net, shown_pixels = small(), pixels(64, 3)
    with torch.no_grad():
        wanted = net(torch.tensor(shown_pixels / 255.0).permute(0, 3, 1, 2).float()).numpy()
    if way == "exported":
        graph = exported(net, tmp_path)
    else:
        example = torch.zeros(1, *net.shape)
        script = torch.jit.script(net) if way == "scripted" else torch.jit.trace(net, example)
        torch.jit.save(script, tmp_path / "model.pt")
        graph = load_model(tmp_path / "model.pt", input_shape=net.shape).graph
    found = [node.op for node in graph.nodes]
    assert {op: found.count(op) for op in OPS} == OPS
    np.testing.assert_allclose(run_float(graph, shown_pixels), wanted, rtol=1e-3, atol=1e-4)


def test_int8_stays_near_float(tmp_path: Path) -> None:
    net = small()
    graph = exported(net, tmp_path)
    layers, _ = compare(graph, quantize(graph, measure_ranges(graph, pixels(64, 8))), pixels(64, 8))
    assert min(row.own_db for row in layers) > 20


def test_the_whole_network_is_refused_for_its_size_alone(tmp_path: Path) -> None:
    """224x224 pixels take 80 KB of arena; the weights are what the board's flash has no room for."""
    graph = quantized(network(), tmp_path)
    compiled = compile_graph(graph, Scheme("head"), 10)
    assert compiled.sram < BOARD.sram
    weights, flash = obstacles.of(compiled, LIMITS)
    assert re.search(r"weights and biases, [\d,]+ B more than the 524,288 B of", weights)
    assert "over the budget of 1,048,576 B" in flash and "raise" not in flash


def test_a_small_one_fits_and_trains_like_the_executor(tmp_path: Path) -> None:
    compiled = tail_trained(quantized(small(), tmp_path))
    assert obstacles.of(compiled, LIMITS) == []
    streamed = {part.op for node in compiled.graph.nodes for part in node.parts}
    backward = {node.op for node in compiled.graph.backward_nodes}
    assert {"hardswish", "hardsigmoid", "scale_channels"} <= streamed | {n.op for n in compiled.graph.nodes}
    assert {"lookup_bwd_x", "scale_channels_bwd_x", "scale_channels_bwd_s"} <= backward
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path / "c"), 4)


@pytest.mark.slow
def test_the_board_model_trains_it_bit_for_bit(tmp_path: Path) -> None:
    compiled = tail_trained(quantized(small(), tmp_path))
    rates = dict(zip(RATES, compiled.scheme.rates, strict=True))
    executor = Executor(compiled.graph)
    with Device(EmulatedPort(build_elf(compiled, tmp_path))) as device:
        device.seed(7)
        for step, image in enumerate(images(compiled.graph, 2)):
            wanted = executor.forward(image)
            assert device.infer(shown(image)).logits.tobytes() == wanted.tobytes()
            executor.backward(step, reference.Sgd(**rates, seed=7, step=step))
            device.train(shown(image), step)
            assert device.sha() == hashlib.sha256(executor.trainables()).hexdigest()
