"""Networks with attention, as their papers describe them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Transformer(nn.Module):
    """A class token and positions before PyTorch's encoder, a layer norm and a linear layer behind it."""

    def __init__(
        self, patches: nn.Module, tokens: int, width: int, heads: int, hidden: int, depth: int, **about: int
    ) -> None:
        super().__init__()
        self.patches = patches
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, tokens + 1, width))
        first = bool(about.get("first", True))
        layer = nn.TransformerEncoderLayer(
            width, heads, hidden, 0.0, nn.GELU(), batch_first=True, norm_first=first
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, about["classes"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x)
        x = x.flatten(2).transpose(1, 2) if x.ndim == 4 else x
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1)
        result: torch.Tensor = self.head(self.norm(self.layers(x + self.positions)[:, 0]))
        return result


class Frames(nn.Module):
    """A spectrogram's frames by a linear layer."""

    def __init__(self, bands: int, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(bands, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x.squeeze(1).transpose(1, 2))
        return result


def keyword_transformer(depth: int = 12) -> nn.Module:
    """KWT-1 (Berg et al. 2021): 98 frames of 40 coefficients, twelve layers of one head, norms last."""
    return Transformer(Frames(40, 64), 98, 64, 1, 256, depth, classes=35, first=0)


def vit_tiny() -> nn.Module:
    """ViT-Ti/16 (Touvron et al. 2021)."""
    return Transformer(nn.Conv2d(3, 192, 16, 16), 196, 192, 3, 768, 12, classes=1000)


def vit_cifar() -> nn.Module:
    """A ViT for 32x32 pixels in patches of 4: six layers of 64 features."""
    return Transformer(nn.Conv2d(3, 64, 4, 4), 64, 64, 4, 128, 6, classes=10)


def conv(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, batch norm, SiLU."""
    layer = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(c_out), nn.SiLU())


class Inverted(nn.Module):
    """MobileNetV2's block, twice as wide inside."""

    def __init__(self, c_in: int, c_out: int, stride: int = 1) -> None:
        super().__init__()
        wide = 2 * c_in
        last = nn.Sequential(nn.Conv2d(wide, c_out, 1, bias=False), nn.BatchNorm2d(c_out))
        self.layers = nn.Sequential(conv(c_in, wide, 1), conv(wide, wide, 3, stride, wide), last)
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.layers(x) if self.residual else self.layers(x)
        return result


class Attention(nn.Module):
    """One linear layer for queries, keys and values of four heads, and one behind them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, tokens, c = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, 4, c // 4).permute(2, 0, 3, 1, 4).unbind(0)
        made = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, c)
        result: torch.Tensor = self.out(made)
        return result


class Layer(nn.Module):
    """Norm, attention, norm, two linear layers, twice as wide between."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.attention = nn.LayerNorm(width), Attention(width)
        self.second = nn.LayerNorm(width)
        self.hidden = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        result: torch.Tensor = x + self.hidden(self.second(x))
        return result


class Unfolded(nn.Module):
    """MobileViT's block: convolutions, attention among pixels of one place of their patches."""

    def __init__(self, channels: int, width: int, depth: int) -> None:
        super().__init__()
        self.into = nn.Sequential(conv(channels, channels, 3), nn.Conv2d(channels, width, 1, bias=False))
        self.layers = nn.Sequential(*(Layer(width) for _ in range(depth)), nn.LayerNorm(width))
        self.out, self.fuse = conv(width, channels, 1), conv(2 * channels, channels, 3)

    def forward(self, kept: torch.Tensor) -> torch.Tensor:
        x = self.into(kept)
        n, c, h, w = x.shape
        x = x.reshape(n * c * h // 2, 2, w // 2, 2).transpose(1, 2).reshape(n, c, h * w // 4, 4)
        x = self.layers(x.transpose(1, 3).reshape(n * 4, h * w // 4, c)).contiguous()
        x = x.view(n, 4, h * w // 4, c).transpose(1, 3).reshape(n * c * h // 2, w // 2, 2, 2)
        x = self.out(x.transpose(1, 2).reshape(n, c, h, w))
        result: torch.Tensor = self.fuse(torch.cat([kept, x], 1))
        return result


class MobileVit(nn.Module):
    """widths: of the stem and the five stages; inner: of the three transformers."""

    def __init__(self, widths: tuple[int, ...], inner: tuple[int, ...], last: int, classes: int) -> None:
        super().__init__()
        stem, a, b, c, d, e = widths
        self.layers = nn.Sequential(
            *(conv(3, stem, 3, 2), Inverted(stem, a), Inverted(a, b, 2), Inverted(b, b), Inverted(b, b)),
            *(Inverted(b, c, 2), Unfolded(c, inner[0], 2), Inverted(c, d, 2), Unfolded(d, inner[1], 4)),
            *(Inverted(d, e, 2), Unfolded(e, inner[2], 3), conv(e, last, 1)),
        )
        self.head = nn.Linear(last, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layers(x).mean((2, 3)))
        return result


def mobilevit_xxs() -> nn.Module:
    """MobileViT-XXS (Mehta and Rastegari 2022)."""
    return MobileVit((16, 16, 24, 48, 64, 80), (64, 80, 96), 320, 1000)


def mobilevit_half() -> nn.Module:
    """The same of half the widths, of ten classes."""
    return MobileVit((8, 8, 12, 24, 32, 40), (32, 40, 48), 160, 10)
