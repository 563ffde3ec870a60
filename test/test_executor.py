"""The NumPy executor and the generated C give the same bytes, step after step."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from networks import random_network, residual_network

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import Graph
from microtrain.convert.native_model import NativeModel, Sgd
from microtrain.convert.pipeline import Compiled, compile_graph
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.proofs import multipliers_of
from microtrain.convert.scheme import Scheme, convolutions

RATES = {"lr_weight": 0.05, "lr_bias": 0.02, "lr_head": 0.1}
COMPILERS = ["gcc", "clang"]


def partly_trained(graph: Graph, fraction_bits: int, loss: str = "cross_entropy") -> Compiled:
    """Some layers whole, some in part, some only their biases, the first ones frozen."""
    names = convolutions(graph)
    weights: dict[str | int, float | tuple[int, ...]] = {
        name: (1.0, 0.5, 0.3)[i % 3] for i, name in enumerate(names) if i >= 2 and i % 4
    }
    classes = graph.tensors[graph.output].channels
    scheme = Scheme("test", len(names) - 1, weights, fraction_bits=fraction_bits, loss=loss, head="random")
    return compile_graph(graph, scheme, classes)


def images(graph: Graph, count: int, seed: int = 1) -> np.ndarray:
    shape = graph.tensors[graph.input.tensor].shape
    return np.random.default_rng(seed).integers(-128, 128, (count, *shape)).astype(np.int8)


def assert_learned_alike(graph: Graph, folder: Path) -> None:
    """The executor and generated C take the same steps, where some of an int8 graph is trained."""
    trained = partly_trained(graph, 4)
    run_both(trained, NativeModel(generate(trained, "a test"), folder), 4)


def run_both(compiled: Compiled, native: NativeModel, steps: int) -> None:
    """Train on both sides and compare logits, losses and the whole block after every step."""
    executor = Executor(compiled.graph)
    classes = native.classes
    assert executor.trainables() == native.trainables()
    for step, image in enumerate(images(compiled.graph, steps)):
        expected = executor.forward(image)
        assert native.forward(image, train=False).tobytes() == expected.tobytes()
        assert native.forward(image, train=True).tobytes() == expected.tobytes()
        loss = executor.backward(step % classes, reference.Sgd(**RATES, seed=7, step=step))
        assert native.backward(step % classes, Sgd(**RATES, seed=7, step=step)) == np.float32(loss)
        assert native.trainables() == executor.trainables(), f"step {step}"


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("fraction_bits", [0, 4, 8])
def test_residual_network(tmp_path: Path, compiler: str, fraction_bits: int) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    compiled = partly_trained(residual_network(), fraction_bits)
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path, compiler), 12)


@pytest.mark.parametrize("seed", range(8))
def test_random_networks(tmp_path: Path, seed: int) -> None:
    compiled = partly_trained(
        random_network(seed), (0, 4, 8)[seed % 3], "mse" if seed % 2 else "cross_entropy"
    )
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path), 4)


def test_learning_changes_every_trained_tensor(tmp_path: Path) -> None:
    compiled = partly_trained(residual_network(), 8)
    executor = Executor(compiled.graph)
    before = {name: (s.weight.copy(), s.bias.copy()) for name, s in executor.env.state.items()}
    for step, image in enumerate(images(compiled.graph, 20)):
        executor.forward(image)
        executor.backward(step % 5, reference.Sgd(**RATES, seed=7, step=step))
    for name, layer in compiled.graph.layers.items():
        weight, bias = before[name]
        state = executor.env.state[name]
        trained = bool(layer.trained) or layer.weight_scale is None
        assert trained == (not np.array_equal(weight, state.weight)), name
        assert (layer.bias_trained or layer.weight_scale is None) == (not np.array_equal(bias, state.bias)), (
            name
        )
        frozen = [c for c in range(layer.columns) if c not in layer.trained]
        if layer.weight_scale is not None:
            axis = 0 if layer.depthwise else 3
            assert np.array_equal(weight.take(frozen, axis), state.weight.take(frozen, axis)), name


def test_another_seed_gives_other_weights() -> None:
    compiled = partly_trained(residual_network(), 0)
    blocks = []
    for seed in (1, 2):
        executor = Executor(compiled.graph)
        executor.forward(images(compiled.graph, 1)[0])
        executor.backward(0, reference.Sgd(**RATES, seed=seed, step=0))
        blocks.append(executor.trainables())
    assert blocks[0] != blocks[1]


def test_a_changed_table_is_noticed(tmp_path: Path) -> None:
    """The comparison can fail: one multiplier of the generated code is half as large again."""
    compiled = partly_trained(residual_network(), 0)
    output = generate(compiled, "a test")
    text = output.files["model_weights.c"]
    start = text.index("const int32_t m_layer15")
    line = text[start:].splitlines()[1].split(",")[0].strip()
    word = np.array([int(line)], np.int32)
    wrong = str((multipliers_of(word) * np.float32(1.5)).view(np.int32)[0])
    files = {**output.files, "model_weights.c": text[:start] + text[start:].replace(line, wrong, 1)}
    with pytest.raises(AssertionError):
        run_both(compiled, NativeModel(replace(output, files=files), tmp_path), 12)


def test_generated_code_is_the_same_every_time() -> None:
    compiled = [partly_trained(residual_network(), 4) for _ in range(2)]
    assert generate(compiled[0], "a test") == generate(compiled[1], "a test")
