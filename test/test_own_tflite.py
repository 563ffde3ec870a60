"""Float TFLite files as Keras and others write them: the values of TFLite's own interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from interpreted import interpreted, sample_shape

from lab.attack import keras_networks, litert_networks
from lab.attack.tflite_files import Int8
from lab.attack.tflite_networks import NETWORKS, Float, each_moment
from lab.tasks.logits import int8_graph, logits
from lab.tasks.logits import interpreted as stored
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.clean.fold import clean
from microtrain.convert.frontends.module import load_model
from microtrain.convert.frontends.tflite.file import read_flatbuffer
from microtrain.convert.frontends.tflite.pads import padded_last
from microtrain.convert.frontends.tflite.reader import read_tflite, tflite_homes
from microtrain.convert.ir import ConvertError
from microtrain.convert.ops.normalise import GROUP_NORM


def split_by_rows() -> Float:
    """The last of several parts of a map."""
    net = Float(6, 5, 2).conv(4, 3, 3)
    parts = [net.w.tensor("part", (1, 2, 3, 4), "float32") for _ in range(2)]
    axis = net.w.tensor("axis", (), "int32", np.array(1))
    net.w.op("SPLIT", (axis, net.x), parts, "SplitOptions", NumSplits=2)
    net.x, net.shape = parts[1], (1, 2, 3, 4)
    return net.over("MEAN", 1, 2).linear(3)


def viewed_otherwise() -> Float:
    """A map whose rows stand side by side."""
    return Float(6, 5, 2).conv(4, 3, 3).view(1, 1, 12, 4).conv(4, 1, 2).over("MEAN", 1, 2).linear(3)


def turned_late() -> Float:
    net = Float(6, 5, 2).conv(4, 3, 3)
    net.op("TRANSPOSE", (net.x, net.whole(0, 2, 1, 3)), (1, 3, 4, 4), "TransposeOptions")
    return net.conv(4, 2, 2).over("MEAN", 1, 2).linear(3)


def slopes(*shape: int) -> Float:
    """PReLU of a square map of five channels: of each row, or of each place."""
    net = Float(7, 7, 2).conv(5, 3, 3, act=0)
    values = np.random.default_rng(0).uniform(0.1, 0.6, shape).astype(np.float32)
    slope = net.w.tensor("slope", shape, "float32", values)
    return net.op("PRELU", (net.x, slope), net.shape).over("MEAN", 1, 2).linear(3)


@pytest.mark.parametrize(
    "make",
    (
        lambda: slopes(5, 1, 1),
        lambda: slopes(5, 5, 5),
        *NETWORKS,
        *keras_networks.NETWORKS,
        *litert_networks.NETWORKS,
        split_by_rows,
        viewed_otherwise,
        turned_late,
    ),
)
def test_a_file_of_ones_own(make: Callable[[], Float], tmp_path: Path) -> None:
    path = make().file(tmp_path)
    graph = load_model(path).graph
    pixels = np.random.default_rng(1).integers(0, 256, (8, *sample_shape(path))).astype(np.uint8)
    wanted = interpreted(path, pixels)
    shape = graph.tensors[graph.input.tensor].shape
    is_turned = pixels.shape[1] == shape[2] != pixels.shape[-1]
    images = np.moveaxis(pixels, 1, -1) if is_turned else pixels
    found = run_float(graph, images.reshape(8, *shape))
    np.testing.assert_allclose(found.reshape(8, 3), wanted, atol=2e-5)
    assert np.ptp(wanted, axis=0).min() > 1e-3, "the logits say something"


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("writer", [keras_networks.normed, litert_networks.normed])
def test_a_norm_is_one_op(writer: Callable[..., Float], affine: bool, tmp_path: Path) -> None:
    """Whoever wrote it in pieces, which would answer alike one by one, and take many times as long."""
    about = {"affine": affine} if writer is litert_networks.normed else {}
    net = writer(Float(6, 5).linear(7, 1, 6), **about)
    ops = [n.op for n in load_model(net.over("MEAN", 1).linear(3).file(tmp_path)).graph.nodes]
    assert (
        ops[1] == GROUP_NORM
        and ops[-2:] == ["avgpool", "head"]
        and len(ops) == (5 if about.get("affine", True) else 4)
    )


def test_means_across_tokens_are_no_layer_norm(tmp_path: Path) -> None:
    """A vector beside as many tokens as numbers goes along the last axis, unless it is seen otherwise."""
    net = litert_networks.normed(Float(6, 5).linear(6, 1, 6), across=True).over("MEAN", 1).linear(3)
    with pytest.raises(ConvertError, match=r"the op sub of tokens \[1, 6, 6\] and \[6\]"):
        load_model(net.file(tmp_path))


def test_an_input_that_was_turned_before_is_not_taken_as_it_is(tmp_path: Path) -> None:
    """PixelUnshuffle in pieces: the last of its views turns NCHW to NHWC, as a plain input's may be."""
    net = Float(2, 8, 6).view(2, 4, 2, 6)
    net = keras_networks.turned(net, 0, 2, 1, 3).view(2, 2, 12, 2)
    net = keras_networks.turned(net, 0, 1, 3, 2).view(1, 8, 4, 3)
    net = litert_networks.ended(keras_networks.turned(net, 0, 2, 3, 1).conv(4, 2, 2))
    with pytest.raises(ConvertError, match="layer conv6: CONV_2D reads a map whose axes were turned"):
        load_model(net.file(tmp_path))


@pytest.mark.parametrize("normed", [keras_networks.normed, litert_networks.normed])
def test_a_refusal_in_front_of_a_norm_is_not_lost(normed: Callable[[Float], Float], tmp_path: Path) -> None:
    """What stands in its place is read by the first of the norm's pieces alone, not by the last."""
    net = keras_networks.turned(Float(8, 7, 2).conv(5, 3, 3), 0, 3, 1, 2)
    net.op("CUMSUM", (net.x, net.whole(1)), net.shape, "CumsumOptions")
    net = normed(keras_networks.turned(net, 0, 2, 3, 1).view(1, 30, 5)).view(1, 6, 5, 5)
    with pytest.raises(ConvertError, match="layer cumsum2: the op cumsum is not supported"):
        load_model(litert_networks.ended(net.conv(4, 2, 2)).file(tmp_path))


def test_what_follows_from_nothing_that_is_known_is_a_sentence_too(tmp_path: Path) -> None:
    net = Float(6, 5).linear(7, 1, 6)
    net.op("CUMSUM", (net.x, net.whole(1)), net.shape, "CumsumOptions")
    raw = read_tflite(net.over("MEAN", 1).linear(3).file(tmp_path))
    with pytest.raises(ConvertError, match="layer cumsum1: the op cumsum is not supported"):
        clean(replace(raw, found=()))


def test_paddings_that_read_themselves_come_to_an_end(tmp_path: Path) -> None:
    """A damaged file may go in circles."""
    net = Float(3, 8, 7)
    padded = litert_networks.padded(net, (0, 0), (0, 0), (0, 0), (0, 0)).x
    net.w.op("TRANSPOSE", (padded, net.whole(0, 2, 3, 1)), (0,), "TransposeOptions")
    file = read_flatbuffer(net.file(tmp_path))
    made = padded_last(replace(file, outputs=()))
    assert [op.kind for op in made.operators] == ["TRANSPOSE", "PAD"]


def test_a_padding_with_another_number_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="padding with -5 is not supported; the nearest that is: zeros"):
        load_model(litert_networks.pooled(-5.0).file(tmp_path))


def test_the_least_number_of_int16_is_what_no_maximum_takes(tmp_path: Path) -> None:
    """Which is symmetric."""
    pixels = np.random.default_rng(1).integers(0, 256, (4, 9, 8, 2)).astype(np.uint8)
    files = litert_networks.pooled(), litert_networks.pooled(-32767, (1e-4,))
    wanted, found = (run_float(load_model(net.file(tmp_path)).graph, pixels) for net in files)
    assert np.array_equal(found, wanted)
    with pytest.raises(ConvertError, match=r"padding with -3\.2 is not supported"):
        load_model(litert_networks.pooled(-32000, (1e-4,)).file(tmp_path))


def test_the_least_number_of_an_int8_file_is_what_no_maximum_takes(tmp_path: Path) -> None:
    net = Int8.input((7, 6, 2)).conv(4, (3, 3), 1, (7, 6), (0.03, 5), act=0)
    scale, zero, padded = (0.03,), (5,), (1, 9, 8, 4)
    sides = net.w.tensor("sides", (4, 2), "int32", np.array([[0, 0], [1, 1], [1, 1], [0, 0]]))
    least = net.w.tensor("least", (1,), data=np.array([-128]), scale=scale, zero=zero)
    made, most = (net.w.tensor("y", shape, scale=scale, zero=zero) for shape in (padded, (1, 4, 3, 4)))
    net.w.op("PADV2", (net.x, sides, least), (made,))
    about = {"FilterHeight": 3, "FilterWidth": 3, "StrideH": 2, "StrideW": 2, "Padding": 1}
    net.w.op("MAX_POOL_2D", (made,), (most,), "Pool2DOptions", **about)
    net.x, net.shape, net.zero = most, (4, 3, 4), 5
    path = tmp_path / "int8.tflite"
    path.write_bytes(net.mean((0.02, 3)).dense(3, (0.01, 0), 0).w.file((0,), (net.x,)))
    samples = np.random.default_rng(1).integers(-128, 128, (20, 7 * 6 * 2)).astype(np.int8)
    expected, said = stored(path, samples)
    assert (np.ptp(expected, axis=0) > 3).all(), "the logits say something"
    assert np.abs(logits(int8_graph(path), samples, said) - expected).max() <= 1


def test_logarithms_of_probabilities_at_the_end_are_left_out(tmp_path: Path) -> None:
    """As a softmax is: the loss makes them of the logits."""
    net = Float(6, 5, 2).conv(4, 3, 3).over("MEAN", 1, 2).linear(3)
    path = net.op("LOG_SOFTMAX", (net.x,), net.shape, "LogSoftmaxOptions").file(tmp_path)
    graph = load_model(path).graph
    pixels = np.random.default_rng(1).integers(0, 256, (8, 6, 5, 2)).astype(np.uint8)
    logits = run_float(graph, pixels).reshape(8, 3)
    made = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    np.testing.assert_allclose(made, interpreted(path, pixels), atol=2e-5)
    assert graph.nodes[-1].op == "head"


def test_weights_over_each_moment_go_back(tmp_path: Path) -> None:
    """What a home makes of a layer's weights is what the file has."""
    homes = tflite_homes(each_moment().file(tmp_path))
    each, over_all = homes["fc0.weight"], homes["fc2.weight"]
    assert each.value.shape == (6, 5, 1, 1) and each.back(each.value).shape == (6, 5)
    columns = over_all.value.reshape(3, 6, 7).transpose(0, 2, 1).reshape(3, -1)
    assert np.array_equal(over_all.back(over_all.value), columns), "the file's are in the order of moments"


def sharp() -> Float:
    """A softmax of twice the logits, which Keras does not write."""
    net = Float(6, 5, 2).conv(4, 3, 3)
    net.op("SOFTMAX", (net.x,), net.shape, "SoftmaxOptions", Beta=2.0)
    return net.over("MEAN", 1, 2).linear(3)


def by(kind: str, *shape: int) -> Float:
    """A square map of five channels, and a constant of this shape."""
    net = Float(7, 7, 2).conv(5, 3, 3)
    values = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(np.float32)
    constant = net.w.tensor("constant", shape, "float32", values)
    table = f"{kind.title()}Options"
    return net.op(kind, (net.x, constant), net.shape, table).conv(4, 2, 2).over("MEAN", 1, 2).linear(3)


@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL", "DIV"])
def test_a_constant_by_rows_is_none_by_channels(kind: str, tmp_path: Path) -> None:
    """A map of as many rows as channels: [5, 1, 1] was once taken for one a channel."""
    pixels = np.random.default_rng(1).integers(0, 256, (8, 7, 7, 2)).astype(np.uint8)
    for shape in ((5,), (5, 1, 1), (5, 1), (1, 5, 1, 1)):
        path = by(kind, *shape).file(tmp_path)
        found = run_float(load_model(path).graph, pixels).reshape(8, 3)
        np.testing.assert_allclose(found, interpreted(path, pixels), atol=2e-5)


def fused(kind: str) -> Float:
    """What TFLite's own kernels do not do, though the schema has it."""
    net = Float(6, 5, 2).conv(4, 3, 3, act=4 if kind == "CONV_2D" else 0)
    if kind == "CONCATENATION":
        x = net.x
        net.conv(4, 1, 1)
        about = {"Axis": 3, "FusedActivationFunction": 1}
        net.op(kind, (x, net.x), (1, 4, 3, 8), "ConcatenationOptions", **about)
    return net.over("MEAN", 1, 2).linear(3)


def of_an_open_batch() -> Float:
    """Moments as a batch, of which the file knows one."""
    return Float(6, 5).view(1, 5).linear(3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fused("CONV_2D"), "layer conv0: CONV_2D with the fused activation TANH"),
        (lambda: fused("CONCATENATION"), "layer concatenation2: .* the fused activation RELU is not"),
        (of_an_open_batch, r"layer reshape0: .*keras.Input\(shape, batch_size=1\)"),
        (sharp, "layer softmax1: SOFTMAX with a beta of 2"),
    ],
)
def test_what_is_refused_is_true(make: Callable[[], Float], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=words):
        load_model(make().file(tmp_path))


def test_batches_that_go_round_in_circles_end(tmp_path: Path) -> None:
    net = Float(11, 3)
    pads = net.w.tensor("pads", (1, 2), "int32", np.array([[2, 3]]))
    one, two = (net.w.tensor(name, (1, 8, 3), "float32") for name in ("one", "two"))
    net.w.op("SPACE_TO_BATCH_ND", (net.x, net.whole(2), pads), (one,), "SpaceToBatchNDOptions")
    net.w.op("RESHAPE", (one, net.whole(1, 8, 3)), (two,), "ReshapeOptions")
    net.w.op("RESHAPE", (two, net.whole(1, 8, 3)), (one,), "ReshapeOptions")
    net.x, net.shape = two, (1, 8, 3)
    with pytest.raises(ConvertError, match="space_to_batch_nd"):
        load_model(net.view(1, 24).linear(3).file(tmp_path))
