"""What candidates cost, from the compiler itself.

The bytes alive at a step of a scheme are those of its biases alone and, for each layer whose weights are
trained as well, what that adds there. So compilations of one such layer each give the cost of every scheme,
in microseconds and to the byte (test/test_search.py compares). What is left to a full conversion is where the
planner does not reach the bytes alive (within 0.5 %).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from microtrain.base.plan import LITE
from microtrain.convert.emit.document import flash_bound
from microtrain.convert.ir import Graph
from microtrain.convert.memory.plan import buffers, bytes_alive, fits
from microtrain.convert.memory.plan import plan as plan_memory
from microtrain.convert.pipeline import Compiled, compile_graph, fixed_sram, training_graph
from microtrain.convert.scheme import Scheme

from .engine import Engine
from .instructions import step_instructions, unmeasured
from .space import Candidate, Space

Key = tuple[str, str, int]
Choice = tuple[int, int]  # number of a convolution and level
ROWS = 8  # of a stream that enter at once


@dataclass(frozen=True)
class Budget:
    """Bytes of all-in SRAM, bytes of flash, instructions of a training step."""

    sram: int
    flash: float = float("inf")
    instructions: float = float("inf")


@dataclass(frozen=True)
class Cost:
    """Of a scheme: bytes and instructions of a training step."""

    sram: int
    flash: float
    instructions: float

    def within(self, budget: Budget) -> bool:
        return (
            self.sram <= budget.sram
            and self.flash <= budget.flash
            and self.instructions <= budget.instructions
        )


@dataclass(frozen=True, eq=False)
class Compilation:
    """What a scheme costs: bytes alive at each step of the training graph, and beside that."""

    alive: Mapping[Key, int]
    fixed: int
    flash: int
    instructions: float

    @property
    def cost(self) -> Cost:
        return Cost(max(self.alive.values()) + self.fixed, self.flash, self.instructions)


@dataclass(frozen=True, eq=False)
class Added:
    """What the trained weights of a layer add to the biases of the last k convolutions.

    alive   bytes at each of the base's steps, int64 [steps]
    own     (step of the base, bytes): alive at the steps that only this layer has, and the step of the base
            that has the bytes of the other layers
    fixed, flash, instructions   more of each
    """

    alive: np.ndarray
    own: tuple[tuple[int, int], ...]
    fixed: int
    flash: int
    instructions: float


@dataclass(frozen=True, eq=False)
class Base:
    """Schemes with the same biases and the same number of fraction bits."""

    alive: np.ndarray
    fixed: int
    flash: int
    instructions: float
    added: Mapping[Choice, Added]

    def without(self, layers: Collection[int]) -> Base:
        """Less the choices of some layers."""
        return replace(self, added={c: added for c, added in self.added.items() if c[0] not in layers})

    def within(self, budget: Budget) -> Base | None:
        """Less the choices that do not fit the budget by themselves; None where the biases alone do not."""
        fit = {choice: added for choice, added in self.added.items() if self.cost([choice]).within(budget)}
        return replace(self, added=fit) if self.cost([]).within(budget) else None

    def cost(self, choices: Iterable[Choice]) -> Cost:
        """Of the scheme with these weights."""
        chosen = [self.added[choice] for choice in choices]
        more = sum((added.alive for added in chosen), np.zeros_like(self.alive))
        peak = int((self.alive + more).max())
        for added in chosen:
            peak = max([peak, *(bytes_ + int(more[at] - added.alive[at]) for at, bytes_ in added.own)])
        fixed = self.fixed + sum(added.fixed for added in chosen)
        flash = self.flash + sum(added.flash for added in chosen)
        return Cost(peak + fixed, flash, self.instructions + sum(added.instructions for added in chosen))


def compiled(graph: Graph, scheme: Scheme, classes: int) -> Compilation:
    """What the compiler says of a scheme, but for the planner's last half percent."""
    trained = training_graph(graph, scheme, classes)
    alive = bytes_alive(buffers(trained))
    steps = {key: alive.get(step, 0) for step, key in enumerate(keys(trained))}
    work = step_instructions(widened(trained))
    return Compilation(steps, fixed_sram(trained), flash_bound(trained), work)


def keys(graph: Graph) -> Iterator[Key]:
    """What each step is called in all schemes, whatever its tensors are called there: its op, its layer, and
    how many such steps there are before it. The sum with a module is its block's."""
    made = {node.outputs[0]: node.name for node in graph.forward_nodes}
    own = {n.name: made[n.inputs[0]] for n in graph.forward_nodes if n.name.endswith(f"{LITE}sum")}
    before: Counter[tuple[str, str]] = Counter()
    for node in graph.nodes:
        name = own.get(node.name, node.name)
        yield node.op, name, before[node.op, name]
        before[node.op, name] += 1


def widened(graph: Graph) -> Graph:
    """The graph with streams as wide as a conversion mostly makes them, where the arena leaves room."""
    return graph.replace(nodes=tuple(replace(n, rows=ROWS) if n.parts else n for n in graph.nodes))


def cost_of(plan: Compiled) -> Cost:
    """Of a whole conversion."""
    return Cost(plan.sram, flash_bound(plan.graph), step_instructions(plan.graph))


def whole_cost(graph: Graph, scheme: Scheme, classes: int, budget: Budget) -> Cost:
    """Of a whole conversion, to the byte; its instructions only where they are limited: how many rows streams
    take at once, which the planner settles last, tells in these alone."""
    if math.isfinite(budget.instructions):
        return cost_of(compile_graph(graph, scheme, classes))
    trained = training_graph(graph, scheme, classes)
    sram = plan_memory(trained).arena + fixed_sram(trained)
    return Cost(sram, flash_bound(trained), step_instructions(widened(trained)))


def keeps(graph: Graph, scheme: Scheme, classes: int, budget: Budget) -> bool:
    """Whether a whole conversion, which may take 0.5 % more SRAM than a search counts, is within the budget.
    A plan is made only where first fit does not tell."""
    if math.isfinite(budget.instructions):
        return whole_cost(graph, scheme, classes, budget).within(budget)
    trained = training_graph(graph, scheme, classes)
    return flash_bound(trained) <= budget.flash and fits(trained, budget.sram - fixed_sram(trained))


def guessed(graph: Graph, space: Space, classes: int, costs: Costs) -> list[str]:
    """Kinds of steps, of all that the costs allow to train, whose instructions were never counted."""
    kinds: set[str] = set()
    for bits in {bits for _, bits in costs.bases}:
        biases = max(k for k, others in costs.bases if others == bits)
        most = dict(sorted(costs.bases[biases, bits].added))
        levels = tuple(most.get(part, 0) for part in range(len(space.usable)))
        scheme = space.scheme(Candidate(biases, levels, bits))
        kinds.update(unmeasured(training_graph(graph, scheme, classes)))
    return sorted(kinds)


def base_of(graph: Graph, space: Space, classes: int, biases: int, bits: int, budget: Budget) -> Base | None:
    """Every scheme with these biases and fraction bits; None where none fits the budget.

    Choices that do not fit by themselves are left out: no scheme has them.
    """
    count = len(space.usable)

    def compile_one(*choices: Choice) -> Compilation:
        levels = dict(choices)
        candidate = Candidate(biases, tuple(levels.get(i, 0) for i in range(count)), bits)
        return compiled(graph, space.scheme(candidate), classes)

    alone = compile_one()
    if not alone.cost.within(budget):
        return None
    added: dict[Choice, Added] = {}
    for layer in space.reached(biases):
        for level in space.usable[layer]:
            found = compile_one((layer, level))
            if not found.cost.within(budget):
                break
            added[layer, level] = difference(alone, found)
    alive = np.array(list(alone.alive.values()), np.int64)
    return Base(alive, alone.fixed, alone.flash, alone.instructions, added)


def difference(base: Compilation, more: Compilation) -> Added:
    """What `more`, with one layer's weights trained, adds to `base`."""
    places = {key: place for place, key in enumerate(base.alive)}
    alive = np.array([more.alive[key] - bytes_ for key, bytes_ in base.alive.items()], np.int64)
    own, following = [], len(places) - 1
    for key, bytes_ in reversed(list(more.alive.items())):
        if key in places:
            following = places[key]
        else:
            own.append((following, bytes_))
    return Added(
        alive,
        tuple(own),
        more.fixed - base.fixed,
        more.flash - base.flash,
        more.instructions - base.instructions,
    )


class Costs:
    """The bases of a search, by biases and fraction bits."""

    def __init__(self, bases: Mapping[tuple[int, int], Base]) -> None:
        self.bases = bases

    def biases(self) -> list[int]:
        """Numbers of biases that fit."""
        return sorted({k for k, _ in self.bases})

    def weights(self) -> list[tuple[int, int, int]]:
        """(layer, level, bits) of all weights that fit."""
        return sorted({(*choice, bits) for (_, bits), base in self.bases.items() for choice in base.added})

    def without(self, dropped: Collection[int]) -> Costs:
        """The costs of candidates that do not train the weights of some layers."""
        return Costs({key: base.without(dropped) for key, base in self.bases.items()})

    def within(self, budget: Budget) -> Costs:
        """The costs of candidates that a budget leaves."""
        fit = {key: base.within(budget) for key, base in self.bases.items()}
        return Costs({key: base for key, base in fit.items() if base})

    def only(self, keys: Iterable[tuple[int, int]]) -> Costs:
        """The costs of candidates with these (biases, fraction bits)."""
        return Costs({key: self.bases[key] for key in keys})

    def of(self, candidate: Candidate) -> Cost | None:
        """None: too much by its biases or by one layer alone."""
        base = self.bases.get((candidate.biases, candidate.bits))
        choices = [(layer, level) for layer, level in enumerate(candidate.levels) if level]
        return base.cost(choices) if base and all(c in base.added for c in choices) else None


def bases(
    graph: Graph,
    space: Space,
    classes: int,
    budget: Budget,
    keys: Iterable[tuple[int, int]],
    engine: Engine,
) -> Iterator[tuple[tuple[int, int], Base | None]]:
    """base_of() for each (biases, bits), as they are found."""
    yield from engine.each(partial(keyed_base, graph, space, classes, budget), keys)


def keyed_base(
    graph: Graph, space: Space, classes: int, budget: Budget, key: tuple[int, int]
) -> tuple[tuple[int, int], Base | None]:
    return key, base_of(graph, space, classes, *key, budget)
