"""Transformers in ONNX become the network that torch.export's file becomes, whatever the exporter wrote."""

from __future__ import annotations

import math
import time
import warnings
from pathlib import Path
from typing import Any

import damaged
import numpy as np
import onnx
import pytest
import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper
from test_keyword_transformer import BANDS, FRAMES, KeywordTransformer, spoken
from test_keyword_transformer import exported as exported_kwt
from test_onnx import constants, reference, saved
from test_tokens import NETWORKS
from torch import nn

from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.frontends.onnx.erf import gelus
from microtrain.convert.frontends.onnx.file import read_onnx_file
from microtrain.convert.frontends.onnx.norm_pieces import norms
from microtrain.convert.frontends.onnx.reader import onnx_homes
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.ops import attention, conv
from microtrain.convert.ops.head import HEAD
from microtrain.convert.quantize.ptq import Choices, quantize_model

OPSETS = (14, 17, 20)  # in which norms are in pieces, GELU is, and neither


def apart(net: nn.Module) -> nn.Module:
    """Scales and shifts of norms as training leaves them: none is as another."""
    for norm in (m for m in net.modules() if isinstance(m, nn.LayerNorm)):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.uniform_(norm.bias, -0.5, 0.5)
    return net.eval()


def both(net: nn.Module, shape: tuple[int, ...], folder: Path, opset: int) -> tuple[Graph, Graph]:
    """By torch.export, and by ONNX."""
    example = torch.zeros(1, *shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(net, (example,)), folder / "net.pt2")
        path = str(folder / "net.onnx")
        torch.onnx.export(net, (example,), path, opset_version=opset, dynamo=False)
    return load_model(folder / "net.pt2").graph, load_model(folder / "net.onnx").graph


def alike(one: Graph, other: Graph, pixels: np.ndarray) -> None:
    """The same ops, and the same integers in each layer."""
    assert [n.op for n in one.nodes] == [n.op for n in other.nodes]
    made = [quantize_model(graph, pixels, Choices()) for graph in (one, other)]
    seen: list[dict[str, np.ndarray]] = [{}, {}]
    answers = [run_int8(g, pixels, keep.__setitem__) for g, keep in zip(made, seen, strict=True)]
    for mine, theirs in zip(*(g.nodes for g in made), strict=True):
        here, there = seen[0][mine.outputs[0]], seen[1][theirs.outputs[0]]
        close = 1e-5 * np.abs(here).max() if mine.op == HEAD else 0  # its scales are floats
        np.testing.assert_allclose(here, there, rtol=0, atol=close, err_msg=f"{mine.name} and {theirs.name}")
        if mine.layer is not None and theirs.layer is not None:
            layers = [g.layers[str(n.layer)] for g, n in zip(made, (mine, theirs), strict=True)]
            np.testing.assert_array_equal(layers[0].weight, layers[1].weight)
            np.testing.assert_allclose(
                layers[0].bias, layers[1].bias, rtol=0, atol=1e-6 if mine.op == HEAD else 0
            )
    assert np.ptp(answers[0]) > 0 and (answers[0].argmax(-1) == answers[1].argmax(-1)).all()


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", NETWORKS)
def test_attention_of_each_kind(name: str, opset: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    one, other = both(apart(make()), shape, tmp_path, opset)
    assert attention.ATTENTION in {n.op for n in other.nodes}
    pixels = np.random.default_rng(2).integers(0, 256, (6, *one.tensors["input"].shape)).astype(np.uint8)
    alike(one, other, pixels)


@pytest.mark.parametrize("opset", OPSETS)
def test_a_keyword_transformer(opset: int, tmp_path: Path) -> None:
    """Its norms are as they were made, so the exporter writes their constants once for all."""
    torch.manual_seed(0)
    net = KeywordTransformer().eval()
    _, other = both(net, (1, BANDS, FRAMES), tmp_path, opset)
    alike(load_model(exported_kwt(net, tmp_path)).graph, other, spoken(6, 1)[0])
    homes = onnx_homes(tmp_path / "net.onnx")
    sources = [layer.source for layer in other.layers.values()]
    assert {s.weight for s in sources} | {s.bias for s in sources if s.bias} <= homes.keys()


# ---------------------------------------------------------------- as Keras has it, through tf2onnx

TOKENS, WIDTH, HEADS, SIZE = 9, 12, 2, 6


def keras_attention(by_einsum: bool) -> tuple[list[NodeProto], list[TensorProto]]:
    """MultiHeadAttention, whose weights have an axis for each head; tf2onnx writes Einsum or products."""
    rng = np.random.default_rng(1)
    nodes: list[NodeProto] = []
    arrays: dict[str, np.ndarray] = {"factor": np.array(SIZE**-0.5, np.float32)}

    def add(op: str, inputs: list[str], made: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [made], name=f"mha/{made}", **attributes))
        return made

    def heads_of(kind: str) -> str:
        arrays[f"{kind}/kernel"] = rng.normal(0, 0.4, (WIDTH, HEADS, SIZE)).astype(np.float32)
        arrays[f"{kind}/bias"] = rng.normal(0, 0.4, (HEADS, SIZE)).astype(np.float32)
        if by_einsum:
            made = add("Einsum", ["x", f"{kind}/kernel"], f"{kind}/einsum", equation="abc,cde->abde")
            return add("Add", [made, f"{kind}/bias"], f"{kind}/add")
        arrays[f"{kind}/kernel"] = arrays[f"{kind}/kernel"].reshape(WIDTH, -1)
        arrays["split"] = np.array([-1, TOKENS, HEADS, SIZE])
        made = add("MatMul", ["x", f"{kind}/kernel"], f"{kind}/product")
        made = add("Reshape", [made, "split"], f"{kind}/heads")
        return add("Add", [made, f"{kind}/bias"], f"{kind}/add")

    q, k, v = (heads_of(kind) for kind in ("query", "key", "value"))
    q = add("Mul", [q, "factor"], "scaled")
    arrays["out/kernel"] = rng.normal(0, 0.4, (HEADS, SIZE, WIDTH)).astype(np.float32)
    arrays["out/bias"] = rng.normal(0, 0.4, WIDTH).astype(np.float32)
    if by_einsum:
        scores = add("Einsum", [k, q], "scores", equation="aecd,abcd->acbe")
        shares = add("Softmax", [scores], "shares", axis=-1)
        read = add("Einsum", [shares, v], "read", equation="acbe,aecd->abcd")
        made = add("Einsum", [read, "out/kernel"], "out/einsum", equation="abcd,cde->abe")
    else:
        arrays["out/kernel"] = arrays["out/kernel"].reshape(-1, WIDTH)
        arrays["join"] = np.array([-1, TOKENS, HEADS * SIZE])
        q, v = (add("Transpose", [t], f"{t}/t", perm=[0, 2, 1, 3]) for t in (q, v))
        scores = add("MatMul", [q, add("Transpose", [k], "k/t", perm=[0, 2, 3, 1])], "scores")
        read = add("MatMul", [add("Softmax", [scores], "shares", axis=-1), v], "read")
        read = add("Transpose", [read], "read/t", perm=[0, 2, 1, 3])
        made = add("MatMul", [add("Reshape", [read, "join"], "joined"), "out/kernel"], "out/product")
    made = add("Add", [made, "out/bias"], "attended")
    made = add("Add", ["x", made], "sum")
    arrays["scale"], arrays["shift"] = (rng.uniform(0.5, 1.5, WIDTH).astype(np.float32) for _ in range(2))
    made = add("LayerNormalization", [made, "scale", "shift"], "norm", axis=-1, epsilon=1e-3)
    arrays["head"] = rng.normal(0, 0.5, (WIDTH, 4)).astype(np.float32)
    made = add("ReduceMean", [made], "mean", axes=[1], keepdims=0)
    add("MatMul", [made, "head"], "y")
    return nodes, constants(**arrays)


@pytest.mark.parametrize("by_einsum", [False, True])
def test_attention_of_keras(by_einsum: bool, tmp_path: Path) -> None:
    nodes, arrays = keras_attention(by_einsum)
    path = saved(tmp_path / "keras.onnx", nodes, arrays, [1, TOKENS, WIDTH])
    graph = load_model(path).graph
    ops = [n.op for n in graph.nodes]
    assert ops.count(attention.ATTENTION) == 1 and ops.count(conv.DENSE) == 4, "biases are those of layers"
    assert graph.tensors["input"].shape == (TOKENS, 1, WIDTH)
    pixels = np.random.default_rng(3).integers(0, 256, (5, TOKENS, 1, WIDTH)).astype(np.uint8)
    wanted = reference(path, pixels[:, :, 0] / 255.0)
    found = run_float(graph, pixels).reshape(wanted.shape)
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()
    names = {layer.source.weight for layer in graph.layers.values()}
    assert names <= onnx_homes(path).keys()


def test_scores_that_are_masked_are_refused(tmp_path: Path) -> None:
    nodes, arrays = keras_attention(by_einsum=True)
    at = next(i for i, n in enumerate(nodes) if n.output[0] == "shares")
    nodes[at].input[0] = "masked"
    nodes.insert(at, helper.make_node("Add", ["scores", "mask"], ["masked"], name="mha/mask"))
    arrays += constants(mask=np.triu(np.full((TOKENS, TOKENS), -1e9, np.float32), 1))
    path = saved(tmp_path / "masked.onnx", nodes, arrays, [1, TOKENS, WIDTH])
    with pytest.raises(ConvertError, match="layer mha/mask: a mask or a bias on the scores of attention"):
        load_model(path)


def test_what_is_refused_is_said_where_nothing_else_knows_of_it(tmp_path: Path) -> None:
    """What was made of products with a stand-in did not say what it is of, and the refusal was lost."""
    nodes, arrays = keras_attention(by_einsum=False)
    at = next(i for i, n in enumerate(nodes) if n.output[0] == "shares")
    nodes[at].input[0] = "twice"
    nodes.insert(at, helper.make_node("Add", ["scores", "scores"], ["twice"], name="mha/twice"))
    path = saved(tmp_path / "twice.onnx", nodes, arrays, [1, TOKENS, WIDTH])
    onnx.save(onnx.shape_inference.infer_shapes(onnx.load(str(path))), str(path))
    with pytest.raises(ConvertError, match="layer mha/twice: a mask or a bias on the scores of attention"):
        load_model(path)


# ---------------------------------------------------------------- GELU in pieces


def gelu(form: str, wrong: float = 0.0) -> list[NodeProto]:
    """y = gelu(z) as sums and products. wrong: by how much one of the numbers is another"""

    def node(op: str, inputs: str, made: str) -> NodeProto:
        return helper.make_node(op, inputs.split(), [made])

    numbers = {"half": 0.5, "one": 1.0 + wrong, "three": 3.0, "root": math.sqrt(2), "cube": 0.044715}
    numbers["pi"] = math.sqrt(2 / math.pi)
    made = [helper.make_node("Constant", [], [k], value_float=v) for k, v in numbers.items()]
    if form == "Erf":
        rest = ["Div z root a", "Erf a b", "Add b one c", "Mul half z d", "Mul d c y"]
    elif form == "Tanh":
        rest = ["Pow z three a", "Mul a cube b", "Add z b c", "Mul pi c d"]
        rest += ["Tanh d e", "Add e one f", "Mul f z g", "Mul g half y"]
    else:
        rest = ["Mul z z a", "Mul a z b", "Mul cube b c", "Add c z d", "Mul d pi e"]
        rest += ["Tanh e f", "Add one f g", "Mul half g h", "Mul z h y"]
    for each in rest:
        op, *inputs, result = each.split()
        made.append(node(op, " ".join(inputs), result))
    return made


def behind_a_layer(pieces: list[NodeProto], folder: Path) -> Path:
    rng = np.random.default_rng(4)
    arrays = constants(
        w=rng.normal(0, 0.8, (6, 3, 1, 1)).astype(np.float32),
        head=rng.normal(0, 0.5, (6, 4)).astype(np.float32),
    )
    nodes = [helper.make_node("Conv", ["x", "w"], ["z"]), *pieces]
    nodes += [
        helper.make_node("GlobalAveragePool", ["y"], ["p"]),
        helper.make_node("Flatten", ["p"], ["flat"]),
        helper.make_node("MatMul", ["flat", "head"], ["logits"]),
    ]
    return saved(folder / "gelu.onnx", nodes, arrays, [1, 3, 5, 5], outputs=["logits"])


@pytest.mark.parametrize("form", ["Erf", "Tanh", "Tanh of products"])
def test_gelu_in_pieces_is_one_table(form: str, tmp_path: Path) -> None:
    path = behind_a_layer(gelu(form), tmp_path)
    graph = load_model(path).graph
    assert [n.op for n in graph.nodes] == ["conv2d", "gelu", "avgpool", "head"]
    assert graph.nodes[1].factors == (float("Tanh" in form),)
    pixels = np.random.default_rng(5).integers(0, 256, (4, 5, 5, 3)).astype(np.uint8)
    wanted = reference(path, (pixels / 255.0).transpose(0, 3, 1, 2))
    np.testing.assert_allclose(run_float(graph, pixels).reshape(wanted.shape), wanted, atol=1e-5)


def test_what_is_nearly_a_gelu_is_none(tmp_path: Path) -> None:
    path = behind_a_layer(gelu("Erf", wrong=0.01), tmp_path)
    graph = load_model(path).graph
    assert "gelu" not in [n.op for n in graph.nodes]
    pixels = np.random.default_rng(5).integers(0, 256, (4, 5, 5, 3)).astype(np.uint8)
    wanted = reference(path, (pixels / 255.0).transpose(0, 3, 1, 2))
    np.testing.assert_allclose(run_float(graph, pixels).reshape(wanted.shape), wanted, atol=1e-5)


def test_long_chains_of_sums_take_no_time(tmp_path: Path) -> None:
    """Each sum reads the one before twice, so that there are more ways back than anybody could walk."""
    nodes = [helper.make_node("Add", [f"s{i}", f"s{i}"], [f"s{i + 1}"]) for i in range(200)]
    nodes += [helper.make_node("Tanh", ["s200"], ["t"]), helper.make_node("Mul", ["t", "s200"], ["y"])]
    nodes.insert(0, helper.make_node("Relu", ["x"], ["s0"]))
    path = saved(tmp_path / "sums.onnx", nodes, [], [1, 8])
    start = time.process_time()
    assert not gelus(read_onnx_file(path))
    assert time.process_time() - start < 2


def test_damaged_bytes_never_escape_as_another_exception(tmp_path: Path) -> None:
    torch.manual_seed(0)
    both(KeywordTransformer().eval(), (1, BANDS, FRAMES), tmp_path, 17)
    files = [(tmp_path / "net.onnx").read_bytes()]
    for by_einsum in (False, True):
        nodes, arrays = keras_attention(by_einsum)
        files.append(saved(tmp_path / "keras.onnx", nodes, arrays, [1, TOKENS, WIDTH]).read_bytes())
    refused = damaged.refused(files, tmp_path / "damaged.onnx", load_model, trials=120, places=4)
    assert 10 < refused < 120, "some are refused, some only change a weight"


def normalised(folder: Path, axes: tuple[int, int], power: float = 2.0, alone: bool = True) -> Path:
    """Tokens less their mean over an axis, over the root of the mean of a power over another."""
    numbers = {"two": np.array(power, np.float32), "small": np.array(1e-5, np.float32)}
    pieces = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("ReduceMean", ["t"], ["mean"], axes=[axes[0]]),
        helper.make_node("Sub", ["t", "mean"], ["less"]),
        helper.make_node("Pow", ["less", "two"], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["variance"], axes=[axes[1]]),
        helper.make_node("Add", ["variance", "small"], ["more"]),
        helper.make_node("Sqrt", ["more"], ["root"]),
        helper.make_node("Div", ["less", "root"], ["norm"]),
        helper.make_node("Add", ["norm", "norm" if alone else "less"], ["sum"]),
        helper.make_node("ReduceMean", ["sum"], ["m"], axes=[1], keepdims=0),
        helper.make_node("Gemm", ["m", "w"], ["y"], transB=1),
    ]
    arrays = {**numbers, "w": np.random.default_rng(0).normal(0, 1, (3, 6)).astype(np.float32)}
    sides = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 6, 9]), ("y", [1, 3]))
    ]
    held = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    graph = helper.make_graph(pieces, "net", sides[:1], sides[1:], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)]), folder / "norm.onnx")
    return folder / "norm.onnx"


def test_a_norm_in_pieces_is_found_and_no_other(tmp_path: Path) -> None:
    assert list(norms(read_onnx_file(normalised(tmp_path, (-1, -1))))) == ["norm"]
    assert not norms(read_onnx_file(normalised(tmp_path, (-1, 1)))), "a mean over another axis"
    assert not norms(read_onnx_file(normalised(tmp_path, (1, 1)))), "over the tokens"
    assert not norms(read_onnx_file(normalised(tmp_path, (-1, -1), 3.0))), "another power"
    assert not norms(read_onnx_file(normalised(tmp_path, (-1, -1), alone=False))), "a part is read again"
