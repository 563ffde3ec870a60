"""What fills the arena at a step."""

from __future__ import annotations

import itertools

from microtrain.base.plan import Plan


def arena_kinds(plan: Plan, step: int) -> dict[str, int]:
    """Bytes of the arena by kind of tensor at a step, `unused` last; they sum up to the arena.

    Where tensors share bytes (an op that works in place), the younger one owns them.
    """
    alive = sorted(plan.alive(step), key=lambda t: (-t.birth, t.name))
    edges = sorted({0, plan.arena.bytes, *(t.offset for t in alive), *(t.end for t in alive)})
    kinds: dict[str, int] = {}
    for low, high in itertools.pairwise(edges):
        owner = next((t.kind for t in alive if t.offset <= low < t.end), "unused")
        kinds[owner] = kinds.get(owner, 0) + high - low
    unused = kinds.pop("unused", 0)
    return {**dict(sorted(kinds.items(), key=lambda k: (-k[1], k[0]))), "unused": unused}
