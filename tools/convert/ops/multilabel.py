"""The loss of labels that hold or not, each for itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from microtrain.convert.ir import Node
from microtrain.convert.names import Names
from microtrain.convert.reference.numeric import exp_f32, f32, kept, log_f32

from . import losses
from .environment import Env

NAME, HEADER = "loss_labels", "multilabel"


def values(y: np.ndarray, target: np.ndarray) -> tuple[Any, np.ndarray]:
    """The twin of the kernel: the loss and its gradient."""
    above = y >= f32(0)
    e = exp_f32(np.where(above, -y, y))
    p = np.where(above, f32(1), e) / (f32(1) + e)
    costs = np.where(above, y, f32(0)) - y * target + log_f32(f32(1) + e)
    total, count = f32(0), f32(len(y))
    for cost in costs:
        total = total + cost
    return kept(total / count), (p - target) / count


def _run(env: Env, node: Node) -> None:
    loss, env.values[node.outputs[0]] = values(env.values[node.inputs[0]], losses.target(env))
    env.loss = float(loss)


def _call(names: Names, node: Node) -> str:
    y, grad = names.at(node.inputs[0]), names.at(node.outputs[0])
    count = names.graph.tensors[node.inputs[0]].channels
    return f"const float loss = {node.op}_f32({count}, {y}, TARGET, {grad});"


OPS = (losses.loss(NAME, _run, _call, HEADER, losses.against(3)),)
