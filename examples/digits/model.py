"""The example's network: a small inverted-bottleneck CNN, 32x32x1 to 7 classes.

A convolution and its batch norm are attributes of their own (`blocks.2.expand`, `blocks.2.expand_bn`),
so that a scheme can name the convolution. Shapes below are (h, w, c).
"""

from __future__ import annotations

import torch
from torch import nn


class InvertedBottleneck(nn.Module):
    """Expand 1x1, depthwise, project 1x1, ReLU6 after the first two; a residual add where shapes allow."""

    def __init__(self, c_in: int, expanded: int, c_out: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.expand = nn.Conv2d(c_in, expanded, 1, bias=False)
        self.expand_bn = nn.BatchNorm2d(expanded)
        self.depthwise = nn.Conv2d(
            expanded, expanded, kernel, stride, padding=kernel // 2, groups=expanded, bias=False
        )
        self.depthwise_bn = nn.BatchNorm2d(expanded)
        self.project = nn.Conv2d(expanded, c_out, 1, bias=False)
        self.project_bn = nn.BatchNorm2d(c_out)
        self.act = nn.ReLU6()
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.expand_bn(self.expand(x)))
        y = self.act(self.depthwise_bn(self.depthwise(y)))
        y = self.project_bn(self.project(y))
        result: torch.Tensor = x + y if self.residual else y
        return result


class DigitNet(nn.Module):
    """Stem, five blocks, global average pool, linear head."""

    def __init__(self, classes: int = 7) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, stride=2, padding=1, bias=False)
        self.stem_bn = nn.BatchNorm2d(16)
        self.act = nn.ReLU6()
        self.blocks = nn.Sequential(
            InvertedBottleneck(16, 32, 16, kernel=3, stride=2),  # (16, 16, 16) to (8, 8, 16)
            InvertedBottleneck(16, 48, 16, kernel=5),
            InvertedBottleneck(16, 80, 24, kernel=5, stride=2),  # to (4, 4, 24)
            InvertedBottleneck(24, 120, 24, kernel=3),
            InvertedBottleneck(24, 120, 64, kernel=3),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x float [1, 1, 32, 32], pixels normalised to -1..1; returns logits [1, classes]."""
        x = self.act(self.stem_bn(self.stem(x)))
        result: torch.Tensor = self.head(self.pool(self.blocks(x)).flatten(1))
        return result
