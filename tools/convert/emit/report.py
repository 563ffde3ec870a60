"""What a conversion says: the printed table and plan.json (docs/plan.md)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from microtrain.convert.boards import Board
from microtrain.convert.ir import ConvertError, Graph, Node
from microtrain.convert.memory.plan import Plan
from microtrain.convert.memory.replay import record_bytes
from microtrain.convert.ops import TABLE
from microtrain.convert.passes.recompute import recomputed, recomputed_macs
from microtrain.convert.pipeline import FIRMWARE_FLASH, FIRMWARE_SRAM, Compiled
from microtrain.convert.trainables import block_bytes, front_steps, layout, stored_block

from . import tables
from .code import Output, step_text

PEAK_TENSORS = 5
Budget = dict[str, int]  # bytes by memory: sram, flash


@dataclass(frozen=True)
class Row:
    """One layer of the table; bytes by where they lie."""

    layer: str
    op: str
    input: tuple[int, ...]
    output: tuple[int, ...]
    kernel: tuple[int, int] | None
    stride: tuple[int, int] | None
    macs: int
    trained: str
    flash_bytes: int
    trainable_bytes: int
    saved_bytes: int
    mask_bytes: int


def rows(compiled: Compiled) -> list[Row]:
    """The layers in forward order."""
    return [_row(compiled, node) for node in compiled.graph.forward_layers if node.op != "gather"]


def _row(compiled: Compiled, node: Node) -> Row:
    graph, plan = compiled.graph, compiled.plan
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    window = node.window
    own = [p for p in plan.placements.values() if p.name == f"saved:{node.name}"]
    placed = [plan.placements[t] for t in node.outputs[:1] if t in plan.placements]
    kept = [p for p in placed if p.kind == "saved"]
    masks = [plan.placements[t] for t in node.outputs[1:]]
    return Row(
        layer=node.name,
        op=node.op,
        input=x.shape,
        output=y.shape,
        kernel=(window.kh, window.kw) if window else None,
        stride=(window.stride_h, window.stride_w) if window else None,
        macs=TABLE[node.op].macs(graph, node),
        trained=_trained(graph, node),
        flash_bytes=sum(_nbytes(t) for t in tables.layer_tables(graph, node)),
        trainable_bytes=sum(len(t.data) for t in layout(graph) if node.layer and t.layer == node.layer),
        saved_bytes=sum(p.bytes for p in (*own, *kept)),
        mask_bytes=sum(p.bytes for p in masks),
    )


def _nbytes(table: tables.Table) -> int:
    width = 4 if table.values.dtype.kind == "f" or table.kind == "biases" else table.values.itemsize
    return int(table.values.size) * width


def _trained(graph: Graph, node: Node) -> str:
    """What of a layer learns: "-", "bias", "weight 12/24 + bias", "all"."""
    if node.op == "head":
        return "all"
    layer = graph.layers.get(node.layer or "")
    if layer is None:
        return ""
    what = []
    if layer.trained:
        fraction = f"+{layer.fraction_bits}b" if layer.fraction_bits else ""
        what.append(f"weight {len(layer.trained)}/{layer.columns}{fraction}")
    if layer.bias_trained:
        what.append("bias")
    return " + ".join(what) or "-"


def flash_bytes(graph: Graph) -> dict[str, int]:
    """Flash of the model by kind; the firmware's own code is not in it."""
    kinds = {"weights": 0, "biases": 0, "tables": 0}
    for table in tables.collect(graph):
        kinds[table.kind] += _nbytes(table)
    return kinds | {"trainables_init": len(stored_block(layout(graph)))}


def flash_total(graph: Graph) -> int:
    """Flash of the model and, estimated, of the firmware's own code."""
    return sum(flash_bytes(graph).values()) + FIRMWARE_FLASH


def plan_json(
    compiled: Compiled, output: Output, source: dict[str, str], budget: Budget | None
) -> dict[str, Any]:
    """plan.json, see docs/plan.md."""
    graph, plan = compiled.graph, compiled.plan
    items = layout(graph)
    return {
        "format": 1,
        "name": graph.name,
        "model_id": output.model_id,
        "source": source,
        "input": {
            "shape": graph.tensors[graph.input.tensor].shape,
            "gain": graph.input.gain,
            "offset": graph.input.offset,
        },
        "classes": graph.tensors[graph.output].channels,
        "scheme": compiled.scheme.summary(),
        "budget": budget,
        "arena": {"bytes": plan.arena, "lower_bound": plan.lower_bound, "peak_step": plan.peak_step},
        "trainables": {"bytes": block_bytes(items), "tensors": [_trainable_json(t) for t in items]},
        "tensors": _tensors_json(graph, plan),
        "steps": [
            {
                "index": i,
                "phase": "forward" if i < len(graph.forward_nodes) else "backward",
                "op": node.op,
                "layer": node.name,
                "macs": TABLE[node.op].macs(graph, node),
                "text": step_text(graph, i, node),
            }
            for i, node in enumerate(graph.nodes)
        ],
        "front": front_steps(graph),
        **({"replay": _replay_json(compiled)} if compiled.records else {}),
        "layers": [_row_json(row) for row in rows(compiled)],
        "flash": flash_bytes(graph),
        "sram": {"arena": plan.arena, "trainables": block_bytes(items)},
    }


def _replay_json(compiled: Compiled) -> dict[str, Any]:
    graph = compiled.graph
    return {
        "records": compiled.records,
        "record_bytes": record_bytes(graph),
        "bytes": compiled.replay_bytes,
        "all_in_sram": compiled.sram,
        "tensors": graph.record,
        "step": graph.cut,
    }


def _row_json(row: Row) -> dict[str, Any]:
    data = asdict(row)
    return {"in" if k == "input" else "out" if k == "output" else k: v for k, v in data.items()}


def _trainable_json(item: Any) -> dict[str, Any]:
    return {
        "name": item.name,
        "layer": item.layer,
        "kind": item.kind,
        "dtype": item.dtype,
        "shape": item.shape,
        "offset": item.offset,
        "bytes": len(item.data),
        "channels": item.channels,
        "scale": None if item.scale is None else [float(s) for s in np.asarray(item.scale)],
        "base": None if item.base is None else [float(b) for b in np.asarray(item.base)],
        "source": asdict(item.source),
        "dead": item.dead,
    }


def _tensors_json(graph: Graph, plan: Plan) -> list[dict[str, Any]]:
    result = []
    for p in sorted(plan.placements.values(), key=lambda p: (p.birth, p.offset, p.name)):
        tensor = graph.tensors.get(p.name)
        result.append(
            {
                "name": p.name,
                "kind": p.kind,
                "bytes": p.bytes,
                "offset": p.offset,
                "birth": p.birth,
                "death": p.death,
                "shape": tensor.shape if tensor else (p.bytes,),
                "dtype": tensor.dtype if tensor else "f32" if p.kind == "error_scale" else "u8",
            }
        )
    return result


def print_table(
    compiled: Compiled, budget: Budget | None, console: Console, board: Board | None = None
) -> None:
    """A row a layer, then the totals against the budget."""
    table = Table(title=f"{compiled.graph.name}, scheme {compiled.scheme.name}", header_style="bold")
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
        f"SRAM        {compiled.sram:,} B{_of(budget, 'sram')}, {FIRMWARE_SRAM:,} B for the firmware",
        f"flash       {flash_total(graph):,} B{_of(budget, 'flash')}, "
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


def _of(budget: Budget | None, memory: str) -> str:
    return f" of {budget[memory]:,} B" if budget is not None else ""


def check_budget(compiled: Compiled, budget: Budget, board: Board) -> None:
    """Raise ConvertError saying by how much and because of what the budget is exceeded."""
    _check_sram(compiled, budget["sram"])
    _check_weights(compiled, board)
    _check_flash(compiled, budget["flash"])


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
    kinds = flash_bytes(compiled.graph)
    region = kinds["weights"] + kinds["biases"] + kinds["trainables_init"]
    if region > board.weights:
        raise ConvertError(
            f"{compiled.graph.name} has {region:,} B of weights and biases, {region - board.weights:,} B "
            f"more than the {board.weights:,} B of flash that {board.name} has for them: "
            "use a smaller network"
        )


def _check_flash(compiled: Compiled, budget: int) -> None:
    kinds = flash_bytes(compiled.graph)
    flash = flash_total(compiled.graph)
    if flash <= budget:
        return
    raise ConvertError(
        f"{compiled.graph.name} needs about {flash:,} B of flash, {flash - budget:,} B over the budget of "
        f"{budget:,} B; weights {kinds['weights']:,} B, biases {kinds['biases']:,} B, tables "
        f"{kinds['tables']:,} B, initial trainables {kinds['trainables_init']:,} B: use a smaller network"
    )


def peak_text(plan: Plan) -> str:
    """The largest tensors alive at the peak step, with their bytes."""
    alive = [p for p in plan.placements.values() if p.birth <= plan.peak_step <= p.death]
    largest = sorted(alive, key=lambda p: (-p.bytes, p.name))[:PEAK_TENSORS]
    return ", ".join(f"{p.name} {p.bytes:,} B" for p in largest)
