"""Networks of the MLPerf Tiny benchmark, LeNet-5 and networks of series, as their papers and reference code
describe them."""

from __future__ import annotations

import torch
from torch import nn


def conv(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(c_out),
        nn.ReLU(),
    )


class Pooled(nn.Module):
    """Layers, the mean over the map, and a linear layer."""

    def __init__(self, layers: nn.Sequential, features: int, classes: int) -> None:
        super().__init__()
        self.layers = layers
        self.head = nn.Linear(features, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layers(x).mean((2, 3)))
        return result


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.first = conv(c_in, c_out, 3, stride)
        self.second = nn.Sequential(nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False), nn.BatchNorm2d(c_out))
        self.shortcut = nn.Conv2d(c_in, c_out, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(self.first(x)) + self.shortcut(x))


def resnet8() -> nn.Module:
    """Image classification of MLPerf Tiny: CIFAR-10, 32x32."""
    blocks = nn.Sequential(conv(3, 16, 3), Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
    return Pooled(blocks, 64, 10)


def mobilenet_v1_025() -> nn.Module:
    """Visual wake words of MLPerf Tiny: MobileNetV1 a quarter as wide (Howard et al. 2017), 96x96."""
    plan = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1))
    layers, channels = [conv(3, 8, 3, 2)], 8
    for c_out, stride in plan:
        layers += [conv(channels, channels, 3, stride, channels), conv(channels, c_out, 1)]
        channels = c_out
    return Pooled(nn.Sequential(*layers), channels, 2)


def ds_cnn() -> nn.Module:
    """Keyword spotting of MLPerf Tiny: depthwise-separable, 49x10 MFCCs (Zhang et al. 2017)."""
    stem = nn.Sequential(nn.Conv2d(1, 64, (10, 4), 2, (5, 1), bias=False), nn.BatchNorm2d(64), nn.ReLU())
    blocks = [layer for _ in range(4) for layer in (conv(64, 64, 3, 1, 64), conv(64, 64, 1))]
    return Pooled(nn.Sequential(stem, *blocks), 64, 12)


def lenet5() -> nn.Module:
    """LeCun et al. 1998 with ReLU and maximum pooling, as it is taught today: 28x28."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def har_cnn() -> nn.Module:
    """Activity from nine channels of motion, 128 samples (UCI HAR): two convolutions over time."""
    return nn.Sequential(
        *(nn.Conv1d(9, 64, 3), nn.ReLU(), nn.Conv1d(64, 64, 3), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.MaxPool1d(2), nn.Flatten(), nn.Linear(64 * 62, 100), nn.ReLU(), nn.Linear(100, 6)),
    )


def dilated(c: int, dilation: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(c, c, 3, padding=dilation, dilation=dilation), nn.ReLU())


class Last(nn.Module):
    """The mean over time of what the layers make, and a linear layer."""

    def __init__(self, layers: nn.Module, features: int, classes: int) -> None:
        super().__init__()
        self.layers, self.head = layers, nn.Linear(features, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layers(x).mean(-1))
        return result


def tcn() -> nn.Module:
    """A temporal convolutional network (Bai et al. 2018): each layer looks twice as far, by dilation."""
    return Last(nn.Sequential(nn.Conv1d(9, 25, 1), *(dilated(25, 2**n) for n in range(6))), 25, 6)


class Gated(nn.Module):
    """A gated convolution over time beside a residual add, as in WaveNet (van den Oord et al. 2016)."""

    def __init__(self, c: int, dilation: int) -> None:
        super().__init__()
        self.made, self.gate = (nn.Conv1d(c, c, 3, padding=dilation, dilation=dilation) for _ in range(2))
        self.out, self.opens, self.says = nn.Conv1d(c, c, 1), nn.Sigmoid(), nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.out(self.says(self.made(x)) * self.opens(self.gate(x)))
        return result


def gated_tcn() -> nn.Module:
    return Last(nn.Sequential(nn.Conv1d(9, 16, 1), *(Gated(16, 2**n) for n in range(6))), 16, 6)


class Fused(nn.Module):
    """Two resolutions side by side, each with what the other one sees (Sun et al. 2019)."""

    def __init__(self, fine: int, coarse: int) -> None:
        super().__init__()
        self.fine, self.coarse = conv(fine, fine, 3), conv(coarse, coarse, 3)
        self.up = nn.Sequential(nn.Conv2d(coarse, fine, 1), nn.Upsample(scale_factor=2))
        self.down = nn.Conv2d(fine, coarse, 3, 2, 1)

    def forward(self, x: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        fine, coarse = self.fine(x[0]), self.coarse(x[1])
        return torch.relu(fine + self.up(coarse)), torch.relu(coarse + self.down(fine))


class HighResolution(nn.Module):
    """HRNet's plan with two branches, for images of 64x64."""

    def __init__(self, fine: int = 16, coarse: int = 32) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, fine, 3, 2), conv(fine, fine, 3, 2))
        self.split, self.fused = (
            conv(fine, coarse, 3, 2),
            nn.Sequential(*(Fused(fine, coarse) for _ in range(3))),
        )
        self.head = nn.Linear(fine + coarse, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        fine, coarse = self.fused((x, self.split(x)))
        result: torch.Tensor = self.head(torch.cat((fine.mean((2, 3)), coarse.mean((2, 3))), 1))
        return result


class Cardinal(nn.Module):
    """A bottleneck whose middle is in groups, beside a shortcut (Xie et al. 2017)."""

    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        last = nn.Sequential(nn.Conv2d(c_out, c_out, 1, bias=False), nn.BatchNorm2d(c_out))
        self.layers = nn.Sequential(conv(c_in, c_out, 1), conv(c_out, c_out, 3, stride, 8), last)
        self.shortcut = nn.Conv2d(c_in, c_out, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layers(x) + self.shortcut(x))


def resnext8() -> nn.Module:
    """ResNet-8's plan with the blocks of ResNeXt: eight groups."""
    blocks = (Cardinal(16, 32, 1), Cardinal(32, 64, 2), Cardinal(64, 128, 2))
    return Pooled(nn.Sequential(conv(3, 16, 3), *blocks), 128, 10)


class Attended(nn.Module):
    """What the channels say of the map, and then the map of its pixels (CBAM, Woo et al. 2018)."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.channels = nn.Sequential(nn.Conv2d(c, c // 4, 1), nn.ReLU(), nn.Conv2d(c // 4, c, 1))
        self.gate = nn.Sigmoid()
        self.pixels = nn.Sequential(nn.Conv2d(2, 1, 7, padding=3), self.gate)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means, largest = x.mean((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
        x = x * self.gate(self.channels(means) + self.channels(largest))
        said = torch.cat((x.mean(1, keepdim=True), x.max(1, keepdim=True)[0]), 1)
        result: torch.Tensor = x * self.pixels(said)
        return result


def cbam_resnet8() -> nn.Module:
    """ResNet-8 with attention behind each block."""
    blocks = (Residual(16, 16, 1), Attended(16), Residual(16, 32, 2), Attended(32), Residual(32, 64, 2))
    return Pooled(nn.Sequential(conv(3, 16, 3), *blocks, Attended(64)), 64, 10)


def larger(c: int, transposed: bool) -> nn.Module:
    """Twice as high and wide: lines between pixels, or a transposed convolution to half the channels."""
    return nn.ConvTranspose2d(c, c // 2, 2, 2) if transposed else nn.Upsample(scale_factor=2, mode="bilinear")


class UNet(nn.Module):
    """Three sizes down, and up again bilinearly (Ronneberger et al. 2015), for images of 64x64.

    transposed  up by transposed convolutions, as in the paper
    """

    def __init__(self, c: int = 8, transposed: bool = False) -> None:
        super().__init__()
        self.stem = conv(3, c, 3, 2)
        self.down = nn.ModuleList([conv(c << n, c << n + 1, 3, 2) for n in range(3)])
        self.larger = nn.ModuleList([larger(2 * c << n, transposed) for n in (2, 1, 0)])
        self.up = nn.ModuleList([conv((2 if transposed else 3) * c << n, c << n, 3) for n in (2, 1, 0)])
        self.head = nn.Linear(c, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = [self.stem(x)]
        for layer in self.down:
            maps.append(layer(maps[-1]))
        x = maps.pop()
        for larger, layer in zip(self.larger, self.up, strict=True):
            x = layer(torch.cat((larger(x), maps.pop()), 1))
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


def alexnet_40() -> nn.Module:
    """AlexNet's plan (Krizhevsky et al. 2012) for images of 40x40: of 5x5 pixels its classifier wants 3x3."""
    layers = (conv(3, 16, 5, 2), nn.MaxPool2d(3, 2), conv(16, 32, 5), conv(32, 32, 3))
    pooled = (nn.AvgPool2d(3, 2, 1, True, False), nn.AdaptiveAvgPool2d(3), nn.Flatten())
    return nn.Sequential(*layers, *pooled, nn.Linear(288, 64), nn.ReLU(), nn.Linear(64, 10))


class Recurrent(nn.Module):
    """What recurrent layers leave behind the last row, and a linear layer."""

    def __init__(self, layers: nn.RNNBase, classes: int) -> None:
        super().__init__()
        self.layers, self.head = layers, nn.Linear(layers.hidden_size, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layers(x)[0][:, -1])
        return result


def gru() -> nn.Module:
    """A recurrent network over the features of a second of sound."""
    return Recurrent(nn.GRU(40, 64, batch_first=True), 12)


def lstm() -> nn.Module:
    """Two layers over the channels of motion."""
    return Recurrent(nn.LSTM(9, 32, 2, batch_first=True), 6)
