"""Trained weights in a copy of the ONNX or TFLite file: its own runtime then answers as the device does."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from interpreted import sample_shape
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from test_onnx import constants, export, keras_like, quantized_file, reference, saved
from test_tokens import SOUND, Own, Spectrogram, by_permute
from torch import nn
from torch_networks import NETWORKS, randomise, write

from lab.attack import keras_networks, litert_networks, recurrent_networks
from lab.attack.tflite_files import Int8, Writer, small_network
from lab.attack.tflite_networks import Float
from microtrain.base.errors import Error
from microtrain.base.plan import OWN_HEAD, Origin, Plan
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import document
from microtrain.convert.execute.batched import run_float
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.module import load_model
from microtrain.convert.frontends.tflite.reader import tflite_homes
from microtrain.convert.frontends.tflite.trained import trained_tflite
from microtrain.convert.ir import ConvertError
from microtrain.convert.lite import LiteResiduals
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.reference.kernels import Sgd
from microtrain.convert.scheme import ALL, Scheme
from microtrain.convert.until import ending_at
from microtrain.device.errors import DeviceError
from microtrain.device.model_copy import check, save_copy, save_model
from microtrain.device.weights import Arrays, unpack

DATA = Path(os.environ.get("MICROTRAIN_DATA", "")) / "mlperf_tiny"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the published models are not here (MICROTRAIN_DATA)"
)
STEPS = 6


class Session:
    """A device that has learned a little of noise, so that every tensor moved. bits: of fractions"""

    def __init__(
        self,
        model: Path,
        classes: int,
        bits: int = 4,
        rate: float = 0.02,
        part: float = 1.0,
        until: str | None = None,
        lite: LiteResiduals | None = None,
    ) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = load_model(model)
            float_graph = (ending_at(loaded, until) if until else loaded).graph
            shape = float_graph.tensors[float_graph.input.tensor].shape
            self.images = np.random.default_rng(1).integers(0, 256, (24, *shape)).astype(np.uint8)
            graph = quantize_model(float_graph, self.images, Choices())
            scheme = Scheme("s", -1, {ALL: part}, fraction_bits=bits, head="random", lite=lite)
            compiled = compile_graph(graph, scheme, classes)
        self.model = model
        self.plan: Plan = document(compiled, generate(compiled, "a test"), Origin("", "", ""), None)
        self.run = Executor(compiled.graph)
        before = unpack(self.plan, self.run.trainables())
        for step in range(STEPS):
            self.run.forward(self._stored(self.images[step]))
            self.run.backward(step % classes, Sgd(rate, rate, rate, 3, step))
        self.arrays: Arrays = unpack(self.plan, self.run.trainables())
        moved = {k: (before[k] != v).any() for k, v in self.arrays.items()}
        assert sum(moved.values()) > len(moved) // 2, moved

    @staticmethod
    def _stored(image: np.ndarray) -> np.ndarray:
        return (image.astype(np.int16) - 128).astype(np.int8)

    def logits(self) -> np.ndarray:
        """The device's."""
        return np.stack([self.run.forward(self._stored(x)).reshape(-1) for x in self.images])

    def copy(self, out: Path) -> list[str]:
        return save_copy(out.suffix[1:], self.plan, self.arrays, self.model, out)


def interpreted(path: Path, samples: np.ndarray, reference: bool = True) -> np.ndarray:
    """What TFLite's own interpreter makes of samples in the file's type, as real numbers.

    reference  by its reference kernels where the file is quantized; that of SUM makes no sums
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = Interpreter(str(path))
        if reference and run.get_input_details()[0]["dtype"] != np.float32:
            run = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    run.allocate_tensors()
    (entry,), (result,) = run.get_input_details(), run.get_output_details()
    found = []
    for sample in samples:
        run.reset_all_variables()
        run.set_tensor(entry["index"], sample.reshape(entry["shape"]).astype(entry["dtype"]))
        run.invoke()
        found.append(run.get_tensor(result["index"]).reshape(-1).astype(np.float64))
    scale, zero = result["quantization"]
    made = np.stack(found)
    return (made - zero) * scale if scale else made


def softmaxed(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def agree(found: np.ndarray, wanted: np.ndarray, close: float) -> None:
    """Answers within some bound, and the same class wherever the device is surer than that."""
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= close, np.abs(found - wanted).max()
    ordered = np.sort(wanted, axis=1)
    sure = ordered[:, -1] - ordered[:, -2] > 2 * close
    assert sure.any() and (found.argmax(1) == wanted.argmax(1))[sure].all()


@pytest.mark.parametrize("classes", [4, 7])
@pytest.mark.parametrize(("bits", "apart"), [(0, False), (4, False), (8, False), (8, True)])
def test_int8_tflite_has_the_devices_answers(classes: int, bits: int, apart: bool, tmp_path: Path) -> None:
    """Its softmax in int8 rounds to units of 1/256; more classes than before make a larger head."""
    model = tmp_path / "small.tflite"
    model.write_bytes(small_network(apart))
    session = Session(model, classes, bits)
    session.copy(tmp_path / "out.tflite")
    samples = session.images.astype(int) - 128
    found = interpreted(tmp_path / "out.tflite", samples)
    agree(found, softmaxed(session.logits()), 1.5 / 256)
    if classes == 4:
        before = interpreted(model, samples)
        assert np.abs(before - found).max() > 0.05, "the file as it was answers otherwise"


def test_int8_tflite_without_a_softmax_gives_float_logits(tmp_path: Path) -> None:
    net = Int8.input((6, 6, 2)).conv(5, (3, 3), 2, (3, 3), (0.03, -128))
    model = tmp_path / "bare.tflite"
    model.write_bytes(net.linear(3, (0.05, 0)).file())
    session = Session(model, 3)
    session.copy(tmp_path / "out.tflite")
    found = interpreted(tmp_path / "out.tflite", session.images.astype(int) - 128)
    logits = session.logits()
    agree(found, logits, 1e-4 * np.abs(logits).max())
    shapes = [
        [x.shape for x in load_model(p).graph.tensors.values()] for p in (model, tmp_path / "out.tflite")
    ]
    assert shapes[0] == shapes[1], "the copy converts again"


@needs_data
@pytest.mark.parametrize(
    ("name", "classes"), [("kws_dscnn_int8", 12), ("kws_dscnn_int8", 5), ("resnet8_int8", 10)]
)
def test_published_int8_files(name: str, classes: int, tmp_path: Path) -> None:
    """ResNet-8's first layer is trained in other units than the file's; the file keeps its own."""
    session = Session(DATA / f"{name}.tflite", classes, rate=0.001)
    session.copy(tmp_path / "out.tflite")
    found = interpreted(tmp_path / "out.tflite", session.images.astype(int) - 128)
    wanted = softmaxed(session.logits())
    assert (found.argmax(1) == wanted.argmax(1)).mean() > 0.9
    assert np.abs(found - wanted).max() < 0.06, "units of a feature that TFLite's kernels round otherwise"


@needs_data
@pytest.mark.parametrize("classes", [12, 3])
def test_float_tflite_takes_the_trained_tensors(classes: int, tmp_path: Path) -> None:
    """In float by TFLite, and in int8 by the device."""
    session = Session(DATA / "kws_dscnn_fp32.tflite", classes, rate=0.001)
    session.copy(tmp_path / "out.tflite")
    logits = session.logits()
    found = interpreted(tmp_path / "out.tflite", session.images / 255.0)
    assert np.corrcoef(found.ravel(), softmaxed(logits).ravel())[0, 1] > 0.97
    assert (found.argmax(1) == logits.argmax(1)).mean() > 0.75, "int8 beside float"


@pytest.mark.parametrize(
    "make",
    [
        each
        for each in (*keras_networks.NETWORKS, *litert_networks.NETWORKS, *recurrent_networks.NETWORKS)
        # of which a head alone learns, or badly
        if each.__name__ not in ("row_by_row", "chosen", "lengths", "strided")
    ],
)
def test_what_converters_write_takes_the_trained_tensors(make: Callable[[], Float], tmp_path: Path) -> None:
    """In float, with float16 weights, and where constants are added, shared or parts of a normalisation.

    What was written into the result of a DEQUANTIZE was lost.
    """
    session = Session(make().file(tmp_path), 3)
    session.copy(tmp_path / "out.tflite")
    logits, samples = session.logits(), session.images / 255.0
    if samples.shape[-1] == sample_shape(session.model)[0] != sample_shape(session.model)[-1]:
        samples = np.moveaxis(samples, -1, 1)
    found, before = (interpreted(p, samples) for p in (tmp_path / "out.tflite", session.model))
    assert np.abs(found - logits).max() < 0.08 * np.ptp(logits) < 0.3 * np.abs(before - logits).max()


def test_a_sum_with_a_scale_of_its_own_is_learned_through(tmp_path: Path) -> None:
    """Its factor and the scales of errors had one name in C."""
    net = Int8.input((9, 8, 3)).conv(6, (3, 3), 2, (5, 4), (0.03, -128))
    made, axes = (
        net.w.tensor("sum", (1, 6), scale=(0.2,), zero=(-128,)),
        net.w.tensor("axes", (2,), "int32", np.array([1, 2])),
    )
    net.w.op("SUM", (net.x, axes), (made,), "ReducerOptions", KeepDims=False)
    net.x, net.shape, net.scale, net.zero = made, (6,), 0.2, -128
    model = tmp_path / "sum.tflite"
    model.write_bytes(net.linear(3, (0.05, 0)).file())
    session = Session(model, 3, rate=0.001)
    session.copy(tmp_path / "out.tflite")
    found = interpreted(tmp_path / "out.tflite", session.images.astype(int) - 128, reference=False)
    agree(found, session.logits(), 0.05 * np.ptp(session.logits()))


def test_a_head_behind_an_lstm_in_whole_numbers(tmp_path: Path) -> None:
    side = (0.0078, 0)
    net = recurrent_networks.int8_over_time(Int8.input((7, 5)), 6, side, side, side)
    model = tmp_path / "over_time.tflite"
    model.write_bytes(recurrent_networks.int8_last_row(net).dense(3, (0.02, 5), 0).file())
    session = Session(model, 3)
    session.copy(tmp_path / "out.tflite")
    found = interpreted(tmp_path / "out.tflite", session.images.astype(int) - 128)
    agree(found, session.logits(), 1e-4 * np.abs(session.logits()).max())


@pytest.mark.parametrize("softmax", [True, False])
def test_a_file_that_ends_in_uint8(softmax: bool, tmp_path: Path) -> None:
    """inference_output_type=tf.uint8 of TFLite's converter: a QUANTIZE behind all."""
    net = Int8.input((6, 6, 2)).conv(5, (3, 3), 2, (3, 3), (0.03, -128)).linear(3, (0.05, 0))
    scale, zero = ((1 / 256,), (0,)) if softmax else ((0.05,), (128,))
    net = net.softmax() if softmax else net
    made = net.w.tensor("bytes", (1, 3), "uint8", scale=scale, zero=zero)
    net.w.op("QUANTIZE", (net.x,), (made,), "QuantizeOptions")
    net.x = made
    model = tmp_path / "bytes.tflite"
    model.write_bytes(net.file())
    session = Session(model, 3)
    session.copy(tmp_path / "out.tflite")
    found = interpreted(tmp_path / "out.tflite", session.images.astype(int) - 128)
    logits = session.logits()
    if softmax:
        agree(found, softmaxed(logits), 1.5 / 256)
    else:
        agree(found, logits, 1e-4 * np.abs(logits).max())


def test_layers_that_share_constants_in_the_file_learn_apart(tmp_path: Path) -> None:
    """TFLite's converter keeps equal constants once."""
    net = Int8.input((6, 6, 4))
    for size in (6, 6):
        net.rng = np.random.default_rng(7)
        net.conv(4, (3, 3), 1, (size, size), (0.05, -128))
    assert len(net.w.buffers) == 3, "weights and biases of two layers"
    model = tmp_path / "shared.tflite"
    model.write_bytes(net.linear(3, (0.05, 0)).file())
    session = Session(model, 3)
    session.copy(tmp_path / "out.tflite")
    logits = session.logits()
    found = interpreted(tmp_path / "out.tflite", session.images.astype(int) - 128)
    agree(found, logits, 1e-4 * np.abs(logits).max())


def exported(name: str, folder: Path) -> Path:
    return export(randomise(NETWORKS[name](), seed=3), folder / "net.onnx")


def with_group_norm(folder: Path) -> Path:
    """PyTorch writes it as an instance norm, a product and a sum."""
    torch.manual_seed(0)
    norm = nn.GroupNorm(4, 8)
    net = nn.Sequential(
        *(nn.Conv2d(2, 8, 3, 2), norm, nn.ReLU(), nn.Conv2d(8, 6, 3), nn.InstanceNorm2d(6)),
        *(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)),
    )
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    net.shape = (2, 12, 12)  # type: ignore[assignment]
    return export(net.eval(), folder / "net.onnx")


def attending(folder: Path) -> Path:
    torch.manual_seed(0)
    net = Spectrogram(Own(by_permute)).eval()
    net.shape = SOUND  # type: ignore[assignment]
    return export(net, folder / "net.onnx")


ONNX: dict[str, Callable[[Path], Path]] = {
    "group norm": with_group_norm,
    **{name: partial(exported, name) for name in NETWORKS},
    "keras": keras_like,
    "attention": attending,
}


@pytest.mark.parametrize("name", ONNX)
def test_float_onnx_takes_the_trained_tensors(name: str, tmp_path: Path) -> None:
    """What was trained is in the copy, to the device's integers: read again, its float graph has them."""
    session = Session(ONNX[name](tmp_path), 3)
    session.copy(tmp_path / "out.onnx")
    graph = load_model(tmp_path / "out.onnx").graph
    own = session.run.env
    for layer_name, layer in graph.layers.items():
        state, scale = own.state[layer_name], own.graph.layers[layer_name].weight_scale
        if scale is None:
            np.testing.assert_allclose(layer.weight, state.weight, rtol=1e-5)
            continue
        assert state.fraction is not None
        whole = state.weight.astype(float) + state.fraction.reshape(state.weight.shape) / 16
        units = scale.reshape(-1, *[1] * (whole.ndim - 1))
        dead = own.graph.layers[layer_name].dead
        alive = np.ones(len(scale), bool) if dead is None else ~dead
        np.testing.assert_allclose((layer.weight / units)[alive], whole[alive], atol=2e-3)
    logits = session.logits()
    shaped = session.images if name == "keras" else session.images.transpose(0, 3, 1, 2)
    (entry,) = onnx.load(str(tmp_path / "out.onnx")).graph.input
    dims = [1, *(d.dim_value for d in entry.type.tensor_type.shape.dim[1:])]
    run = ReferenceEvaluator(str(tmp_path / "out.onnx"))
    answers: list[Any] = [
        run.run(None, {entry.name: x.reshape(dims).astype(np.float32) / 255}) for x in shaped
    ]
    found = np.concatenate([made[0].reshape(1, -1) for made in answers])
    wanted = softmaxed(logits) if name == "keras" else logits
    assert found.shape == wanted.shape
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.95, "int8 beside float"


def test_weights_beside_the_file_are_in_the_copy(tmp_path: Path) -> None:
    """As torch.onnx.export writes them since PyTorch 2.9; the file's own are left as they are."""
    path, beside = exported("pooled", tmp_path), tmp_path / "net.onnx.data"
    about: dict[str, Any] = {"save_as_external_data": True, "location": beside.name, "size_threshold": 0}
    onnx.save(onnx.load(str(path)), str(path), **about)
    kept = beside.read_bytes()
    assert len(kept) > path.stat().st_size / 2 and load_model(path).graph.layers
    session = Session(path, 3)
    (tmp_path / "out").mkdir()
    session.copy(tmp_path / "out" / "net.onnx")
    assert beside.read_bytes() == kept
    copy = onnx.load(str(tmp_path / "out" / "net.onnx"), load_external_data=False)
    assert all(t.data_location != TensorProto.EXTERNAL for t in copy.graph.initializer)
    trained = load_model(tmp_path / "out" / "net.onnx").graph.layers
    before = load_model(path).graph.layers
    assert any(not np.array_equal(layer.weight, before[name].weight) for name, layer in trained.items())


def sum_apart(path: Path) -> Path:
    """The file with MatMul and Add in the place of its Gemm, both rounded, as ONNX Runtime writes a layer."""
    model = onnx.load(str(path))
    nodes = model.graph.node
    gemm = next(i for i, each in enumerate(nodes) if each.op_type == "Gemm")
    h, scale = (numpy_helper.to_array(t) for t in model.graph.initializer if t.name in ("h", "h_s"))
    model.graph.initializer.append(numpy_helper.from_array((h.T * scale).astype(np.float32), "matrix"))
    about = ["y_s", "y_z"]
    made = [
        helper.make_node("MatMul", ["f", "matrix"], ["m"], "last"),
        helper.make_node("QuantizeLinear", ["m", *about], ["m_q"]),
        helper.make_node("DequantizeLinear", ["m_q", *about], ["m_d"]),
        helper.make_node("Add", ["m_d", "c"], [nodes[gemm].output[0]]),
    ]
    kept = [*nodes[:gemm], *made, *nodes[gemm + 1 :]]
    copies = [onnx.NodeProto.FromString(each.SerializeToString()) for each in kept]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    path.write_bytes(model.SerializeToString())
    return path


def with_zero_points(path: Path) -> Path:
    """The file with unsigned weights of the convolution, which are not symmetric."""
    model = onnx.load(str(path))
    for tensor in model.graph.initializer:
        if tensor.name in ("w", "w_z"):
            stored = numpy_helper.to_array(tensor).astype(np.int16) + 120
            unsigned = np.clip(stored, 0, 255).astype(np.uint8)
            tensor.CopyFrom(numpy_helper.from_array(unsigned, tensor.name))
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("changed", [sum_apart, with_zero_points])
def test_qdq_files_of_onnx_runtime_have_the_devices_answers(
    changed: Callable[[Path], Path], tmp_path: Path
) -> None:
    """What was rounded behind a product cut the logits; weights with zero points could not be written."""
    session = Session(changed(quantized_file(tmp_path)), 3)
    session.copy(tmp_path / "out.onnx")
    real = (session.images.astype(np.float64) - 100) * 0.02
    found, logits = reference(tmp_path / "out.onnx", real.transpose(0, 3, 1, 2)), session.logits()
    agree(found, logits, 0.03 * np.abs(logits).max())
    left = [each.op_type for each in onnx.load(str(tmp_path / "out.onnx")).graph.node][-3:]
    assert "QuantizeLinear" not in left


@pytest.mark.parametrize("classes", [3, 5])
def test_qdq_file_keeps_its_scales_and_has_the_devices_answers(classes: int, tmp_path: Path) -> None:
    session = Session(quantized_file(tmp_path), classes)
    session.copy(tmp_path / "out.onnx")
    real = (session.images.astype(np.float64) - 100) * 0.02
    found = reference(tmp_path / "out.onnx", real.transpose(0, 3, 1, 2))
    logits = session.logits()
    agree(found, logits, 0.02 * np.abs(logits).max())
    exact = np.abs(found - logits).max(axis=1) < 1e-4 * np.abs(logits).max()
    assert exact.mean() > 0.7, "most samples round alike everywhere"


def test_a_layer_without_biases_gets_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = constants(
        w=rng.normal(0, 0.3, (5, 2, 3, 3)).astype(np.float32),
        m=rng.normal(0, 0.3, (5, 6)).astype(np.float32),
        h=rng.normal(0, 0.3, (6, 4)).astype(np.float32),
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["v"]),
        helper.make_node("Relu", ["v"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["g"]),
        helper.make_node("Relu", ["g"], ["k"]),
        helper.make_node("MatMul", ["k", "h"], ["y"]),
    ]
    session = Session(saved(tmp_path / "bare.onnx", nodes, arrays, [1, 2, 6, 6]), 4)
    session.copy(tmp_path / "out.onnx")
    model = onnx.load(str(tmp_path / "out.onnx"))
    assert [n.op_type for n in model.graph.node].count("Add") == 2
    assert len(next(n for n in model.graph.node if n.op_type == "Conv").input) == 3
    found = reference(tmp_path / "out.onnx", session.images.transpose(0, 3, 1, 2) / 255.0)
    logits = session.logits()
    agree(found, logits, 0.1 * np.abs(logits).max())


def test_files_that_cannot_take_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = constants(h=rng.normal(0, 0.3, (4, 8)).astype(np.float32), shape=np.array([1, 2, 2]))
    nodes = [
        helper.make_node("Gemm", ["x", "h"], ["g"], transB=1),
        helper.make_node("Reshape", ["g", "shape"], ["y"]),
    ]
    path = saved(tmp_path / "net.onnx", nodes, arrays, [1, 8])
    session = Session(path, 3)
    with pytest.raises(ConvertError, match="Reshape behind the last layer counts its 4 classes"):
        session.copy(tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
    other = Session(keras_like(tmp_path), 4)
    with pytest.raises(DeviceError, match="give the --model that was converted"):
        save_copy("onnx", session.plan, session.arrays, other.model, tmp_path / "out.onnx")
    (tmp_path / "text").write_text("no model")
    for name, why in (("text", "is no ONNX file"), ("gone", "no such file")):
        with pytest.raises(Error, match=why):
            save_copy("onnx", session.plan, session.arrays, tmp_path / name, tmp_path / "out.onnx")


def test_a_head_that_until_made_stays_beside_the_tflite_file(tmp_path: Path) -> None:
    """The layers are the device's in the file, and the head of the .npz on their mean has its answers."""
    from ai_edge_litert.interpreter import Interpreter

    model, out = tmp_path / "small.tflite", tmp_path / "out.tflite"
    model.write_bytes(small_network())
    session = Session(model, 3, until="dwconv1")
    (said, left) = save_model("tflite", session.plan, session.arrays, model, out)
    assert "4 trained tensors" in said and "small.tflite has no place for the head" in left
    head = {t.kind: session.arrays[t.name] for t in session.plan.trainables.tensors if t.layer == OWN_HEAD}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = Interpreter(str(out), experimental_preserve_all_tensors=True)
    run.allocate_tensors()
    (entry,) = run.get_input_details()
    (made,) = (op["outputs"] for op in run._get_ops_details() if op["op_name"] == "DEPTHWISE_CONV_2D")
    scale = session.run.env.graph.tensors["until"].scale
    found = []
    for image in session.images:
        run.set_tensor(entry["index"], (image[None].astype(int) - 128).astype(np.int8))
        run.invoke()
        map_of = run.get_tensor(made[0])[0].astype(np.int64) + 128
        mean = np.floor(map_of.mean((0, 1)) + 0.5) * scale
        found.append(head["head_weight"].reshape(3, -1) @ mean + head["head_bias"])
    apart = np.abs(np.stack(found) - session.logits()).max(axis=1)
    assert (apart < 1e-5).mean() > 0.5, "most maps and means round alike"
    agree(np.stack(found), session.logits(), 0.06 * np.abs(session.logits()).max())


def test_nothing_but_the_head_of_until_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "small.tflite"
    model.write_bytes(small_network())
    session = Session(model, 3, until="dwconv1")
    heads = tuple(t for t in session.plan.trainables.tensors if t.layer == OWN_HEAD)
    plan = replace(session.plan, trainables=replace(session.plan.trainables, tensors=heads))
    with pytest.raises(
        DeviceError, match=r"nothing of small\.tflite was trained but the head; take it from -o"
    ):
        save_model("tflite", plan, session.arrays, model, tmp_path / "out.tflite")
    assert not (tmp_path / "out.tflite").exists()


@pytest.mark.parametrize("kind", ["onnx", "state_dict"])
def test_a_head_that_until_made_stays_beside_pytorchs_weights(kind: str, tmp_path: Path) -> None:
    net = randomise(NETWORKS["mobilenet"](), seed=2)
    model = (
        export(net, tmp_path / "net.onnx") if kind == "onnx" else write(net, tmp_path / "net.pt2", "exported")
    )
    whole = load_model(model)
    layer = next(n.layer for n in reversed(whole.graph.nodes) if n.op == "dwconv2d")
    session = Session(model, 3, until=layer)
    out = tmp_path / f"out.{'onnx' if kind == 'onnx' else 'pt'}"
    said = save_model(kind, session.plan, session.arrays, model, out)
    assert "has no place for the head" in said[-1]
    if kind == "onnx":
        part = ending_at(load_model(out), str(layer)).graph
    else:
        net.load_state_dict(torch.load(out))
        part = ending_at(load_model(write(net, tmp_path / "trained.pt2", "exported")), str(layer)).graph
    seen: dict[str, np.ndarray] = {}
    run_float(part, session.images, seen.__setitem__)
    stored = []
    for image in session.images:
        session.run.forward(session._stored(image))
        stored.append(session.run.env.values["until"].reshape(-1).astype(float))
    assert np.corrcoef(np.ravel(seen["until"]), np.ravel(stored))[0, 1] > 0.98, "int8 beside float"


def test_a_constant_of_int16_that_is_added_keeps_its_digits(tmp_path: Path) -> None:
    """As biases of a TCN in a 16x8 file; they were written in steps of 127ths, and the copy was refused."""
    w, rng = Writer(), np.random.default_rng(5)
    x, y, added = (
        w.tensor(name, shape, "int16", scale=(1e-3,), zero=(0,))
        for name, shape in (("input", (1, 6, 6, 2)), ("y", (1, 4, 4, 3)), ("added", (1, 4, 4, 3)))
    )
    weight = w.tensor("w", (3, 3, 3, 2), data=rng.integers(-99, 99, (3, 3, 3, 2)), scale=(0.01,), zero=(0,))
    bias = w.tensor("bias", (3,), "int16", np.array([30000, -200, 7]), (1e-4,), (0,))
    plain = {"StrideH": 1, "StrideW": 1, "Padding": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    w.op("CONV_2D", (x, weight), (y,), "Conv2DOptions", **plain)
    w.op("ADD", (y, bias), (added,), "AddOptions")
    flat = w.tensor("flat", (1, 48), "int16", scale=(1e-3,), zero=(0,))
    w.op("RESHAPE", (added, w.tensor("s", (2,), "int32", np.array([1, 48]))), (flat,))
    head = w.tensor("head", (2, 48), data=rng.integers(-99, 99, (2, 48)), scale=(0.01,), zero=(0,))
    made = w.tensor("made", (1, 2), "int16", scale=(1e-2,), zero=(0,))
    w.op("FULLY_CONNECTED", (flat, head), (made,), "FullyConnectedOptions")
    path, out = tmp_path / "wide.tflite", tmp_path / "out.tflite"
    path.write_bytes(w.file((x,), (made,)))
    trained = np.array([1.234567, -0.0987654, 0.333333])
    out.write_bytes(trained_tflite(path, tflite_homes(path), {"bias": trained}, None))
    written = tflite_homes(out)
    assert np.abs(written["bias"].value - trained).max() < 2e-5 * trained.max()
    check(written, tflite_homes(path), {"bias": trained}, None)
