"""What the client needs of plan.json: the model's identity and where each trained tensor lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from microtrain.base.errors import short
from microtrain.base.reading import reading

from .errors import DeviceError

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Source:
    """Names in the model's state dict that a layer was made from, None where it has none.

    eps  of the batch norm
    """

    weight: str
    bias: str | None
    bn: str | None
    eps: float | None = None


@dataclass(frozen=True, eq=False)
class Trained:
    """One tensor of the trainables.

    kind      weight, fraction, bias, head_weight or head_bias
    dtype     s8, u4 (two an byte, even index in the low nibble, signed), s16 or f32
    offset    bytes from the start of the trainables
    channels  trained input channels (depthwise: channels); None: all
    scale     real value a unit, an output channel each; None for floats
    base      real value of 0, an output channel each; None: 0
    dead      output channels that conversion folded into constants
    """

    name: str
    layer: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int
    channels: tuple[int, ...] | None
    scale: np.ndarray | None
    source: Source
    dead: tuple[int, ...] = ()
    base: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """shapes: (h, w, c) of each layer's input, by layer name, in forward order; outputs likewise."""

    path: Path
    name: str
    model_id: str
    size: int
    tensors: tuple[Trained, ...]
    inputs: dict[str, tuple[int, int, int]]
    outputs: dict[str, tuple[int, int, int]]

    def find(self, layer: str, kind: str) -> Trained | None:
        return next((t for t in self.tensors if t.layer == layer and t.kind == kind), None)


def load_plan(path: Path) -> Plan:
    """Read plan.json (docs/plan.md). DeviceError where it is missing or no plan of this format."""
    return read_plan(path, parse, "`python tools/convert MODEL.pt` writes it; --plan names it.")


def read_plan(path: Path, parse: Callable[[Path, dict[str, Any]], Parsed], hint: str) -> Parsed:
    """What `parse` makes of a plan.json.

    hint    says where a plan comes from
    Errors  DeviceError where it is missing or no plan of this format
    """
    if not path.exists():
        raise DeviceError(f"no such plan: {path}. {hint}")
    wrong = f"{path} is not a plan.json that tools/convert wrote"
    with reading(DeviceError, lambda why: f"{wrong} ({why}): convert again."):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != 1:
            raise DeviceError(
                f"{path} has plan format {short(document['format'])}, this client reads 1: convert again."
            )
        return parse(path, document)


def parse(path: Path, document: dict[str, Any]) -> Plan:
    block = document["trainables"]
    rows = document.get("layers", [])
    return Plan(
        path=path,
        name=document["name"],
        model_id=document["model_id"],
        size=block["bytes"],
        tensors=tuple(parse_tensor(t) for t in block["tensors"]),
        inputs={row["layer"]: tuple(row["in"]) for row in rows},
        outputs={row["layer"]: tuple(row["out"]) for row in rows},
    )


def parse_tensor(t: dict[str, Any]) -> Trained:
    source = t["source"]
    return Trained(
        name=t["name"],
        layer=t["layer"],
        kind=t["kind"],
        dtype=t["dtype"],
        shape=tuple(t["shape"]),
        offset=t["offset"],
        size=t["bytes"],
        channels=None if t["channels"] is None else tuple(t["channels"]),
        scale=None if t["scale"] is None else np.array(t["scale"], np.float64),
        source=Source(source["weight"], source["bias"], source["bn"], source.get("eps")),
        dead=tuple(t["dead"]),
        base=None if t.get("base") is None else np.array(t["base"], np.float64),
    )


def short_id(model_id: str) -> str:
    """A model id as a device prints it: its first four bytes as a little-endian number (model_api.h)."""
    return f"{int.from_bytes(bytes.fromhex(model_id[:8]), 'little'):08x}"


def check_same_model(plan: Plan, model: str, model_id: str, where: str) -> None:
    """DeviceError, naming both models, where the device does not run what the plan describes."""
    if short_id(plan.model_id) != model_id:
        raise DeviceError(
            f"{where} runs model {model} {model_id}, "
            f"but {plan.path} describes {plan.name} {short_id(plan.model_id)}: "
            "convert, build and upload again, or name the right --plan."
        )
