"""Bounds beside what was measured: a row for each layer's forward pass, and for each gradient."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from microtrain.base.plan import Layer, Plan, Step

from .bound import Bound, forward, gradient_of_bias, gradient_of_input, gradient_of_weights
from .measure import Measured

FORWARD = ("conv2d", "dwconv2d")
TRAINED = re.compile(r"weight (\d+)/(\d+)")


@dataclass(frozen=True)
class Row:
    """A layer's part of an inference, or of a step. measured: instructions"""

    op: str
    layer: str
    macs: int
    bound: Bound
    measured: int


def rows(plan: Plan, found: Measured, phase: str) -> list[Row]:
    """Of what kernels of convolutions did in an inference or a step, in the order of the plan."""
    layers, alike = {row.layer: row for row in plan.layers}, in_front_of_a_pool(plan)
    done = list(_forward(plan, phase == "step"))
    if phase == "step":
        for step in plan.steps:
            backward = step.phase == "backward"
            bound = _backward(step, layers[step.layer], step.layer in alike) if backward else None
            if bound:
                done.append((step.op, step.layer, step.macs, bound))
    return [Row(op, name, macs, bound, found.by_layer[op, name]) for op, name, macs, bound in done]


def _forward(plan: Plan, step: bool) -> Iterator[tuple[str, str, int, Bound]]:
    for layer in plan.layers:
        if layer.op in FORWARD:
            yield layer.op, layer.layer, layer.macs, forward(layer, step and layer.mask_bytes > 0)


def in_front_of_a_pool(plan: Plan) -> set[str]:
    """Pointwise layers in front of a global average pool: where no output saturated, errors are alike."""
    return {
        before.layer
        for before, pool in pairwise(plan.layers)
        if pool.op == "avgpool" and pool.output[:2] == (1, 1) and before.kernel == (1, 1)
    }


def _backward(step: Step, layer: Layer, alike: bool) -> Bound | None:
    """None: a kernel that is no convolution's."""
    if step.op == "bias_update":
        return gradient_of_bias(layer)
    if step.op.endswith("conv2d_bwd_x"):
        return gradient_of_input(layer, alike)
    if step.op.endswith("conv2d_bwd_w"):
        return gradient_of_weights(step.macs, layer, weights_trained(layer))
    return None


def weights_trained(layer: Layer) -> int:
    """Of a layer that trains some of its input channels, or all."""
    assert layer.kernel is not None
    share = TRAINED.match(layer.trained)
    channels = int(share[1]) if share else layer.input[2]
    per_output = 1 if layer.op == "dwconv2d" else layer.output[2]
    return channels * layer.kernel[0] * layer.kernel[1] * per_output
