"""Independent proof of a memory plan. Shares no code with the planner: it replays the steps of a graph.

Every byte of the arena has at most one owner. A step claims the bytes of what it writes and of its scratch,
and must find the bytes of what it reads as their writer left them.
"""

from __future__ import annotations

from .ir import ConvertError, Graph, Tensor
from .ops import TABLE
from .plan import Plan


def check_plan(graph: Graph, plan: Plan) -> None:
    """Raise ConvertError naming the tensor whose bytes were overwritten before their last reader ran."""
    owner: list[str | None] = [None] * plan.arena
    _claim(owner, plan, graph.tensors[graph.input.tensor])
    for step, node in enumerate(graph.nodes):
        where = f"step {step} ({node.op} of {node.name})"
        later = {t for n in graph.nodes[step + 1 :] for t in n.reads}
        scratch = TABLE[node.op].scratch(graph, node)
        _claim_scratch(owner, plan, step, scratch, where)
        for name in node.reads:
            _expect(owner, plan, graph.tensors[name], where)
        overwritable = {node.inputs[i] for i in TABLE[node.op].in_place if i < len(node.inputs)} - later
        for name in node.outputs:
            for victim in set(node.reads) - overwritable:
                if _touch(plan, graph.tensors[victim], graph.tensors[name]):
                    raise ConvertError(f"memory plan: {where} writes {name} over its own input {victim}")
            _claim(owner, plan, graph.tensors[name])
        if scratch and owner.count(f"scratch:{step}") < scratch:
            raise ConvertError(f"memory plan: the scratch of {where} overlaps a tensor it writes")
        for name in (*node.reads, *node.outputs):
            if name in later or name in node.outputs:
                _expect(owner, plan, graph.tensors[name], where)


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
