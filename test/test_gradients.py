"""The compiled backward pass against PyTorch's autograd on the same quantized network."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from autograd import cosine, gradients
from networks import random_network, residual_network

from lab.attack.gradients import MAPS, everything_trained, hidden_linear, min_cosine_hidden_linear
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import Graph, Node, Shape, Window, out_size
from microtrain.convert.ops import TABLE, bounds, conv
from microtrain.convert.ops.conv_constants import multipliers
from microtrain.convert.pipeline import Compiled, compile_graph
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.biases import bias_shift
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.convert.verify import verify

EXAMPLE = Path(__file__).resolve().parent.parent / "examples/digits"
STILL = reference.Sgd(0.0, 0.0, 0.0, 0, 0)
LEAST = {"fp32": 0.999, "int8": 0.98}  # cosine of a tensor's gradient with autograd's, by the kind of errors


def everything(graph: Graph, loss: str = "cross_entropy") -> Compiled:
    names = convolutions(graph)
    classes = graph.tensors[graph.output].channels
    fractions: dict[str | int, float | tuple[int, ...]] = {
        n: (1.0, 0.5)[i % 2] for i, n in enumerate(names) if i
    }
    return compile_graph(graph, Scheme("all", -1, fractions, loss=loss, head="random"), classes)


def image(graph: Graph, seed: int = 3) -> np.ndarray:
    shape = graph.tensors[graph.input.tensor].shape
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def cosines(
    graph: Graph, errors: str, label: int = 1, loss: str = "cross_entropy"
) -> dict[tuple[str, str], float]:
    """Cosine between the compiled gradients and autograd's, by trained tensor."""
    executor = Executor(graph, errors)
    executor.forward(image(graph))
    oracle = gradients(executor, label, loss)
    executor.backward(label, STILL)
    return {key: cosine(found, oracle[key]) for key, found in executor.env.gradients.items()}


def assert_as_autograd(graph: Graph, int8: float = 0.98, apart: Collection[tuple[str, str]] = ()) -> None:
    """Cosines over 0.999 with real errors, and over `int8` with errors in int8, of all but some tensors."""
    for errors, least in (("fp32", 0.999), ("int8", int8)):
        found = cosines(graph, errors)
        assert min(value for key, value in found.items() if key not in apart) > least, found


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_real_errors_equal_autograd(loss: str) -> None:
    compiled = everything(residual_network(), loss)
    found = cosines(compiled.graph, "fp32", loss=loss)
    trained = sum(bool(layer.trained) for layer in compiled.graph.layers.values()) + 1
    assert len(found) == trained + len(compiled.graph.layers)
    assert min(found.values()) > LEAST["fp32"], found


@pytest.mark.parametrize("seed", range(6))
def test_real_errors_equal_autograd_on_random_networks(seed: int) -> None:
    found = cosines(everything(random_network(seed)).graph, "fp32")
    assert min(found.values()) > LEAST["fp32"], found


def test_magnitudes_are_right_too() -> None:
    compiled = everything(residual_network())
    executor = Executor(compiled.graph, "fp32")
    executor.forward(image(compiled.graph))
    oracle = gradients(executor, 1)
    executor.backward(1, STILL)
    for key, found in executor.env.gradients.items():
        np.testing.assert_allclose(found, oracle[key], rtol=1e-4, atol=1e-5 * np.abs(oracle[key]).max())


def test_a_step_is_the_rate_times_the_gradient_in_real_numbers() -> None:
    """Biases in coarser units move as far as the others, and dead channels do not move at all."""
    graph, rate = everything(residual_network()).graph, 0.05
    names = convolutions(graph)
    alive = {name: np.arange(len(graph.layers[name].bias)) != 1 for name in names}
    layers = {name: replace(graph.layers[name], dead=~alive[name]) for name in names}
    executor = Executor(graph.replace(layers={**graph.layers, **layers}))
    executor.forward(image(graph))
    executor.backward(1, reference.Sgd(rate, rate, 0.0, 7, 0))
    coarse = 0
    for name in names:
        layer, x = graph.layers[name], graph.tensors[graph.forward_of[name].inputs[0]]
        assert layer.weight_scale is not None
        real, shift = (
            x.scale * layer.weight_scale,
            bias_shift(multipliers(graph, graph.forward_of[name])),
        )
        wanted = -rate * executor.env.gradients[name, "bias"] / real
        found = executor.env.state[name].delta * real * 2.0**shift
        assert (np.abs(found - wanted) <= real * 2.0**shift)[alive[name]].all()
        assert not found[~alive[name]].any() and wanted.any()
        coarse += int((shift > 0)[alive[name] & (np.abs(wanted) > 4 * real * 2.0**shift)].sum())
        same = executor.env.state[name].weight == layer.weight
        channels = same.reshape(len(same), -1).all(axis=1)
        assert channels[~alive[name]].all() and (not layer.trained or not channels.all())
    assert coarse, "a bias whose unit is coarser has moved"


@pytest.mark.parametrize("seed", range(4))
def test_int8_errors_point_the_same_way(seed: int) -> None:
    found = cosines(everything(residual_network(seed)).graph, "int8")
    assert min(found.values()) > LEAST["int8"], found


@pytest.mark.parametrize(("shape", "width"), MAPS, ids=[f"{m} to {n}" for m, n in MAPS])
def test_gradients_through_a_hidden_linear_layer_over_a_map(shape: Shape, width: int) -> None:
    """One output reads each pixel, so the sums have room for all fraction bits however large the map is."""
    graph = everything_trained(hidden_linear(shape, width))
    assert min(cosines(graph, "int8").values()) > 0.99
    node = next(n for n in graph.nodes if n.op == "conv2d_bwd_x")
    assert conv.c_struct(graph, node).guard == 8
    assert TABLE[node.op].scratch(graph, node) < 12_000


def test_a_guard_that_counts_every_tap_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: as if every tap of the kernel reached the same pixel."""
    assert min_cosine_hidden_linear(MAPS[:2]) > 0.999
    monkeypatch.setattr(bounds, "taps_at_a_pixel", lambda x, y, k: k.kh * k.kw)
    assert min_cosine_hidden_linear(MAPS[:2]) < 0.99


def test_taps_at_a_pixel_are_those_that_a_gradient_of_ones_meets() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        k = Window(
            *(int(n) for n in (*rng.integers(1, 8, 2), *rng.integers(1, 5, 2), *rng.integers(0, 4, 2)))
        )
        h, w = (max(int(rng.integers(1, 12)), n) for n in (k.kh, k.kw))
        y = (out_size(h, k.kh, k.stride_h, k.pad_h), out_size(w, k.kw, k.stride_w, k.pad_w), 1)
        p = reference.Conv((h, w, 1), y, k, 0, 0, np.ones(1, np.float32))
        ones = ((tap, np.ones(y, np.int64)) for tap in reference.taps_of(k))
        assert bounds.taps_at_a_pixel(p.x, p.y, k) == reference.scatter(p, ones).max()


def test_a_guard_never_lets_a_sum_leave_int32() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        k = Window(*(int(n) for n in (*rng.integers(1, 256, 2), *rng.integers(1, 9, 2))))
        h, w, c = (int(n) for n in (k.kh + rng.integers(60), k.kw + rng.integers(60), rng.integers(1, 130)))
        y = (out_size(h, k.kh, k.stride_h, 0), out_size(w, k.kw, k.stride_w, 0), c)
        meeting = c * bounds.taps_at_a_pixel((h, w, 1), y, k) * 127 * 128
        guard = bounds.guard_bits((h, w, 1), y, k)
        assert meeting << guard < 2**31 or guard == 0
        assert guard == 8 or meeting << guard + 1 >= 2**31


def test_the_example_with_int8_errors() -> None:
    """Every gradient the example's scheme needs, over several images of the device's world."""
    from microtrain.convert.frontends.module import load_model
    from microtrain.convert.quantize.ptq import Choices, calibration_images, quantize_model
    from microtrain.convert.scheme import load

    loaded = load_model(EXAMPLE / "model.pt")
    graph = quantize_model(
        loaded.graph, calibration_images(loaded.graph, loaded.calibration, None), Choices()
    )
    scheme = replace(load(EXAMPLE / "scheme.yaml"), head="random")
    compiled = compile_graph(graph, scheme, 10)
    executor = Executor(compiled.graph)
    worst = 1.0
    for number, stored in enumerate(example_images()):
        executor.forward(stored)
        oracle = gradients(executor, number)
        executor.backward(number, STILL)
        worst = min(worst, *(cosine(found, oracle[key]) for key, found in executor.env.gradients.items()))
    assert worst > 0.98


def example_images() -> np.ndarray:
    import sys

    sys.path.insert(0, str(EXAMPLE))
    try:
        from dataset import device_split
    finally:
        sys.path.remove(str(EXAMPLE))
    return (device_split()[0][:8].astype(np.int16) - 128).astype(np.int8)


def changed(graph: Graph, change: dict[int, Node]) -> Graph:
    return graph.replace(nodes=tuple(change.get(i, n) for i, n in enumerate(graph.nodes)))


def index(graph: Graph, op: str) -> int:
    return next(i for i, n in enumerate(graph.nodes) if n.op == op)


def test_scales_of_errors_stay_positive_behind_a_difference() -> None:
    """The error of what is taken away is turned in its integers, by a sum with nothing. Passed on it would
    have a negative scale, which the kernels do not know."""
    graph = residual_network()
    at = max(i for i, node in enumerate(graph.nodes) if node.op == "add")
    trained = everything(changed(graph, {at: replace(graph.nodes[at], factors=(-1.0,))})).graph
    passed = [node.factors[0] for node in trained.backward_nodes if node.op == "error_pass"]
    turned = [node for node in trained.backward_nodes if node.op == "error_add" and len({*node.inputs}) == 1]
    assert passed and min(passed) > 0
    assert len(turned) == 1 and turned[0].factors[0] < 0 == turned[0].factors[1]


def test_a_planted_sign_error_is_caught() -> None:
    graph = everything(residual_network()).graph
    at = index(graph, "error_pass")
    wrong = replace(graph.nodes[at], factors=(-graph.nodes[at].factors[0],))
    assert min(cosines(changed(graph, {at: wrong}), "fp32").values()) < 0.9


def test_a_dropped_residual_branch_is_caught() -> None:
    """What the published engine does: the last writer of a gradient wins."""
    graph = everything(residual_network()).graph
    at = index(graph, "error_add")
    node = graph.nodes[at]
    wrong = replace(node, op="error_pass", inputs=node.inputs[1:], factors=node.factors[1:])
    assert min(cosines(changed(graph, {at: wrong}), "fp32").values()) < 0.9


def test_a_missing_zero_point_is_caught() -> None:
    graph = everything(residual_network()).graph
    executor = Executor(graph, "fp32")
    executor.forward(image(graph))
    oracle = gradients(executor, 1)
    tensors = {name: replace(t, zero=0) for name, t in graph.tensors.items()}
    executor.env.graph = graph.replace(tensors=tensors)
    executor.backward(1, STILL)
    weights = [k for k in executor.env.gradients if k[1] == "weight" and k[0] != "head"]
    assert min(cosine(executor.env.gradients[k], oracle[k]) for k in weights) < 0.9


def test_a_gradient_through_updated_weights_is_caught() -> None:
    """verify() refuses the order, and the numbers show it."""
    graph = everything(residual_network()).graph
    at = next(
        i
        for i, n in enumerate(graph.nodes)
        if n.op == "conv2d_bwd_w" and graph.nodes[i - 1].op == "conv2d_bwd_x"
    )
    wrong = changed(graph, {at: graph.nodes[at - 1], at - 1: graph.nodes[at]})
    with pytest.raises(ValueError, match="after the update of its weights"):
        verify(wrong)
    fast = reference.Sgd(20.0, 0.0, 0.0, 0, 0)
    worst = []
    for candidate in (graph, wrong):
        executor = Executor(candidate)
        executor.forward(image(candidate))
        oracle = gradients(executor, 1)
        executor.backward(1, fast)
        worst.append(min(cosine(found, oracle[key]) for key, found in executor.env.gradients.items()))
    assert worst[0] > 0.98 > worst[1]
