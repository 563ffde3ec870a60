"""Small random networks and the five ways to put one into a file, for tests of the front end."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)


class Bottleneck(nn.Module):
    """1x1 > depthwise > 1x1 with batch norm behind each, ReLU6 inside, and a residual add where it fits."""

    def __init__(self, c_in: int, expanded: int, c_out: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.expand = nn.Sequential(
            nn.Conv2d(c_in, expanded, 1, bias=False), nn.BatchNorm2d(expanded), nn.ReLU6(inplace=True)
        )
        self.depthwise = nn.Conv2d(
            expanded, expanded, kernel, stride, kernel // 2, groups=expanded, bias=False
        )
        self.norm = nn.BatchNorm2d(expanded, eps=1e-3)
        self.act = nn.ReLU6()
        self.project = nn.Conv2d(expanded, c_out, 1, bias=False)
        self.project_norm = nn.BatchNorm2d(c_out)
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.project_norm(self.project(self.act(self.norm(self.depthwise(self.expand(x))))))
        result: torch.Tensor = x + y if self.residual else y
        return result


class MobileNet(nn.Module):
    """Stride-2 stem, odd channel counts, 3x3, 5x5 and 7x7 depthwise, global pooling. Input 3x20x24."""

    shape = (3, 20, 24)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 7, 3, 2, 1, bias=False), nn.BatchNorm2d(7), nn.ReLU6())
        self.blocks = nn.Sequential(
            Bottleneck(7, 13, 9, 3, 2), Bottleneck(9, 17, 9, 5, 1), Bottleneck(9, 18, 9, 7, 1)
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(9, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.blocks(self.stem(x)))
        result: torch.Tensor = self.head(self.drop(torch.flatten(x, 1)))
        return result


class Pooled(nn.Module):
    """Biases without batch norm, kernels and strides that are not square, windowed pooling, a hidden linear
    layer over a 3x2 map. Input 1x24x16."""

    shape = (1, 24, 16)

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, (3, 5), padding=(1, 2)),
            nn.MaxPool2d(3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(6, 6, 7, padding="same", groups=6),
            nn.Conv2d(6, 8, (5, 1), stride=(2, 1), padding=(2, 0)),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AvgPool2d(2, padding=1),
            nn.Conv2d(8, 5, 2, padding="valid"),
            nn.ReLU6(),
            nn.AdaptiveAvgPool2d((3, 2)),
        )
        self.hidden = nn.Linear(30, 11)
        self.norm = nn.BatchNorm1d(11)
        self.out = nn.Linear(11, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.features(x)
        x = x.reshape(x.shape[0], -1)
        result: torch.Tensor = self.out(torch.relu(self.norm(self.hidden(x))))
        return result


class Idioms(nn.Module):
    """Functional calls, in-place ops, a bare parameter as weight, a head over a 4x4 map. Input 2x16x16."""

    shape = (2, 16, 16)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8, affine=False)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.third = nn.Conv2d(8, 6, 3, padding=1)
        self.weight = nn.Parameter(torch.zeros(3, 6, 1, 1))
        self.out = nn.Linear(48, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu_(self.norm(self.first(x)))
        y = self.second(x)
        y += x
        x = y.clamp_(0.0, 6.0)
        x = functional.hardtanh(self.third(x), 0.0, 6.0).contiguous()
        x = functional.max_pool2d(functional.avg_pool2d(functional.conv2d(x, self.weight), 2), 2)
        x = x.reshape(x.size(0), x.size(1) * x.size(2) * x.size(3))
        result: torch.Tensor = self.out(functional.dropout(x, training=self.training))
        return result


class Sums(nn.Module):
    """A chain of adds with activations, pixels averaged over flatten(2), squeeze. Input 3x8x8."""

    shape = (3, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 10, 1)
        self.b = nn.Conv2d(3, 10, 3, padding=1)
        self.c = nn.Conv2d(10, 10, 3, padding=1)
        self.squash = nn.Conv2d(10, 12, 8)
        self.first = nn.Linear(12, 10)
        self.last = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.a(x) + self.b(x))
        z = functional.relu6(y + self.c(y))
        v = self.first(functional.relu(self.squash(z)).squeeze(-1).squeeze(2))
        result: torch.Tensor = self.last(functional.relu(v + z.flatten(2).mean(-1) + y.mean(3).mean(2)))
        return result


class Unit(nn.Module):
    """A shuffled unit: half of the channels are passed on, half are worked on. way: how they are cut"""

    def __init__(self, channels: int, way: str) -> None:
        super().__init__()
        half = channels // 2
        self.work = nn.Sequential(nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU())
        self.way = way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = x.size(1) // 2
        if self.way == "slice":
            kept, worked = x[:, :half], x[:, half:]
        elif self.way == "split":
            kept, worked = torch.split(x, [half, half], dim=1)
        else:
            kept, worked = x.chunk(2, dim=1)
        x = torch.cat((kept, self.work(worked)), dim=1)
        n, c, h, w = x.size()
        x = x.view(n, 2, c // 2, h, w)
        x = x.permute(0, 2, 1, 3, 4) if self.way == "split" else torch.transpose(x, 1, 2)
        return x.contiguous().view(n, c, h, w)


class Shuffled(nn.Module):
    """Shuffled units, and a fire module whose squeezed map is read three times. Input 3x18x14."""

    shape = (3, 18, 14)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 10, 3, 2, 1), nn.ReLU())
        self.units = nn.Sequential(*(Unit(10, way) for way in ("chunk", "split", "slice")))
        self.squeeze, self.one, self.three = (
            nn.Conv2d(10, 5, 1),
            nn.Conv2d(5, 7, 1),
            nn.Conv2d(5, 6, 3, 1, 1),
        )
        self.head = nn.Linear(18, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.squeeze(self.units(self.stem(x))))
        x = torch.cat([functional.relu(self.one(x)), x, self.three(x)], dim=-3)
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


class Series(nn.Module):
    """Convolutions and poolings over time, a residual add, and a mean. Input 4 channels, 41 samples."""

    shape = (4, 41)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(4, 8, 5, 2, 2, bias=False), nn.BatchNorm1d(8), nn.ReLU6())
        self.narrow = nn.Sequential(nn.Conv1d(8, 8, 3, padding="same", groups=8), nn.Conv1d(8, 8, 1))
        self.pools = nn.Sequential(nn.MaxPool1d(3, 2, 1), nn.Conv1d(8, 6, 3), nn.ReLU(), nn.AvgPool1d(2))
        self.last, self.head = nn.AdaptiveAvgPool1d(1), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = self.pools(x + self.narrow(x))
        result: torch.Tensor = self.head(torch.flatten(self.last(x), 1))
        return result


class Groups(nn.Module):
    """Every kind of convolution that is not dense, of an image."""

    shape = (3, 17, 15)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 12, 3, 2, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU()),
            *(nn.Conv2d(12, 8, 3, 1, 1, groups=4, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
            *(nn.Conv2d(8, 16, 3, 1, (2, 3), (2, 3), groups=8), nn.ReLU6()),
            *(nn.Conv2d(16, 16, 3, 1, 2, 2, groups=16), nn.Conv2d(16, 10, (3, 1), 2, (3, 0), (3, 1))),
            nn.Conv2d(10, 6, 3, padding="same", dilation=2),
        )
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layers(x).mean((2, 3)))
        return result


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "groups": Groups,
    "mobilenet": MobileNet,
    "pooled": Pooled,
    "idioms": Idioms,
    "sums": Sums,
    "shuffled": Shuffled,
    "series": Series,
}


def randomise(net: nn.Module, seed: int) -> nn.Module:
    """Random weights and batch norm statistics, in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in [*net.named_parameters(), *net.named_buffers()]:
            if name.endswith("running_var"):
                value.uniform_(0.3, 2.0, generator=generator)
            elif value.is_floating_point() and value.ndim == 1:
                value.uniform_(-0.5, 0.5, generator=generator)
            elif value.is_floating_point():
                value.normal_(0.0, (2.0 / value[0].numel()) ** 0.5, generator=generator)
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d) and module.affine:
                module.weight.uniform_(0.5, 1.5, generator=generator)
    return net.eval()


def write(net: nn.Module, path: Path, way: str, **kwargs: object) -> Path:
    """Put a network into a file: exported, decomposed, dynamic, scripted, traced or module."""
    example = torch.zeros(1, *net.shape)  # type: ignore[misc]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if way == "scripted":
            torch.jit.script(net).save(str(path))
        elif way == "traced":
            torch.jit.trace(net, example).save(str(path))
        elif way == "module":
            torch.save(net, path)
        else:
            batch = {"x": {0: torch.export.Dim("batch")}} if way == "dynamic" else None
            example = torch.zeros(3, *example.shape[1:]) if way == "dynamic" else example
            program = torch.export.export(net, (example,), dynamic_shapes=batch)
            if way == "decomposed":
                program = program.run_decompositions()
            with path.open("wb") as file:
                torch.export.save(program, file, **kwargs)  # type: ignore[arg-type]
    return path


def images_for(net: nn.Module, count: int, seed: int) -> np.ndarray:
    """Random images uint8 [count, h, w, c], or series of one column, smooth enough to have some structure."""
    c, h, w = (*net.shape, 1)[:3]  # type: ignore[misc]
    rng = np.random.default_rng(seed)
    coarse = (
        rng.uniform(0, 255, (count, -(-h // 4), -(-w // 4), c)).repeat(4, axis=1).repeat(4, axis=2)[:, :h, :w]
    )
    return np.clip(coarse + rng.normal(0, 20, (count, h, w, c)), 0, 255).astype(np.uint8)


def torch_logits(net: nn.Module, images: np.ndarray, mean: float = 0.0, std: float = 1.0) -> np.ndarray:
    """The network's own answer in double precision, float64 [N, classes]."""
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255.0
    pixels = pixels[:, :, :, 0] if len(net.shape) == 2 else pixels  # type: ignore[arg-type]
    with torch.no_grad():
        answer = net.double()((pixels - mean) / std).numpy()
    net.float()
    result: np.ndarray = answer
    return result
