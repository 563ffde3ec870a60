"""MobileNetV2 as its paper has it (Sandler et al. 2018, table 2), of any width, with random weights: what it
costs hardly depends on them."""

from __future__ import annotations

import torch
from torch import nn

STAGES = (  # expansion, channels, blocks, stride of the first
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
STEM, FEATURES, DIVISOR = 32, 1280, 8


def rounded(channels: float) -> int:
    """Channels of a width: a multiple of 8, and not a tenth less."""
    near = max(DIVISOR, int(channels + DIVISOR / 2) // DIVISOR * DIVISOR)
    return near + DIVISOR if near < 0.9 * channels else near


def conv(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Convolution and batch norm."""
    made = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [made, nn.BatchNorm2d(c_out)]


class Inverted(nn.Module):
    """Expansion, depthwise, projection; a residual add where the shape stays."""

    def __init__(self, c_in: int, c_out: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = c_in * expansion
        expand = [*conv(c_in, wide, 1), nn.ReLU6()] if expansion > 1 else []
        depthwise = [*conv(wide, wide, 3, stride, wide), nn.ReLU6()]
        self.layers = nn.Sequential(*expand, *depthwise, *conv(wide, c_out, 1))
        self.adds = stride == 1 and c_in == c_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layers(x)
        return x + y if self.adds else y


class MobileNetV2(nn.Module):
    """width: of all layers but the last, which is never less than 1280."""

    def __init__(self, width: float, classes: int) -> None:
        super().__init__()
        channels = rounded(STEM * width)
        layers: list[nn.Module] = [*conv(3, channels, 3, 2), nn.ReLU6()]
        for expansion, size, blocks, stride in STAGES:
            for block in range(blocks):
                c_out = rounded(size * width)
                layers.append(Inverted(channels, c_out, 1 if block else stride, expansion))
                channels = c_out
        features = rounded(FEATURES * max(1.0, width))
        self.layers = nn.Sequential(*layers, *conv(channels, features, 1), nn.ReLU6())
        self.head = nn.Linear(features, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layers(x).mean((2, 3)))
        return result
