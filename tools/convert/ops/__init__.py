"""The op table: everything that is known of each op, in one entry."""

from __future__ import annotations

from microtrain.convert.ir import Graph, Node

from . import (
    activations,
    add,
    attention,
    bias,
    channel_pool,
    channels,
    coded,
    conv,
    gather,
    grouped,
    head,
    joints,
    mul_add,
    multilabel,
    multiply,
    normalise,
    pool,
    position,
    prototypes,
    reconstruct,
    recurrent,
    regression,
    resample,
    scale,
    scale_pixels,
    scale_values,
    stream,
    unflatten,
    upsample,
)
from .table import BackwardOp, ForwardOp, Learns, Op, SavingOp, Updates

BODY = (
    conv,
    coded,
    grouped,
    bias,
    activations,
    add,
    joints,
    gather,
    pool,
    channel_pool,
    scale,
    scale_pixels,
    multiply,
    scale_values,
    mul_add,
    normalise,
    upsample,
    unflatten,
    resample,
    channels,
    position,
    attention,
    recurrent,
)
FAMILIES = (*BODY, head, regression, multilabel, reconstruct, prototypes, stream)
TABLE: dict[str, Op] = {op.name: op for family in FAMILIES for op in family.OPS}

__all__ = [
    "TABLE",
    "BackwardOp",
    "ForwardOp",
    "Op",
    "forward_entry",
    "forward_op",
    "has_head",
    "saves",
    "spoils",
    "updates",
]


def forward_op(node: Node) -> ForwardOp:
    """The entry of a layer. Raises ValueError for a node that is none."""
    return forward_entry(node.op, f" of {node.name}")


def forward_entry(name: str, where: str = "") -> ForwardOp:
    """The entry of a name. Raises ValueError where it is not one of a layer."""
    op = TABLE.get(name)
    if not isinstance(op, ForwardOp):
        raise ValueError(f"{name}{where} is not an op of a forward graph")
    return op


def has_head(graph: Graph) -> bool:
    """Whether a network ends in a head, which is trained, and not in a score."""
    return forward_op(graph.forward_nodes[-1]).learns is Learns.HEAD


def saves(node: Node) -> bool:
    """True where a node of the forward pass only sets something aside for the backward pass."""
    return isinstance(TABLE[node.op], SavingOp)


def updates(node: Node) -> Updates:
    """What running a node changes of its layer."""
    op = TABLE[node.op]
    return op.updates if isinstance(op, BackwardOp) else Updates.NOTHING


def spoils(update: Node, reader: Node) -> bool:
    """True where an update changes weights or biases that a backward node reads.

    The gradient to the input reads the weights as they were in the forward pass; a layer that is recomputed
    reads both. What reads a result of the update comes behind it anyway.
    """
    behind = set(update.outputs).intersection(reader.inputs)
    if updates(update) is Updates.NOTHING or update.owner != reader.owner or behind:
        return False
    op = TABLE[reader.op]
    reads = isinstance(op, BackwardOp) and op.reads_weights
    return bool(reader.again) or (updates(update).weights and reads)
