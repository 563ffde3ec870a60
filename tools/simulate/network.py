"""The quantized network of a plan, as model.npz holds it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.base.errors import Error, FileError
from microtrain.base.npz import read_npz
from microtrain.base.reading import reading


def empty() -> np.ndarray:
    return np.zeros(0)


@dataclass(frozen=True)
class Stored:
    """A tensor of int8 numbers, shape [h][w][c]: real = scale * (q - zero)."""

    shape: tuple[int, int, int]
    scale: float
    zero: int


@dataclass(frozen=True)
class Step:
    """One layer of the forward pass.

    step    that runs it
    window  kh, kw, stride_h, stride_w, pad_h, pad_w, more_h, more_w
    facts   what else the op has to say of it
    """

    step: int
    op: str
    layer: str | None
    inputs: tuple[str, ...]
    output: str
    window: dict[str, int] | None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Constants:
    """Of a convolution or the head, in stored units: shapes as convert.ir.Layer has them.

    scale       real value of a unit of the weights [c_out]; empty, as all below: the head, float32
    bias_unit   real value of the unit in which biases are trained [c_out]
    multiplier  m[c] of the requantization
    dead        output channels that are not trained
    trained     input channels (depthwise: channels) whose weights are trained
    symbol      in the names of the layer's tables in C
    rate        what the learning rate of its weights is multiplied with
    """

    weight: np.ndarray
    bias: np.ndarray
    trained: tuple[int, ...]
    bias_trained: bool
    symbol: str
    rate: float = 1.0
    scale: np.ndarray = field(default_factory=empty)
    bias_unit: np.ndarray = field(default_factory=empty)
    multiplier: np.ndarray = field(default_factory=empty)
    dead: np.ndarray = field(default_factory=empty)

    @property
    def head(self) -> bool:
        return not self.scale.size

    @property
    def columns(self) -> int:
        """Channels of which some are trained."""
        result: int = self.weight.shape[0] if self.weight.ndim == 3 else self.weight.shape[-1]
        return result


@dataclass(frozen=True, eq=False)
class Network:
    """Steps in the order of the forward pass."""

    input: str
    output: str
    steps: tuple[Step, ...]
    tensors: dict[str, Stored]
    layers: dict[str, Constants]

    def real_bias(self, step: Step) -> np.ndarray:
        """Real value of a unit of a convolution's biases, s_x * s_w [c_out]."""
        return np.asarray(self.layers[step.layer or ""].scale * self.tensors[step.inputs[0]].scale)

    def plain_factor(self) -> float:
        """One number in the place of all constants of quantization-aware scaling.

        The geometric mean of 1 / s_w^2 over the trained weights, so that steps are as long as with QAS on
        average and a grid of learning rates serves both. Of the biases' where no weight is trained.
        """
        weights, biases = [], []
        for step in self.steps:
            layer = self.layers.get(step.layer or "")
            if layer is None or layer.head:
                continue
            alive = ~layer.dead
            share = len(layer.trained) * layer.weight.size // layer.columns // len(layer.bias)
            weights += [*np.repeat(np.log(layer.scale[alive]), share)]
            biases += [*np.log(self.real_bias(step)[alive])] if layer.bias_trained else []
        return float(np.exp(-2.0 * np.mean(weights or biases or [0.0])))


def load_network(folder: Path, model_id: str) -> Network:
    """Read model.npz of a generated folder.

    Errors   Error where it is missing, damaged, or of another model than the plan
    """
    path = folder / "model.npz"
    if not path.exists():
        raise Error(f"no such file: {path}. microtrain convert writes it: convert again.")

    def wrong(why: str) -> str:
        return f"{path} is not what microtrain convert wrote ({why}): convert again."

    try:
        arrays = read_npz(path)
    except FileError as error:
        raise Error(wrong(str(error))) from error
    with reading(Error, wrong):
        description = json.loads(str(arrays.pop("graph")))
        if description["format"] != 1 or description["model_id"] != model_id:
            raise Error(f"{path} and plan.json are of different models: convert again.")
        return parse(description, arrays)


def parse(description: dict[str, Any], arrays: dict[str, np.ndarray]) -> Network:
    layers = {}
    for name, about in description["layers"].items():
        own: dict[str, Any] = {
            key.removeprefix(f"{name}/"): a for key, a in arrays.items() if key.startswith(f"{name}/")
        }
        learns: dict[str, Any] = {"trained": tuple(about["trained"]), "bias_trained": about["bias_trained"]}
        layers[name] = Constants(**own, **learns, symbol=about["symbol"], rate=about.get("rate", 1.0))
    return Network(
        input=description["input"],
        output=description["output"],
        steps=tuple(Step(**{**n, "inputs": tuple(n["inputs"])}) for n in description["nodes"]),
        tensors={
            name: Stored(tuple(t["shape"]), t["scale"], t["zero"])
            for name, t in description["tensors"].items()
        },
        layers=layers,
    )
