"""MobileNetV3-Small (arXiv 1905.02244, table 2), as torchvision writes it, at any width."""

from __future__ import annotations

import torch
from torch import nn

# kernel, expanded, out, squeeze-and-excitation, hard-swish, stride
BLOCKS = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)


def divisible(value: float, by: int = 8) -> int:
    """The nearest multiple, not more than a tenth below the value."""
    near = max(by, int(value + by / 2) // by * by)
    return near + by if near < 0.9 * value else near


def unit(c_in: int, c_out: int, k: int, stride: int, groups: int, act: nn.Module | None) -> nn.Sequential:
    layers = [nn.Conv2d(c_in, c_out, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(c_out)]
    return nn.Sequential(*layers, *([act] if act else []))


class SqueezeExcitation(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = divisible(channels / 4)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.activation, self.scale_activation = nn.ReLU(), nn.Hardsigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.fc2(self.activation(self.fc1(self.avgpool(x))))
        result: torch.Tensor = self.scale_activation(scale) * x
        return result


class InvertedResidual(nn.Module):
    def __init__(self, c_in: int, k: int, wide: int, c_out: int, se: bool, swish: bool, stride: int) -> None:
        super().__init__()
        act = nn.Hardswish if swish else nn.ReLU
        layers: list[nn.Module] = [unit(c_in, wide, 1, 1, 1, act(inplace=True))] if wide != c_in else []
        layers.append(unit(wide, wide, k, stride, wide, act(inplace=True)))
        layers += [SqueezeExcitation(wide)] if se else []
        layers.append(unit(wide, c_out, 1, 1, 1, None))
        self.block, self.residual = nn.Sequential(*layers), stride == 1 and c_in == c_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.block(x)
        result: torch.Tensor = y + x if self.residual else y
        return result


class MobileNetV3Small(nn.Module):
    def __init__(self, width: float = 1.0, classes: int = 1000, hidden: int = 1024, side: int = 224) -> None:
        super().__init__()
        self.shape = (3, side, side)
        c = divisible(16 * width)
        layers: list[nn.Module] = [unit(3, c, 3, 2, 1, nn.Hardswish(inplace=True))]
        for k, wide, out, se, swish, stride in BLOCKS:
            c_out = divisible(out * width)
            layers.append(InvertedResidual(c, k, divisible(wide * width), c_out, se, swish, stride))
            c = c_out
        layers.append(unit(c, 6 * c, 1, 1, 1, nn.Hardswish(inplace=True)))
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * c, hidden), nn.Hardswish(inplace=True), nn.Dropout(0.2), nn.Linear(hidden, classes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))
        return result
