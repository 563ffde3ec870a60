"""The search: features > costs > proxies > contributions > evolution > rounds of finalists > conversion."""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, get_args

from microtrain.base.terminal import say
from microtrain.convert.ir import ConvertError
from microtrain.convert.obstacles import peak_text
from microtrain.convert.pipeline import Compiled, compile_graph, fixed_sram
from microtrain.convert.scheme import Scheme
from microtrain.native.model import compile_kernels
from microtrain.simulate.machine import FAST

from . import comparison, contribution, features, finalists, kept_costs, store
from .comparison import Comparison, collected
from .contribution import Gains, Plan
from .cost import Budget, Costs, bases, cost_of, guessed
from .engine import Engine
from .evolution import Problem, Scored, search_evolutionary
from .finalists import Default, Finalist
from .lab import Lab
from .proxy import Proxies, load_proxies, measure
from .space import Candidate, Space
from .store import Outcomes
from .trial import Trial

Item = TypeVar("Item")
LEAST_GAIN = 0.002  # nats, of the best contribution; below it nothing can be ranked
NOISE = 0.008  # nats between sessions that differ in their seed alone (lab/pages/search.md)


class Progress(Protocol):
    """Is told of each stage's name and how many things it has to do, and passes them on as they are done."""

    def __call__(self, name: str, total: int, items: Iterable[Item]) -> Iterator[Item]: ...


@dataclass(frozen=True)
class Request:
    """What the user asks for.

    contributions  how they are measured
    final          how finalists are trained: with the first of its seeds, the last few with all
    finalists      candidates of each of the `rounds`
    measured       share of the layers, best by the proxy, whose contributions are measured
    compared       seeds to compare the evolution with random search and the proven optimum by
    """

    budget: Budget
    contributions: Plan
    final: Plan
    evaluations: int
    finalists: int
    rounds: int
    measured: float
    seed: int
    compared: int = 0


@dataclass(frozen=True, eq=False)
class Result:
    """What was found.

    evaluated  by the evolution, in order
    ranked     finalists: those trained with all seeds, then the others, the best first
    accuracies gains in accuracy, as `gains` are in likelihood
    default    trained with all seeds as well
    """

    problem: Problem
    gains: Gains
    accuracies: Gains
    proxies: Proxies
    evaluated: list[Scored]
    ranked: list[Finalist]
    compiled: Compiled
    comparison: Comparison | None
    default: Default

    @property
    def last(self) -> list[Finalist]:
        """Those trained with all seeds."""
        return [one for one in self.ranked if one.sessions == self.winner.sessions]

    @property
    def winner(self) -> Finalist:
        return self.ranked[0]


def search(lab: Lab, space: Space, request: Request, engine: Engine, progress: Progress) -> Result:
    """Find the best scheme within the budget. Whatever is measured is kept in lab.folder."""
    lab.scratch.mkdir(parents=True, exist_ok=True)
    try:
        compile_kernels(FAST)
        for _ in progress("features of the images", len(lab.views), features.fill(lab, engine)):
            pass
        costs = affordable(lab, space, request.budget, engine, progress)
        warn_guessed(lab, space, costs)
        proxies = known_proxies(lab, progress)
        costs = promising(lab, space, costs, proxies, request.measured)
        outcomes = Outcomes(lab)
        alone = contribution.trials(space, costs, request.contributions)
        tried(lab, outcomes, alone, engine, progress, "contributions")
        gains, accuracies = (
            contribution.gains(space, costs, request.contributions, outcomes, measure)
            for measure in get_args(contribution.Measure)
        )
        must_gain(lab, gains, space.rate)
        problem = Problem(space, costs, request.budget, gains.score)
        evolution = search_evolutionary(problem, request.evaluations, request.seed)
        evaluated = list(progress("evolution", request.evaluations, evolution))
        rivals = comparison.tasks(request.compared)
        scores = comparison.compare(problem, gains, request.evaluations, rivals, engine)
        compared = dict(progress("comparison", len(rivals), scores))
        ranked, whole = trained_for_real(lab, problem, gains, evaluated, request, outcomes, engine, progress)
        usual = finalists.default_of(lab, problem)
        tried(lab, outcomes, request.final.trials(usual), engine, progress, "default scheme")
        default = finalists.judged(lab, problem, request.final, usual, outcomes)
        found = collected(compared)
        return Result(problem, gains, accuracies, proxies, evaluated, ranked, whole, found, default)
    finally:
        shutil.rmtree(lab.scratch, ignore_errors=True)


def trained_for_real(
    lab: Lab,
    problem: Problem,
    gains: Gains,
    evaluated: list[Scored],
    request: Request,
    outcomes: Outcomes,
    engine: Engine,
    progress: Progress,
) -> tuple[list[Finalist], Compiled]:
    """All finalists, ranked as Result says, and the whole plan of the first."""
    final, once = request.final, replace(request.final, seeds=request.final.seeds[:1])
    task, effort = finalists.cautious(problem), (request.evaluations, request.finalists, request.seed)
    field = finalists.chosen(task, evaluated, *effort)
    for number in range(request.rounds):
        tried(lab, outcomes, finalists.trials(problem, once, field), engine, progress, "finalists")
        first = finalists.ranked(problem, once, field, outcomes)
        known = {one.candidate: one.likelihood for one in first}
        if number + 1 < request.rounds:
            field += finalists.promising(task, gains.parts, known, *effort)
    last = finalists.likeliest(lab, problem, gains.parts, known)
    must_have(last, request.budget)
    tried(lab, outcomes, finalists.trials(problem, final, last), engine, progress, "finalists, other seeds")
    others = [one for one in first if one.candidate not in last]
    ranked = [*finalists.ranked(problem, final, last, outcomes), *others]
    return ranked, finalists.converted(lab, problem, ranked[0].candidate)


def affordable(lab: Lab, space: Space, budget: Budget, engine: Engine, progress: Progress) -> Costs:
    """Costs of all schemes within the budget. ConvertError where there is none, with what the least takes."""
    costs = kept_costs.known(lab, space, budget)
    if costs is None:
        keys = [(biases, bits) for biases in range(len(space.layers) + 1) for bits in space.bits]
        found = dict(progress("costs", len(keys), bases(lab.graph, space, lab.classes, budget, keys, engine)))
        costs = Costs({key: base for key in keys if (base := found[key]) is not None})
        kept_costs.keep(lab, space, budget, costs)
    if not costs.bases:
        raise ConvertError(too_small(lab, budget))
    return costs


def warn_guessed(lab: Lab, space: Space, costs: Costs) -> None:
    """One warning for all steps whose instructions are those of the average kernel."""
    kinds = guessed(lab.graph, space, lab.classes, costs)
    if kinds:
        warnings.warn(
            f"the instructions of {', '.join(kinds)} were never counted on the emulated board: such a "
            "step is taken to cost what the average kernel does for as many multiply-accumulates and outputs",
            stacklevel=2,
        )


def too_small(lab: Lab, budget: Budget) -> str:
    """Says what the smallest plan takes and why."""
    least = compile_graph(lab.graph, Scheme("head-only"), lab.classes)
    cost = cost_of(least)
    return (
        f"no scheme of {lab.graph.name} is within the budget: the smallest, the head alone, takes "
        f"{least.sram:,} B of SRAM ({peak_text(least.plan)}, beside {fixed_sram(least.graph):,} B of "
        f"trainables and firmware), {cost.flash:,} B of flash and {cost.instructions / 1e6:.1f} M "
        "instructions per step; raise the budget, or use a smaller network or input"
    )


def must_gain(lab: Lab, gains: Gains, rate: float) -> None:
    """ConvertError where more than the head fits the budget and training it has changed next to nothing; a
    line where it has changed no more than chance does."""
    most = gains.most
    if most is None:
        return
    if most < LEAST_GAIN:
        raise ConvertError(
            f"training biases or weights of {lab.graph.name} hardly changes what it says of the validation "
            f"images (at most {most:.4f} nats more likely than with less): raise "
            f"--lr, now {rate:g}, or --epochs"
        )
    if most < NOISE:
        say(faint(most, rate), err=True)


def faint(most: float, rate: float) -> str:
    """What to say where the largest gain is below NOISE."""
    return (
        f"no bias or weight gains more than {most:.4f} nats, and chance alone moves a session by {NOISE}: "
        f"the ranking means little. Raise --lr, now {rate:g}, or --epochs"
    )


def must_have(best: Collection[Candidate], budget: Budget) -> None:
    """ConvertError where no candidate was left."""
    if not best:
        raise ConvertError(
            f"no scheme that was found keeps to {budget.sram:,} B of SRAM as a whole plan, which may take "
            "0.5 % more than the search counts: raise the budget by a little"
        )


def known_proxies(lab: Lab, progress: Progress) -> Proxies:
    """The proxies, measured where they are not known yet."""
    path = lab.folder / "proxies.npz"
    if not path.is_file():
        proxies = next(iter(progress("proxies", 1, map(measure, [lab]))))
        proxies.save(path)
    return load_proxies(path)


def promising(lab: Lab, space: Space, costs: Costs, proxies: Proxies, share: float) -> Costs:
    """Without the layers whose weights promise least by the Fisher information; modules have none."""
    levels = {layer: level for layer, level, _ in costs.weights() if layer < len(space.layers)}
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
