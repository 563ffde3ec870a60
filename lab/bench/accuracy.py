"""What weights in fewer bits cost of the published networks' own accuracy, judged on other images than they
were chosen on."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from lab.golden.data import SIDE, Data
from microtrain.base.npz import read_npz
from microtrain.convert.execute.batched import batches, run_int8
from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.samples.source import evenly

SETS, PHOTOS = ("textures10_144", "clothing10_144"), 1000  # from each
SHOWN = 128  # what a pixel 0 is stored as, negative


def photos(data: Data, folder: Path) -> Path:
    """An .npz of photographs of things that are no classes of ImageNet, evenly spaced in each set."""
    path = folder / "photos.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(path, images=np.concatenate([_photos(data.folder / f"sets/{name}.tar") for name in SETS]))
    return path


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


def top1(data: Data, network: str, generated: Path) -> float:
    """Share of ImageNet's images that a network answers rightly with the layers of a generated model."""
    graph = read_checkpoint(data.checkpoint(network))
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
    graph = graph.replace(layers={**graph.layers, **layers})
    stored, labels = zip(*data.imagenet(), strict=True)
    images = (np.stack(stored).astype(np.int16) + SHOWN).astype(np.uint8)
    answers = [run_int8(graph, batch).argmax(axis=1) for batch in batches(graph, images, "top-1")]
    return float((np.concatenate(answers) == np.array(labels)).mean())
