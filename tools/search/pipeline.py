"""The search: features > costs > proxies > contributions > evolution > finalists > conversion."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from convert.ir import ConvertError
from convert.pipeline import Compiled, compile_graph, fixed_sram
from convert.report import peak_text
from convert.scheme import Scheme

from . import contribution, features, finalists, store
from .build import compile_kernels_once
from .contribution import Gains, Plan
from .cost import Budget, Costs, bases, cost_of
from .engine import Engine
from .evolution import Problem, Scored, search_evolutionary
from .lab import Lab
from .proxy import Proxies, load_proxies, measure
from .space import Candidate, Space
from .store import Outcomes
from .trial import Trial

Item = TypeVar("Item")


class Progress(Protocol):
    """Is told of each stage's name and how many things it has to do, and passes them on as they are done."""

    def __call__(self, name: str, total: int, items: Iterable[Item]) -> Iterator[Item]: ...


@dataclass(frozen=True)
class Request:
    """What the user asks for.

    contributions  how they are measured
    final          how finalists are trained
    measured       share of the layers, best by the proxy, whose contributions are measured
    """

    budget: Budget
    contributions: Plan
    final: Plan
    evaluations: int
    finalists: int
    measured: float
    seed: int


@dataclass(frozen=True, eq=False)
class Result:
    """What was found.

    evaluated  by the evolution, in order
    ranked     finalists by mean accuracy on the validation images
    """

    problem: Problem
    gains: Gains
    proxies: Proxies
    evaluated: list[Scored]
    ranked: list[tuple[float, Candidate]]
    winner: Candidate
    compiled: Compiled


def search(lab: Lab, space: Space, request: Request, engine: Engine, progress: Progress) -> Result:
    """Find the best scheme within the budget. Whatever is measured is kept in lab.folder."""
    lab.scratch.mkdir(parents=True, exist_ok=True)
    try:
        compile_kernels_once(lab)
        for _ in progress("features of the images", len(lab.views), features.fill(lab, engine)):
            pass
        costs = affordable(lab, space, request.budget, engine, progress)
        proxies = known_proxies(lab, progress)
        costs = promising(lab, space, costs, proxies, request.measured)
        outcomes = Outcomes(lab)
        alone = contribution.trials(space, costs, request.contributions)
        tried(lab, outcomes, alone, engine, progress, "contributions")
        gains = contribution.gains(space, costs, request.contributions, outcomes)
        problem = Problem(space, costs, request.budget, gains.score)
        evolution = search_evolutionary(problem, request.evaluations, request.seed)
        evaluated = list(progress("evolution", request.evaluations, evolution))
        best = finalists.different(evaluated, request.finalists)
        sessions = finalists.trials(problem, request.final, best)
        tried(lab, outcomes, sessions, engine, progress, "finalists")
        ranked = finalists.ranked(problem, request.final, best, outcomes)
        winner, whole = finalists.converted(lab, problem, [candidate for _, candidate in ranked])
        return Result(problem, gains, proxies, evaluated, ranked, winner, whole)
    finally:
        shutil.rmtree(lab.scratch, ignore_errors=True)


def affordable(lab: Lab, space: Space, budget: Budget, engine: Engine, progress: Progress) -> Costs:
    """Costs of all schemes within the budget. ConvertError where there is none, with what the least takes."""
    keys = [(biases, bits) for biases in range(len(space.layers) + 1) for bits in space.bits]
    found = dict(progress("costs", len(keys), bases(lab.graph, space, lab.classes, budget, keys, engine)))
    within = {key: base for key in keys if (base := found[key]) is not None}
    if not within:
        raise ConvertError(too_small(lab, budget))
    return Costs(within)


def too_small(lab: Lab, budget: Budget) -> str:
    """Says what the smallest plan takes and why."""
    least = compile_graph(lab.graph, Scheme("head-only"), lab.classes)
    cost = cost_of(least)
    return (
        f"no scheme of {lab.graph.name} is within the budget: the smallest, the head alone, takes "
        f"{least.sram:,} B of SRAM ({peak_text(least.plan)}, beside {fixed_sram(least.graph):,} B of "
        f"trainables and firmware), {cost.flash:,} B of flash and {cost.instructions / 1e6:.1f} M "
        "instructions a step; raise the budget, or use a smaller network or input"
    )


def known_proxies(lab: Lab, progress: Progress) -> Proxies:
    """The proxies, measured where they are not known yet."""
    path = lab.folder / "proxies.npz"
    if not path.is_file():
        proxies = next(iter(progress("proxies", 1, map(measure, [lab]))))
        proxies.save(path)
    return load_proxies(path)


def promising(lab: Lab, space: Space, costs: Costs, proxies: Proxies, share: float) -> Costs:
    """Without the layers whose weights promise least by the Fisher information."""
    levels = {layer: level for layer, level, _ in costs.weights()}
    worth = {layer: proxies.of_weights(lab, space, layer, level)[1] for layer, level in levels.items()}
    ordered = sorted(worth, key=lambda layer: -worth[layer])
    return costs.without(ordered[math.ceil(share * len(ordered)) :])


def tried(
    lab: Lab, outcomes: Outcomes, trials: list[Trial], engine: Engine, progress: Progress, name: str
) -> None:
    """Run what is not known yet."""
    missing = outcomes.missing(trials)
    for _ in progress(name, len(missing), store.fill(lab, outcomes, missing, engine)):
        pass
