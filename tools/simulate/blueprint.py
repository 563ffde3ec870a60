"""What a simulation needs of plan.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.device.errors import DeviceError
from microtrain.device.plan import read_plan
from microtrain.native.model import Regions


@dataclass(frozen=True)
class Blueprint:
    """A generated model, as its plan.json describes it.

    folder   where model.c, model.h and model_weights.c lie
    scheme   as it was resolved
    shape    (height, width, channels) of an image
    gain     stored = sat8(rint(pixel * gain + offset)), by channel; offset likewise
    rates    learning rates of weights, biases and head
    front    forward steps that use nothing trained
    regions  bytes of the arena that are alive behind these: what is recorded of an image
    kept     tensor -> where it begins in the record, and its shape
    memory   bytes of SRAM: arena and trainables
    records  of the replay buffer; 0: none
    """

    folder: Path
    name: str
    model_id: str
    scheme: dict[str, Any]
    shape: tuple[int, int, int]
    classes: int
    gain: tuple[float, ...]
    offset: tuple[float, ...]
    rates: tuple[float, float, float]
    front: int
    regions: Regions
    kept: dict[str, tuple[int, tuple[int, ...]]]
    memory: dict[str, int]
    records: int

    def stored(self, pixels: np.ndarray) -> np.ndarray:
        """uint8 [h][w][c] as the model takes it, int8; all arithmetic is float32, as on the device."""
        return stored(pixels, self.gain, self.offset)


def stored(pixels: np.ndarray, gain: Sequence[float], offset: Sequence[float]) -> np.ndarray:
    """sat8(rint(pixel * gain + offset)) by channel, in float32 as on the device; [h][w][c]"""
    values = pixels.astype(np.float32) * np.array(gain, np.float32) + np.array(offset, np.float32)
    return np.rint(np.clip(values, -128.0, 127.0)).astype(np.int8)


def load_blueprint(path: Path) -> Blueprint:
    """Read the plan of a generated folder, or the plan.json itself.

    Errors   DeviceError where it is missing, of another format, or older than this program
    """
    file = path if path.suffix == ".json" else path / "plan.json"
    return read_plan(file, parse, "`python tools/convert MODEL.pt -o FOLDER` writes it.")


def parse(file: Path, document: dict[str, Any]) -> Blueprint:
    if "front" not in document:
        raise DeviceError(f"{file} was written by another version of tools/convert: convert again.")
    h, w, c = document["input"]["shape"]
    rates = document["scheme"]["learning_rate"]
    regions = alive(document["tensors"], document["front"])
    return Blueprint(
        folder=file.parent,
        name=document["name"],
        model_id=document["model_id"],
        scheme=document["scheme"],
        shape=(h, w, c),
        classes=document["classes"],
        gain=tuple(document["input"]["gain"]),
        offset=tuple(document["input"]["offset"]),
        rates=(rates["weight"], rates["bias"], rates["head"]),
        front=document["front"],
        regions=regions,
        kept=placed(document["tensors"], regions),
        memory=document["sram"],
        records=document["replay"]["records"] if "replay" in document else 0,
    )


def alive(tensors: list[dict[str, Any]], step: int) -> Regions:
    """(offset, bytes) of what was made before a step and is used from it on, neighbours joined."""
    joined: list[tuple[int, int]] = []
    kept = [t for t in tensors if t["birth"] < step <= t["death"]]
    for start, size in sorted((t["offset"], t["bytes"]) for t in kept):
        if joined and start <= sum(joined[-1]):
            first, before = joined.pop()
            joined.append((first, max(before, start + size - first)))
        else:
            joined.append((start, size))
    return tuple(joined)


def placed(tensors: list[dict[str, Any]], regions: Regions) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Where each tensor that lies in the regions begins in a record of them, and its shape."""
    places, before = {}, 0
    for start, size in regions:
        for t in tensors:
            if start <= t["offset"] and t["offset"] + t["bytes"] <= start + size:
                places[t["name"]] = before + t["offset"] - start, tuple(t["shape"])
        before += size
    return places
