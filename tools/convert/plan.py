"""The memory planner: lifetimes of all tensors, and an offset in the arena for each.

`check_plan.py` proves the result and shares no code with this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .ir import Graph, Tensor
from .ops import TABLE

ALIGNMENT = 8
GAP = 0.005  # of the arena: closer than this to the lower bound the solver stops
WORK = 4.0  # the solver's own deterministic measure of work; about that many seconds


@dataclass(frozen=True)
class Buffer:
    """Bytes of the arena that belong to one tensor (or to several that share them) from birth to death.

    size          bytes, > 0, a multiple of ALIGNMENT
    birth, death  first and last step, inclusive, at which the bytes must not be touched by others
    tensors       the tensor names; more than one where an op works in place
    """

    size: int
    birth: int
    death: int
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class Placement:
    """Where one part of a tensor lies: its name ("err:x" for int8 data, "err:x/scale" for the scales)."""

    name: str
    offset: int
    bytes: int
    birth: int
    death: int
    kind: str


@dataclass(frozen=True)
class Plan:
    """Offsets of everything in the arena of one model.

    arena        bytes
    lower_bound  bytes alive at the busiest step: no plan for this schedule can be smaller
    peak_step    the busiest step
    """

    placements: Mapping[str, Placement]
    arena: int
    lower_bound: int
    peak_step: int


def align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def parts(tensor: Tensor) -> dict[str, int]:
    """Buffers that a tensor consists of, and their bytes."""
    if tensor.dtype == "error":
        return {tensor.name: tensor.elements, f"{tensor.name}/scale": 4 * tensor.channels}
    if tensor.dtype == "bits":
        return {tensor.name: tensor.pixels * ((tensor.channels + 7) // 8)}
    return {tensor.name: tensor.elements * {"f32": 4, "s8": 1, "u8": 1}[tensor.dtype]}


def tensor_bytes(tensor: Tensor) -> int:
    return sum(align(size) for size in parts(tensor).values())


def lifetimes(graph: Graph) -> dict[str, tuple[int, int]]:
    """First and last step of each tensor, inclusive. The image is there before step 0."""
    life: dict[str, tuple[int, int]] = {graph.input.tensor: (0, 0)}
    for step, node in enumerate(graph.nodes):
        for tensor in node.outputs:
            life[tensor] = (step, step)
        for tensor in node.reads:
            life[tensor] = (life[tensor][0], step)
    return life


def buffers(graph: Graph) -> list[Buffer]:
    """All buffers of a graph: tensors, in-place chains merged, and each step's scratch."""
    life = lifetimes(graph)
    shared = _in_place(graph, life)
    chains: dict[str, list[str]] = {}
    for tensor in life:
        chains.setdefault(_root(tensor, shared), []).append(tensor)
    result = []
    for chain in chains.values():
        sizes = [parts(graph.tensors[t]) for t in chain]
        birth, death = min(life[t][0] for t in chain), max(life[t][1] for t in chain)
        for i in range(max(len(s) for s in sizes)):
            names = tuple(list(s)[i] for s in sizes if i < len(s))
            size = max(s[name] for s in sizes for name in s if name in names)
            result.append(Buffer(align(size), birth, death, names))
    for step, node in enumerate(graph.nodes):
        scratch = TABLE[node.op].scratch(graph, node)
        if scratch:
            result.append(Buffer(align(scratch), step, step, (f"scratch:{step}",)))
    return result


def _in_place(graph: Graph, life: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Tensor -> the dying input whose memory it takes."""
    shared: dict[str, str] = {}
    for step, node in enumerate(graph.nodes):
        for position in TABLE[node.op].in_place:
            if position >= len(node.inputs):
                continue
            source, result = node.inputs[position], node.outputs[0]
            same = parts(graph.tensors[source]).values(), parts(graph.tensors[result]).values()
            if life[source][1] == step and list(same[0]) == list(same[1]) and node.inputs.count(source) == 1:
                shared[result] = source
                break
    return shared


def _root(tensor: str, shared: Mapping[str, str]) -> str:
    while tensor in shared:
        tensor = shared[tensor]
    return tensor


def bytes_alive(items: Sequence[Buffer]) -> dict[int, int]:
    """Bytes alive at each step."""
    steps = range(max((b.death for b in items), default=0) + 1)
    return {s: sum(b.size for b in items if b.birth <= s <= b.death) for s in steps}


def place(items: Sequence[Buffer], bound: int) -> tuple[list[int], int]:
    """Offset of each buffer and the arena's size: first fit in several orders, then a solver if need be."""
    keys: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (-items[i].size, items[i].birth, i),
        lambda i: (-(items[i].death - items[i].birth + 1) * items[i].size, i),
        lambda i: (-(items[i].death - items[i].birth), -items[i].size, i),
    )
    orders = [sorted(range(len(items)), key=key) for key in keys]
    offsets, arena = min((first_fit(items, order) for order in orders), key=lambda placed: placed[1])
    return (offsets, arena) if arena == bound else solve(items, bound, offsets, arena)


def first_fit(items: Sequence[Buffer], order: Sequence[int]) -> tuple[list[int], int]:
    """Each buffer in the lowest gap that fits, in the given order."""
    offsets = [-1] * len(items)
    for index in order:
        item, offset = items[index], 0
        rivals = (i for i, o in enumerate(offsets) if o >= 0 and overlap(item, items[i]))
        for start, size in sorted((offsets[i], items[i].size) for i in rivals):
            if offset + item.size <= start:
                break
            offset = max(offset, start + size)
        offsets[index] = offset
    return offsets, max(o + item.size for o, item in zip(offsets, items, strict=True))


def overlap(a: Buffer, b: Buffer) -> bool:
    """True when both are alive at some step."""
    return a.birth <= b.death and b.birth <= a.death


def solve(items: Sequence[Buffer], bound: int, hint: list[int], arena: int) -> tuple[list[int], int]:
    """Two-dimensional packing by OR-tools' CP-SAT: time is given, offsets are sought, the top is minimised.

    Starts from `hint` and stops at `bound`, near it (GAP), or after a fixed amount of work: the result is
    the same on every machine.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    top = model.new_int_var(bound // ALIGNMENT, arena // ALIGNMENT, "top")
    offsets, times, spaces = [], [], []
    for i, item in enumerate(items):
        size = item.size // ALIGNMENT
        offset = model.new_int_var(0, arena // ALIGNMENT - size, f"offset{i}")
        times.append(model.new_fixed_size_interval_var(item.birth, item.death - item.birth + 1, f"time{i}"))
        spaces.append(model.new_fixed_size_interval_var(offset, size, f"space{i}"))
        model.add(offset + size <= top)
        model.add_hint(offset, hint[i] // ALIGNMENT)
        offsets.append(offset)
    model.add_no_overlap_2d(times, spaces)
    model.minimize(top)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.relative_gap_limit = GAP
    solver.parameters.max_deterministic_time = WORK
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return hint, arena
    return [solver.value(o) * ALIGNMENT for o in offsets], int(solver.objective_value) * ALIGNMENT


def plan(graph: Graph) -> Plan:
    """Place every tensor."""
    items = buffers(graph)
    alive = bytes_alive(items)
    bound = max(alive.values())
    offsets, arena = place(items, bound)
    placements = {}
    life = lifetimes(graph)
    for index, item in enumerate(items):
        for name in item.tensors:
            tensor = name.removesuffix("/scale")
            birth, death = life.get(tensor, (item.birth, item.death))
            size = parts(graph.tensors[tensor])[name] if tensor in life else item.size
            placements[name] = Placement(name, offsets[index], size, birth, death, kind(graph, name, death))
    peak = next(s for s, n in alive.items() if n == bound)
    return Plan(placements, arena, bound, peak)


def kind(graph: Graph, name: str, death: int) -> str:
    """What a part of a tensor is, for reports (docs/plan.md lists the kinds)."""
    if name.startswith("scratch:"):
        return "scratch"
    if name.endswith("/scale"):
        return "error_scale"
    tensor = graph.tensors[name]
    if name == graph.input.tensor:
        return "input"
    if tensor.dtype == "s8":
        return "saved" if 0 <= graph.forward <= death else "activation"
    return {"error": "error", "bits": "mask", "u8": "saved", "f32": "head"}[tensor.dtype]
