"""Independent proof of a memory plan. Shares no code with the planner: it replays the steps of a graph.

Every byte of the arena has at most one owner. A step claims the bytes of what it writes and of its scratch,
and must find the bytes of what it reads as their writer left them. A stream that grows into its own input is
replayed row by row.
"""

from __future__ import annotations

from microtrain.convert.ir import ConvertError, Graph, Node, Tensor
from microtrain.convert.ops import TABLE, hop, log_mel, saves

from . import imprint
from .plan import Plan


def check_plan(graph: Graph, plan: Plan) -> None:
    """Raise ConvertError naming the tensor whose bytes were overwritten before their last reader ran."""
    owner: list[str | None] = [None] * plan.arena
    for name in graph.stored_input:
        _claim(owner, plan, graph.tensors[name])
    arriving = _arriving(owner, graph, plan)
    for step, node in enumerate(graph.nodes):
        if graph.record and step == graph.cut:
            _forget(owner, plan, graph)
        where = f"step {step} ({node.op} of {node.name})"
        later = {t for n in graph.nodes[step + 1 :] for t in n.reads}
        scratch = TABLE[node.op].scratch(graph, node)
        _claim_scratch(owner, plan, step, scratch, where)
        reads = [name for name in node.reads if name in plan.placements]
        for name in reads:
            _expect(owner, plan, graph.tensors[name], where)
        for name in node.outputs:
            for victim in set(reads):
                if _touch(plan, graph.tensors[victim], graph.tensors[name]):
                    grows = victim not in later and _grows_into(graph, plan, node, name, victim)
                    if not grows:
                        raise ConvertError(f"memory plan: {where} writes {name} over its own input {victim}")
            _claim(owner, plan, graph.tensors[name])
        if scratch and owner.count(f"scratch:{step}") < scratch:
            raise ConvertError(f"memory plan: the scratch of {where} overlaps a tensor it writes")
        for name in (*reads, *node.outputs):
            if name in later or name in node.outputs:
                _expect(owner, plan, graph.tensors[name], where)
        if step == 0:
            _check_kept(owner, arriving, where)
    if graph.imprint or graph.hop:
        _check_inference(graph, plan)


def _arriving(owner: list[str | None], graph: Graph, plan: Plan) -> dict[str, int]:
    """Claims what is used while rows come in: name -> bytes."""
    sizes = {log_mel.NAME: log_mel.memory_bytes(graph), hop.NAME: hop.memory_bytes(graph)}
    for name, size in sizes.items():
        if size:
            _claim_bytes(owner, plan, name, size)
    return sizes


def _check_kept(owner: list[str | None], sizes: dict[str, int], where: str) -> None:
    for name, size in sizes.items():
        if owner.count(name) != size:
            raise ConvertError(f"memory plan: the memory of {name} overlaps {where}")


def _check_inference(graph: Graph, plan: Plan) -> None:
    """An inference leaves the statistics of features as they are, and the head is solved beside them; where
    windows overlap, it leaves what the next one goes on with."""
    owner: list[str | None] = [None] * plan.arena
    size, solving = imprint.imprint_bytes(graph), imprint.scratch_bytes(graph)
    if size:
        _claim_bytes(owner, plan, imprint.NAME, size)
    for name in graph.stored_input:
        _claim(owner, plan, graph.tensors[name])
    arriving = _arriving(owner, graph, plan)
    for step, node in enumerate(graph.forward_nodes):
        if saves(node):
            continue
        where = f"step {step} ({node.op} of {node.name}) of an inference"
        _claim_scratch(owner, plan, step, TABLE[node.op].scratch(graph, node), where)
        for name in node.outputs[:1]:
            _claim(owner, plan, graph.tensors[name])
    if graph.hop:
        _check_kept(owner, arriving, "an inference")
    if not graph.imprint:
        return
    _expect(owner, plan, graph.tensors[imprint.head_of(graph).inputs[0]], "the sum of features")
    _claim_bytes(owner, plan, imprint.SCRATCH, solving)
    if owner.count(imprint.NAME) != size:
        raise ConvertError("memory plan: the statistics of features do not outlive an inference")


def _claim_bytes(owner: list[str | None], plan: Plan, name: str, size: int) -> None:
    start = plan.placements[name].offset
    if start % 8 or start + size > plan.arena:
        raise ConvertError(f"memory plan: {name} is misplaced")
    owner[start : start + size] = [name] * size


def _forget(owner: list[str | None], plan: Plan, graph: Graph) -> None:
    """Leave in the arena what a record puts back, as a replayed step begins."""
    kept = {part for name in graph.record for part, _, _ in _ranges(plan, graph.tensors[name])}
    for name in graph.record:
        _expect(owner, plan, graph.tensors[name], "the record for replay")
    owner[:] = [part if part in kept else None for part in owner]


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


def _claim(owner: list[str | None], plan: Plan, tensor: Tensor) -> None:
    for part, start, end in _ranges(plan, tensor):
        owner[start:end] = [part] * (end - start)


def _expect(owner: list[str | None], plan: Plan, tensor: Tensor, where: str) -> None:
    for part, start, end in _ranges(plan, tensor):
        wrong = {o for o in owner[start:end] if o != part}
        if wrong:
            raise ConvertError(
                f"memory plan: {where} needs {part}, whose bytes {wrong.pop() or 'nothing'} has taken"
            )


def _touch(plan: Plan, a: Tensor, b: Tensor) -> bool:
    return any(s < f and t < e for _, s, e in _ranges(plan, a) for _, t, f in _ranges(plan, b))


def _claim_scratch(owner: list[str | None], plan: Plan, step: int, size: int, where: str) -> None:
    if not size:
        return
    start = plan.placements[f"scratch:{step}"].offset
    if start % 8 or start + size > plan.arena:
        raise ConvertError(f"memory plan: the scratch of {where} is misplaced")
    owner[start : start + size] = [f"scratch:{step}"] * size


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
            seen = made[stage] + part.window.pad_h + (rows_in == made[stage]) * part.window.kh
            while (
                made[stage + 1] < rows_out and seen >= made[stage + 1] * part.window.stride_h + part.window.kh
            ):
                made[stage + 1] += 1
        history.append((entered, made[-1]))
    return history
