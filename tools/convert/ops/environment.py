"""What the NumPy run of an op reads and writes: the values of a run, and what learning changes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from microtrain.convert.ir import Graph
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference import real as reference_f32
from microtrain.convert.reference.kernels import Clamp, Error, Sgd
from microtrain.convert.splits import split_weight

from .conv_constants import multipliers

Array = np.ndarray


@dataclass(eq=False)
class State:
    """What learning changes of one layer.

    weight    int8, all columns (the head: float32)
    fraction  signed fractions of the trained columns in their stored layout, int8, or None
    bias      int32 (the head: float32)
    delta     what training added to the biases, int16 in the units of conv.bias_scale
    """

    weight: Array
    fraction: Array | None
    bias: Array
    delta: Array


@dataclass(eq=False)
class Env:
    """Values of one run.

    values     tensor -> int8 [h, w, c], bool mask, uint8 positions, Error or float64 gradient, float32 logits
    gradients  (layer, "weight" | "bias") -> real gradient with respect to the stored integers, before QAS
    real       True: float64 errors, no update
    statistics what the graph learns without a gradient, by kind
    """

    graph: Graph
    state: dict[str, State]
    real: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    gradients: dict[tuple[str, str], Array] = field(default_factory=dict)
    label: Any = 0  # or the target, float32 [targets]
    sgd: Sgd = field(default_factory=lambda: Sgd(0.0, 0.0, 0.0, 0, 0))
    loss: float = 0.0
    statistics: dict[str, Array] = field(default_factory=dict)

    @property
    def backend(self) -> Any:
        """The backward kernels: int8 or real-valued errors."""
        return reference_f32 if self.real else reference

    def clamp(self, clamp: Any) -> Clamp:
        """The arrays behind a node's clamp."""
        if clamp is None:
            return Clamp()
        m = None
        if clamp.layer is not None:
            forward = self.graph.forward_of[clamp.layer]
            m = multipliers(self.graph, forward)
        return Clamp(self.values[clamp.mask] if clamp.mask else None, m)

    def gradient(self, error: Any) -> Array:
        """The real gradient that an error stands for, float64 [h, w, c]."""
        return error.gradient if isinstance(error, Error) else error

    def trained_columns(self, layer: str) -> Array:
        return split_weight(replace(self.graph.layers[layer], weight=self.state[layer].weight))[1]

    def set_trained_columns(self, layer: str, columns: Array) -> None:
        info = self.graph.layers[layer]
        weight = self.state[layer].weight.copy()
        trained = list(info.trained)
        if info.depthwise:
            weight[trained] = columns
        else:
            weight[..., trained] = columns
        self.state[layer].weight = weight
