"""A model with several results: which is the logits is asked for, and what others are made by is left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from test_own_models import Forward, Own, save
from torch import nn
from torch.nn import functional

from lab.attack.tflite_networks import Float
from microtrain.convert.cli import main as convert
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.clean.fold import clean
from microtrain.convert.frontends.module import load_model
from microtrain.convert.frontends.onnx.reader import read_onnx
from microtrain.convert.frontends.results import chosen
from microtrain.convert.ir import ConvertError

SHAPE = (3, 7, 7)


def both(net: Own, x: torch.Tensor) -> Any:
    """Two heads."""
    y = functional.relu(net.a(x)).mean((2, 3))
    return net.head(y), net.c(functional.relu(net.b(y)))


def unlike(net: Own, x: torch.Tensor) -> Any:
    """One of them behind an activation that no board has."""
    y = functional.relu(net.a(x)).mean((2, 3))
    return net.head(y), net.c(functional.rrelu(net.b(y)))


def with_shares(net: Own, x: torch.Tensor) -> Any:
    """As Ultralytics' classifiers answer."""
    logits = net.head(functional.relu(net.a(x)).mean((2, 3)))
    return logits.softmax(1), logits


def network(forward: Forward = both) -> Own:
    torch.manual_seed(5)
    layers = (nn.Conv2d(3, 8, 3), nn.Linear(8, 6), nn.Linear(6, 2))
    return Own(forward, *layers, head=nn.Linear(8, 5)).eval()


@pytest.mark.parametrize("wanted", ["0", "head"])
@pytest.mark.parametrize("suffix", [".pt2", ".pt", ".onnx"])
def test_one_of_them_is_chosen(suffix: str, wanted: str, tmp_path: Path) -> None:
    net = network(both if suffix == ".onnx" else unlike)
    path, shape = save(net, SHAPE, tmp_path / f"net{suffix}"), SHAPE if suffix == ".pt" else None
    graph = load_model(path, input_shape=shape, result=wanted).graph
    pixels = np.random.default_rng(0).integers(0, 256, (4, *SHAPE)).astype(np.uint8)
    with torch.no_grad():
        logits = net(torch.tensor(pixels / np.float32(255)))[0].numpy()
    np.testing.assert_allclose(run_float(graph, pixels.transpose(0, 2, 3, 1)), logits, atol=1e-5)
    assert set(graph.layers) == {"a", "head"}, "nothing of the other is in flash"


@pytest.mark.parametrize("suffix", [".pt2", ".pt", ".onnx"])
def test_who_does_not_choose_is_told_what_there_is(suffix: str, tmp_path: Path) -> None:
    path, shape = (
        save(network(unlike if suffix == ".pt2" else both), SHAPE, tmp_path / f"net{suffix}"),
        SHAPE if suffix == ".pt" else None,
    )
    for wanted, words in (
        (None, r"returns 2 values \(0 is head, 1x5, 1 is c, 1x2\); one of them must be the logits"),
        ("2", "has no result called '2': 0 is head, 1x5, 1 is c, 1x2"),
        ("1", "rrelu is not supported") if suffix == ".pt2" else ("b", "no result called"),
    ):
        with pytest.raises(ConvertError, match=words):
            load_model(path, input_shape=shape, result=wanted)


@pytest.mark.parametrize("suffix", [".pt2", ".pt", ".onnx"])
def test_what_the_others_are_a_softmax_of_is_the_logits(suffix: str, tmp_path: Path) -> None:
    net = network(with_shares)
    path, shape = save(net, SHAPE, tmp_path / f"net{suffix}"), SHAPE if suffix == ".pt" else None
    with pytest.warns(UserWarning, match=r"returns 2 values \(.*\); the logits are 1: the others"):
        graph = load_model(path, input_shape=shape).graph
    pixels = np.random.default_rng(0).integers(0, 256, (4, *SHAPE)).astype(np.uint8)
    with torch.no_grad():
        logits = net(torch.tensor(pixels / np.float32(255)))[1].numpy()
    np.testing.assert_allclose(run_float(graph, pixels.transpose(0, 2, 3, 1)), logits, atol=1e-5)


def test_a_layer_that_no_result_reads_is_still_named(tmp_path: Path) -> None:
    path = save(network(), SHAPE, tmp_path / "net.onnx")
    raw = read_onnx(path)
    head = raw.results[0]
    of_one = replace(raw, results=(head, replace(head, name="the same")))
    with pytest.warns(UserWarning, match="the output does not depend on b, c, which are left out"):
        clean(chosen(of_one, "head"))
    assert clean(chosen(raw, "head"))


def test_the_command_takes_it(tmp_path: Path) -> None:
    net = Float(6, 5, 2).conv(4, 3, 3).over("MEAN", 1, 2)
    features = net.x
    net.linear(3)
    path = tmp_path / "two.tflite"
    path.write_bytes(net.w.file((0,), (net.x, features)))
    done = CliRunner().invoke(convert, [str(path), "--check"])
    assert done.exit_code == 1 and "0 is fc2, 1x3" in done.output.replace("\n", " "), done.output
    assert CliRunner().invoke(convert, [str(path), "--check", "--logits", "fc2"]).exit_code == 0
