"""Sequences of vectors in files of models: their values are PyTorch's, whatever way attention is written."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.ops import attention, normalise
from microtrain.convert.quantize.ptq import Choices, quantize_model

Attend = Callable[[torch.Tensor], torch.Tensor]


def by_permute(x: torch.Tensor, module: Own) -> torch.Tensor:
    """As timm's ViT has it."""
    n, tokens, c = x.shape
    q, k, v = module.qkv(x).reshape(n, tokens, 3, module.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    made = F.scaled_dot_product_attention(q, k, v)
    result: torch.Tensor = module.out(made.transpose(1, 2).reshape(n, tokens, c))
    return result


def by_products(x: torch.Tensor, module: Own) -> torch.Tensor:
    """As timm has it without the fused call: the queries are scaled."""
    n, tokens, c = x.shape
    q, k, v = module.qkv(x).reshape(n, tokens, 3, module.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    shares = ((q * 0.3) @ k.transpose(-2, -1)).softmax(dim=-1)
    result: torch.Tensor = module.out((shares @ v).transpose(1, 2).reshape(n, tokens, c))
    return result


def by_einsum(x: torch.Tensor, module: Own) -> torch.Tensor:
    """As the keyword transformer has it."""
    n, tokens, _ = x.shape
    parts = (
        t.reshape(n, tokens, module.heads, -1).permute(0, 2, 1, 3) for t in module.qkv(x).chunk(3, dim=-1)
    )
    q, k, v = parts
    shares = (torch.einsum("bhid,bhjd->bhij", q, k) * 0.3).softmax(dim=-1)
    made = torch.einsum("bhij,bhjd->bhid", shares, v)
    result: torch.Tensor = module.out(made.permute(0, 2, 1, 3).reshape(n, tokens, -1))
    return result


def by_three(x: torch.Tensor, module: Own) -> torch.Tensor:
    """Three linear layers, scores divided by a number."""
    n, tokens, c = x.shape
    layers = (module.q, module.k, module.v)
    q, k, v = (f(x).view(n, tokens, module.heads, -1).transpose(1, 2) for f in layers)
    shares = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / 8**0.5, -1)
    made = torch.matmul(shares, v).transpose(1, 2).contiguous().view(n, tokens, c)
    result: torch.Tensor = module.out(made)
    return result


class Own(nn.Module):
    """Attention in a module of its own."""

    def __init__(self, way: Callable[[torch.Tensor, Own], torch.Tensor], c: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.way, self.heads, self.out = way, heads, nn.Linear(c, c)
        if way is by_three:
            self.q, self.k, self.v = nn.Linear(c, c), nn.Linear(c, c), nn.Linear(c, c, bias=False)
        else:
            self.qkv = nn.Linear(c, 3 * c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.way(x, self)


class Spectrogram(nn.Module):
    """Patches by a linear layer over frames, attention, and the mean of all tokens."""

    def __init__(self, attend: nn.Module, frames: int = 10) -> None:
        super().__init__()
        self.patches, self.norm, self.attend = nn.Linear(40, 16), nn.LayerNorm(16), attend
        self.head, self.frames = nn.Linear(16, 4), frames

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x.permute(0, 3, 1, 2).reshape(x.shape[0], self.frames, 40))
        result: torch.Tensor = self.head((x + self.attend(self.norm(x))).mean(1))
        return result


class Encoder(nn.Module):
    """PyTorch's own encoder behind a convolution, with a class token, or the mean, and positions."""

    def __init__(self, norm_first: bool, token: bool, heads: int = 2) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(1, 16, (8, 1), (8, 1)), nn.Linear(16, 4)
        layer = nn.TransformerEncoderLayer(
            16, heads, 32, activation=nn.GELU(), batch_first=True, norm_first=norm_first
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.attend = nn.MultiheadAttention(16, heads, batch_first=True)
        self.positions = nn.Parameter(torch.randn(1, 10 + token, 16))
        self.token = nn.Parameter(torch.randn(1, 1, 16)) if token else None
        self.gain = nn.Parameter(torch.rand(16) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        if self.token is not None:
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        x = self.layers(x + self.positions)
        x = x + self.gain * self.attend(x, x, x, need_weights=False)[0]
        result: torch.Tensor = self.head(x.mean(1) if self.token is None else x[:, 0])
        return result


class MobileVit(nn.Module):
    """A block of MobileViT (Mehta and Rastegari 2022): pixels look at their like in all patches."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.into = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 16, 1, bias=False)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)
        self.norm, self.out, self.fuse = nn.LayerNorm(16), nn.Conv2d(16, 8, 1), nn.Conv2d(16, 8, 3, 1, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.stem(x)
        x = self.into(kept)
        n, c, h, w = x.shape
        x = x.reshape(n * c * h // 2, 2, w // 2, 2).transpose(1, 2).reshape(n, c, h * w // 4, 4)
        x = self.norm(self.layer(x.transpose(1, 3).reshape(n * 4, h * w // 4, c)))
        x = x.contiguous().view(n, 4, h * w // 4, c).transpose(1, 3).reshape(n * c * h // 2, w // 2, 2, 2)
        x = self.fuse(torch.cat([kept, self.out(x.transpose(1, 2).reshape(n, c, h, w))], 1))
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


class Vectors(nn.Module):
    """An input that is a sequence already, and a residual add of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(12, 3, 24, activation=nn.GELU(), batch_first=True)
        self.head = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layer(x)[:, 0])
        return result


SOUND = (1, 40, 10)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "timm": (lambda: Spectrogram(Own(by_permute)), SOUND),
    "timm, not fused": (lambda: Spectrogram(Own(by_products)), SOUND),
    "einsum": (lambda: Spectrogram(Own(by_einsum)), SOUND),
    "three layers": (lambda: Spectrogram(Own(by_three)), SOUND),
    "norm first": (lambda: Encoder(True, True), (1, 8, 10)),
    "norm last": (lambda: Encoder(False, True), (1, 8, 10)),
    "mean": (lambda: Encoder(True, False), (1, 8, 10)),
    "mobilevit": (MobileVit, (3, 16, 16)),
    "vectors": (Vectors, (7, 12)),
}


def read(net: nn.Module, shape: tuple[int, ...], path: Path, batch: int = 1) -> Graph:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(net, (torch.zeros(batch, *shape),)), path)
    return load_model(path).graph


def by_torch(net: nn.Module, pixels: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    x = torch.tensor(pixels / 255.0, dtype=torch.float32)
    x = x.permute(0, 3, 1, 2) if len(shape) == 3 else x[:, :, 0]
    with torch.no_grad():
        return np.concatenate([net(each[None]).numpy() for each in x])


@pytest.mark.parametrize("name", NETWORKS)
def test_files_have_pytorchs_values(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    net = make().eval()
    graph = read(net, shape, tmp_path / "net.pt2")
    assert {attention.ATTENTION, normalise.GROUP_NORM} <= {n.op for n in graph.nodes}
    pixels = np.random.default_rng(2).integers(0, 256, (6, *graph.tensors["input"].shape)).astype(np.uint8)
    wanted = by_torch(net, pixels, shape)
    found = run_float(graph, pixels).reshape(6, 4)
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()
    stored = run_int8(quantize_model(graph, pixels, Choices()), pixels).reshape(6, 4)
    assert np.abs(stored - wanted).max() < 0.15 * np.ptp(wanted), "in int8"


class Refused(nn.Module):
    """Tokens, and one thing that is done to them."""

    def __init__(self, what: Callable[[torch.Tensor, Refused], torch.Tensor]) -> None:
        super().__init__()
        self.what, self.conv = what, nn.Conv1d(8, 8, 1)
        self.attend = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)
        self.patches, self.other, self.head = nn.Linear(40, 16), nn.Linear(40, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.frames = x.permute(0, 3, 1, 2).reshape(x.shape[0], 10, 40)
        result: torch.Tensor = self.head(self.what(self.patches(self.frames), self).mean(1))
        return result


def masked(x: torch.Tensor, net: Refused) -> torch.Tensor:
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True)[:, 0]


HIDDEN = torch.full((10, 10), -100.0).triu(1)


def hidden(x: torch.Tensor, net: Refused) -> torch.Tensor:
    return (x @ x.transpose(1, 2) + HIDDEN).softmax(-1) @ x


REFUSALS: dict[str, tuple[Callable[[torch.Tensor, Refused], torch.Tensor], bool, str]] = {
    "a mask": (
        masked,
        False,
        "attention with a mask is not supported; the nearest that is: attention of ever",
    ),
    "a mask by numbers": (hidden, False, "a mask or a bias on the scores of attention that differs by 100"),
    "training": (
        lambda x, net: net.attend(x, x, x, need_weights=False)[0],
        True,
        r"layer attend: attention with dropout is in training mode; call model.eval\(\)",
    ),
    "over features": (
        lambda x, net: (x.transpose(1, 2) @ x).softmax(-1) @ x.transpose(1, 2) @ torch.ones(10, 16),
        False,
        "attention whose heads are no channels that follow one another",
    ),
    "some numbers": (
        lambda x, net: x.flatten(1)[:, 8:152].reshape(-1, 9, 16),
        False,
        "of some numbers of some tokens, .* the nearest that is: of some tokens, or of some of the",
    ),
    "numbers behind a few": (
        lambda x, net: F.hardtanh(x.flatten(1)[:, 5:]).mean(1)[:, None, None] + x,
        False,
        "of some numbers of some tokens, .* the nearest that is: of some tokens",
    ),
    "sorted": (lambda x, net: x.sort(1)[0], False, "the op sort"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_not_supported_is_one_sentence(name: str, tmp_path: Path) -> None:
    what, training, text = REFUSALS[name]
    with pytest.raises(ConvertError, match=text):
        read(Refused(what).train(training), SOUND, tmp_path / "net.pt2")


def test_a_batch_of_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="of a batch of 2 is not supported"):
        read(Spectrogram(Own(by_three)).eval(), SOUND, tmp_path / "net.pt2", 2)
