"""What a record of the replay buffer holds, in C: how it is written and read."""

from __future__ import annotations

from microtrain.convert.memory.replay import coded_bytes, part_of
from microtrain.convert.names import Names
from microtrain.convert.ops import product_code


def copies(names: Names) -> tuple[list[str], list[str]]:
    """The lines that make `record`, its bytes, of what is in the arena, and those that put it back."""
    graph = names.graph
    keep, recall, place = [], [], 0
    for tensor in graph.record:
        size = coded_bytes(graph.tensors[tensor], part_of(graph))
        at, kept = names.at(tensor), f"record + {place}"
        if tensor in graph.codes:
            keep.append(f"    {product_code.encode(tensor, at, kept)}")
            recall.append(f"    {product_code.decode(tensor, kept, at)}")
        else:
            keep.append(f"    memcpy({kept}, {at}, {size});")
            recall.append(f"    memcpy({at}, {kept}, {size});")
        place += size
    return keep, recall
