"""Every integer of the kernels has room for its largest value, or conversion refuses the layer."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from networks import Builder, random_network, residual_network

from lab.attack import gradients as attack
from lab.attack.gradients import Extreme, everything_trained, extreme_graph, least_cosine, stored_image
from microtrain.convert import pipeline
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import ConvertError, Graph, Node, Source, Tensor, Window
from microtrain.convert.ir import Layer as IrLayer
from microtrain.convert.native_model import NativeModel, Sgd
from microtrain.convert.ops import TABLE, bounds
from microtrain.convert.ops.conv_structs import conv2d_struct
from microtrain.convert.passes.accumulators import accumulators, prove, warn_coarse
from microtrain.convert.pipeline import compile_graph, training_graph
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference
from microtrain.convert.scheme import Scheme

ALL = Scheme("all", -1, {"all": 1.0}, head="random")


def one_layer(shape: tuple[int, int, int], c_out: int, k: int = 1, zero: int = -128) -> Graph:
    pad = k // 2
    return extreme_graph(Extreme("conv2d", shape, c_out, Window(k, k, 1, 1, pad, pad), zero))


def test_no_op_goes_without_its_accumulators() -> None:
    floats = {name for name, op in TABLE.items() if op.accumulators is bounds.no_integers}
    assert floats == {"gather", "error_pass", "error_add", "loss_cross_entropy", "loss_mse"} | {
        *("loss_score", "loss_huber", "loss_squares", "loss_labels", "loss_prototypes"),
        *("reconstruct_bwd_x", "reconstruct_map_bwd_x", "position_bwd_x", "upsample"),
        *("concat", "take", "error_take", "unflatten", "unflatten_bwd_x"),
        *("channel_mean_bwd_x", "channel_max_bwd_x"),
    }


@pytest.mark.parametrize("seed", range(4))
def test_sums_of_random_networks_stay_below_what_is_proven(seed: int) -> None:
    """The largest sums of a real step, bias gradients and forward sums, against their bounds."""
    graph = everything_trained(random_network(seed) if seed else residual_network())
    most = {(layer, found.name): found.most for layer, found in accumulators(graph)}
    executor = Executor(graph)
    executor.forward(stored_image(graph))
    for node in graph.forward_layers:
        if node.op in ("conv2d", "dwconv2d"):
            x, _, window = bounds.geometry(graph, node)
            layer = graph.layers[node.layer or ""]
            p = reference.Conv(x.shape, graph.tensors[node.outputs[0]].shape, window, x.zero, 0, np.ones(1))
            values = executor.env.values[node.inputs[0]]
            sums = getattr(reference, f"{node.op}_sums")(p, values, layer.weight) + layer.bias
            assert 0 < np.abs(sums).max() <= most[node.name, "a sum of the forward pass"]
    executor.backward(1, attack.STILL)
    for name, error in executor.env.values.items():
        if isinstance(error, reference.Error):
            assert np.abs(error.q.astype(int)).max() <= bounds.ERROR, name


@pytest.mark.parametrize("depthwise", [False, True])
def test_the_bound_of_a_forward_sum_is_reached(depthwise: bool) -> None:
    """Frozen weights: the image that agrees with every sign gives exactly the proven sum."""
    b = Builder(np.random.default_rng(5), (3, 3, 4))
    out = b.depthwise("x", 3) if depthwise else b.conv("x", 2, 3, pad=0)
    graph = training_graph(b.finish(out, 2), Scheme("head"), 2)
    name, layer = next((n, v) for n, v in graph.layers.items() if n != "head")
    node, x = graph.forward_of[name], graph.tensors["x"]
    largest = 0
    for channel in range(len(layer.weight)):
        away = np.sign(layer.weight[channel].astype(int)) * (1 if layer.bias[channel] >= 0 else -1)
        field = np.where(away >= 0, 127, -128).astype(np.int8)
        image = np.repeat(field[:, :, None], 4, axis=2) if depthwise else field
        k, y = node.window, graph.tensors[node.outputs[0]].shape
        assert k is not None
        p = reference.Conv(x.shape, y, k, x.zero, 0, np.ones(1))
        sums = getattr(reference, f"{node.op}_sums")(p, image, layer.weight) + layer.bias
        largest = max(largest, int(np.abs(sums).max()))
    bound = next(
        a.most for n, a in accumulators(graph) if n == name and a.name == "a sum of the forward pass"
    )
    assert 0.99 * bound < largest <= bound


@pytest.mark.parametrize("zero", [-128, -3, 0, 60, 127])
def test_a_zero_point_is_as_far_from_either_end_as_stored_values_are(zero: int) -> None:
    away = np.abs(np.arange(-128, 128) - zero)
    assert bounds.reach(Tensor("x", (1, 1, 1), "s8", 1.0, zero)) == away.max()


@pytest.mark.parametrize(("dtype", "least"), [("s8", 2**31), ("f32", 2**29)])
def test_a_tensor_that_no_int_can_index_is_refused(dtype: str, least: int) -> None:
    """Places in it count bytes, of which a real number has four."""
    graph = training_graph(residual_network(), Scheme("head"), 5)
    for elements, fits in ((least - 1, True), (least, False)):
        large = Tensor("large", (elements, 1, 1), dtype, 1.0, 0)
        found = accumulators(graph.replace(tensors={"large": large}, nodes=()))
        assert [a.most <= a.limit for _, a in found] == [fits]


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (
            one_layer((262, 262, 1), 1),
            r"layer1: the gradient of a weight can reach 2223035940, .* freeze this",
        ),
        (one_layer((300, 300, 1), 2, 3), r"layer1: the gradient of a weight .* smaller input"),
        (one_layer((1, 1, 3), 65536), r"layer1: a height, width or number of channels can reach 65536"),
        (extreme_graph(Extreme("maxpool", (64, 64, 1), 1, Window(17, 17))), "layer1: a place in a window"),
        (
            extreme_graph(Extreme("avgpool", (300, 300, 1), 1, Window(300, 300))),
            "layer1: a sum of a window can reach 22950000",
        ),
        (extreme_graph(Extreme("head", (300, 300, 1), 1)), "head: a number of pixels, .* pool the features"),
    ],
)
def test_a_layer_that_could_overflow_is_refused(graph: Graph, said: str) -> None:
    with pytest.raises(ConvertError, match=said):
        compile_graph(graph, ALL, attack.CLASSES)


def test_what_is_not_trained_is_not_refused() -> None:
    graph = one_layer((262, 262, 1), 1)
    compile_graph(graph, Scheme("biases", -1, {}), attack.CLASSES)
    prove(training_graph(graph, Scheme("head"), attack.CLASSES))


def test_the_last_image_before_the_limit_is_exact() -> None:
    """66,311 pixels of a map whose zero point is -128; one more is refused."""
    last = Extreme("conv2d", (7, 9473, 1), 2)
    wrong, cases = attack.overflow_cases_wrong((last,))
    assert (wrong, cases > 8) == (0, True)
    with pytest.raises(ConvertError, match="the gradient of a weight"):
        training_graph(extreme_graph(Extreme("conv2d", (216, 307, 1), 2)), ALL, attack.CLASSES)


def test_extreme_layers_are_right_or_refused() -> None:
    wrong, cases = attack.overflow_cases_wrong()
    assert wrong == 0
    assert cases > 200


def test_sums_without_the_proof_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: conversion as it was, which let the sums of weight gradients wrap."""
    monkeypatch.setattr(pipeline, "prove", lambda graph: graph)
    wrong, _ = attack.overflow_cases_wrong(
        (Extreme("conv2d", (262, 262, 1), 1), Extreme("conv2d", (8, 8, 3), 4))
    )
    assert wrong > 0


def small_map(b: Builder, x: str, classes: int = 5) -> Graph:
    """Poolings by 8 until nothing is left of them, then the head on flattened features."""
    while min(b.tensors[x].shape[:2]) >= 16:
        x = b.pool("avgpool", x, 8, 8)
    features = b.tensors[x].elements
    b.tensors["logits"] = Tensor("logits", (1, 1, classes), "f32")
    weight = b.rng.normal(0, 0.3, (classes, features)).astype(np.float32)
    b.layers["head"] = IrLayer(weight, np.zeros(classes, np.float32), Source("head.weight", "head.bias"))
    b.nodes.append(Node("head", "head", (x,), ("logits",), "head"))
    graph = Builder(b.rng, b.shape).finish("x", classes)
    return graph.replace(tensors=b.tensors, nodes=tuple(b.nodes), layers=b.layers)


def large_network(seed: int) -> Graph:
    """A few convolutions of any kind on an image of 100 to 300 pixels per side."""
    rng = np.random.default_rng(seed)
    b = Builder(rng, (int(rng.integers(100, 301)), int(rng.integers(100, 301)), int(rng.choice([1, 3]))))
    x = "x"
    for _ in range(int(rng.integers(1, 4))):
        k, stride = int(rng.choice([1, 3, 5])), int(rng.choice([1, 1, 2]))
        if x != "x" and rng.random() < 0.4:
            x = b.depthwise(x, k, stride)
        else:
            x = b.conv(x, int(rng.integers(1, 5)), k, stride)
    return small_map(b, x)


@pytest.mark.parametrize("seed", range(8))
def test_networks_of_large_images_are_right_or_refused(seed: int, tmp_path: Path) -> None:
    """C and NumPy, whose sums have 64 bits, learn the same; the gradients point where float ones do."""
    graph = large_network(seed)
    try:
        compiled = compile_graph(graph, ALL, 5)
    except ConvertError as error:
        assert "the gradient of a weight can reach" in str(error)
        assert max(graph.tensors[n.outputs[0]].pixels for n in graph.nodes) > 66311
        return
    image = stored_image(compiled.graph)
    assert least_cosine(compiled.graph, image) > 0.99
    model, executor = NativeModel(generate(compiled, "test"), tmp_path), Executor(compiled.graph)
    for step, stored in enumerate((image, np.full_like(image, 127), np.full_like(image, -128))):
        np.testing.assert_array_equal(model.forward(stored, train=True), executor.forward(stored))
        model.backward(step, Sgd(0.1, 0.1, 0.1, 1, step))
        executor.backward(step, reference.Sgd(0.1, 0.1, 0.1, 1, step))
        assert model.trainables() == executor.trainables()


def test_coarse_gradients_are_warned_of() -> None:
    """4608 products meet in a pixel of a 3x3 layer with 512 outputs: 4 bits are left."""
    graph = training_graph(one_layer((6, 6, 4), 512, 3), ALL, attack.CLASSES)
    with pytest.warns(UserWarning, match=r"through layer1 \(4 bits\) are coarse.*fewer output channels"):
        warn_coarse(graph)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_coarse(training_graph(one_layer((6, 6, 4), 200, 3), ALL, attack.CLASSES))


def test_a_number_that_a_struct_has_no_room_for_is_refused() -> None:
    """ctypes would keep its low bits."""
    with pytest.raises(hostlib.Error, match=r"Conv2d\.kh has no room for 300"):
        conv2d_struct((300, 300, 1), (1, 1, 1), Window(300, 300), 0, 0, 0)
