"""Where the memory goes: the same training, planned with one memory pass after the other switched on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from microtrain.base.columns import Column, is_wide, table, wrapped
from microtrain.convert.ir import Graph, Node
from microtrain.convert.memory.plan import Buffer, Piece, buffers, bytes_alive, place
from microtrain.convert.ops import updates
from microtrain.convert.ops.table import Updates
from microtrain.convert.passes.recompute import recomputed_macs
from microtrain.convert.pipeline import (
    Compiled,
    Passes,
    compile_graph,
    firmware_sram,
    sparse_graph,
    training_graph,
)
from microtrain.convert.scheme import ALL, Scheme
from microtrain.convert.storage import align
from microtrain.convert.trainables import block_bytes, layout

BAR, NARROW_BAR = 30, 15  # characters of the longest bar
NOTHING = Passes(in_place=False, fused=False, chained=False, arriving=False)


@dataclass(frozen=True)
class Row:
    """One plan: what is switched on beside what the rows above have, and its bytes.

    backward  alive at the busiest step of the backward pass
    firmware  SRAM of its own
    sram      all of it
    """

    name: str
    what: str
    arena: int
    backward: int
    trainables: int
    firmware: int

    @property
    def sram(self) -> int:
        return self.arena + self.trainables + self.firmware


def waterfall(quantized: Graph, scheme: Scheme, classes: int) -> Iterator[Row]:
    """Plans of a network and a scheme, from the full update on."""
    full = replace(scheme, biases=-1, weights={ALL: 1.0})
    for name, what, plain in (
        ("full update", "all weights and biases, a buffer for every gradient", full),
        ("sparse update", "what the scheme trains, backward pruned to it", scheme),
    ):
        graph = sparse_graph(quantized, plain, classes)
        yield _row(name, what, graph, (*buffers(graph, in_place=False), *gradients(graph)))
    graph = training_graph(quantized, scheme, classes, NOTHING)
    what = "each gradient applied where it is summed; steps reordered"
    yield _row("+ immediate update", what, graph, buffers(graph, in_place=False))
    in_place = replace(NOTHING, in_place=True)
    for name, what, passes in (
        ("+ in-place", "results take the memory of what they are made from", in_place),
        ("+ fused streaming", "frozen blocks run row by row", replace(in_place, fused=True)),
        ("+ chained", "rows flow through several blocks, the input's as they arrive", Passes()),
        ("+ recompute", "masks and saved inputs made again, wherever that lowers the peak", Passes(arena=0)),
    ):
        compiled = compile_graph(quantized, scheme, classes, passes)
        again = recomputed_macs(compiled.graph)
        if again:
            what += f": {again:,} MACs per step"
        graph, arena = compiled.graph, compiled.plan.arena
        alive = bytes_alive(buffers(graph, passes.in_place))
        yield _made(name, what, graph, arena, alive)


def _row(name: str, what: str, graph: Graph, items: tuple[Buffer, ...] | list[Buffer]) -> Row:
    alive = bytes_alive(items)
    _, arena = place(items, max(alive.values()))
    return _made(name, what, graph, arena, alive)


def _made(name: str, what: str, graph: Graph, arena: int, alive: Mapping[int, int]) -> Row:
    backward, trainables = _backward(graph, alive), block_bytes(layout(graph))
    return Row(name, what, arena, backward, trainables, firmware_sram(graph))


def _backward(graph: Graph, alive: Mapping[int, int]) -> int:
    return max(size for step, size in alive.items() if step >= graph.forward)


def gradients(graph: Graph) -> list[Buffer]:
    """A float32 buffer for each gradient, from where it is summed to the end of the step."""
    last = len(graph.nodes) - 1
    sizes = [(step, node, _elements(graph, node)) for step, node in enumerate(graph.nodes)]
    return [
        Buffer((Piece(step, last, 0, align(4 * size)),), {f"gradient:{step}": 0})
        for step, node, size in sizes
        if size and updates(node) is not Updates.NOTHING
    ]


def _elements(graph: Graph, node: Node) -> int:
    """Elements of the gradient that an update node sums."""
    layer = graph.layers.get(node.layer or "")
    if layer is None:
        return 0
    if updates(node) is Updates.BIASES:
        return int(layer.bias.size)
    if updates(node) is Updates.HEAD:
        return int(layer.weight.size + layer.bias.size)
    return int(layer.weight.size) * len(layer.trained) // layer.columns


def print_waterfall(quantized: Graph, compiled: Compiled, console: Console) -> None:
    """The rows as a table with bars; in a narrow terminal what they mean stands below it."""
    scheme, graph = compiled.scheme, compiled.graph
    found = []
    with console.status("planning") as status:
        for row in waterfall(quantized, scheme, graph.tensors[graph.output].channels):
            status.update(f"planned: {row.name}")
            found.append(row)
    title = f"{graph.name}, scheme {scheme.name}: SRAM by memory pass"
    wide = _table(title, found, narrow=False)
    if is_wide(console, wide):
        console.print(wide)
        return
    console.print(_table(title, found, narrow=True))
    begin = max(len(row.name) for row in found) + 1
    for row in found:
        text = f"{row.name:{begin}}{row.what}"
        console.print(wrapped(text, console.width, begin))


def _table(title: str, found: list[Row], narrow: bool) -> Table:
    names = ("backward B", "arena B", "trainables B", "SRAM B")
    columns = [Column("pass", number=False), *(Column(name) for name in names), Column("", number=False)]
    made = table(title, columns if narrow else [*columns, Column("what it does", number=False)], narrow)
    most, longest = max(row.sram for row in found), NARROW_BAR if narrow else BAR
    for row in found:
        numbers = (f"{n:,}" for n in (row.backward, row.arena, row.trainables, row.sram))
        texts = (row.name, *numbers, "#" * max(1, round(longest * row.sram / most)))
        made.add_row(*(texts if narrow else (*texts, row.what)))
    return made
