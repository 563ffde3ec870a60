"""A keyword transformer that was trained on one voice converts, and learns another on the emulated board."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from test_executor import RATES
from torch import nn
from torch.nn import functional as F  # noqa: N812

from lab.golden.board import build_elf, shown
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import Graph
from microtrain.convert.native_model import NativeModel, Sgd
from microtrain.convert.pipeline import Compiled, compile_graph
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.reference import kernels as reference
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.device.client import Device
from microtrain.emulator import EmulatedPort

BANDS, FRAMES, WORDS, WIDTH, HEADS, DEPTH = 40, 24, 8, 32, 2, 2


class KeywordTransformer(nn.Module):
    """KWT (Berg et al. 2021), smaller: a frame is a token; a class token, learned positions, norms last."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Linear(BANDS, WIDTH)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.1)
        self.positions = nn.Parameter(torch.randn(1, FRAMES + 1, WIDTH) * 0.1)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, 0.0, nn.GELU(), batch_first=True)
        self.layers = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x.squeeze(1).transpose(1, 2))
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        result: torch.Tensor = self.head(self.layers(x)[:, 0])
        return result


def spoken(count: int, seed: int, voice: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Words as two glides of energy, bytes [n, bands, frames, 1]. voice: bands by which they lie higher"""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, WORDS, count)
    ways = np.random.default_rng(99).uniform(4, 28, (WORDS, 2, 2))  # where each glide begins and ends
    time, band = np.linspace(0, 1, FRAMES), np.arange(BANDS)[:, None]
    made = rng.normal(40, 12, (count, BANDS, FRAMES))
    for i, word in enumerate(words):
        late = np.clip(time + rng.uniform(-0.15, 0.15), 0, 1)
        for start, end in ways[word]:
            at = start + (end - start) * late + voice + rng.normal(0, 0.8)
            made[i] += rng.uniform(90, 140) * np.exp(-(((band - at) / 1.6) ** 2))
    return np.clip(np.rint(made), 0, 255).astype(np.uint8)[..., None], words


def real(pixels: np.ndarray) -> torch.Tensor:
    return torch.tensor(pixels / 255.0, dtype=torch.float32).permute(0, 3, 1, 2)


@pytest.fixture(scope="module")
def net() -> KeywordTransformer:
    """Trained for a short while on one voice."""
    torch.manual_seed(0)
    net, (pixels, words) = KeywordTransformer(), spoken(1200, 1)
    steps = 5 * len(words) // 30
    optimizer = torch.optim.AdamW(net.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    x, y, order = real(pixels), torch.tensor(words), np.random.default_rng(0)
    for _ in range(steps):
        batch = order.integers(0, len(words), 30)
        optimizer.zero_grad()
        F.cross_entropy(net(x[batch]), y[batch]).backward()
        optimizer.step()
        schedule.step()
    return net.eval()


@pytest.fixture(scope="module")
def graph(net: KeywordTransformer, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return load_model(exported(net, tmp_path_factory.mktemp("kwt"))).graph


def exported(net: nn.Module, folder: Path) -> Path:
    path = folder / "kwt.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(net, (torch.zeros(1, 1, BANDS, FRAMES),)), path)
    return path


@pytest.fixture(scope="module")
def quantized(graph: Graph) -> Graph:
    return quantize_model(graph, spoken(64, 2)[0], Choices())


def learning(graph: Graph) -> Compiled:
    """All biases, the scales of all norms, and the head."""
    norms = {name: 1.0 for name in convolutions(graph) if ".norm" in name}
    scheme = Scheme("norms", -1, norms, fraction_bits=8, rates=(0.002, 0.002, 0.02), head="keep")  # type: ignore[arg-type]
    return compile_graph(graph, scheme, WORDS)


def right(logits: np.ndarray, words: np.ndarray) -> float:
    return float((logits.reshape(len(words), -1).argmax(1) == words).mean())


def test_int8_knows_what_float_knows(net: KeywordTransformer, graph: Graph, quantized: Graph) -> None:
    pixels, words = spoken(200, 3)
    with torch.no_grad():
        wanted = net(real(pixels)).numpy()
    found = run_float(graph, pixels).reshape(wanted.shape)
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()
    stored = run_int8(quantized, pixels).reshape(wanted.shape)
    assert right(wanted, words) > 0.9
    assert right(stored, words) > right(wanted, words) - 0.03
    assert (stored.argmax(1) == wanted.argmax(1)).mean() > 0.95


def test_it_learns_another_voice(quantized: Graph, tmp_path: Path) -> None:
    compiled = learning(quantized)
    native = NativeModel(generate(compiled, "a test"), tmp_path)
    (pixels, words), (unseen, named) = spoken(240, 4, 2.5), spoken(200, 5, 2.5)

    def stored(images: np.ndarray) -> np.ndarray:
        return (images.astype(np.int16) - 128).astype(np.int8)

    def accuracy() -> float:
        return right(np.stack([native.forward(x, train=False) for x in stored(unseen)]), named)

    before = accuracy()
    names = ("lr_weight", "lr_bias", "lr_head")
    rates = dict(zip(names, compiled.scheme.rates, strict=True))
    for step, (image, word) in enumerate(zip(stored(pixels), words, strict=True)):
        native.forward(image, train=True)
        native.backward(int(word), Sgd(**rates, seed=7, step=step))
    after = accuracy()
    assert before < 0.55 and after > before + 0.2, (before, after)


@pytest.mark.slow
def test_the_board_model_trains_it_bit_for_bit(quantized: Graph, tmp_path: Path) -> None:
    compiled = learning(quantized)
    rates = dict(zip(RATES, compiled.scheme.rates, strict=True))
    executor = Executor(compiled.graph)
    pixels, words = spoken(2, 6)
    with Device(EmulatedPort(build_elf(compiled, tmp_path))) as device:
        device.seed(7)
        for step, (each, word) in enumerate(zip(pixels, words, strict=True)):
            image = (each.astype(np.int16) - 128).astype(np.int8)
            wanted = executor.forward(image)
            assert device.infer(shown(image)).logits.tobytes() == wanted.tobytes()
            executor.backward(int(word), reference.Sgd(**rates, seed=7, step=step))
            device.train(shown(image), int(word))
            assert device.sha() == hashlib.sha256(executor.trainables()).hexdigest()
