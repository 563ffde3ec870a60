"""What weights in fewer bits cost of the published networks' own accuracy, judged on other images than they
were chosen on: each of two parts of ImageNet's images by a model that was made without it.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from lab.golden.data import SIDE, Data
from microtrain.base.npz import read_npz
from microtrain.convert.execute.batched import batches, run_int8
from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.convert.ir import Graph
from microtrain.samples.source import evenly

PARTS = 2
SETS, PHOTOS = ("textures10_144", "clothing10_144"), 1000  # from each
SHOWN = 128  # what a pixel 0 is stored as, negative


def photos(data: Data, folder: Path) -> Path:
    """An .npz of photographs of things that are no classes of ImageNet, evenly spaced in each set."""
    return _kept(folder / "photos.npz", lambda: _others(data))


def photos_without(data: Data, folder: Path, part: int) -> Path:
    """An .npz of the same and of ImageNet's images without those of a part, to choose weights on. Their order
    is drawn, as `convert` holds back every fourth."""

    def made() -> np.ndarray:
        pixels, _ = _labelled(data)
        images = np.concatenate([pixels[~_judged(part, len(pixels))], _others(data)])
        return images[np.random.default_rng(0).permutation(len(images))]

    return _kept(folder / f"photos-{part}.npz", made)


def _kept(path: Path, make: Callable[[], np.ndarray]) -> Path:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, images=make())
    return path


def _others(data: Data) -> np.ndarray:
    return np.concatenate([_photos(data.folder / f"sets/{name}.tar") for name in SETS])


def _judged(part: int, count: int) -> np.ndarray:
    chosen: np.ndarray = np.arange(count) % PARTS == part
    return chosen


def _labelled(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """ImageNet's images, uint8 [N, SIDE, SIDE, 3], and their classes."""
    stored, classes = zip(*data.imagenet(), strict=True)
    return (np.stack(stored).astype(np.int16) + SHOWN).astype(np.uint8), np.array(classes)


def _photos(path: Path) -> np.ndarray:
    with tarfile.open(path) as archive:
        names = sorted(member.name for member in archive if member.name.endswith(".jpg"))
        files = [archive.extractfile(name) for name in evenly(names, PHOTOS)]
        images = [
            Image.open(file).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
            for file in files
            if file
        ]
    return np.stack([np.asarray(image) for image in images])


def top1(data: Data, network: str, generated: Sequence[Path]) -> float:
    """Share of ImageNet's images that a network answers rightly with the layers of generated models: those of
    each part with the model for which photos_without() left it out."""
    images, classes = _labelled(data)
    right = np.zeros(len(images), bool)
    for part, folder in enumerate(generated):
        graph = _with_layers(read_checkpoint(data.checkpoint(network)), folder)
        judged = _judged(part, len(images))
        answers = [run_int8(graph, batch).argmax(axis=1) for batch in batches(graph, images[judged], "top-1")]
        right[judged] = np.concatenate(answers) == classes[judged]
    return float(right.mean())


def _with_layers(graph: Graph, generated: Path) -> Graph:
    arrays = read_npz(generated / "model.npz")
    layers = {
        name: replace(
            layer,
            weight=arrays[f"{name}/weight"],
            bias=arrays[f"{name}/bias"],
            weight_scale=arrays[f"{name}/scale"],
        )
        for name, layer in graph.layers.items()
        if layer.weight_scale is not None
    }
    return graph.replace(layers={**graph.layers, **layers})
