"""What the instructions of a step grow with, and which way through its kernels it takes.

Each way has coefficients of its own for these numbers, fitted to what the emulated board counts
(tools/search/instructions.json, written by lab/instructions).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from microtrain.convert import ops
from microtrain.convert.ir import Graph, Node

Terms = Mapping[str, float]
TILE = 6  # lanes of a dense tile
STRIP = 256  # pixels whose sums to the input are kept


def priced(prices: Terms, terms: Terms) -> float:
    """Instructions of so much work. prices: a coefficient for each term that costs anything"""
    return sum(prices.get(name, 0.0) * value for name, value in terms.items())


def kind(graph: Graph, node: Node) -> str:
    """Names the kernel, and the way through it, that a step takes."""
    return node.op + ops.TABLE[node.op].way(graph, node)


def one_way(graph: Graph, node: Node) -> str:
    """For ops whose kernels treat all shapes alike."""
    return ""


def by_size(graph: Graph, node: Node) -> dict[str, float]:
    """Multiply-accumulates and the sizes of the first input and output, and of what they are clamped by."""
    found: dict[str, float] = {"step": 1, "macs": ops.TABLE[node.op].macs(graph, node)}
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
    return found


def with_biases(graph: Graph, node: Node) -> Terms:
    """Of a layer whose trained biases are expanded before it runs."""
    layer, found = graph.layers[node.layer or ""], by_size(graph, node)
    return found | {"expanded": layer.bias.size} if layer.bias_trained else found


def with_updates(graph: Graph, node: Node) -> Terms:
    """Of a gradient that changes the trained columns of its layer's weights."""
    layer, found = graph.layers[node.layer or ""], by_size(graph, node)
    if not layer.trained:
        return found
    updated = layer.weight.size * len(layer.trained) / layer.columns
    return found | {"trained": len(layer.trained), "updated": updated}


def with_sums(graph: Graph, node: Node) -> Terms:
    """Of a gradient to an input: of more pixels than are kept, sums are made twice."""
    found: Terms = by_size(graph, node)
    again = {"macs again": found["macs"], "elements again": found["out elements"]}
    return {**found, **again} if found["out pixels"] > STRIP else found


def of_parts(graph: Graph, node: Node) -> Terms:
    """Of working by rows: each layer's work, and what it takes to begin anew with each few rows."""
    found: Counter[str] = Counter()
    for part in node.parts:
        found.update(of_part(graph, node, part))
    return dict(found)


def of_part(graph: Graph, node: Node, part: Node) -> dict[str, int]:
    """What one layer adds to the work of a stream."""
    rows, columns, channels = graph.tensors[part.outputs[0]].shape
    inputs = graph.tensors[part.inputs[0]].channels
    calls = -(-rows // node.rows)
    return {
        f"macs of {kind(graph, part)}": ops.TABLE[part.op].macs(graph, part),
        f"calls of {part.op}": calls,
        f"calls of {part.op} x channels": calls * (inputs + channels),
        f"rows of {part.op}": rows,
        f"outputs of {part.op}": rows * columns * channels,
    }


def in_one_go(graph: Graph, node: Node) -> Terms:
    """Of a step that is one piece in the library: also what the windows of its layer see."""
    found = dict(ops.TABLE[node.op].work(graph, node))
    window = next((n.window for n in graph.forward_layers if n.name == node.name), node.window)
    few, many = sorted((found["in elements"], found["out elements"]))
    if window and min(found["in pixels"], found["out pixels"]) > 1:
        found |= {"windows": window.kh * window.kw * few, "elements of windows": many}
    return found
