"""Training that leaves float32 leaves the same bits in NumPy, in C of any compiler, and on the board."""

from __future__ import annotations

import hashlib
import shutil
from typing import Any

import numpy as np
import pytest
from conftest import Built, build_example
from networks import residual_network
from test_bit_exact import SEED, samples

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.executor import Executor
from microtrain.convert.native_model import Sgd
from microtrain.convert.pipeline import Compiled, compile_graph
from microtrain.convert.reference import kernels as reference
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.device.client import Device
from microtrain.device.link import EmulatorPort, Port, ProgramPort
from microtrain.native.model import Model, compile_model

BUILDS = tuple((compiler, level) for compiler in ("gcc", "clang") for level in ("-O0", "-O3"))
NAN = 0x7FC00000


@pytest.fixture(scope="module")
def diverging() -> Compiled:
    """Everything trained by the squared error, whose gradient grows with what is wrong."""
    graph = residual_network()
    names: dict[str | int, float | tuple[int, ...]] = dict.fromkeys(convolutions(graph)[1:], 1.0)
    return compile_graph(graph, Scheme("all", -1, names, fraction_bits=4, loss="mse", head="random"), 5)


@pytest.fixture(scope="module")
def models(diverging: Compiled, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Model]:
    folder = tmp_path_factory.mktemp("diverging")
    for name, text in generate(diverging, "a test").files.items():
        (folder / name).write_text(text)
    built = {}
    for compiler, level in (b for b in BUILDS if shutil.which(b[0])):
        built[compiler, level] = Model(folder, compile_model(folder, folder, (level,), compiler))
    return built


@pytest.mark.parametrize(("rate", "steps"), [(500.0, 200), (1e30, 20)])
def test_a_session_that_diverges_is_the_same_in_numpy_and_c(
    diverging: Compiled, models: dict[tuple[str, str], Model], rate: float, steps: int
) -> None:
    executor, rng = Executor(diverging.graph), np.random.default_rng(0)
    losses = []
    for model in models.values():
        model.reset()
    for step in range(steps):
        image = rng.integers(-128, 128, (12, 12, 3)).astype(np.int8)
        label = int(rng.integers(5))
        logits = executor.forward(image)
        losses.append(executor.backward(label, reference.Sgd(rate, rate, rate, 1, step)))
        for build, model in models.items():
            assert model.forward(image, train=True).tobytes() == logits.tobytes(), (step, build)
            model.backward(label, Sgd(rate, rate, rate, 1, step))
            assert model.trainables() == executor.trainables(), (step, build)
    assert np.isnan(losses[-1])
    assert np.isnan(logits).all()
    assert set(logits.view(np.uint32)) == {NAN}


@pytest.fixture(scope="module")
def squared(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The example with the squared error and a rate that is too high."""
    folder = tmp_path_factory.mktemp("squared")
    scheme = folder / "squared.yaml"
    weights = "{blocks.3.expand: 1, blocks.4.expand: 1}"
    scheme.write_text(f"biases: 9\nweights: {weights}\nloss: mse\nlearning_rate: 0.5\nhead: zeros\n")
    return build_example(scheme, folder)


def diverge(port: Port, steps: int) -> tuple[str, bytes, bytes]:
    """SHA-256 that the device computes, its trainables, and logits after some steps at 500, unguarded."""
    images, labels, test = samples()
    with Device(port) as device:
        device.seed(SEED)
        device.guard(on=False)
        device.rate(1000.0)
        for image, label in zip(images[:steps], labels[:steps], strict=True):
            device.train(image, int(label))
        return device.sha(), device.pull(), device.infer(test).logits.tobytes()


def learn_from(port: Port, block: bytes, steps: int) -> bytes:
    """Trainables after some steps from a pushed block."""
    images, labels, _ = samples()
    with Device(port) as device:
        device.push(block)
        device.guard(on=False)
        for image, label in zip(images[:steps], labels[:steps], strict=True):
            device.train(image, int(label))
        return device.pull()


def test_what_is_no_number_has_one_form_on_the_board_too(squared: Built) -> None:
    """Pushed biases with a sign and a payload, which an FPU that is not in default NaN mode hands on."""
    entries: list[dict[str, Any]] = squared.plan["trainables"]["tensors"]  # type: ignore[index]
    head = next(entry for entry in entries if entry["name"] == "head.bias")
    with Device(ProgramPort(squared.program)) as device:
        block = bytearray(device.pull())
    block[head["offset"] : head["offset"] + 40] = np.full(10, 0xFFC12345, np.uint32).tobytes()
    after = learn_from(EmulatorPort(squared.elf), bytes(block), 2)
    assert after == learn_from(ProgramPort(squared.program), bytes(block), 2)
    bias = np.frombuffer(after, np.uint32, 10, head["offset"])
    assert set(bias) == {NAN}


def test_the_board_diverges_as_the_host_does(squared: Built) -> None:
    board = diverge(EmulatorPort(squared.elf), 200)
    assert diverge(ProgramPort(squared.program), 200) == board
    assert hashlib.sha256(board[1]).hexdigest() == board[0]
    floats = np.frombuffer(board[1][: len(board[1]) // 4 * 4], np.uint32)
    assert (floats == NAN).sum() >= 10
    assert set(np.frombuffer(board[2], np.uint32)) == {NAN}
