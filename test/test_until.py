"""A network that ends at a layer in its middle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from test_onnx import export
from torch import nn
from torch_networks import NETWORKS, images_for, randomise

from lab.attack.tflite_files import small_network
from microtrain.base.plan import read_plan
from microtrain.convert.cli import main as convert
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.until import ending_at
from microtrain.convert.verify import verify


def test_what_the_head_reads_is_the_mean_of_the_layers_map(tmp_path: Path) -> None:
    net = randomise(NETWORKS["mobilenet"](), seed=3)
    whole = load_model(export(net, tmp_path / "net.onnx"))
    layer = next(n.layer for n in reversed(whole.graph.nodes) if n.op == "dwconv2d")
    assert layer is not None
    part = ending_at(whole, layer).graph
    verify(part)
    seen: dict[str, np.ndarray] = {}
    pixels = images_for(net, 3, seed=4)
    run_float(whole.graph, pixels, seen.__setitem__)
    ends: dict[str, np.ndarray] = {}
    assert not run_float(part, pixels, ends.__setitem__).any()
    map_of = whole.graph.forward_of[layer].outputs[0]
    np.testing.assert_allclose(ends["until"][:, 0, 0], seen[map_of].mean((1, 2)), rtol=1e-5, atol=1e-6)
    assert len(part.nodes) < len(whole.graph.nodes) and len(part.layers) < len(whole.graph.layers)


def test_an_int8_file_needs_no_calibration(tmp_path: Path) -> None:
    path = tmp_path / "small.tflite"
    path.write_bytes(small_network())
    graph = quantize(ending_at(load_model(path), "dwconv1").graph, {})
    made = run_int8(graph, np.zeros((1, 9, 10, 3), np.uint8))
    assert made.shape == (1, 2) and graph.tensors["until"].scale == graph.tensors["dwconv1"].scale


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "small.tflite"
    path.write_bytes(small_network())
    words = [str(path), "--board", "native", "-o", str(tmp_path / "made"), "--until"]
    done = CliRunner().invoke(convert, [*words, "conv0", "--classes", "6"])
    assert done.exit_code == 0, done.output
    plan = read_plan(tmp_path / "made/plan.json")
    assert plan.classes == 6 and [row.layer for row in plan.layers] == ["conv0", "until", "until.head"]
    for more, text in (
        (["conv0"], "--until makes a new head"),
        (["conv9", "--classes", "3"], "no layer conv9"),
    ):
        done = CliRunner().invoke(convert, [*words, *more])
        assert done.exit_code and text in " ".join(done.output.split()), done.output
    with pytest.raises(ConvertError, match="there are conv0, dwconv1, conv2"):
        ending_at(load_model(path), "fc9")


class Squeezed(nn.Module):
    """As SqueezeNet ends: the mean over what a convolution of one pixel makes, behind a ReLU."""

    shape = (2, 6, 5)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.last(torch.relu(self.first(x)))).mean((2, 3))


def test_a_mean_of_what_is_cut_names_its_layer(tmp_path: Path) -> None:
    path = export(Squeezed(), tmp_path / "net.onnx")
    words = [str(path), "--check", "--board", "native"]
    done = CliRunner().invoke(convert, words)
    assert done.exit_code != 0 and "--until last --classes N" in " ".join(done.output.split()), done.output
    done = CliRunner().invoke(convert, [*words, "--until", "last", "--classes", "3"])
    assert done.exit_code == 0, done.output
