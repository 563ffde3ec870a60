"""`convert --task anomaly`: an autoencoder scores samples and learns what is normal, with the same bits."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from test_executor import partly_trained, run_both
from test_gradients import cosines, everything

from lab.attack.tflite_files import Int8
from microtrain.convert.cli import main
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import has_head
from microtrain.convert.ops.reconstruct import ANOMALY, NORMAL, THRESHOLD, calibrated, closed
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.reference.numeric import Sgd
from microtrain.convert.scheme import Scheme

N = 24
STILL = Sgd(0.0, 0.0, 0.0, 0, 0)


def autoencoder(folder: Path, out: int = N) -> Path:
    """24 to 16 to 6 to 16 numbers and back, int8."""
    net = Int8.input((N,), seed=1, scale=0.03, zero=5)
    for size, scale in ((16, 0.03), (6, 0.04), (16, 0.03)):
        net.dense(size, (scale, -128), 1)
    path = folder / "autoencoder.tflite"
    path.write_bytes(net.dense(out, (0.03, 5), 0).file())
    return path


def loaded(folder: Path) -> Graph:
    return closed(load_model(autoencoder(folder)).graph)


def samples(count: int, seed: int, shift: float = 0.0) -> np.ndarray:
    """Bytes of normal samples, or of a machine that sounds otherwise."""
    rng = np.random.default_rng(seed)
    wave = 60.0 * np.sin(np.arange(N) / 3.0 + shift) + rng.normal(0, 6, (count, N))
    bytes_: np.ndarray = np.clip(np.rint(wave) + 128, 0, 255).astype(np.uint8)
    return bytes_.reshape(count, 1, 1, N)


def test_the_score_is_the_mean_squared_error(tmp_path: Path) -> None:
    graph = loaded(tmp_path)
    images = samples(6, 0)
    plain = load_model(autoencoder(tmp_path)).graph
    real = (images.reshape(6, N).astype(float) - 128 - 5) * 0.03
    wanted = np.square(run_float(plain, images).reshape(6, N) - real).mean(axis=1)
    np.testing.assert_allclose(run_float(graph, images).reshape(6, 2)[:, ANOMALY], wanted, rtol=1e-4)
    quantized = quantize(graph, {})
    scores = run_int8(quantized, images).reshape(6, 2)[:, ANOMALY]
    np.testing.assert_allclose(scores, wanted, rtol=0.1)
    again = run_int8(calibrated(quantized, scores), images).reshape(6, 2)
    most = scores.mean() + 3 * scores.std()
    np.testing.assert_allclose(again[:, ANOMALY], scores / most * THRESHOLD, rtol=1e-5)
    assert (again[:, NORMAL] == np.float32(THRESHOLD)).all() and not has_head(quantized)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
def test_gradients_are_those_of_autograd(errors: str, tmp_path: Path) -> None:
    compiled = everything(quantize(loaded(tmp_path), {}))
    found = cosines(compiled.graph, errors, label=NORMAL)
    assert min(found.values()) > (0.999 if errors == "fp32" else 0.98), found
    assert len(found) == 7, "weights of all layers but the first, biases of all"


def test_an_anomaly_teaches_nothing(tmp_path: Path) -> None:
    executor = Executor(everything(quantize(loaded(tmp_path), {})).graph)
    before = executor.trainables()
    for label in (ANOMALY, NORMAL):
        executor.forward((samples(1, 4).astype(int) - 128).astype(np.int8)[0])
        executor.backward(label, Sgd(0.01, 0.01, 0.01, 0, 0))
        assert (executor.trainables() == before) == (label == ANOMALY)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_generated_code_trains_like_the_executor(compiler: str, tmp_path: Path) -> None:
    trained = partly_trained(quantize(loaded(tmp_path), {}), 4)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 8)


def test_a_scheme_that_trains_nothing_trains_the_last_biases(tmp_path: Path) -> None:
    compiled = compile_graph(quantize(loaded(tmp_path), {}), Scheme("head-only"), 2)
    native = NativeModel(generate(compiled, "a test"), tmp_path)
    run_both(compiled, native, 3)


def scores(executor: Executor, images: np.ndarray) -> np.ndarray:
    stored = (images.astype(int) - 128).astype(np.int8)
    return np.array([executor.forward(image)[ANOMALY] for image in stored])


def auc(normal: np.ndarray, odd: np.ndarray) -> float:
    """Share of pairs of which the odd sample scores higher."""
    pairs = odd[:, None] > normal[None]
    return float(pairs.mean())


def test_a_new_machine_is_learned(tmp_path: Path) -> None:
    """What is normal has changed: some steps later it scores low again, and the odd stays high."""
    quantized = quantize(loaded(tmp_path), {})
    first = run_int8(quantized, samples(40, 1)).reshape(40, 2)[:, ANOMALY]
    executor = Executor(everything(calibrated(quantized, first)).graph)
    normal, odd = samples(30, 2), samples(30, 3, shift=1.2)
    before = scores(executor, normal)
    for step, image in enumerate(samples(250, 4)):
        executor.forward((image.astype(int) - 128).astype(np.int8))
        executor.backward(NORMAL, Sgd(0.5, 0.5, 0.5, 1, step))
    after, apart = scores(executor, normal), scores(executor, odd)
    assert after.mean() < 0.25 * before.mean() and auc(after, apart) > 0.97, (before.mean(), after.mean())


def convert(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(map(str, words)))
    return result.exit_code, " ".join(result.output.split())


def test_the_command_line(tmp_path: Path) -> None:
    path = autoencoder(tmp_path)
    np.savez(tmp_path / "normal.npz", images=samples(40, 1))
    asked = (path, "--task", "anomaly", "-o", tmp_path / "out")
    code, said = convert(*asked, "--calibration", tmp_path / "normal.npz")
    assert code == 0 and "score" in said and "imprint no statistics" in said, said
    assert "loss_score_f32" in (tmp_path / "out/model.c").read_text()
    code, said = convert(*asked)
    assert code == 1 and "calibration" in said, "the threshold is that of normal samples"
    code, said = convert(*asked, "--check")
    assert code == 0 and "fits" in said


def test_what_makes_something_else_is_no_autoencoder(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = load_model(autoencoder(tmp_path, out=7)).graph
    with pytest.raises(ConvertError, match="makes 7 numbers of 24"):
        closed(graph)
