"""Attention and tokens as timm's networks have them: biases, windows, fewer keys, and what lies between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_executor import assert_learned_alike
from test_gradients import assert_as_autograd, everything
from test_own_models import read, save
from torch import nn
from torch.nn import functional
from torch_networks import randomise

from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.ops.aten.across import DENSE
from microtrain.convert.ops.aten.attention_bias import factored
from microtrain.convert.ops.attention import ATTENTION
from microtrain.convert.ops.position import POSITION
from microtrain.convert.quantize.ptq import Choices, quantize_model

SHAPE, CLOSE = (3, 16, 24), 2e-5
C, HEADS, H, W = 12, 2, 4, 6
TOKENS = H * W
Block = Callable[["Styled", torch.Tensor], Any]  # a map [n, c, h, w] -> one of any size


class Styled(nn.Module):
    """Patches, one block, the mean over all pixels and a head."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block, self.patches, self.head = block, nn.Conv2d(3, C, 4, 4), nn.Linear(C, 5)
        self.qkv, self.out, self.norm = nn.Linear(C, 3 * C), nn.Linear(C, C), nn.LayerNorm(C)
        self.q, self.kv, self.wide = nn.Linear(C, C), nn.Linear(C, 2 * C), nn.Linear(C, 2 * C)
        self.less, self.one, self.two = nn.Conv2d(C, C, 2, 2), nn.Linear(C, C // HEADS), nn.Conv2d(C, C, 1)
        self.pair, self.rows, self.dots = nn.Conv2d(2 * C, C, 1), nn.BatchNorm1d(C), nn.Conv2d(C, 1, 1)
        self.table = nn.Parameter(torch.randn(2 * TOKENS, HEADS))
        self.token = nn.Parameter(torch.randn(1, 1, C))
        self.places: torch.Tensor
        self.register_buffer("places", torch.randint(0, 2 * TOKENS, (TOKENS, TOKENS)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.block(self, self.patches(x)).mean((2, 3)))
        return result

    def bias(self, queries: int = TOKENS, keys: int = TOKENS) -> torch.Tensor:
        """[heads, queries, keys]"""
        return self.table[self.places[:queries, :keys]].permute(2, 0, 1)


def tokens(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(2).transpose(1, 2)


def image(x: torch.Tensor, h: int = H, w: int = W) -> torch.Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], -1, h, w)


def heads(x: torch.Tensor, count: int = HEADS) -> torch.Tensor:
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def merged(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).flatten(2)


def scores(net: Styled, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of all tokens, and the values."""
    q, k, v = (heads(part) for part in net.qkv(net.norm(x)).chunk(3, -1))
    return q @ k.transpose(-2, -1) * (C // HEADS) ** -0.5, v


def biased(net: Styled, x: torch.Tensor) -> Any:
    """BEiT, LeViT, CoAtNet: one number for each head and distance (Shaw et al. 2018)."""
    score, v = scores(net, tokens(x))
    return x + image(net.out(merged((score + net.bias()).softmax(-1) @ v)))


def by_mask(net: Styled, x: torch.Tensor) -> Any:
    """The same by PyTorch's own attention."""
    q, k, v = (heads(part) for part in net.qkv(tokens(x)).chunk(3, -1))
    made = functional.scaled_dot_product_attention(q, k, v, attn_mask=net.bias()[None])
    return x + image(net.out(merged(made)))


def shown(net: Styled, x: torch.Tensor) -> Any:
    """ViT, DeiT, DINOv2 and AST of transformers: a mask that forward() computes, which hides no key."""
    every = torch.arange(TOKENS)[None, None, :, None] >= 0
    q, k, v = (heads(part) for part in net.qkv(tokens(x)).chunk(3, -1))
    mask = every.expand(1, -1, TOKENS, TOKENS)
    return x + image(net.out(merged(functional.scaled_dot_product_attention(q, k, v, attn_mask=mask))))


def hidden(net: Styled, x: torch.Tensor) -> Any:
    """The same of a token that sees none behind it."""
    q, k, v = (heads(part) for part in net.qkv(tokens(x)).chunk(3, -1))
    mask = torch.arange(TOKENS)[:, None] >= torch.arange(TOKENS)
    return x + image(net.out(merged(functional.scaled_dot_product_attention(q, k, v, attn_mask=mask))))


def written_in_place(net: Styled, x: torch.Tensor) -> Any:
    """BEiT of transformers: which distance two tokens have, as forward() writes it into a table."""
    places = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)
    places[:, 1:] += TOKENS
    table = torch.zeros(TOKENS, TOKENS, dtype=torch.int64)
    table[1:, 1:] = places[1:, 1:].clamp(0, 2 * TOKENS - 1)
    table[0] = 3
    score, v = scores(net, tokens(x))
    made = (score + net.table[table].permute(2, 0, 1)).softmax(-1) @ v
    return x + image(net.out(merged(made)))


def windowed(net: Styled, x: torch.Tensor) -> Any:
    """Swin, MaxViT: attention within windows of 2x3 pixels (Liu et al. 2021), with a bias."""
    y = x.permute(0, 2, 3, 1).reshape(2, 2, 2, 3, C).permute(0, 2, 1, 3, 4).reshape(4, 6, C)
    score, v = scores(net, y)
    y = net.out(merged((score + net.bias(6, 6)).softmax(-1) @ v))
    y = y.reshape(2, 2, 2, 3, C).permute(0, 2, 1, 3, 4).reshape(1, H, W, C)
    return x + y.permute(0, 3, 1, 2)


def padded_windows(net: Styled, x: torch.Tensor) -> Any:
    """DaViT, Twins: windows of 3x4 pixels, of an image that zeros make divisible."""
    y = functional.pad(x.permute(0, 2, 3, 1), (0, 0, 0, 2, 0, 2))
    y = y.reshape(2, 3, 2, 4, C).transpose(1, 2).reshape(4, 12, C)
    q, k, v = (heads(part) for part in net.qkv(y).chunk(3, -1))
    y = net.out(merged(functional.scaled_dot_product_attention(q, k, v)))
    y = y.reshape(2, 2, 3, 4, C).transpose(1, 2).reshape(1, 6, 8, C)[:, :H, :W]
    return x + y.permute(0, 3, 1, 2)


def wider_values(net: Styled, x: torch.Tensor) -> Any:
    """LeViT, iFormer: values have twice the features of queries and keys (Graham et al. 2021)."""
    y = tokens(x)
    q, k, v = heads(net.q(y)), heads(net.kv(y)[..., :C]), heads(net.wide(y))
    made = merged(functional.scaled_dot_product_attention(q, k, v))
    return x + image(made[..., :C] + made[..., C:])


def by_batches(net: Styled, x: torch.Tensor) -> Any:
    """fairseq and older transformers: the products are over a batch of heads, the scores have two axes."""
    q, k, v = (heads(part).flatten(0, 1) for part in net.qkv(tokens(x)).chunk(3, -1))
    score = torch.bmm(q, k.transpose(1, 2)).view(1, HEADS, TOKENS, TOKENS) + net.bias()
    made = torch.bmm(score.softmax(-1).view(HEADS, TOKENS, TOKENS), v).view(1, HEADS, TOKENS, -1)
    return x + image(net.out(merged(made)))


def turned_shares(net: Styled, x: torch.Tensor) -> Any:
    """EfficientViT of Microsoft, SHViT: values [size, tokens] times shares that are turned."""
    q, k, v = net.qkv(tokens(x)).transpose(1, 2).reshape(1, HEADS, 3 * C // HEADS, TOKENS).chunk(3, 2)
    share = (q.transpose(-2, -1) @ k * 0.4).softmax(-1)
    return x + (v @ share.transpose(-2, -1)).reshape(1, C, H, W)


def fewer_keys(net: Styled, x: torch.Tensor) -> Any:
    """PVT, Twins, NextViT: keys and values of a smaller map (Wang et al. 2021)."""
    q, y = heads(net.q(tokens(x))), net.norm(tokens(net.less(x)))
    k, v = (heads(part) for part in net.kv(y).chunk(2, -1))
    share = (q @ k.transpose(-2, -1) * 0.4 + net.bias(TOKENS, TOKENS // 4)).softmax(-1)
    return x + image(net.out(merged(share @ v)))


def one_key_head(net: Styled, x: torch.Tensor) -> Any:
    """MobileNetV4: all heads have one head's keys and values (Shazeer 2019)."""
    y = tokens(net.less(x))
    q, k, v = heads(net.q(tokens(x))), heads(net.one(y), 1), heads(net.one(y), 1)
    return x + image(merged(functional.scaled_dot_product_attention(q, k, v)))


def class_attention(net: Styled, x: torch.Tensor) -> Any:
    """CaiT, CrossViT: a class token alone asks all tokens (Touvron et al. 2021)."""
    y = torch.cat((net.token.expand(x.shape[0], -1, -1), tokens(x)), 1)
    q = heads(net.q(y[:, :1]))
    k, v = (heads(part) for part in net.kv(y).chunk(2, -1))
    made = net.out(merged(functional.scaled_dot_product_attention(q, k, v)))
    return image(torch.cat((y[:, :1] + made, y[:, 1:]), 1), TOKENS + 1, 1)


def fewer_queries(net: Styled, x: torch.Tensor) -> Any:
    """LeViT's shrinking attention: queries of every second pixel."""
    q = heads(net.q(tokens(x[:, :, ::2, ::2])))
    k, v = (heads(part) for part in net.kv(tokens(x)).chunk(2, -1))
    share = (q @ k.transpose(-2, -1) * 0.4 + net.bias(TOKENS // 4)).softmax(-1)
    return image(net.out(merged(share @ v)), H // 2, W // 2)


def odd_keys(net: Styled, x: torch.Tensor) -> Any:
    """Keys that do not divide the queries: 24 of these, 7 of those."""
    k, v = (heads(part) for part in net.kv(tokens(x)[:, 3:10]).chunk(2, -1))
    made = functional.scaled_dot_product_attention(heads(net.q(tokens(x))), k, v)
    return x + image(net.out(merged(made)))


def interleaved(net: Styled, x: torch.Tensor) -> Any:
    """NesT: heads end as the last axis."""
    score, v = scores(net, tokens(x))
    made = (score.softmax(-1) @ v).permute(0, 2, 3, 1).reshape(1, TOKENS, C)
    return x + image(net.out(made))


def context(net: Styled, x: torch.Tensor) -> Any:
    """GCNet: the mean of all pixels, each as often as a convolution says (Cao et al. 2019)."""
    share = net.dots(x).reshape(1, 1, TOKENS).softmax(-1).unsqueeze(3)
    found = (x.reshape(1, C, TOKENS).unsqueeze(1) @ share).view(1, C, 1, 1)
    return x * net.two(found)


def gated(net: Styled, x: torch.Tensor) -> Any:
    """MambaOut: features that are cut apart, convolved and joined, channels last."""
    y = net.kv(net.norm(x.permute(0, 2, 3, 1)))
    a, b = torch.split(y, [C, C], dim=-1)
    b = net.two(b.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    return net.pair(torch.cat((a, b), -1).permute(0, 3, 1, 2))


def rows(net: Styled, x: torch.Tensor) -> Any:
    """LeViT: batch norms of tokens, one row for each."""
    y = net.out(tokens(x))
    return x + image(functional.hardtanh(net.rows(y.flatten(0, 1)).reshape_as(y)))


def without_class(net: Styled, x: torch.Tensor) -> Any:
    """DeiT: the tokens behind the class token, as the image that they were; and pooled as one line."""
    y = net.norm(torch.cat((net.token.expand(x.shape[0], -1, -1), tokens(x)), 1))
    y = net.two(image(y[:, 1:]))
    return functional.avg_pool1d(y.flatten(2), 4, 4)[..., None] if y.ndim == 4 else y


def some_as_image(net: Styled, x: torch.Tensor) -> Any:
    """Some tokens, which lie in one column, as an image: a factor for each channel, and a pooling."""
    y = image(tokens(x)[:, 2:22], 4, 5)
    return functional.max_pool2d(y * y.mean((2, 3), keepdim=True), 2)


def standardised(net: Styled, x: torch.Tensor) -> Any:
    """NFNet, BiT: weights of mean 0 and variance 1 (Qiao et al. 2019)."""
    weight = functional.batch_norm(
        net.less.weight.reshape(1, C, -1), None, None, net.table[:C, 0], training=True, momentum=0.0, eps=1e-6
    )
    return functional.conv2d(x, weight.reshape_as(net.less.weight), net.less.bias, 2)


def lowest(net: Styled, x: torch.Tensor) -> Any:
    """TensorFlow's pooling, of an image with what no maximum takes around it; and a padding by nothing."""
    y = functional.max_pool2d(functional.pad(x, (0, 1, 0, 1), value=-torch.inf), 3, 2)
    y = functional.max_pool2d(functional.pad(y, (1, 1), value=-torch.inf), (1, 3))
    return net.two(functional.pad(y, (0, 0, 0, 0)))


@dataclass(frozen=True)
class Style:
    """learns: its gradients are looked at too; onnx: it is read from such a file too, not refused"""

    block: Block
    learns: bool = False
    onnx: bool = True


STYLES = {
    "a bias": Style(biased, learns=True),
    "a bias as a mask": Style(by_mask),
    "a mask that hides nothing": Style(shown),
    "a table written in place": Style(written_in_place, onnx=False),
    "a batch of heads": Style(by_batches, learns=True),
    "windows": Style(windowed, learns=True),
    "windows with zeros": Style(padded_windows),
    "wider values": Style(wider_values, learns=True),
    "turned shares": Style(turned_shares),
    "fewer keys": Style(fewer_keys, learns=True),
    "one head of keys": Style(one_key_head),
    "class attention": Style(class_attention, learns=True, onnx=False),
    "fewer queries": Style(fewer_queries),
    "keys that do not divide": Style(odd_keys),
    "interleaved heads": Style(interleaved),
    "context": Style(context),
    "gated": Style(gated),
    "rows": Style(rows),
    "without the class token": Style(without_class),
    "some tokens as an image": Style(some_as_image),
    "standardised weights": Style(standardised),
    "lowest": Style(lowest),
}


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_a_mask_that_hides_keys_is_a_sentence(suffix: str, tmp_path: Path) -> None:
    path = save(randomise(Styled(hidden), 5), SHAPE, tmp_path / f"net{suffix}")
    with pytest.raises(ConvertError, match="mask"):
        read(path, SHAPE)


def converted(name: str, suffix: str, folder: Path) -> tuple[Graph, np.ndarray, np.ndarray]:
    torch.manual_seed(5)
    net = randomise(Styled(STYLES[name].block), 5)
    graph = read(save(net, SHAPE, folder / f"net{suffix}"), SHAPE)
    images = np.random.default_rng(6).integers(0, 256, (8, *SHAPE[1:], SHAPE[0])).astype(np.uint8)
    with torch.no_grad():
        given = torch.tensor(images.transpose(0, 3, 1, 2) / np.float32(255))
        wanted = np.concatenate([net(each[None]).numpy() for each in given])
    return graph, images, wanted


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("name", STYLES)
def test_it_computes_what_pytorch_does(name: str, suffix: str, tmp_path: Path) -> None:
    if suffix == ".onnx" and not STYLES[name].onnx:
        with pytest.raises(ConvertError, match=r"layer /\w+: "):
            converted(name, suffix, tmp_path)
        return
    graph, images, wanted = converted(name, suffix, tmp_path)
    found = run_float(graph, images).reshape(wanted.shape)
    assert np.abs(found - wanted).max() < CLOSE * np.abs(wanted).max()
    stored = run_int8(quantize_model(graph, images, Choices()), images).reshape(wanted.shape)
    assert np.abs(stored - wanted).max() < 0.15 * np.ptp(wanted), "in int8"


@pytest.mark.parametrize("name", [name for name, style in STYLES.items() if style.learns])
def test_it_learns_on_the_device_as_in_pytorch(name: str, tmp_path: Path) -> None:
    graph, images, _ = converted(name, ".pt2", tmp_path)
    int8 = quantize_model(graph, images, Choices())
    assert_learned_alike(int8, tmp_path)
    apart = [("kv", "bias")] if name == "wider values" else []  # what all keys have in common has no gradient
    assert_as_autograd(everything(int8).graph, 0.95, apart)


def test_a_bias_is_not_left_out(tmp_path: Path) -> None:
    """Without its table the answers are others."""
    graph, images, wanted = converted("a bias", ".pt2", tmp_path)
    nodes = [n for n in graph.nodes if n.op != POSITION]
    assert len(nodes) < len(graph.nodes) and ATTENTION in {n.op for n in nodes}
    plain = {n.outputs[0]: n.inputs[0] for n in graph.nodes if n.op == POSITION}
    bare = graph.replace(
        nodes=tuple(replace(n, inputs=tuple(plain.get(i, i) for i in n.inputs)) for n in nodes)
    )
    found = run_float(bare, images).reshape(wanted.shape)
    assert np.abs(found - wanted).max() > 100 * CLOSE * np.abs(wanted).max()


def test_two_tables_are_a_bias_but_for_what_keys_share() -> None:
    rng = np.random.default_rng(1)
    bias, pixels = rng.normal(0, 3, (4, 5, 5)), np.array([[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]] * 2)
    number = np.array([0, 0, 1, 1])
    q, k = factored(bias, pixels, number, (10, 2), 0.3)
    for of, at, head in zip(bias, pixels, number, strict=True):
        made = 0.3 * q[at, head] @ k[at, head].T
        np.testing.assert_allclose(made, of - of.mean(-1, keepdims=True), atol=1e-9)
    assert np.abs(q).max() == pytest.approx(np.abs(k).max()), "both have one scale"


def test_class_tokens_stand_in_front_of_a_map_as_it_is(tmp_path: Path) -> None:
    """It was seen as one column first, by an op of its own."""
    nodes = converted("without the class token", ".pt2", tmp_path)[0].nodes
    makers = {name: node.op for node in nodes for name in node.outputs}
    assert [makers[n.inputs[0]] for n in nodes if n.op == POSITION] == [DENSE]
