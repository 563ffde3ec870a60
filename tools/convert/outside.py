"""Which frozen weights lie in flash beside the chip: those that a training step reads least, byte for
byte, and no more of them than the chip's own flash has no room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from .boards import Limits
from .emit import tables
from .emit.document import flash_total, model_flash
from .emit.windows import all_nodes
from .ir import Graph
from .ops import TABLE
from .pipeline import Compiled

OFF = 0.01  # by which share the firmware's own flash may be estimated too low
GAP = 1024  # bytes that the linker script may leave in front of the tables (firmware/ld/stm32.ld)


@dataclass(frozen=True)
class Movable:
    """Frozen weights of a layer.

    bytes    that leave the chip's flash with them
    touches  multiply-accumulates of a training step with one of them, on average
    """

    bytes: int
    touches: float


def place_outside(compiled: Compiled, limits: Limits) -> Compiled:
    """The model with as much outside as must be; as it was without such a flash, and where all fits."""
    graph = compiled.graph
    if limits.external is None or _short(graph, limits) <= 0:
        return compiled
    found = movable(graph)
    first = graph.replace(outside=tuple(found)[:1])  # with the driver of the flash beside the chip
    spare = GAP + round(OFF * (flash_total(first, limits.board_name) - model_flash(first)))
    short = _short(first, limits, spare) + _moved(found, first.outside)
    return replace(compiled, graph=graph.replace(outside=least_touched(found, short)))


def _moved(found: Mapping[str, Movable], layers: Collection[str]) -> int:
    return sum(found[layer].bytes for layer in layers)


def _short(graph: Graph, limits: Limits, spare: int = 0) -> int:
    """Bytes that the chip's flash has not, in its region of weights or in all; negative: that it has left.

    spare   bytes that are not to be used
    """
    over = []
    if limits.board is not None:
        over.append(tables.inside_bytes(graph) - limits.board.weights)
    if limits.flash is not None:
        over.append(flash_total(graph, limits.board_name) + spare - limits.flash)
    return max(over, default=0)


def movable(graph: Graph) -> dict[str, Movable]:
    """The layers whose frozen weights may lie outside."""
    work: Counter[str] = Counter()
    for node in all_nodes(graph):
        if node.layer is not None and not node.parts:
            work[node.layer] += TABLE[node.op].macs(graph, node)
    sizes = tables.movable_bytes(graph)
    return {layer: Movable(size, work[layer] / size) for layer, size in sizes.items()}


def least_touched(found: Mapping[str, Movable], short: int) -> tuple[str, ...]:
    """Layers that make up for so many bytes, least touched first; none of them could stay."""
    chosen: list[str] = []
    for layer in sorted(found, key=lambda name: (found[name].touches, name)):
        if _moved(found, chosen) >= short:
            break
        chosen.append(layer)
    for layer in reversed(chosen[:]):
        if _moved(found, chosen) - found[layer].bytes >= short:
            chosen.remove(layer)
    return tuple(layer for layer in found if layer in chosen)
