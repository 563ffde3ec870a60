"""Networks that hold every op in many sizes, to fit with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lab.networks import Builder, of_open_set, with_codes
from lab.sizes.networks import OTHERS, SCHEMES, Excited, map_again, quantized, samples
from microtrain.base.paths import ROOT
from microtrain.convert.axis import Axis
from microtrain.convert.frontends.module import LoadedModel, load_model
from microtrain.convert.ops.aten.normalise import GROUP_NORM
from microtrain.convert.ops.aten.resample import HALF_PIXEL, adaptive_spans, around, averages, between, chosen
from microtrain.convert.ops.aten.transposed import spread
from microtrain.convert.ops.functions import ABSOLUTE, CURVE, EXPONENTIAL, LOGARITHM, POWER
from microtrain.convert.ops.reconstruct import closed
from microtrain.convert.ops.regression import measured as with_units
from microtrain.convert.ops.tokens import LAST
from microtrain.convert.pipeline import compile_graph

from .chains import PASSES, Named, moving, remembering, small, trained, varied

NORMS = {"groups": (3.0, 0.0), "layer": (1.0, 0.0), "instances": (12.0, 0.0), "pixels": (1.0, 1.0)}
CURVES = {POWER: (2.0, 1.0), LOGARITHM: (2.0, 1.5), EXPONENTIAL: (), ABSOLUTE: (), CURVE: (0.0,)}


def normed() -> Iterator[Named]:
    """Every kind of normalisation, of few and of many pixels."""
    for (kind, factors), size in product(NORMS.items(), (12, 24, 40)):
        b = Builder(np.random.default_rng(size), (size, size, 3))
        x = b.conv("x", 12, 3, 2, relu=False)
        x = b.depthwise(b.layer(GROUP_NORM, x, factors=(1e-5, *factors)), 1, 1)
        x = b.depthwise(b.layer(GROUP_NORM, b.conv(x, 12), factors=(1e-5, *factors)), 1, 1)
        graph = b.finish(b.conv(x, 11), 5)
        for scheme in (SCHEMES[2], SCHEMES[4]):
            compiled = trained(graph, scheme)
            assert compiled is not None
            yield f"{kind}{size}_{scheme.name.replace('+', '_')}", compiled


def groups() -> Iterator[Named]:
    """Convolutions in groups and with taps apart."""
    rng = np.random.default_rng(2)
    for number in range(12):
        size, width = int(rng.integers(6, 30)), int(rng.choice([6, 12, 24]))
        b = Builder(rng, (size, size, 3))
        x = b.conv("x", width, 3, int(rng.integers(1, 3)))
        for _ in range(2):
            own = int(rng.choice([g for g in (1, 2, 3, 6, width) if width % g == 0]))
            x = b.grouped(x, width, int(rng.choice([1, 3])), 1, groups=own, apart=int(rng.integers(1, 3)))
        graph = b.finish(x, 4)
        for scheme in (SCHEMES[3], SCHEMES[2]):
            compiled = trained(graph, scheme, PASSES[number % len(PASSES)])
            if compiled:
                yield f"groups{number}_{scheme.name}", compiled


def expanded() -> Iterator[Named]:
    """Depthwise layers in codes, of few and of many channels: their maps are small beside the first."""
    for number, (kernel, stride) in enumerate(product((3, 5, 7), (1, 2, 1, 2))):
        rng = np.random.default_rng(number)
        b = Builder(rng, (int(rng.integers(36, 49)), 48, 3))
        x = b.conv(b.conv(b.conv("x", 70, 3, 2), 12, 3, 2), (5, 12, 40, 90)[number % 4], 3, 2)
        for wider in (1, stride * stride):
            x = b.conv(b.depthwise(x, kernel, stride), wider * int(rng.choice([7, 24, 65, 80])))
        graph = with_codes(b.finish(x, 5), number)
        yield f"expanded{number}", compile_graph(graph, SCHEMES[2], 5, PASSES[number % len(PASSES)])


def gates() -> Iterator[Named]:
    """Products of two maps, and maps that are made larger, of few and of many channels and pixels."""
    for number, (c, down, across) in enumerate(product((1, 6, 24, 70), (1, 2, 3), (1, 2))):
        rng = np.random.default_rng(number)
        b = Builder(rng, (int(rng.integers(6, 30)), int(rng.integers(6, 30)), 3))
        x = b.gated(b.conv("x", 8, 3, 2), c)
        graph = b.finish(b.conv(b.larger(x, down, across), 5), 3)
        yield f"gates{number}", compile_graph(graph, SCHEMES[2], 3, PASSES[number % len(PASSES)])


def sampled() -> Iterator[Named]:
    """Maps that are sampled anew, of few and of many channels and pixels."""
    for number, (c, kind) in enumerate(product((1, 6, 24, 70), ("around", "means", "lines"))):
        rng = np.random.default_rng(number)
        sides = int(rng.integers(6, 30)), int(rng.integers(6, 30))
        b = Builder(rng, (*sides, 3))
        axes = {
            "around": [around(side, int(rng.integers(0, 4)), 2, "replicate") for side in sides],
            "means": [shares(side, int(rng.integers(2, side))) for side in sides],
            "lines": [between(side, int(rng.integers(2, 2 * side)), HALF_PIXEL) for side in sides],
        }[kind]
        graph = b.finish(b.conv(b.sampled(b.conv("x", c), *axes), 5), 3)
        yield f"sampled{number}", compile_graph(graph, SCHEMES[2], 3, PASSES[number % len(PASSES)])
    for number, (c, side) in enumerate(product((1, 4, 9, 40), (2, 3, 9))):
        b = Builder(np.random.default_rng(number), (side, side, 3))
        zeros = chosen(spread(side, 2 + number % 2), side)  # between its pixels
        graph = b.finish(b.conv(b.sampled(b.conv("x", c), zeros, zeros), 5, 3), 3)
        yield f"spread{number}", compile_graph(graph, SCHEMES[2], 3, PASSES[number % len(PASSES)])


def multiplied() -> Iterator[Named]:
    """Factors and terms of int8 files, and factors for each number, of few and of many channels."""
    for number, (c, with_term) in enumerate(product((1, 6, 24, 70), (False, True))):
        rng = np.random.default_rng(number)
        b = Builder(rng, (int(rng.integers(6, 30)), int(rng.integers(6, 30)), 3))
        graph = b.finish(b.conv(b.mul_add(b.conv("x", c), with_term), 5), 3)
        yield f"multiplied{number}", compile_graph(graph, SCHEMES[2], 3, PASSES[number % len(PASSES)])
        b = Builder(rng, (int(rng.integers(6, 30)), int(rng.integers(6, 30)), 3))
        graph = b.finish(b.conv(b.scaled(b.conv("x", c)), 5), 3)
        yield f"scaled{number}", compile_graph(graph, SCHEMES[2], 3, PASSES[number % len(PASSES)])


def spatial() -> Iterator[Named]:
    """Attention to pixels, of few and of many."""
    for number, (c, stride) in enumerate(product((2, 7, 24, 70, 130), (1, 2))):
        rng = np.random.default_rng(number)
        b = Builder(rng, (int(rng.integers(6, 30)), int(rng.integers(6, 30)), 3))
        graph = b.finish(b.conv(b.attended_to(b.conv("x", c, 3, stride)), 5), 3)
        yield f"attention{number}", compile_graph(graph, SCHEMES[2], 3, PASSES[number % len(PASSES)])


def bottlenecks() -> Iterator[Named]:
    """Vectors that become maps, of few and of many channels and pixels, with masks and without."""
    for number, (c, side) in enumerate(product((1, 4, 9, 40), (2, 5, 9))):
        b = Builder(np.random.default_rng(number), (side, side, 3))
        x = b.conv(b.pool("avgpool", b.conv("x", 6), side, 1), c * side * side, relu=number % 2 > 0)
        made = b.map_of(x, (side, side, c))
        if number % 3 == 2:  # read twice, so that one of them is a copy
            made = b.add(made, b.map_of(x, (side, side, c)))
        graph = b.finish(b.conv(made, 5, 3), 3)
        yield f"bottleneck{number}", compile_graph(graph, SCHEMES[2], 3, PASSES[number % len(PASSES)])


def shares(inputs: int, outputs: int) -> Axis:
    """Means of windows of different sizes."""
    spans = adaptive_spans(inputs, outputs)
    return averages(spans, [len(span) for span in spans], inputs)


def attended() -> Iterator[Named]:
    """Attention of few and of many tokens, to all of them or to some, with and without tokens in front."""
    for number in range(16):
        rng = np.random.default_rng(number)
        size, heads, features = (
            int(rng.choice([4, 8, 16, 24, 32])),
            int(rng.integers(1, 5)),
            4 * number % 19 + 1,
        )
        b = Builder(rng, (size, size, 3))
        x = b.conv("x", int(rng.choice([3, 8, 12])), 3, 2)
        c = b.tensors[x].channels
        lead, steps = (0, (2, 2)) if number % 3 == 0 else (number % 3 - 1, (1, 1))
        tokens = b.position(x, lead)
        parts = b.conv(tokens, 3 * features * heads, relu=False)
        y = b.attention(parts, heads, *steps)
        x = b.add(b.conv(y, c, relu=False), tokens)
        compiled = trained(b.finish(b.conv(x, 8), 4), SCHEMES[2 + number % 3], PASSES[number % len(PASSES)])
        if compiled:
            yield f"attended{number}", compiled
    for number, (side, heads, features) in enumerate(product((2, 3), (1, 3), (1, 2))):  # next to nothing
        b = Builder(np.random.default_rng(number), (side, 4, 3))
        parts = b.conv(b.conv("x", 9), 3 * features * heads, relu=False)
        graph = b.finish(b.conv(b.attention(parts, heads), 5), 4)
        compiled = trained(graph, SCHEMES[2 + number % 3], PASSES[number % len(PASSES)])
        if compiled:
            yield f"attended_little{number}", compiled


def over_time() -> Iterator[Named]:
    """Recurrent cells of few and of many units, as steps of their own and row by row."""
    for number, op in product(range(6), (*LAST, *LAST.values())):
        rng = np.random.default_rng(number)
        rows, features, units = (int(rng.choice(sizes)) for sizes in ((3, 9, 20), (1, 6, 17), (1, 5, 16, 24)))
        b = Builder(rng, (rows, features, 1))
        x = b.recurrent(b.conv("x", int(rng.integers(1, 5))), op, units)
        graph = b.finish(b.conv(x, 5), 3)
        yield f"{op}{number}", compile_graph(graph, SCHEMES[0], 3, PASSES[1 if number % 3 else 0])


def everything(folder: Path) -> Iterator[Named]:
    """Those whose code lab/sizes measures: every op there is."""
    for number, compiled in enumerate(samples(ROOT, folder)):
        yield f"all{number}", compiled


class Activated(nn.Module):
    """Every activation between two convolutions, and channels that are scaled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 1)
        self.acts = nn.ModuleList([nn.ReLU6(), nn.Hardswish(), nn.Hardsigmoid(), nn.LeakyReLU(0.1), *OTHERS])
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 1) for _ in self.acts)
        self.excited, self.head = Excited(channels), nn.Linear(channels, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.excited(self.stem(x))
        for act, conv in zip(self.acts, self.convs, strict=True):
            x = conv(act(x))
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


def activated(folder: Path) -> Iterator[Named]:
    """Activations as steps of their own, of few and of many values."""
    for channels, size in ((1, 6), (3, 30), (12, 5), (40, 9), (16, 24)):
        torch.manual_seed(channels)
        network, example = Activated(channels).eval(), torch.zeros(1, 3, size, size)
        images = np.random.default_rng(0).integers(0, 256, (4, size, size, 3)).astype(np.uint8)
        graph = quantized(exported(network, example, folder / f"activated{channels}.pt2"), images)
        compiled = trained(graph, SCHEMES[3], PASSES[1])
        assert compiled is not None
        yield f"activated{channels}", compiled


def exported(network: nn.Module, example: torch.Tensor, path: Path) -> LoadedModel:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.export.save(torch.export.export(network, (example,)), path)
    return load_model(path)


def closed_again(folder: Path) -> Iterator[Named]:
    """Autoencoders, and the losses of few and of many outputs."""
    for numbers in (4, 60, 240):
        layers = nn.Sequential(nn.Flatten(), nn.Linear(numbers, 16), nn.ReLU(), nn.Linear(16, numbers)).eval()
        loaded = exported(layers, torch.zeros(1, 1, 1, numbers), folder / f"closed{numbers}.pt2")
        images = np.random.default_rng(0).integers(0, 256, (16, 1, numbers, 1)).astype(np.uint8)
        graph = quantized(replace(loaded, graph=closed(loaded.graph)), images)
        yield f"closed{numbers}", compile_graph(graph, SCHEMES[2], 2)
    for side, channels in ((4, 1), (6, 3), (12, 1), (12, 4), (20, 2)):
        yield (
            f"closed{side}x{side}x{channels}",
            compile_graph(map_again(folder, side, channels), SCHEMES[2], 2),
        )
    for classes, loss in product((2, 30, 120), ("mse", "huber", "squares", "labels")):
        b = Builder(np.random.default_rng(classes), (9, 9, 3))
        graph = b.finish(b.conv("x", 7, 3, 2), classes)
        spread = np.random.default_rng(0).normal(0, 1, (8, classes))
        own = with_units(graph, spread) if loss in ("huber", "squares") else graph
        yield f"{loss}{classes}", compile_graph(own, replace(SCHEMES[2], loss=loss), classes)


def open_sets() -> Iterator[Named]:
    """Prototypes of few and of many classes and values."""
    for number, (classes, c, side) in enumerate(product((2, 5, 30), (3, 20, 90), (1, 4))):
        b = Builder(np.random.default_rng(number), (9, 9, 3))
        x = b.conv("x", c, 3, 2)
        graph = b.finish(x if side > 1 else b.pool("avgpool", x, b.tensors[x].shape[0], 1), classes)
        yield f"open{number}", compile_graph(of_open_set(graph, number), SCHEMES[2], classes)


def large() -> Iterator[Named]:
    """Inverted bottlenecks as wide as those of MobileNetV2."""
    for seed, scheme in enumerate((SCHEMES[2], SCHEMES[4])):
        rng = np.random.default_rng(seed)
        b = Builder(rng, (96, 96, 3))
        x = b.conv("x", 16, 3, 2)
        for width, kernel, stride in (
            (16, 3, 2),
            (24, 5, 2),
            (24, 7, 1),
            (48, 5, 2),
            (96, 3, 1),
            (160, 7, 2),
        ):
            y = b.depthwise(b.conv(x, int(rng.integers(3, 6)) * b.tensors[x].channels), kernel, stride)
            y = b.conv(y, width, relu=False)
            x = b.add(x, y) if b.tensors[x].shape == b.tensors[y].shape else y
        compiled = trained(
            b.finish(b.conv(x, 256), 10), replace(scheme, weights={-1: 0.5, -3: 1.0}, biases=9)
        )
        assert compiled is not None
        yield f"large{seed}", compiled


def wide() -> Iterator[Named]:
    """Long rows, which a begin takes in."""
    for number, (width, channels) in enumerate(((120, 1), (160, 3), (250, 2), (320, 3), (500, 1), (480, 3))):
        b = Builder(np.random.default_rng(number), (4, width, channels))
        graph = b.finish(b.conv("x", 4, 3, 2), 3)
        yield f"wide{number}", compile_graph(graph, SCHEMES[2], 3, PASSES[number % len(PASSES)])


def vectors() -> Iterator[Named]:
    """Layers of many channels at one pixel, or at too few to fill a tile."""
    for number, (pixels, scheme) in enumerate(product((1, 2, 3, 5), SCHEMES[2:])):
        rng = np.random.default_rng(number)
        b = Builder(rng, (1, pixels, int(rng.choice([40, 90, 250]))))
        x = "x"
        for channels in rng.choice([7, 24, 64, 128, 200, 256], 5):
            x = b.conv(x, int(channels), relu=bool(rng.random() < 0.7))
        x = b.add(b.conv(x, b.tensors[x].channels), x)
        compiled = trained(b.finish(x, 3 + number), scheme, PASSES[number % len(PASSES)])
        if compiled:
            yield f"vectors{number}", compiled


def curves() -> Iterator[Named]:
    """Powers and their kin by table, of few and of many pixels and channels."""
    for number, ((op, factors), size) in enumerate(product(CURVES.items(), (8, 16, 30))):
        b = Builder(np.random.default_rng(number), (size, size, 3))
        x = b.layer(op, b.conv("x", (6, 12, 40)[number % 3], 3, 2, relu=False), factors=factors)
        x = b.layer(op, b.conv(x, 12, relu=False), factors=factors)
        graph = b.finish(b.conv(x, 11), 5)
        for scheme in (SCHEMES[2], SCHEMES[4]):
            compiled = trained(graph, scheme)
            assert compiled is not None
            yield f"{op}{size}_{scheme.name.replace('+', '_')}", compiled


def strided() -> Iterator[Named]:
    """Strided convolutions of many channels, all of which learn."""
    for number, (size, stride, kernel) in enumerate(product((8, 15, 24), (1, 2), (1, 3))):
        b = Builder(np.random.default_rng(number), (size, size, 3))
        x = b.conv("x", 32, 3)
        x = b.conv(b.conv(x, 48, kernel, stride), 64, kernel, stride)
        yield f"strided{number}", compile_graph(b.finish(x, 4), SCHEMES[3 + number // 2 % 2], 4)


# The longest to convert first.
SOURCES: dict[str, Callable[[Path], Iterator[Named]]] = {
    "everything": everything,
    "varied": lambda _: varied(range(48)),
    "moving": lambda _: moving(range(100, 118)),
    "remembering": lambda _: remembering(range(200, 216)),
    "normed": lambda _: normed(),
    "groups": lambda _: groups(),
    "expanded": lambda _: expanded(),
    "gates": lambda _: gates(),
    "multiplied": lambda _: multiplied(),
    "sampled": lambda _: (each for made in (sampled(), spatial()) for each in made),
    "bottlenecks": lambda _: bottlenecks(),
    "small": lambda _: small(),
    "attended": lambda _: attended(),
    "over_time": lambda _: over_time(),
    "activated": activated,
    "closed_again": closed_again,
    "open_sets": lambda folder: open_sets(),
    "wide": lambda _: wide(),
    "vectors": lambda _: vectors(),
    "strided": lambda _: strided(),
    "curves": lambda _: curves(),
    "large": lambda _: large(),
}
