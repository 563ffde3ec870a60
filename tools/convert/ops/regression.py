"""Losses of a regression: the head's outputs against numbers that were measured, each in its own unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.ir import ConvertError, Graph, Node
from microtrain.convert.names import Names, identifier
from microtrain.convert.reference.numeric import f32, kept

from . import losses
from .ctext import Table
from .environment import Env

HEADER = "regression"
LEAST = 1e-6  # of a unit


def measured(graph: Graph, outputs: np.ndarray) -> Graph:
    """With the spread of each output as its unit. outputs: of typical samples, [samples][outputs]"""
    values = outputs.astype(np.float64)
    least = np.maximum(LEAST, 1e-3 * np.abs(values).mean(axis=0))
    units = tuple(float(f32(unit)) for unit in np.maximum(values.std(axis=0), least))
    return graph.replace(nodes=(*graph.nodes[:-1], replace(graph.nodes[-1], factors=units)))


def _units(graph: Graph, node: Node) -> tuple[float, ...]:
    """Of the outputs that a loss reads."""
    made = graph.producer(node.inputs[0])
    if made is None or not made.factors:
        raise ConvertError(f"{graph.name} has outputs without units: convert it with --task regression")
    return made.factors


def tables(graph: Graph, node: Node) -> Iterator[Table]:
    """The units of a head's outputs, where it has any."""
    if node.factors:
        units = np.array(node.factors, f32)
        yield Table(f"const float unit_{identifier(node.name)}[{len(units)}]", units, "tables")


def squares(d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of differences in units, float32: what each costs, and the gradient of that."""
    return d * d, f32(2) * d


def huber(d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same, of which large differences cost less."""
    size, near = np.abs(d), np.abs(d) <= f32(1)
    sign = np.where(d < f32(0), f32(-1), f32(1))
    return np.where(near, f32(0.5) * d * d, size - f32(0.5)), np.where(near, d, sign)


COSTS = {"loss_squares": squares, "loss_huber": huber}


def values(name: str, y: np.ndarray, target: np.ndarray, unit: np.ndarray) -> tuple[Any, ...]:
    """The twin of the kernels: the loss, `up` and `down`."""
    costs, slopes = COSTS[name]((y - target) / unit)
    total, count = f32(0), f32(len(y))
    for cost in costs:
        total = total + cost
    gradient = slopes / count
    return kept(total / count), gradient * unit, gradient / unit


def _run(env: Env, node: Node) -> None:
    unit = np.array(_units(env.graph, node), f32)
    loss, up, down = values(node.op, env.values[node.inputs[0]], losses.target(env), unit)
    env.loss = float(loss)
    env.values.update(zip(node.outputs, (up, down), strict=True))


def _call(names: Names, node: Node) -> str:
    _units(names.graph, node)
    y, up, down = (names.at(t) for t in (node.inputs[0], *node.outputs))
    count, unit = names.graph.tensors[node.inputs[0]].channels, f"unit_{identifier(node.name)}"
    return f"const float loss = {node.op}_f32({count}, {y}, TARGET, {unit}, {up}, {down});"


OPS = tuple(losses.loss(name, _run, _call, HEADER, losses.against(5)) for name in COSTS)
