"""Networks and schemes whose generated code holds every op, in various numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lab.networks import Builder, of_open_set, with_codes
from microtrain.base.plan import TFLITE
from microtrain.base.sound import parse
from microtrain.convert.emit import tables
from microtrain.convert.frontends.module import LoadedModel, load_model
from microtrain.convert.ir import Graph
from microtrain.convert.memory.replay import Request
from microtrain.convert.ops import hop
from microtrain.convert.ops.reconstruct import closed
from microtrain.convert.ops.recurrent import INTEGER_LSTM, LAST
from microtrain.convert.ops.regression import measured as with_units
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.quantize.ptq import Choices, calibration_images, quantize_model
from microtrain.convert.recording import with_buffer
from microtrain.convert.scheme import ALL, Scheme

EXAMPLE = Path("examples/digits/model.pt")
CLASSES = 10
SOUND = "log-mel:rate=8000,frame=128,hop=64,bands=20"
RECORDS = 20
GROUP = 16  # of features with statistics
HOP = 4  # rows by which windows move
SIDE = 24
WHOLE = Passes(fused=False, arriving=False)
KEPT = Passes(arriving=False)
SCHEMES = (
    Scheme("head-only"),
    Scheme("biases-4", biases=4),
    Scheme("biases", biases=-1),
    Scheme("full", biases=-1, weights={ALL: 1.0}),
    Scheme("full+4b", biases=-1, weights={ALL: 1.0}, fraction_bits=4),
    Scheme("part", biases=-1, weights={ALL: 0.5}, fraction_bits=4),
)


class Curve(nn.Module):
    """A function of each number that PyTorch has no module for."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = getattr(torch, self.name)(x)
        return result


OTHERS = (
    *(
        nn.Sigmoid(),
        nn.Tanh(),
        nn.SiLU(),
        nn.GELU(),
        nn.Mish(),
        nn.Softplus(),
        nn.ELU(),
        nn.SELU(),
        nn.CELU(),
        *(Curve(name) for name in ("atan", "square", "log1p", "exp", "abs")),
    ),
    nn.Hardtanh(-0.5, 0.7),
)
NUMBERS = 24  # that an autoencoder makes again


class Excited(nn.Module):
    """Squeeze-and-excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factor = self.up(torch.relu(self.down(x.mean((2, 3), keepdim=True))))
        return x * nn.functional.hardsigmoid(factor)


class Block(nn.Module):
    """Pointwise, depthwise, pointwise, with an activation of choice and a residual add."""

    def __init__(self, channels: int, act: nn.Module, excited: bool) -> None:
        super().__init__()
        wide = 2 * channels
        self.layers = nn.Sequential(
            *(nn.Conv2d(channels, wide, 1), act, nn.Conv2d(wide, wide, 3, 1, 1, groups=wide), act),
            *([Excited(wide)] if excited else []),
            nn.Conv2d(wide, channels, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.layers(x)
        return result


class Gated(nn.Module):
    """A gated linear unit."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.both = nn.Conv2d(channels, 2 * channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = nn.functional.glu(self.both(x), 1)
        return result


class Shuffled(nn.Module):
    """Half of the channels passed on, half worked on, and all of them shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.work = nn.Sequential(nn.Conv2d(channels // 2, channels // 2, 1), nn.ReLU())
        self.shuffle = nn.ChannelShuffle(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, worked = x.chunk(2, dim=1)
        result: torch.Tensor = self.shuffle(torch.cat((kept, self.work(worked)), dim=1))
        return result


class Everything(nn.Module):
    """A stem, both poolings, blocks of every kind, a hidden linear layer and a head."""

    def __init__(self, blocks: int, excited: bool, shuffled: int) -> None:
        super().__init__()
        acts = (nn.ReLU6(), nn.Hardswish(), nn.LeakyReLU(0.1), *OTHERS)
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2)),
            *(Block(8, acts[k % len(acts)], excited and k % 2 == 0) for k in range(blocks)),
            *(Shuffled(8) for _ in range(shuffled)),
            *(nn.Flatten(), nn.Linear(8 * (SIDE // 8) ** 2, 16), nn.ReLU(), nn.Linear(16, CLASSES)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


def example(root: Path) -> Graph:
    loaded = load_model(root / EXAMPLE)
    return quantized(loaded, calibration_images(loaded.graph, loaded.calibration, None))


def quantized(loaded: LoadedModel, images: np.ndarray) -> Graph:
    return quantize_model(loaded.graph, images, Choices())


def everything(blocks: int, excited: bool, folder: Path, shuffled: int = 0) -> Graph:
    torch.manual_seed(blocks)
    path = folder / f"everything{blocks}{'x' if excited else ''}.pt2"
    folder.mkdir(parents=True, exist_ok=True)
    network = Everything(blocks, excited, shuffled).eval()
    torch.export.save(torch.export.export(network, (torch.zeros(1, 3, SIDE, SIDE),)), path)
    images = np.random.default_rng(0).integers(0, 256, (4, SIDE, SIDE, 3)).astype(np.uint8)
    return quantized(load_model(path), images)


def samples(root: Path, folder: Path) -> Iterator[Compiled]:
    """Models to fit with."""
    graphs = [example(root), *(everything(b, x, folder) for b, x in ((2, False), (3, True), (6, True)))]
    for graph in graphs:
        narrow = min(layer.columns for layer in graph.layers.values())
        for scheme in SCHEMES[:-1] if narrow < 2 else SCHEMES:  # half of one channel is none
            yield compile_graph(graph, scheme, CLASSES)
        for passes in (WHOLE, KEPT):
            yield compile_graph(graph, SCHEMES[1], CLASSES, passes)
        yield compile_graph(graph, replace(SCHEMES[3], loss="mse"), CLASSES)
    with_all = [everything(3 + len(OTHERS), False, folder), everything(1, False, folder, shuffled=7)]
    for graph, scheme in product(with_all, (SCHEMES[0], SCHEMES[2], SCHEMES[3])):
        yield compile_graph(graph, scheme, CLASSES)
    for scheme in (SCHEMES[0], *SCHEMES[2:5]):
        yield compile_graph(in_groups(folder), scheme, CLASSES)
        yield compile_graph(normed(folder), scheme, CLASSES)
        yield compile_graph(attending(folder), scheme, CLASSES)
        yield compile_graph(multiplied(), scheme, CLASSES)
    for cell in (nn.GRU, nn.LSTM):
        yield from over_time(cell, folder)
    for op, passes in product((INTEGER_LSTM, LAST[INTEGER_LSTM]), (Passes(), WHOLE)):
        yield compile_graph(in_whole_numbers(op), SCHEMES[0], CLASSES, passes)
    for scheme in SCHEMES[:3]:
        yield compile_graph(with_codes(graphs[2]), scheme, CLASSES)
    yield from with_targets(graphs[0])
    for scheme in SCHEMES[:3]:
        yield compile_graph(of_open_set(graphs[0]), scheme, CLASSES)
    again = (autoencoder(folder), map_again(folder), narrow_again(folder))
    for normal, scheme in product(again, (SCHEMES[2], SCHEMES[3], SCHEMES[4])):
        yield compile_graph(normal, scheme, 2)


def outside(graph: Graph) -> Compiled:
    """Weights in flash beside the chip."""
    compiled = compile_graph(graph, SCHEMES[0], CLASSES)
    return replace(
        compiled, graph=compiled.graph.replace(outside=tuple(tables.movable_bytes(compiled.graph))[:1])
    )


def in_groups(folder: Path) -> Graph:
    """Convolutions in groups, and with taps apart."""
    path = folder / "groups.pt2"
    middle = (nn.Conv2d(8, 8, 3, 1, 2, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1, groups=2), nn.ReLU())
    layers = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), *middle, nn.Flatten(), nn.Linear(576, CLASSES))
    torch.export.save(torch.export.export(layers.eval(), (torch.zeros(1, 3, SIDE, SIDE),)), path)
    images = np.random.default_rng(0).integers(0, 256, (4, SIDE, SIDE, 3)).astype(np.uint8)
    return quantized(load_model(path), images)


class Attentive(nn.Module):
    """Attention to pixels, by their mean and their maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        said = torch.cat((x.mean(1, keepdim=True), x.amax(1, keepdim=True)), 1)
        result: torch.Tensor = x * nn.Sigmoid()(self.gate(said))
        return result


def normed(folder: Path) -> Graph:
    """Group norms, gates, and maps that are made larger."""
    path = folder / "normed.pt2"
    middle = (nn.GroupNorm(4, 8), Gated(8), nn.Conv2d(8, 16, 3, 2), nn.InstanceNorm2d(16), nn.ReLU())
    larger = (nn.Upsample(scale_factor=2), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(3), Attentive())
    again = (nn.Upsample(size=5, mode="bilinear"), nn.Flatten())
    layers = nn.Sequential(nn.Conv2d(3, 8, 3, 2), *middle, *larger, *again, nn.Linear(400, CLASSES))
    torch.export.save(torch.export.export(layers.eval(), (torch.zeros(1, 3, SIDE, SIDE),)), path)
    images = np.random.default_rng(0).integers(0, 256, (4, SIDE, SIDE, 3)).astype(np.uint8)
    return quantized(load_model(path), images)


def multiplied() -> Graph:
    """Factors and terms a channel as an int8 TFLite file has them, with errors behind and before them, and
    factors for each number."""
    b = Builder(np.random.default_rng(0), (SIDE, SIDE, 3))
    x = b.mul_add(b.scaled(b.conv("x", 8, 3, 2)))
    return b.finish(b.conv(b.mul_add(b.conv(x, 12, 3, 2), with_term=False), 8), CLASSES)


class Attending(nn.Module):
    """A class token, positions and a layer of an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 8, 6, 6), nn.Parameter(torch.ones(1, 1, 8))
        self.positions = nn.Parameter(torch.randn(1, (SIDE // 6) ** 2 + 1, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, nn.GELU(), batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.token, self.patches(x).flatten(2).transpose(1, 2)], 1)
        result: torch.Tensor = self.head(self.layer(x + self.positions)[:, 0])
        return result


def attending(folder: Path) -> Graph:
    path = folder / "attending.pt2"
    torch.export.save(torch.export.export(Attending().eval(), (torch.zeros(1, 3, SIDE, SIDE),)), path)
    images = np.random.default_rng(0).integers(0, 256, (4, SIDE, SIDE, 3)).astype(np.uint8)
    return quantized(load_model(path), images)


class OverTime(nn.Module):
    """A recurrent layer, of which all rows are read, or the last."""

    def __init__(self, cell: Callable[..., nn.RNNBase], last: bool) -> None:
        super().__init__()
        self.cell, self.head, self.last = cell(SIDE, 8, batch_first=True), nn.Linear(8, CLASSES), last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.cell(x)[0]
        result: torch.Tensor = self.head(made[:, -1] if self.last else made.mean(1))
        return result


def over_time(cell: Callable[..., nn.RNNBase], folder: Path) -> Iterator[Compiled]:
    """Row by row as they come, and over a window that is whole in memory."""
    path, images = folder / "over_time.pt2", np.random.default_rng(0).integers(0, 256, (4, SIDE, 1, SIDE))
    for last in (False, True):
        network = OverTime(cell, last).eval()
        torch.export.save(torch.export.export(network, (torch.zeros(1, SIDE, SIDE),)), path)
        graph = quantized(load_model(path), images.astype(np.uint8))
        for passes in (Passes(), WHOLE):
            yield compile_graph(graph, SCHEMES[0], CLASSES, passes)


def in_whole_numbers(op: str) -> Graph:
    """A cell of an int8 TFLite file."""
    b = Builder(np.random.default_rng(0), (SIDE, SIDE, 1))
    return b.finish(b.recurrent("x", op, 8), CLASSES)


def with_targets(graph: Graph) -> Iterator[Compiled]:
    """The losses that learn from targets."""
    spread = np.random.default_rng(0).normal(0, 1, (8, graph.tensors[graph.output].channels))
    for loss in ("huber", "squares", "labels"):
        own = graph if loss == "labels" else with_units(graph, spread)
        yield compile_graph(own, replace(SCHEMES[1], loss=loss), CLASSES)


def autoencoder(folder: Path) -> Graph:
    """A network for anomaly detection."""
    path = folder / "autoencoder.pt2"
    layers = nn.Sequential(nn.Flatten(), nn.Linear(NUMBERS, 16), nn.ReLU(), nn.Linear(16, NUMBERS)).eval()
    torch.export.save(torch.export.export(layers, (torch.zeros(1, 1, 1, NUMBERS),)), path)
    images = np.random.default_rng(0).integers(0, 256, (16, 1, NUMBERS, 1)).astype(np.uint8)
    loaded = load_model(path)
    return quantized(replace(loaded, graph=closed(loaded.graph)), images)


def map_again(folder: Path, side: int = SIDE, channels: int = 3) -> Graph:
    """An autoencoder of images, up by a transposed convolution."""
    path = folder / f"map{side}x{channels}.pt2"
    down, up = nn.Conv2d(channels, 5, 3, 2, 1), nn.ConvTranspose2d(5, channels, 2, 2)
    layers = nn.Sequential(down, nn.ReLU(), up).eval()
    torch.export.save(torch.export.export(layers, (torch.zeros(1, channels, side, side),)), path)
    images = np.random.default_rng(0).integers(0, 256, (16, side, side, channels)).astype(np.uint8)
    loaded = load_model(path)
    return quantized(replace(loaded, graph=closed(loaded.graph)), images)


def narrow_again(folder: Path) -> Graph:
    """An autoencoder of images with a vector in its middle."""
    path, side = folder / "narrow.pt2", SIDE // 4
    down = (nn.Conv2d(1, 4, 5, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * side * side, 6))
    up = (nn.Linear(6, 4 * side * side), nn.ReLU(), nn.Unflatten(1, (4, side, side)))
    layers = nn.Sequential(*down, *up, nn.ConvTranspose2d(4, 1, 4, 4)).eval()
    torch.export.save(torch.export.export(layers, (torch.zeros(1, 1, SIDE, SIDE),)), path)
    images = np.random.default_rng(0).integers(0, 256, (16, SIDE, SIDE, 1)).astype(np.uint8)
    loaded = load_model(path)
    return quantized(replace(loaded, graph=closed(loaded.graph)), images)


def replayed(graph: Graph, part: int = 1) -> Compiled:
    """With a replay buffer. part: how many values of a record share a byte"""
    request = Request(records=RECORDS, parts=(part,))
    compiled = compile_graph(graph, SCHEMES[1], CLASSES, Passes(replay=request))
    images = np.random.default_rng(0).integers(0, 256, (64, *graph.tensors[graph.input.tensor].shape))
    return with_buffer(compiled, request, None, images.astype(np.uint8))


def hearing(folder: Path, front: str = SOUND) -> Compiled:
    """With the front end for sound."""
    path, sound = folder / "hearing.pt2", parse(front)
    layers = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(288, CLASSES)).eval()
    torch.export.save(torch.export.export(layers, (torch.zeros(1, 1, 10, 20),)), path)
    images = np.random.default_rng(0).integers(0, 256, (16, 10, 20, 1)).astype(np.uint8)
    return compile_graph(quantized(load_model(path), images).replace(sound=sound), SCHEMES[0], CLASSES)


def moving(graph: Graph, passes: Passes) -> Compiled:
    """With windows that overlap."""
    return compile_graph(hop.checked(graph, HOP), SCHEMES[1], CLASSES, passes)


def imprinting(graph: Graph) -> Compiled:
    """With statistics of features."""
    return compile_graph(graph, SCHEMES[1], CLASSES, Passes(imprint=GROUP))


def rounding_twice(graph: Graph) -> Compiled:
    """With sums that are rounded as TensorFlow Lite does it."""
    return compile_graph(graph.replace(requantize=TFLITE), SCHEMES[1], CLASSES)


def sharing(graph: Graph) -> Compiled:
    """With updates of a fleet that the board makes itself."""
    return compile_graph(graph, SCHEMES[1], CLASSES, Passes(fleet=0.1))
