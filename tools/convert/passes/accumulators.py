"""No integer of a kernel overflows: proven for every node of a training graph when it is converted.

Each op's entry in the table says what integers its kernel keeps and how large they can become
(ops/bounds.py); here they are gathered and compared with what their types hold.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from microtrain.convert.ir import ConvertError, Graph, Node
from microtrain.convert.ops import TABLE, BackwardOp
from microtrain.convert.ops.bounds import INT32_MAX, Accumulator

GUARD_LEAST = 6  # fraction bits of aligned errors below which a gradient may point elsewhere
CHANNELS_BETTER = 2**31 // (127 * 128 << GUARD_LEAST)  # products that leave room for as many


def accumulators(graph: Graph) -> Iterator[tuple[str, Accumulator]]:
    """(layer or node, accumulator) of every integer that running the graph adds up, packs or counts in."""
    for tensor in graph.tensors.values():
        bytes_ = tensor.elements * (4 if tensor.dtype == "f32" else 1)
        yield tensor.name, Accumulator("a place in its memory", bytes_, INT32_MAX, "make the input smaller")
    for node in graph.nodes:
        for part in (node, *node.parts):
            yield from ((part.name, found) for found in TABLE[part.op].accumulators(graph, part))


def prove(graph: Graph) -> Graph:
    """The graph unchanged, or ConvertError naming the layer, the sum that could overflow, and the way out."""
    for name, found in accumulators(graph):
        if found.most > found.limit:
            raise ConvertError(
                f"{graph.name}, {name}: {found.name} can reach {found.most}, but {found.limit} is the most "
                f"that the kernels hold; {found.way_out}"
            )
    return graph


def warn_coarse(graph: Graph) -> None:
    """One warning for all layers through which gradients pass with few fraction bits."""
    coarse = {n.name: bits for n in graph.backward_nodes if (bits := _guard(graph, n)) is not None}
    coarse = {name: guard for name, guard in coarse.items() if guard < GUARD_LEAST}
    if coarse:
        warnings.warn(
            f"{graph.name}: gradients through {', '.join(f'{n} ({g} bits)' for n, g in coarse.items())} are "
            f"coarse, since more than {CHANNELS_BETTER} products meet in one pixel's: use fewer output "
            "channels or a smaller kernel there, or train only what comes after it",
            stacklevel=3,
        )


def _guard(graph: Graph, node: Node) -> int | None:
    """Fraction bits to which a node aligns errors; None where it aligns none."""
    op = TABLE[node.op]
    return op.guard(graph, node) if isinstance(op, BackwardOp) and op.guard else None
