"""`convert --task anomaly`: an autoencoder scores samples and learns what is normal, with the same bits."""

from __future__ import annotations

import json
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from torch import nn

from lab.attack.tflite_files import Int8
from microtrain.base.trained import SCORES
from microtrain.convert.cli import main
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import has_head
from microtrain.convert.ops.reconstruct import ANOMALY, NORMAL, THRESHOLD, calibrated, closed, threshold
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.reference.numeric import Sgd
from microtrain.convert.scheme import Scheme
from microtrain.samples.source import scan, split
from microtrain.simulate.cli import main as simulate

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
    np.testing.assert_allclose(again[:, NORMAL], THRESHOLD, rtol=1e-6)
    assert not has_head(quantized)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
def test_gradients_are_those_of_autograd(errors: str, tmp_path: Path) -> None:
    compiled = everything(quantize(loaded(tmp_path), {}))
    found = cosines(compiled.graph, errors, label=NORMAL)
    assert min(found.values()) > LEAST[errors], found
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


def louder(images: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.clip(128 + (images.astype(int) - 128) * 3 // 2, 0, 255).astype(np.uint8)
    return found


def test_the_threshold_follows_what_is_normal(tmp_path: Path) -> None:
    """Of another machine, whose scores calibration never saw; an anomaly moves nothing."""
    quantized = quantize(loaded(tmp_path), {})
    known = run_int8(quantized, samples(40, 1)).reshape(40, 2)[:, ANOMALY]
    executor = Executor(everything(calibrated(quantized, known)).graph)
    other = louder(samples(300, 4))
    first = scores(executor, other[:60])
    assert (first > threshold(executor.env.statistics[SCORES])).mean() > 0.9
    for label in (ANOMALY, NORMAL):
        before = executor.trainables()
        for step, image in enumerate(other):
            executor.forward((image.astype(int) - 128).astype(np.int8))
            executor.backward(label, Sgd(0.0, 0.0, 0.0, 1, step))
        assert (executor.trainables() == before) == (label == ANOMALY)
    found = scores(executor, louder(samples(300, 5)))
    mean, apart = executor.env.statistics[SCORES]
    assert mean == pytest.approx(found.mean(), rel=0.3) and apart == pytest.approx(0.8 * found.std(), rel=0.4)
    assert (found > threshold(executor.env.statistics[SCORES])).mean() < 0.1


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


class Waves(nn.Module):
    """An autoencoder that knows waves of one length."""

    def __init__(self) -> None:
        super().__init__()
        sides = (64, 24, 8, 24, 64)
        layers = [layer for a, b in pairwise(sides) for layer in (nn.Linear(a, b), nn.ReLU())]
        self.net = nn.Sequential(nn.Flatten(), *layers[:-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.net(x)
        return result


def waves(count: int, length: float, seed: int) -> np.ndarray:
    """float32 [count][64][1]"""
    rng = np.random.default_rng(seed)
    phases, noise = rng.uniform(0, 6, (count, 1)), rng.normal(0, 0.1, (count, 64))
    found: np.ndarray = (np.sin(np.arange(64) / length + phases) + noise)[:, :, None].astype(np.float32)
    return found


def learned_waves(folder: Path, length: float) -> Path:
    torch.manual_seed(0)
    net, known = Waves(), torch.tensor(waves(400, length, 0)).transpose(1, 2)
    adam = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(60):
        for some in known.split(50):
            adam.zero_grad()
            nn.functional.mse_loss(net(some), some.flatten(1)).backward()
            adam.step()
    path = folder / "waves.pt2"
    torch.export.save(torch.export.export(net.eval(), (known[:1],)), path)
    return path


def test_a_session_without_options_learns_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose samples lie far above the threshold of those that were known, which is no divergence."""
    for part, kind, length, count in (
        ("typical", ".", 4.0, 40),
        ("data/train", "normal", 2.6, 100),
        ("data/val", "normal", 2.6, 40),
        ("data/val", "anomaly", 2.1, 40),
    ):
        (tmp_path / part / kind).mkdir(parents=True)
        for number, sample in enumerate(waves(count, length, count + len(kind))):
            np.save(tmp_path / part / kind / f"{number}.npy", sample)
    (tmp_path / "data/train/anomaly").mkdir()
    np.save(tmp_path / "data/train/anomaly/0.npy", waves(1, 2.1, 9)[0])
    model, out = learned_waves(tmp_path, 4.0), tmp_path / "out"
    code, said = convert(model, "--task", "anomaly", "--calibration", tmp_path / "typical", "-o", out)
    assert code == 0 and "rate 0.01" in said, said
    assert "#define MODEL_GUESSES 65535" in (out / "model.h").read_text()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        simulate, [str(out), "--data", str(tmp_path / "data"), "-o", str(tmp_path / "sim")]
    )
    run = json.loads((tmp_path / "sim/results.json").read_text())["runs"][0]
    assert "augmentation none" in done.output and "diverged" not in done.output, done.output
    assert run["accuracy"]["before"] == 0.5 and run["accuracy"]["after"] > 0.9, done.output


def test_what_makes_something_else_is_no_autoencoder(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = load_model(autoencoder(tmp_path, out=7)).graph
    with pytest.raises(ConvertError, match="makes 7 numbers of 24"):
        closed(graph)


# ---------------------------------------------------------------- maps


class Convolutional(nn.Module):
    """An autoencoder of images, as public examples have it: transposed convolutions, maybe bounded."""

    def __init__(self, channels: int, bounded: bool) -> None:
        super().__init__()
        self.down = nn.Sequential(
            *(
                nn.Conv2d(channels, 6, 3, 2, 1),
                nn.BatchNorm2d(6),
                nn.ReLU(),
                nn.Conv2d(6, 4, 3, 2, 1),
                nn.ReLU(),
            )
        )
        self.up = nn.Sequential(
            *(nn.ConvTranspose2d(4, 6, 2, 2), nn.BatchNorm2d(6), nn.ReLU()),
            nn.ConvTranspose2d(6, channels, 3, 2, 1, 1),
            *([nn.Sigmoid()] if bounded else []),
        )
        nn.init.normal_(self.up.get_parameter("3.weight"), 0, 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.up(self.down(x))
        return result


def of_images(folder: Path, channels: int, bounded: bool, side: int = 8) -> Path:
    torch.manual_seed(0)
    path = folder / "images.pt2"
    model = Convolutional(channels, bounded).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(1, channels, side, side),)), path)
    return path


def pictures(count: int, channels: int, side: int = 8) -> np.ndarray:
    rng = np.random.default_rng(1)
    made: np.ndarray = rng.integers(0, 256, (count, side, side, channels)).astype(np.uint8)
    return made


def map_graph(folder: Path, channels: int, bounded: bool) -> Graph:
    graph = closed(load_model(of_images(folder, channels, bounded)).graph)
    return quantize_model(graph, pictures(16, channels), Choices())


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_score_of_a_map_is_the_mean_squared_error(channels: int, bounded: bool, tmp_path: Path) -> None:
    path, images = of_images(tmp_path, channels, bounded), pictures(6, channels)
    torch.manual_seed(0)
    x = torch.tensor(images.transpose(0, 3, 1, 2) / np.float32(255))
    with torch.no_grad():
        wanted = (Convolutional(channels, bounded).eval()(x) - x).square().mean((1, 2, 3)).numpy()
    graph = closed(load_model(path).graph)
    found = run_float(graph, images).reshape(6, 2)[:, ANOMALY]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    whole = run_int8(map_graph(tmp_path, channels, bounded), images).reshape(6, 2)[:, ANOMALY]
    np.testing.assert_allclose(whole, wanted, rtol=0.05)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_gradients_of_a_map_are_those_of_autograd(
    channels: int, bounded: bool, errors: str, tmp_path: Path
) -> None:
    found = cosines(everything(map_graph(tmp_path, channels, bounded)).graph, errors, label=NORMAL)
    assert min(found.values()) > LEAST[errors], found
    assert len(found) == 7, "weights of all layers but the first, biases of all"


@pytest.mark.parametrize("channels", [1, 3])
def test_generated_code_of_a_map_trains_like_the_executor(channels: int, tmp_path: Path) -> None:
    trained = partly_trained(map_graph(tmp_path, channels, True), 4)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 6)


def test_what_is_normal_of_images_is_learned(tmp_path: Path) -> None:
    """Waves that no image of calibration showed: their score falls."""
    quantized = map_graph(tmp_path, 1, False)
    executor = Executor(everything(quantized).graph)
    waves = 128 + 80 * np.sin(np.arange(8) / 2.0)[:, None] * np.ones(8)
    noise = np.random.default_rng(5).normal(0, 5, (30, 8, 8))
    normal = np.clip(waves + noise, 0, 255).astype(np.uint8)[..., None]
    before = scores(executor, normal)
    for step in range(200):
        executor.forward((normal[step % 30].astype(int) - 128).astype(np.int8))
        executor.backward(NORMAL, Sgd(1.0, 1.0, 1.0, 1, step))
    after = scores(executor, normal)
    assert after.mean() < 0.25 * before.mean(), (before.mean(), after.mean())


def test_a_map_is_an_end_of_autoencoders_alone(tmp_path: Path) -> None:
    path = of_images(tmp_path, 3, True)
    np.savez(tmp_path / "normal.npz", images=pictures(20, 3))
    asked = (path, "-o", tmp_path / "out", "--calibration", tmp_path / "normal.npz")
    code, said = convert(*asked)
    assert code == 1 and "must end with a linear layer" in said and "with --task anomaly" in said, said
    code, said = convert(*asked, "--task", "anomaly")
    assert code == 0 and "reconstruct_map_bwd_x_s8" in (tmp_path / "out/model.c").read_text(), said
    code, said = convert(*asked, "--until", "down.3", "--classes", "3")
    assert code == 0 and "until.head" in said, said


@pytest.mark.parametrize("bounded", [False, True])
def test_a_vector_may_be_bounded(bounded: bool, tmp_path: Path) -> None:
    """The logistic function that a loss of classes applies is a layer of an autoencoder."""
    torch.manual_seed(0)
    ends = [nn.Sigmoid()] if bounded else []
    model = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 8), *ends).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(1, 8),)), tmp_path / "net.pt2")
    images = np.random.default_rng(0).integers(0, 256, (6, 1, 1, 8)).astype(np.uint8)
    x = torch.tensor(images.reshape(6, 8) / np.float32(255))
    with torch.no_grad():
        wanted = (model(x) - x).square().mean(1).numpy()
    found = run_float(closed(load_model(tmp_path / "net.pt2").graph), images).reshape(6, 2)[:, ANOMALY]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


@pytest.mark.parametrize("names", [("normal", "anomaly"), ("normal",), ("no", "yes")])
def test_what_is_normal_is_the_first_class_whatever_the_alphabet_says(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).mkdir()
        for k in range(6):
            (tmp_path / name / f"{k}.npy").write_bytes(b"")
    found = scan(tmp_path, 2)
    assert found.classes == (names if len(names) == 2 else ("normal", "anomaly"))
    assert {s.label for s in found.samples if s.path.parent.name == names[0]} == {0}
    training, testing = split(tmp_path, 2)
    assert len(training.samples) + len(testing.samples) == 6 * len(names)
