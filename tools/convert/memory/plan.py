"""The memory planner: lifetimes of all tensors, and an offset in the arena for each.

`check_plan.py` proves the result and shares no code with this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from microtrain.base.plan import IMPRINT
from microtrain.convert.ir import Graph
from microtrain.convert.ops import TABLE, hop, log_mel, saves
from microtrain.convert.storage import align, parts

from . import imprint
from .solver import packed, smallest

Life = tuple[int, int]  # first and last step, inclusive
GAP = 0.005  # of the arena: a plan that is closer than this to the lower bound is good enough
MOST = 1000  # buffers: with more of them the solver takes minutes before it has done any of its work


@dataclass(frozen=True)
class Piece:
    """Bytes low .. low + size of a buffer, taken from step `birth` to step `death`, inclusive."""

    birth: int
    death: int
    low: int
    size: int


@dataclass(frozen=True)
class Buffer:
    """Bytes of the arena that belong to one tensor, or to several that grow in each other's place.

    pieces   the bytes taken over time; no two at the same step; multiples of ALIGNMENT, the lowest 0
    tensors  tensor name -> its first byte
    """

    pieces: tuple[Piece, ...]
    tensors: Mapping[str, int]

    @property
    def birth(self) -> int:
        return min(p.birth for p in self.pieces)

    @property
    def death(self) -> int:
        return max(p.death for p in self.pieces)

    @property
    def height(self) -> int:
        return max(p.low + p.size for p in self.pieces)

    @property
    def area(self) -> int:
        """Bytes times the steps for which they are taken."""
        return sum(p.size * (p.death - p.birth + 1) for p in self.pieces)


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


def lifetimes(graph: Graph, inference: bool = False) -> dict[str, Life]:
    """First and last step of each tensor, inclusive. An image that is kept whole is there before step 0.

    inference  of a forward pass alone, in which nothing is made that only the backward pass wants
    """
    life: dict[str, Life] = dict.fromkeys(graph.stored_input, (0, 0))
    for step, node in enumerate(graph.forward_nodes if inference else graph.nodes):
        if inference and saves(node):
            continue
        for tensor in node.outputs[:1] if inference else node.outputs:
            life[tensor] = (step, step)
        for tensor in node.reads:
            if tensor in life:
                life[tensor] = (life[tensor][0], step)
    return life


def buffers(graph: Graph, in_place: bool = True) -> list[Buffer]:
    """All buffers of a graph: tensors, those that share their memory together, and each step's scratch."""
    life = lifetimes(graph)
    links = _in_place(graph, life) if in_place else {}
    chains: dict[str, dict[str, int]] = {}  # first tensor of a chain -> tensors and their places
    for tensor in life:  # in order of birth: a tensor comes after the one whose place it takes
        if tensor not in links:
            chains[tensor] = {tensor: 0}
            continue
        source, before = links[tensor]
        chain = next(c for c in chains.values() if source in c)
        chain[tensor] = chain[source] - align(before)
    result = []
    times = _times(graph, life)
    for chain in chains.values():
        names = {t: parts(graph.tensors[t]) for t in chain}
        for i in range(max(len(n) for n in names.values())):
            boxes = [
                (list(n)[i], Piece(*time, chain[t], align(list(n.values())[i])))
                for t, n in names.items()
                if i < len(n)
                for time in times[t]
            ]
            result.append(_joined(boxes))
    return result + _scratch(graph) + _statistics(graph) + _sound(graph) + _hop(graph)


def _times(graph: Graph, life: Mapping[str, Life]) -> dict[str, list[Life]]:
    """When each tensor is alive: in a training iteration and, where something that is kept from inference to
    inference wants to know what one leaves free, once more in an inference behind it."""
    later = lifetimes(graph, inference=True) if keeps(graph) else {}
    after = len(graph.nodes)
    return {
        name: [time, *([(after + later[name][0], after + later[name][1])] if name in later else [])]
        for name, time in life.items()
    }


def keeps(graph: Graph) -> bool:
    """Whether something lies in the arena from inference to inference."""
    return bool(graph.imprint or graph.hop)


def _scratch(graph: Graph) -> list[Buffer]:
    result, after = [], len(graph.nodes)
    for step, node in enumerate(graph.nodes):
        size = TABLE[node.op].scratch(graph, node)
        if size:
            again = keeps(graph) and step < len(graph.forward_nodes) and not saves(node)
            steps = [step, after + step] if again else [step]
            result.append(_joined([(f"scratch:{step}", Piece(s, s, 0, align(size))) for s in steps]))
    return result


def _statistics(graph: Graph) -> list[Buffer]:
    """What the head is made of after one look at each sample: kept from inference to inference."""
    if not graph.imprint:
        return []
    first, last = len(graph.nodes), len(graph.nodes) + len(graph.forward_nodes) - 1
    return [
        _joined([(imprint.NAME, Piece(first, last, 0, align(imprint.imprint_bytes(graph))))]),
        _joined([(imprint.SCRATCH, Piece(last, last, 0, align(imprint.scratch_bytes(graph))))]),
    ]


def _sound(graph: Graph) -> list[Buffer]:
    """What the front end hears with, until the first step has its last row."""
    return _hearing(log_mel.NAME, log_mel.memory_bytes(graph), graph)


def _hop(graph: Graph) -> list[Buffer]:
    """What is kept from window to window."""
    return _hearing(hop.NAME, hop.memory_bytes(graph), graph)


def _hearing(name: str, size: int, graph: Graph) -> list[Buffer]:
    """Bytes that are used while rows come in; where windows overlap, they stay as they are from one to the
    next, but for what is learned between."""
    after, last = len(graph.nodes), len(graph.forward_nodes) - 1 if graph.hop else 0
    pieces = [
        Piece(0, 0, 0, align(size)),
        *([Piece(after, after + last, 0, align(size))] if keeps(graph) else []),
    ]
    return [_joined([(name, piece) for piece in pieces])] if size else []


def _joined(boxes: list[tuple[str, Piece]]) -> Buffer:
    """One buffer of named pieces; where two are alive at a step, it takes the bytes of both."""
    lowest = min(p.low for _, p in boxes)
    pieces = []
    for start, end in pairwise(sorted({s for _, p in boxes for s in (p.birth, p.death + 1)})):
        alive = [p for _, p in boxes if p.birth <= start <= p.death]
        if alive:
            low, high = min(p.low for p in alive), max(p.low + p.size for p in alive)
            pieces.append(Piece(start, end - 1, low - lowest, high - low))
    return Buffer(tuple(pieces), {name: p.low - lowest for name, p in boxes})


def _in_place(graph: Graph, life: Mapping[str, Life]) -> dict[str, tuple[str, int]]:
    """Tensor -> the dying input in whose memory it grows, and how many bytes before it at least."""
    links: dict[str, tuple[str, int]] = {}
    for step, node in enumerate(graph.nodes):
        for position, before in TABLE[node.op].in_place(graph, node).items():
            source = node.inputs[position]
            if life[source][1] == step and node.inputs.count(source) == 1:
                links[node.outputs[0]] = source, before
                break
    return links


def bytes_alive(items: Sequence[Buffer]) -> dict[int, int]:
    """Bytes alive at each step."""
    alive = dict.fromkeys(range(max((b.death for b in items), default=0) + 1), 0)
    for piece in (p for b in items for p in b.pieces):
        for step in range(piece.birth, piece.death + 1):
            alive[step] += piece.size
    return alive


def peak(graph: Graph, in_place: bool = True) -> int:
    """Bytes alive at the busiest step: no plan of this order of steps can be smaller."""
    return busiest(graph, in_place)[0]


def busiest(graph: Graph, in_place: bool = True) -> tuple[int, set[str]]:
    """Bytes alive at the busiest step, and the tensors that they belong to."""
    items = buffers(graph, in_place)
    alive = bytes_alive(items)
    step = max(alive, key=alive.__getitem__)
    held = (item for item in items if any(p.birth <= step <= p.death for p in item.pieces))
    return alive[step], {tensor for item in held for tensor in item.tensors}


def fits(graph: Graph, arena: int, in_place: bool = True) -> bool:
    """True where plan() needs at most `arena` bytes; solves only what the bound and first fit leave open."""
    items = buffers(graph, in_place)
    bound = max(bytes_alive(items).values())
    if bound > arena:
        return False
    offsets, greedy = fit(items)
    return greedy <= arena or improved(items, bound, offsets, greedy)[1] <= arena


def place(items: Sequence[Buffer], bound: int) -> tuple[list[int], int]:
    """Offset of each buffer and the arena's size: first fit, improved where that is above the bound."""
    return improved(items, bound, *fit(items))


def improved(items: Sequence[Buffer], bound: int, offsets: list[int], arena: int) -> tuple[list[int], int]:
    """A solver's plan where the one given is too far above the bound, and there are not too many buffers."""
    if arena - bound <= GAP * arena or len(items) > MOST:
        return offsets, arena
    offsets = packed(items, bound) or smallest(items, bound, offsets, GAP)
    return offsets, top(items, offsets)


def fit(items: Sequence[Buffer]) -> tuple[list[int], int]:
    """The best of first fits in several orders: offsets and the arena's size."""
    keys: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (-items[i].height, items[i].birth, i),
        lambda i: (-items[i].area, i),
        lambda i: (-(items[i].death - items[i].birth), -items[i].height, i),
    )
    orders = [sorted(range(len(items)), key=key) for key in keys]
    return min((first_fit(items, order) for order in orders), key=lambda placed: placed[1])


def first_fit(items: Sequence[Buffer], order: Sequence[int]) -> tuple[list[int], int]:
    """Each buffer at the lowest offset where it fits, in the given order."""
    offsets = [-1] * len(items)
    placed = np.empty((sum(len(item.pieces) for item in items), 4), np.int64)
    count = 0
    for index in order:
        item = items[index]
        at = offsets[index] = _lowest(item, placed[:count])
        for piece in item.pieces:
            low = at + piece.low
            placed[count] = piece.birth, piece.death, low, low + piece.size
            count += 1
    return offsets, top(items, offsets)


def top(items: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """Bytes of an arena in which the buffers lie at these offsets."""
    return max(offset + item.height for offset, item in zip(offsets, items, strict=True))


def _lowest(item: Buffer, placed: np.ndarray) -> int:
    """The lowest offset at which no piece of the buffer meets one that is placed.

    placed  first and last step of each, its first byte and the one behind its last
    """
    taken: list[tuple[int, int]] = []  # offsets from .. to, exclusive, at which some piece would meet another
    for piece in item.pieces:
        rivals = placed[(placed[:, 0] <= piece.death) & (placed[:, 1] >= piece.birth)]
        starts, ends = rivals[:, 2] - piece.low - piece.size + 1, rivals[:, 3] - piece.low
        taken += zip(starts.tolist(), ends.tolist(), strict=True)
    offset = 0
    for start, end in sorted(taken):
        if start > offset:
            break
        if end > offset:
            offset = end
    return offset


def plan(graph: Graph, in_place: bool = True, solved: bool = True) -> Plan:
    """Place every tensor.

    in_place  let outputs take the memory of inputs that die
    solved    False: first fit alone, in milliseconds, some percent above the bound
    """
    items = buffers(graph, in_place)
    alive = bytes_alive(items)
    offsets, _ = place(items, max(alive.values())) if solved else fit(items)
    return laid_out(graph, items, offsets, alive)


def laid_out(graph: Graph, items: Sequence[Buffer], offsets: Sequence[int], alive: Mapping[int, int]) -> Plan:
    """The plan in which the buffers lie at these offsets. alive: bytes at each step"""
    bound = max(alive.values())
    peak = next(s for s, n in alive.items() if n == bound) % len(graph.nodes)
    return Plan(placements(graph, items, offsets), top(items, offsets), bound, peak)


def placements(graph: Graph, items: Sequence[Buffer], offsets: Sequence[int]) -> dict[str, Placement]:
    """Where each part of each tensor lies when the buffers lie at these offsets."""
    life, steps, found = lifetimes(graph), len(graph.nodes), {}
    for offset, item in zip(offsets, items, strict=True):
        for name, low in item.tensors.items():
            tensor = name.removesuffix("/scale")
            birth, death = life.get(tensor) or (item.birth % steps, item.pieces[0].death % steps)
            size = parts(graph.tensors[tensor])[name] if tensor in life else item.height
            what = kind(graph, name, birth, death)
            found[name] = Placement(name, offset + low, size, birth, death, what)
    return found


def kind(graph: Graph, name: str, birth: int, death: int) -> str:
    """What a part of a tensor is, for reports (docs/plan.md lists the kinds)."""
    if name.startswith("scratch:") or name in (imprint.SCRATCH, log_mel.NAME, hop.NAME):
        return "scratch"
    if name == imprint.NAME:
        return IMPRINT
    if name.endswith("/scale"):
        return "error_scale"
    tensor = graph.tensors[name]
    if name == graph.input.tensor:
        return "input"
    if tensor.dtype == "s8":
        forward = birth < graph.forward or graph.forward < 0
        return "saved" if forward and 0 <= graph.forward <= death else "activation"
    return {"error": "error", "bits": "mask", "u8": "saved", "f32": "head"}[tensor.dtype]
