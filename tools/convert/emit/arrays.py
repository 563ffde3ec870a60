"""model.npz: the quantized network in NumPy arrays, for other programs to compute it (docs/plan.md)."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from typing import Any

import numpy as np

from microtrain.convert.ir import Graph, Node
from microtrain.convert.names import identifier
from microtrain.convert.ops import forward_op, saves


def archive(graph: Graph, model_id: str) -> bytes:
    """The forward pass and the constants of its layers; the same bytes for the same graph."""
    entries: dict[str, Any] = {"graph": np.array(json.dumps(_description(graph, model_id)))}
    for _, node in _forward(graph):
        found = forward_op(node).arrays(graph, node)
        entries |= {f"{node.layer}/{key}": values for key, values in found.items()}
    file = io.BytesIO()
    np.savez_compressed(file, **entries)
    return file.getvalue()


def _description(graph: Graph, model_id: str) -> dict[str, Any]:
    """Nodes, each with the forward step that runs it, tensors, and what of each layer is trained."""
    nodes = [_node(graph, step, node) for step, node in _forward(graph)]
    used = {t for node in nodes for t in (*node["inputs"], node["output"])}
    return {
        "format": 1,
        "model_id": model_id,
        "input": graph.input.tensor,
        "output": graph.output,
        "nodes": nodes,
        "tensors": {
            name: {"shape": t.shape, "scale": t.scale, "zero": t.zero}
            for name, t in graph.tensors.items()
            if name in used
        },
        "layers": {
            name: {
                "trained": layer.trained,
                "bias_trained": layer.bias_trained,
                "fraction_bits": layer.fraction_bits,
                "symbol": identifier(name),
                **({"rate": layer.rate} if layer.rate != 1.0 else {}),
            }
            for name, layer in graph.layers.items()
        },
    }


def _forward(graph: Graph) -> list[tuple[int, Node]]:
    """(forward step, layer it computes); what is only set aside for the backward pass is left out."""
    steps = [(step, part) for step, n in enumerate(graph.forward_nodes) for part in n.parts or (n,)]
    return [(step, part) for step, part in steps if not saves(part)]


def _node(graph: Graph, step: int, node: Node) -> dict[str, Any]:
    window = None if node.window is None else asdict(node.window)
    facts = forward_op(node).facts(graph, node)
    return {
        "step": step,
        "op": node.op,
        "layer": node.layer,
        "inputs": node.inputs,
        "output": node.outputs[0],
        "window": window,
        **({"facts": facts} if facts else {}),
    }
