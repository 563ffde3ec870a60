"""The float reference: forward pass, gradients, and sessions that do not touch each other."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT, Built
from networks import random_network, residual_network

from microtrain.base.errors import Error
from microtrain.convert.emit.arrays import archive
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import Graph
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.reference.kernels import Sgd
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.convert.trainables import front_steps
from microtrain.simulate.network import Network, load_network
from microtrain.simulate.parallel import Parallel
from microtrain.simulate.rules import Rules, signed
from microtrain.simulate.rules import Sgd as Sgds

RATES = torch.full((1, 3), 0.01)


def compiled(graph: Graph, count: int, fraction: float, bits: int = 0) -> Compiled:
    names = convolutions(graph)
    scheme = Scheme("test", count, dict.fromkeys(names[-count:], fraction), fraction_bits=bits, head="random")
    return compile_graph(graph, scheme, 4, Passes(fused=False))


def network_of(model: Compiled, folder: Path) -> Network:
    (folder / "model.npz").write_bytes(archive(model.graph, "an id"))
    return load_network(folder, "an id")


def given(names: tuple[str, ...], values: dict[str, Any], runs: int = 1) -> dict[str, torch.Tensor]:
    """The executor's tensors, the same for each run."""
    return {
        name: torch.tensor(values[name].astype(np.float32))
        .permute(2, 0, 1)[None, :, None]
        .repeat(runs, 1, 1, 1, 1)
        for name in names
    }


def image_of(graph: Graph, seed: int) -> np.ndarray:
    shape = graph.tensors[graph.input.tensor].shape
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_forward_and_gradients_are_those_of_the_reference(seed: int, fraction: float, tmp_path: Path) -> None:
    """Every gradient against the NumPy executor with real errors, on random networks and schemes."""
    graph = residual_network() if seed == 0 else random_network(seed)
    model = compiled(graph, (2, 4, len(convolutions(graph)))[seed % 3], fraction)
    assert_simulated(model, image_of(graph, seed), tmp_path)


def assert_simulated(model: Compiled, image: np.ndarray, folder: Path) -> None:
    """The float simulation has the logits, the loss and the gradients of the executor with real errors."""
    executor = Executor(model.graph, errors="fp32")
    logits = executor.forward(image)
    executor.backward(1, Sgd(0.0, 0.0, 0.0, 0, 0))
    net = Parallel(network_of(model, folder), front_steps(model.graph), 1)
    sources = given(net.sources, executor.env.values)
    np.testing.assert_allclose(net.forward(sources)[0, 0].detach(), logits.reshape(-1), rtol=1e-5, atol=1e-5)
    _, loss, gradients = net.gradients(sources, torch.tensor([1]))
    assert float(loss[0]) == pytest.approx(executor.env.loss, rel=1e-5)
    for (name, kind), found in gradients.items():
        wanted = executor.env.gradients[name, kind.removeprefix("head_")]
        wanted = wanted.transpose(0, 3, 1, 2) if wanted.ndim == 4 else wanted
        np.testing.assert_allclose(found[0].numpy(), wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


def test_runs_side_by_side_do_not_touch_each_other(tmp_path: Path) -> None:
    """The same bits for a run alone and among others; other bits for another rate."""
    graph = residual_network()
    model = compiled(graph, 4, 0.5)
    network, front = network_of(model, tmp_path), front_steps(model.graph)
    executor = Executor(model.graph)
    alone, among = Parallel(network, front, 1), Parallel(network, front, 5)
    factors = torch.tensor([1.0, 3.0, 1.0, 0.1, 2.0])
    for step in range(5):
        executor.forward(image_of(graph, step))
        values, label = executor.env.values, step % 4
        alone.train(given(alone.sources, values), torch.tensor([label]), RATES)
        among.train(given(among.sources, values, 5), torch.full((5,), label), factors[:, None] * RATES)
    assert among.trained(2) == alone.trained(0) == among.trained(0)
    assert among.trained(1) != alone.trained(0)


def test_without_scaling_every_gradient_has_the_same_factor(tmp_path: Path) -> None:
    model = compiled(residual_network(), 3, 1.0)
    network, front = network_of(model, tmp_path), front_steps(model.graph)
    plain = Parallel(network, front, 1, Rules(qas=False)).optimizer.qas
    factors = torch.cat([f.reshape(-1) for (_, kind), f in plain.items() if kind in ("weight", "bias")])
    assert factors.unique().numel() == 1 and float(factors[0]) == pytest.approx(network.plain_factor())
    scaled = Parallel(network, front, 1).optimizer.qas
    weights = torch.cat([f.reshape(-1) for (_, kind), f in scaled.items() if kind == "weight"])
    assert weights.unique().numel() > 1
    assert weights.min() < network.plain_factor() < weights.max()


@pytest.mark.parametrize(
    "rules",
    [
        Rules(weights="int8"),
        Rules(weights="int8", fraction_bits=4),
        Rules(weights="int8", rounding="truncate"),
        Rules(errors="channel"),
        Rules(errors="tensor2", error_rounding="stochastic"),
        Rules(momentum=0.9),
        Rules(momentum=0.9, state_bits=8),
        Rules(momentum=0.9, state_bits=4, signs=True),
        Rules(curvature=0.9),
        Rules(smoothing=0.1),
        Rules(accumulate=2),
        Rules(kept=0.1),
        Rules(gate=100.0),
        Rules(head="int8"),
    ],
)
def test_rules_change_what_is_learned_and_keep_what_they_promise(rules: Rules, tmp_path: Path) -> None:
    graph = residual_network()
    model = compiled(graph, 3, 1.0)
    network, front = network_of(model, tmp_path), front_steps(model.graph)
    executor = Executor(model.graph)
    reference, net = Parallel(network, front, 1), Parallel(network, front, 1, rules)
    start = net.trained(0)
    for step in range(4):
        executor.forward(image_of(graph, step))
        for each in (reference, net):
            each.train(given(each.sources, executor.env.values), torch.tensor([step]), RATES)
    assert net.trained(0) != reference.trained(0)
    assert (net.trained(0) == start) == (rules.gate > 0)
    for (_, kind), value in net.parameters.items():
        if kind == "weight" and rules.weights == "int8":
            grid = value.detach() * 2.0**rules.fraction_bits
            assert torch.equal(grid, grid.round()) and float(value.detach().abs().max()) <= 127


def test_what_is_kept_of_gradients_has_its_bits() -> None:
    """At most 2^bits - 1 numbers a channel, the largest exact, right on the mean."""
    torch.manual_seed(0)
    state = torch.randn(1, 3, 5, 1, 1)
    for bits in (4, 8):
        drawn = torch.stack([Rules(state_bits=bits).store_state(state) for _ in range(2000)])
        units = state.abs().amax((2, 3, 4), keepdim=True) / (2 ** (bits - 1) - 1)
        kept = drawn / units
        assert torch.allclose(kept, kept.round(), atol=1e-3) and kept.abs().max() < 2 ** (bits - 1)
        assert torch.allclose(drawn.mean(0), state, atol=0.1 * float(units.max()))
    assert torch.equal(Rules().store_state(state), state)


def test_signs_keep_the_mean_size_of_a_channel() -> None:
    x = torch.tensor([[[1.0, -3.0], [0.5, 0.5]]])
    assert signed(x).tolist() == [[[2.0, -2.0], [0.5, 0.5]]]


def test_the_head_goes_slower_where_its_gradients_are_large() -> None:
    key = ("head", "head_weight")
    start = {key: torch.zeros(1, 2, 2)}
    sgd = Sgds(Rules(curvature=0.5), start, {key: torch.ones(())})
    sgd.step({key: torch.tensor([[[4.0, 1.0], [1.0, 0.0]]])}, torch.ones(1, 3))
    large, small = -start[key][0, 0, 0], -start[key][0, 0, 1]
    assert 0 < large < 4.0 * small and start[key][0, 1, 1] == 0.0


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    model = compiled(residual_network(), 2, 1.0)
    network_of(model, tmp_path)
    with pytest.raises(Error, match="different models"):
        load_network(tmp_path, "another id")
    (tmp_path / "model.npz").write_bytes(b"PK rubbish")
    with pytest.raises(Error, match="convert again"):
        load_network(tmp_path, "an id")
    (tmp_path / "model.npz").unlink()
    with pytest.raises(Error, match="no such file"):
        load_network(tmp_path, "an id")


def test_the_archive_is_the_same_every_time() -> None:
    model = compiled(random_network(3), 3, 0.5, bits=4)
    assert archive(model.graph, "x") == archive(model.graph, "x")
    with np.load(io.BytesIO(archive(model.graph, "x"))) as file:
        assert json.loads(str(file["graph"]))["model_id"] == "x"


def test_a_device_that_torch_has_not_is_named(example: Built, digits: Path, tmp_path: Path) -> None:
    options = ["--limit", "9", "--arithmetic", "float", "--torch-device", "cuda:77", "-o", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "tools/simulate", str(example.folder), "--data", str(digits), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no device cuda:77" in done.stderr and "Traceback" not in done.stderr
