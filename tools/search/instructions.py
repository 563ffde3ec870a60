"""Instructions of a training step on the Cortex-M7, estimated layer by layer.

A step costs a sum of numbers that its shapes tell (multiply-accumulates, pixels, channels, tiles, weights
updated), each with a coefficient for its kind of kernel. fit_instructions.py fits them to what the emulator
counted, in instructions.json.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from microtrain.convert.ir import Graph, Node
from microtrain.convert.ops import TABLE

COEFFICIENTS = Path(__file__).with_name("instructions.json")
TILE = 6  # lanes of a dense tile
OTHER = "other"
Terms = dict[str, float]
Model = Mapping[str, Terms]  # kind -> coefficient of each term


@cache
def coefficients() -> Model:
    """What fit_instructions.py wrote."""
    model: Model = json.loads(COEFFICIENTS.read_text(encoding="utf-8"))
    return model


def step_instructions(graph: Graph) -> float:
    """Of the forward and the backward pass, without the serial line."""
    return sum(estimate(graph, node, coefficients()) for node in graph.nodes)


def estimate(graph: Graph, node: Node, model: Model) -> float:
    """Instructions of a step; where no kernel of its kind was ever counted, as of the average one."""
    known = model.get(kind(graph, node), model[OTHER])
    return sum(known.get(name, 0.0) * value for name, value in terms(graph, node).items())


def kind(graph: Graph, node: Node) -> str:
    """Names the kernel, or the way through it, that a step takes."""
    layer, forward = graph.layers.get(node.layer or ""), graph.forward_of.get(node.layer or "")
    name, window = node.op, forward.window if forward else None
    if window and "dwconv" in name:
        name += f" {window.kh}x{window.kw}/{window.stride_h}"
    elif window and name.startswith("conv2d") and window.kh * window.kw > 1:
        name += " kxk"
    if layer is not None and layer.fraction_bits and name.endswith("bwd_w"):
        name += f" +{layer.fraction_bits} bits"
    return name


def terms(graph: Graph, node: Node) -> Terms:
    """What the instructions of a step grow with."""
    if node.op == "stream":
        return stream_terms(graph, node)
    found: Terms = {"step": 1, "macs": TABLE[node.op].macs(graph, node)}
    shapes = {"in": node.inputs[0], "out": (node.outputs or node.inputs)[0]}
    for end, tensor in shapes.items():
        about = graph.tensors[tensor]
        found |= {
            f"{end} elements": about.elements,
            f"{end} channels": about.channels,
            f"{end} pixels": about.pixels,
            f"{end} tiles": -(-about.pixels // TILE) * about.channels,
            f"{end} lanes": -(-about.channels // TILE) * about.pixels,
        }
    if len(node.outputs) > 1:
        found["mask"] = graph.tensors[node.outputs[1]].elements
    if node.clamp and node.clamp.mask:
        found["clamped"] = graph.tensors[node.outputs[0]].elements
    layer = graph.layers.get(node.layer or "")
    if layer is not None and node.op.endswith("bwd_w") and layer.trained:
        found["trained"] = len(layer.trained)
        found["updated"] = layer.weight.size * len(layer.trained) / layer.columns
    if layer is not None and layer.bias_trained and not node.op.endswith(("bwd_x", "bwd_w", "update")):
        found["expanded"] = layer.bias.size
    return found


def stream_terms(graph: Graph, node: Node) -> Terms:
    """Of working by rows: each layer's work, and what it takes to begin anew with each few rows."""
    found: Counter[str] = Counter()
    for part in node.parts:
        rows, columns, channels = graph.tensors[part.outputs[0]].shape
        inputs = graph.tensors[part.inputs[0]].channels
        calls = -(-rows // node.rows)
        found[f"macs of {kind(graph, part)}"] += TABLE[part.op].macs(graph, part)
        found[f"calls of {part.op}"] += calls
        found[f"calls of {part.op} x channels"] += calls * (inputs + channels)
        found[f"rows of {part.op}"] += rows
        found[f"outputs of {part.op}"] += rows * columns * channels
    return dict(found)
