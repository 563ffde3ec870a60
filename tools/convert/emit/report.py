"""What a conversion prints: the table, and the totals against the limits."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from microtrain.base.columns import Column, broken, is_wide, short, table, wrapped
from microtrain.base.plan import Layer
from microtrain.base.shapes import by
from microtrain.base.trained import SUMS
from microtrain.convert.boards import Limits
from microtrain.convert.ir import Graph
from microtrain.convert.memory.fleet import fleet_bytes
from microtrain.convert.memory.imprint import features_of, imprint_bytes
from microtrain.convert.memory.replay import WHOLE, part_of, record_bytes
from microtrain.convert.ops import TABLE, hop
from microtrain.convert.passes.recompute import recomputed, recomputed_macs
from microtrain.convert.pipeline import Compiled, firmware_sram
from microtrain.convert.scheme import beyond
from microtrain.convert.trainables import block_bytes, layout
from microtrain.pictures.report import Firmware

from .document import flash_total, model_flash, rows
from .summary import WORD
from .tables import outside_bytes

NAME = 18  # characters of a layer's name in a narrow table's line


def print_table(compiled: Compiled, limits: Limits, console: Console) -> None:
    """One row per layer, then the totals against the limits."""
    made = _wide_table(compiled)
    console.print(made if is_wide(console, made) else _narrow_table(compiled))
    _print_totals(compiled, limits, console)


def _title(compiled: Compiled) -> str:
    return f"{compiled.graph.name}, scheme {compiled.scheme.name}"


def _window(row: Layer) -> str:
    return f"{row.kernel[0]}x{row.kernel[1]}/{row.stride[0]}" if row.kernel and row.stride else ""


def _wide_table(compiled: Compiled) -> Table:
    """All that is known of the layers."""
    words = ("layer", "op", "in", "out", "kernel")
    columns = [
        *(Column(name, number=False) for name in words),
        *(Column("MACs"), Column("trained", number=False)),
        *(Column(name) for name in ("flash B", "trainable B", "saved B", "mask B")),
    ]
    made = table(_title(compiled), columns, narrow=False)
    for row in rows(compiled):
        shapes = (by(row.input), by(row.output))
        numbers = (row.flash_bytes, row.trainable_bytes, row.saved_bytes, row.mask_bytes)
        texts = (f"{n:,}" if n else "" for n in numbers)
        made.add_row(row.layer, row.op, *shapes, _window(row), f"{row.macs:,}", row.trained, *texts)
    return made


def _narrow_table(compiled: Compiled) -> Table:
    """The same for 80 columns: no input, which is another layer's output, and SRAM in one number."""
    columns = [
        *(Column("layer", number=False), Column("op", number=False), Column("out", number=True)),
        *(Column("MACs"), Column("trained", number=False), Column("flash B"), Column("SRAM B")),
    ]
    made = table(_title(compiled), columns, narrow=True)
    for row in rows(compiled):
        sram = row.trainable_bytes + row.saved_bytes + row.mask_bytes
        made.add_row(
            broken(row.layer, NAME),
            f"{row.op} {_window(row)}".strip(),
            by(row.output),
            short(row.macs) if row.macs else "",
            row.trained.replace("weight ", "").replace(" + ", ", "),
            *(f"{n:,}" if n else "" for n in (row.flash_bytes, sram)),
        )
    return made


def _print_totals(compiled: Compiled, limits: Limits, console: Console) -> None:
    graph, plan = compiled.graph, compiled.plan
    macs = {"forward": 0, "backward": 0}
    for i, node in enumerate(graph.nodes):
        macs["forward" if i < len(graph.forward_nodes) else "backward"] += TABLE[node.op].macs(graph, node)
    trained = block_bytes(layout(graph))
    flash, own = flash_total(graph, limits.board_name), firmware(compiled, limits)
    lines = [
        f"MACs        forward {macs['forward']:,}, backward {macs['backward']:,}",
        f"arena       {plan.arena:,} B (lower bound {plan.lower_bound:,} B), peak at step {plan.peak_step}",
        f"trainables  {trained:,} B",
        *_frozen_lines(graph),
        *_imprint_lines(compiled),
        *_fleet_lines(compiled),
        *_replay_lines(compiled),
        *([f"hop         {hop.sentence(graph)}"] if graph.hop else ()),
        f"SRAM        {compiled.sram:,} B{_of(limits.sram)}, {own.sram:,} B for the firmware",
        f"flash       {flash:,} B{_of(limits.flash)}, {own.flash:,} B for the firmware (estimates)",
        *_outside_lines(graph, limits),
    ]
    again = recomputed(graph)
    if again:
        names = ", ".join(dict.fromkeys(node.name for node in again))
        work = f"{recomputed_macs(graph):,} MACs of backward"
        lines.insert(1, f"again       {work}, to keep to the budget: {names}")
    console.print("\n".join(wrapped(line, console.width, WORD) for line in lines))


def firmware(compiled: Compiled, limits: Limits) -> Firmware:
    """Estimated bytes of the firmware beside the model."""
    graph = compiled.graph
    return Firmware(firmware_sram(graph), flash_total(graph, limits.board_name) - model_flash(graph))


def _frozen_lines(graph: Graph) -> list[str]:
    """Which layers no scheme can train, and why."""
    found: dict[str, list[str]] = {}
    for layer, closed in beyond(graph).items():
        found.setdefault(closed, []).append(layer)
    return [
        f"frozen      {', '.join(reversed(layers))}: no gradient passes {closed} behind them"
        for closed, layers in found.items()
    ]


def _imprint_lines(compiled: Compiled) -> list[str]:
    graph = compiled.graph
    if graph.centre:
        sums = next(item for item in layout(graph) if item.kind == SUMS)
        return [f"prototypes  {len(sums.data):,} B of the trainables: room for {sums.shape[0]} classes"]
    if not graph.imprint:
        own = isinstance(compiled.scheme.head, tuple) or compiled.scheme.head == "keep"
        start = "rows of the model's own" if own else "nothing"
        return [f"imprint     no statistics of features: the head starts from {start}"]
    features = features_of(graph)
    shared = f"groups of {graph.imprint} of {features}" if graph.imprint < features else f"all {features}"
    return [f"imprint     {imprint_bytes(graph):,} B of the arena: the features' covariance, {shared}"]


def _fleet_lines(compiled: Compiled) -> list[str]:
    graph = compiled.graph
    if not graph.fleet:
        return []
    return [
        f"fleet       {fleet_bytes(graph):,} B: updates of {graph.fleet:,} B at most, and what they hold back"
    ]


def _replay_lines(compiled: Compiled) -> list[str]:
    if not compiled.records:
        return []
    graph = compiled.graph
    what = f"what {graph.nodes[graph.cut - 1].name} leaves of an input" if graph.cut else "the input itself"
    shared = f", {part_of(graph)} values a byte" if part_of(graph) != WHOLE else ""
    size = f"{compiled.records:,} records of {record_bytes(graph):,} B, {what}{shared}"
    return [f"replay      {compiled.replay_bytes:,} B: {size}"]


def _outside_lines(graph: Graph, limits: Limits) -> list[str]:
    if limits.external is None:
        return []
    used = outside_bytes(graph)
    return [f"outside     {used:,} B{_of(limits.external.size)} in {limits.external.name}, beside the chip"]


def _of(size: int | None) -> str:
    return f" of {size:,} B" if size is not None else ""
