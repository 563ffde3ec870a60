"""What the layers make of every image before any training, at every bottleneck: a file mapped into memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from microtrain.base.files import replacing
from microtrain.convert.pipeline import Passes
from microtrain.convert.scheme import ALL, Scheme
from microtrain.device.session import Show
from microtrain.native.model import Model

from .build import compile_here, convert
from .engine import Engine
from .lab import Lab

EVERYTHING = Scheme("everything", -1, {ALL: 1.0})  # keeps the input of every layer for its gradient
WHOLE = Passes(in_place=False, fused=False)
CHUNK = 64  # views that a process computes in one go


def fill(lab: Lab, engine: Engine) -> Iterator[tuple[int, int]]:
    """Compute the features where they are missing; yields (views done, of how many)."""
    if lab.features.is_file():
        return
    compiled = convert(lab.graph, EVERYTHING, lab.classes, WHOLE)
    blueprint, library = compile_here(compiled, lab)
    offsets = {t: compiled.plan.placements[t].offset for t in lab.places}
    count, done = len(lab.views), 0
    chunks = [range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
    with replacing(lab.features) as part:
        with part.open("wb") as file:
            file.truncate(count * lab.width)
        for views in engine.each(partial(fill_chunk, lab, part, blueprint.folder, library, offsets), chunks):
            done += views
            yield done, count


def fill_chunk(
    lab: Lab, path: Path, folder: Path, library: Path, offsets: dict[str, int], rows: range
) -> int:
    """The features of some views; returns how many. offsets: of the bottlenecks in the arena."""
    model, table = Model(folder, library), mapped(lab, path, "r+")
    for row in rows:
        model.forward(lab.stored(lab.views[row]), train=True)
        for tensor, (at, size) in lab.places.items():
            table[row, at : at + size] = np.frombuffer(model.arena(offsets[tensor], size), np.int8)
    return len(rows)


def mapped(lab: Lab, path: Path, mode: str) -> np.ndarray:
    """int8 [views][width]"""
    shape = (len(lab.views), lab.width)
    result: np.ndarray = np.memmap(path, np.int8, mode, shape=shape)  # type: ignore[call-overload]
    return result


def shown(lab: Lab, tensor: str) -> Show:
    """Samples as the network behind a bottleneck takes them, int8 [h][w][c]."""
    table, (at, size) = mapped(lab, lab.features, "r"), lab.places[tensor]
    rows = {view: row for row, view in enumerate(lab.views)}
    shape = lab.graph.tensors[tensor].shape
    return lambda sample, epoch: table[rows[lab.view(sample, epoch)], at : at + size].reshape(shape)
