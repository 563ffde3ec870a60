"""Independent proof of a memory plan. Shares no code with the planner: it replays the steps of a graph.

Every byte of the arena has at most one owner. A step claims the bytes of what it writes and of its scratch,
and must find the bytes of what it reads as their writer left them. A stream that grows into its own input is
replayed row by row.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from microtrain.convert.ir import ConvertError, Graph, Node, Tensor
from microtrain.convert.ops import TABLE, forward_op, hop, log_mel, saves
from microtrain.convert.ops.stage import LastStage

from . import imprint
from .plan import Plan


def check_plan(graph: Graph, plan: Plan) -> None:
    """Raise ConvertError naming the tensor whose bytes were overwritten before their last reader ran."""
    arena = _Arena(plan)
    for name in graph.stored_input:
        _claim(arena, graph.tensors[name])
    arriving = _arriving(arena, graph)
    last = {t: step for step, node in enumerate(graph.nodes) for t in node.reads}
    for step, node in enumerate(graph.nodes):
        if graph.record and step == graph.cut:
            _forget(arena, graph, arriving if step == 0 else ())
        where = f"step {step} ({node.op} of {node.name})"
        later = {t for t in (*node.reads, *node.outputs) if last.get(t, -1) > step}
        scratch = TABLE[node.op].scratch(graph, node)
        _claim_bytes(arena, f"scratch:{step}", scratch)
        reads = [name for name in node.reads if name in plan.placements]
        for name in reads:
            _expect(arena, graph.tensors[name], where)
        for name in node.outputs:
            for victim in set(reads):
                if _touch(plan, graph.tensors[victim], graph.tensors[name]):
                    grows = victim not in later and _grows_into(graph, plan, node, name, victim)
                    if not grows:
                        raise ConvertError(f"memory plan: {where} writes {name} over its own input {victim}")
            _claim(arena, graph.tensors[name])
        if not arena.owns(f"scratch:{step}", scratch):
            raise ConvertError(f"memory plan: the scratch of {where} overlaps a tensor it writes")
        for name in (*reads, *node.outputs):
            if name in later or name in node.outputs:
                _expect(arena, graph.tensors[name], where)
        if step == 0:
            _check_kept(arena, arriving, where)
    if graph.imprint or graph.hop:
        _check_inference(graph, plan)


class _Arena:
    """Who owns each byte of a plan, by number; 0: nobody."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.owner = np.zeros(plan.arena, np.int32)
        self.numbers = {"nothing": 0}

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))

    def claim(self, name: str, start: int, end: int) -> None:
        self.owner[start:end] = self.number(name)

    def stranger(self, name: str, start: int, end: int) -> str | None:
        """One that owns any of these bytes beside the name."""
        found = self.owner[start:end]
        others = found[found != self.number(name)]
        return list(self.numbers)[others[0]] if others.size else None

    def owns(self, name: str, size: int) -> bool:
        """Whether all of so many bytes are still those of a name; true of 0 bytes, which lie nowhere."""
        start = self.plan.placements[name].offset if size else 0
        return self.stranger(name, start, start + size) is None

    def keep(self, names: set[str]) -> None:
        """Nobody owns what was not these names'."""
        kept = [self.number(name) for name in names]
        self.owner[~np.isin(self.owner, kept)] = 0


def _arriving(arena: _Arena, graph: Graph) -> dict[str, int]:
    """Claims what is used while rows come in: name -> bytes."""
    sizes = {log_mel.NAME: log_mel.memory_bytes(graph), hop.NAME: hop.memory_bytes(graph)}
    for name, size in sizes.items():
        _claim_bytes(arena, name, size)
    return sizes


def _check_kept(arena: _Arena, sizes: dict[str, int], where: str) -> None:
    for name, size in sizes.items():
        if not arena.owns(name, size):
            raise ConvertError(f"memory plan: the memory of {name} overlaps {where}")


def _check_inference(graph: Graph, plan: Plan) -> None:
    """An inference leaves the statistics of features as they are, and the head is solved beside them; where
    windows overlap, it leaves what the next one goes on with."""
    arena = _Arena(plan)
    size, solving = imprint.imprint_bytes(graph), imprint.scratch_bytes(graph)
    _claim_bytes(arena, imprint.NAME, size)
    for name in graph.stored_input:
        _claim(arena, graph.tensors[name])
    arriving = _arriving(arena, graph)
    for step, node in enumerate(graph.forward_nodes):
        if saves(node):
            continue
        _claim_bytes(arena, f"scratch:{step}", TABLE[node.op].scratch(graph, node))
        for name in node.outputs[:1]:
            _claim(arena, graph.tensors[name])
    if graph.hop:
        _check_kept(arena, arriving, "an inference")
    if not graph.imprint:
        return
    _expect(arena, graph.tensors[imprint.head_of(graph).inputs[0]], "the sum of features")
    _claim_bytes(arena, imprint.SCRATCH, solving)
    if not arena.owns(imprint.NAME, size):
        raise ConvertError("memory plan: the statistics of features do not outlive an inference")


def _claim_bytes(arena: _Arena, name: str, size: int) -> None:
    """Of what is no tensor; 0 bytes lie nowhere."""
    if not size:
        return
    start = arena.plan.placements[name].offset
    if start % 8 or start + size > arena.plan.arena:
        raise ConvertError(f"memory plan: {name} is misplaced")
    arena.claim(name, start, start + size)


def _forget(arena: _Arena, graph: Graph, arriving: Iterable[str]) -> None:
    """Leave in the arena what a record puts back, as a replayed step begins, and what a first step behind the
    last row must leave alone."""
    for name in graph.record:
        _expect(arena, graph.tensors[name], "the record for replay")
    recorded = {part for name in graph.record for part, _, _ in _ranges(arena.plan, graph.tensors[name])}
    arena.keep(recorded.union(arriving))


def _ranges(plan: Plan, tensor: Tensor) -> list[tuple[str, int, int]]:
    """(part, first byte, one past the last byte), sizes worked out from the tensor itself."""
    if tensor.dtype == "bits":
        sizes = {tensor.name: tensor.shape[0] * tensor.shape[1] * -(-tensor.shape[2] // 8)}
    else:
        width = 4 if tensor.dtype == "f32" else 1
        sizes = {tensor.name: tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * width}
    if tensor.dtype == "error":
        sizes[f"{tensor.name}/scale"] = 4 * tensor.shape[2]
    ranges = []
    for part, size in sizes.items():
        offset = plan.placements[part].offset
        if offset % 8 or offset < 0 or offset + size > plan.arena:
            raise ConvertError(
                f"memory plan: {part} at byte {offset} is misplaced in an arena of {plan.arena} bytes"
            )
        ranges.append((part, offset, offset + size))
    return ranges


def _claim(arena: _Arena, tensor: Tensor) -> None:
    for part, start, end in _ranges(arena.plan, tensor):
        arena.claim(part, start, end)


def _expect(arena: _Arena, tensor: Tensor, where: str) -> None:
    for part, start, end in _ranges(arena.plan, tensor):
        other = arena.stranger(part, start, end)
        if other is not None:
            raise ConvertError(f"memory plan: {where} needs {part}, whose bytes {other} has taken")


def _touch(plan: Plan, a: Tensor, b: Tensor) -> bool:
    return any(s < f and t < e for _, s, e in _ranges(plan, a) for _, t, f in _ranges(plan, b))


def _grows_into(graph: Graph, plan: Plan, node: Node, result: str, source: str) -> bool:
    """True where a step may write its result over an input: element by element, or row by row behind it."""
    if source not in {node.inputs[i] for i in TABLE[node.op].in_place(graph, node)}:
        return False
    x, y = graph.tensors[source], graph.tensors[result]
    if not node.parts:
        pairs = zip(_ranges(plan, x), _ranges(plan, y), strict=True)
        return all(a[1] == b[1] or a[2] <= b[1] or b[2] <= a[1] for a, b in pairs)
    x_start, y_start = plan.placements[source].offset, plan.placements[result].offset
    x_row, y_row = x.shape[1] * x.shape[2], y.shape[1] * y.shape[2]
    for entered, made in _rows_through(graph, node):
        unread = x_start + entered * x_row
        if entered < x.shape[0] and y_start + made * y_row > unread:
            return False
    return y_start <= x_start or source not in node.parts[-1].inputs[1:]


def _rows_through(graph: Graph, node: Node) -> list[tuple[int, int]]:
    """(input rows that entered, output rows made) after each input row, each stage asked again and again."""
    chain = [part for part in node.parts if part.window is not None]
    made = [0] * (len(chain) + 1)
    history = []
    for entered in range(1, graph.tensors[node.inputs[0]].shape[0] + 1):
        made[0] = entered
        for stage, part in enumerate(chain):
            assert part.window is not None
            rows_in, rows_out = (graph.tensors[t].shape[0] for t in (part.inputs[0], part.outputs[0]))
            if isinstance(forward_op(part).stage, LastStage) and made[stage] < rows_in:
                continue
            seen = made[stage] + part.window.pad_h + (rows_in == made[stage]) * part.window.kh
            while (
                made[stage + 1] < rows_out and seen >= made[stage + 1] * part.window.stride_h + part.window.kh
            ):
                made[stage + 1] += 1
        history.append((entered, made[-1]))
    return history
