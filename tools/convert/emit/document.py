"""The plan of a conversion: what plan.json says (docs/plan.md), and the table's rows."""

from __future__ import annotations

from collections import Counter

import numpy as np

from microtrain.base.plan import (
    FLOAT,
    FORMAT,
    Arena,
    Budget,
    Compression,
    External,
    Flash,
    Fleet,
    Imprint,
    Input,
    Layer,
    Origin,
    Replay,
    Sram,
    Step,
    Tensor,
)
from microtrain.base.plan import Plan as Document
from microtrain.base.trained import Source, Trainables, Trained
from microtrain.convert import boards
from microtrain.convert.ir import Graph, Node
from microtrain.convert.memory.fleet import fleet_bytes
from microtrain.convert.memory.imprint import imprint_bytes
from microtrain.convert.memory.plan import Plan
from microtrain.convert.memory.replay import part_of, record_bytes
from microtrain.convert.ops import TABLE, forward_op, saves
from microtrain.convert.ops.table import Learns
from microtrain.convert.pipeline import Compiled
from microtrain.convert.trainables import Trainable, block_bytes, front_steps, layout, stored_block

from . import tables
from .code import Output
from .firmware_flash import firmware_flash, most_firmware_flash
from .steps import step_text


def document(
    compiled: Compiled, output: Output, source: Origin, budget: Budget | None, external: str = ""
) -> Document:
    """All that plan.json says.

    source    the model file
    budget    None for the host, which has none
    external  name of the flash beside the chip
    """
    graph, plan = compiled.graph, compiled.plan
    items = layout(graph)
    return Document(
        format=FORMAT,
        name=graph.name,
        model_id=output.model_id,
        source=source,
        input=_input(graph),
        classes=graph.tensors[graph.output].channels,
        scheme=compiled.scheme.summary(),
        budget=budget,
        arena=Arena(plan.arena, plan.lower_bound, plan.peak_step),
        trainables=Trainables(block_bytes(items), tuple(_trained(t) for t in items)),
        tensors=_tensors(graph, plan),
        steps=tuple(_step(graph, i, node) for i, node in enumerate(graph.nodes)),
        front=front_steps(graph),
        replay=_replay(compiled) if compiled.records else None,
        imprint=Imprint(graph.imprint, imprint_bytes(graph)) if graph.imprint else None,
        fleet=Fleet(graph.fleet, fleet_bytes(graph)) if graph.fleet else None,
        compression=Compression(**vars(graph.compression)) if graph.compression else None,
        requantize=graph.requantize if graph.requantize != FLOAT else None,
        gate=graph.gate or None,
        external=External(external, tables.outside_bytes(graph), graph.outside) if graph.outside else None,
        layers=rows(compiled),
        flash=flash_of(graph),
        sram=Sram(plan.arena, block_bytes(items)),
    )


def _input(graph: Graph) -> Input:
    entry, shape = graph.input, graph.tensors[graph.input.tensor].shape
    moved = graph.hop or None
    return Input(shape, entry.gain, entry.offset, entry.table or None, graph.sound, graph.units, moved)


def _trained(item: Trainable) -> Trained:
    return Trained(
        name=item.name,
        layer=item.layer,
        kind=item.kind,
        dtype=item.dtype,
        shape=item.shape,
        offset=item.offset,
        bytes=len(item.data),
        channels=item.channels,
        scale=_floats(item.scale),
        base=_floats(item.base),
        source=Source(**vars(item.source)),
        dead=item.dead,
    )


def _floats(values: np.ndarray | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(float(v) for v in np.asarray(values))


def _tensors(graph: Graph, plan: Plan) -> tuple[Tensor, ...]:
    result = []
    for p in sorted(plan.placements.values(), key=lambda p: (p.birth, p.offset, p.name)):
        tensor = graph.tensors.get(p.name)
        shape = tensor.shape if tensor else (p.bytes,)
        dtype = tensor.dtype if tensor else "f32" if p.kind == "error_scale" else "u8"
        result.append(Tensor(p.name, p.kind, p.bytes, p.offset, p.birth, p.death, shape, dtype))
    return tuple(result)


def _step(graph: Graph, index: int, node: Node) -> Step:
    phase = "forward" if index < len(graph.forward_nodes) else "backward"
    macs = TABLE[node.op].macs(graph, node)
    return Step(index, phase, node.op, node.name, macs, step_text(graph, index, node))


def _replay(compiled: Compiled) -> Replay:
    graph = compiled.graph
    return Replay(
        records=compiled.records,
        record_bytes=record_bytes(graph),
        part=part_of(graph),
        bytes=compiled.replay_bytes,
        all_in_sram=compiled.sram,
        tensors=graph.record,
        step=graph.cut,
    )


def rows(compiled: Compiled) -> tuple[Layer, ...]:
    """The layers in forward order."""
    trainable: Counter[str] = Counter()  # layer -> bytes
    for item in layout(compiled.graph):
        trainable[item.layer] += len(item.data)
    layers = (node for node in compiled.graph.forward_layers if not saves(node))
    return tuple(_row(compiled, node, trainable[node.owner]) for node in layers)


def _row(compiled: Compiled, node: Node, trainable: int) -> Layer:
    graph, plan = compiled.graph, compiled.plan
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    window = node.window
    own = [plan.placements[t] for t in (f"saved:{node.name}",) if t in plan.placements]
    placed = [plan.placements[t] for t in node.outputs[:1] if t in plan.placements]
    kept = [p for p in placed if p.kind == "saved"]
    masks = [plan.placements[t] for t in node.outputs[1:]]
    return Layer(
        layer=node.name,
        op=node.op,
        input=x.shape,
        output=y.shape,
        kernel=(window.kh, window.kw) if window else None,
        stride=(window.stride_h, window.stride_w) if window else None,
        macs=TABLE[node.op].macs(graph, node),
        trained=_learns(graph, node),
        flash_bytes=sum(t.nbytes for t in forward_op(node).tables(graph, node)),
        trainable_bytes=trainable,
        saved_bytes=sum(p.bytes for p in (*own, *kept)),
        mask_bytes=sum(p.bytes for p in masks),
    )


def _learns(graph: Graph, node: Node) -> str:
    """What of a layer learns: "-", "bias", "weight 12/24 + bias", "all"."""
    if forward_op(node).learns is Learns.HEAD:
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


def flash_of(graph: Graph) -> Flash:
    """The chip's flash of the model by kind; the firmware's own code is not in it."""
    kinds = {"weights": 0, "biases": 0, "tables": 0}
    for table in tables.collect(graph):
        kinds[table.kind] += 0 if tables.is_outside(table) else table.nbytes
    return Flash(**kinds, trainables_init=len(stored_block(layout(graph))))


def model_flash(graph: Graph) -> int:
    """Flash of the model's tables."""
    kinds = flash_of(graph)
    return kinds.weights + kinds.biases + kinds.tables + kinds.trainables_init


def flash_bound(graph: Graph) -> int:
    """What flash_total() is at most: with all kernels, so that layers add up."""
    return model_flash(graph) + most_firmware_flash(graph)


def flash_total(graph: Graph, board: str | None = None) -> int:
    """Flash of the model and, estimated, of the firmware's own code. board: None: the default one."""
    return model_flash(graph) + firmware_flash(graph, board or boards.DEFAULT)
