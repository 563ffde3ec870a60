"""Compile-time autodiff: appends the backward pass of every layer to a quantized forward graph.

Walks the forward nodes from the last to the first and asks each op's gradient rule (ops table) what to
append. Everything is differentiated here; `prune.py` then removes what the scheme does not need.
"""

from __future__ import annotations

from dataclasses import replace

from microtrain.convert.ir import Graph, Node, Tensor
from microtrain.convert.ops import forward_op
from microtrain.convert.ops.tape import Tape


def differentiate(graph: Graph, loss: str = "cross_entropy") -> Graph:
    """Return the training graph of a forward graph.

    loss  "cross_entropy" or "mse", of the logits against one label; or one of TARGET_LOSSES (base/plan.py)
    """
    tape = Tape(graph, loss)
    for node in reversed(graph.nodes):
        forward_op(node).gradient(tape, node, tape.error_of(node.outputs[0]))
    forward = tuple(_with_mask(node, tape) for node in graph.nodes)
    masks = {f"mask:{t}": Tensor(f"mask:{t}", graph.tensors[t].shape, "bits") for t in sorted(tape.masks)}
    tensors = {**graph.tensors, **masks, **tape.tensors}
    return graph.replace(tensors=tensors, nodes=(*forward, *tape.nodes), forward=len(forward))


def _with_mask(node: Node, tape: Tape) -> Node:
    """The forward node, writing also what its backward half will read (a mask, positions of maxima)."""
    extra = tuple(f"mask:{t}" for t in node.outputs if t in tape.masks)
    extra += tuple(tape.left[t] for t in node.outputs if t in tape.left)
    return replace(node, outputs=(*node.outputs, *extra))
