"""What a conversion prints: the table, the totals, and by how much a budget is exceeded."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table as Printed

from microtrain.base.plan import Budget
from microtrain.convert.boards import Board
from microtrain.convert.ir import ConvertError
from microtrain.convert.memory.plan import Plan
from microtrain.convert.memory.replay import record_bytes
from microtrain.convert.ops import TABLE
from microtrain.convert.passes.recompute import recomputed, recomputed_macs
from microtrain.convert.pipeline import FIRMWARE_FLASH, FIRMWARE_SRAM, Compiled
from microtrain.convert.trainables import block_bytes, layout

from .code import step_text
from .document import flash_of, flash_total, rows

PEAK_TENSORS = 5


def print_table(
    compiled: Compiled, budget: Budget | None, console: Console, board: Board | None = None
) -> None:
    """A row a layer, then the totals against the budget."""
    table = Printed(title=f"{compiled.graph.name}, scheme {compiled.scheme.name}", header_style="bold")
    for name in ("layer", "op", "in", "out", "kernel"):
        table.add_column(name)
    for name in ("MACs", "trained", "flash B", "trainable B", "saved B", "mask B"):
        table.add_column(name, justify="left" if name == "trained" else "right")
    for row in rows(compiled):
        kernel = f"{row.kernel[0]}x{row.kernel[1]}/{row.stride[0]}" if row.kernel and row.stride else ""
        shapes = ("x".join(map(str, row.input)), "x".join(map(str, row.output)))
        numbers = (row.flash_bytes, row.trainable_bytes, row.saved_bytes, row.mask_bytes)
        table.add_row(
            row.layer,
            row.op,
            *shapes,
            kernel,
            f"{row.macs:,}",
            row.trained,
            *(f"{n:,}" if n else "" for n in numbers),
        )
    console.print(table)
    _print_totals(compiled, budget, console, board)


def _print_totals(compiled: Compiled, budget: Budget | None, console: Console, board: Board | None) -> None:
    graph, plan = compiled.graph, compiled.plan
    macs = {"forward": 0, "backward": 0}
    for i, node in enumerate(graph.nodes):
        macs["forward" if i < len(graph.forward_nodes) else "backward"] += TABLE[node.op].macs(graph, node)
    trained = block_bytes(layout(graph))
    lines = [
        f"MACs        forward {macs['forward']:,}, backward {macs['backward']:,}",
        f"arena       {plan.arena:,} B (lower bound {plan.lower_bound:,} B), peak at step {plan.peak_step}",
        f"trainables  {trained:,} B",
        *_replay_lines(compiled),
        f"SRAM        {compiled.sram:,} B{_of(budget.sram if budget else None)}, "
        f"{FIRMWARE_SRAM:,} B for the firmware",
        f"flash       {flash_total(graph):,} B{_of(budget.flash if budget else None)}, "
        f"{FIRMWARE_FLASH:,} B for the firmware (both estimates; `pio run` measures)",
    ]
    again = recomputed(graph)
    if again:
        names = ", ".join(dict.fromkeys(node.name for node in again))
        work = f"{recomputed_macs(graph):,} MACs of backward"
        lines.insert(1, f"again       {work}, to keep to the budget: {names}")
    if board is not None and trained > board.slot:
        lines.append(f"note        the trainables exceed a checkpoint slot of {board.slot:,} B")
    console.print("\n".join(lines))


def _replay_lines(compiled: Compiled) -> list[str]:
    if not compiled.records:
        return []
    graph = compiled.graph
    what = f"what {graph.nodes[graph.cut - 1].name} leaves of an image" if graph.cut else "the image itself"
    size = f"{compiled.records} records of {record_bytes(graph):,} B, {what}"
    return [f"replay      {compiled.replay_bytes:,} B: {size}"]


def _of(size: int | None) -> str:
    return f" of {size:,} B" if size is not None else ""


def check_budget(compiled: Compiled, budget: Budget, board: Board) -> None:
    """Raise ConvertError saying by how much and because of what the budget is exceeded."""
    _check_sram(compiled, budget.sram)
    _check_weights(compiled, board)
    _check_flash(compiled, budget.flash)


def _check_sram(compiled: Compiled, budget: int) -> None:
    graph, plan = compiled.graph, compiled.plan
    if compiled.sram <= budget:
        return
    step = step_text(graph, plan.peak_step, graph.nodes[plan.peak_step])
    raise ConvertError(
        f"{graph.name} with scheme {compiled.scheme.name} needs {compiled.sram:,} B of SRAM, "
        f"{compiled.sram - budget:,} B over the budget of {budget:,} B; the peak, step {step}, is made by "
        f"{peak_text(plan)}, beside {block_bytes(layout(graph)):,} B of trainables; "
        "train less, use a smaller input, or raise --budget-sram"
    )


def _check_weights(compiled: Compiled, board: Board) -> None:
    kinds = flash_of(compiled.graph)
    region = kinds.weights + kinds.biases + kinds.trainables_init
    if region > board.weights:
        raise ConvertError(
            f"{compiled.graph.name} has {region:,} B of weights and biases, {region - board.weights:,} B "
            f"more than the {board.weights:,} B of flash that {board.name} has for them: "
            "use a smaller network"
        )


def _check_flash(compiled: Compiled, budget: int) -> None:
    kinds = flash_of(compiled.graph)
    flash = flash_total(compiled.graph)
    if flash <= budget:
        return
    raise ConvertError(
        f"{compiled.graph.name} needs about {flash:,} B of flash, {flash - budget:,} B over the budget of "
        f"{budget:,} B; weights {kinds.weights:,} B, biases {kinds.biases:,} B, tables "
        f"{kinds.tables:,} B, initial trainables {kinds.trainables_init:,} B: use a smaller network"
    )


def peak_text(plan: Plan) -> str:
    """The largest tensors alive at the peak step, with their bytes."""
    alive = [p for p in plan.placements.values() if p.birth <= plan.peak_step <= p.death]
    largest = sorted(alive, key=lambda p: (-p.bytes, p.name))[:PEAK_TENSORS]
    return ", ".join(f"{p.name} {p.bytes:,} B" for p in largest)
