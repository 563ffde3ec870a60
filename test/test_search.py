"""The search: costs are the compiler's, trials the device's, its best one is the best, and it resumes."""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from conftest import EXAMPLE, ROOT, few
from conftest import run as run_command
from networks import random_network, residual_network
from PIL import Image
from pio_build import once

from microtrain.base.errors import Error
from microtrain.convert.default_scheme import largest
from microtrain.convert.emit.tables import string_body
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.lite import LiteResiduals
from microtrain.convert.passes.blocks import blocks
from microtrain.convert.passes.cut import behind, bottlenecks, cuts
from microtrain.convert.pipeline import ALL_PASSES, FIRMWARE_SRAM, Room, compile_graph
from microtrain.convert.scheme import Scheme, convolutions, find
from microtrain.convert.scheme import load as load_scheme
from microtrain.device.learning import train
from microtrain.device.session import Settings, Silent, new_log
from microtrain.samples.source import hold_out, scan
from microtrain.search import exact, features, instructions, output
from microtrain.search.build import compile_here, convert
from microtrain.search.cli import main
from microtrain.search.command import checked, images
from microtrain.search.contribution import Gains, Plan, gains, last_biases, smooth, trials
from microtrain.search.cost import Budget, Costs, base_of, bases, compiled, cost_of, keeps, whole_cost
from microtrain.search.engine import Engine, engine
from microtrain.search.evolution import Problem, search_evolutionary, search_random
from microtrain.search.features import WHOLE
from microtrain.search.finalists import APART, LAST, apart, cautious, chosen, likeliest, promising
from microtrain.search.lab import Lab, last_bottleneck
from microtrain.search.output import word, write
from microtrain.search.pipeline import NOISE, Request, Result, must_gain, search, warn_guessed
from microtrain.search.proxy import by_channel
from microtrain.search.space import FRACTIONS, Candidate, Space, places_for, space_of
from microtrain.search.store import Outcomes, fill
from microtrain.search.surrogate import Surrogate
from microtrain.search.trial import Tail, Trial, first_bottleneck, log_likelihood, run

Item = TypeVar("Item")
ALONE = Engine(jobs=1)
WIDE = Budget(1 << 20)
CLASSES = 4
RATE = 0.5  # what a network with weights at random needs


def quiet(name: str, total: int, items: Iterable[Item]) -> Iterator[Item]:
    yield from items


@pytest.fixture(scope="module")
def graph() -> Graph:
    return residual_network(classes=CLASSES)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class is a bright band, which a flip leaves where it is: 15 images each."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(3)
    for label, number in product(range(CLASSES), range(15)):
        pixels = rng.integers(0, 110, (12, 12, 3)).astype(np.uint8)
        pixels[3 * label : 3 * label + 3] += np.uint8(120)
        (folder / f"band{label}").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / f"band{label}" / f"{number:02}.png")
    return folder


def new_lab(graph: Graph, photos: Path, folder: Path) -> Lab:
    lab = Lab(graph, CLASSES, *hold_out(scan(photos, CLASSES)), folder)
    lab.scratch.mkdir(parents=True)
    list(features.fill(lab, ALONE))
    return lab


@pytest.fixture(scope="module")
def lab(graph: Graph, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return new_lab(graph, photos, tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def space(graph: Graph) -> Space:
    return space_of(graph, (0, 4), RATE)


def all_bases(graph: Graph, space: Space, budget: Budget = WIDE) -> Costs:
    keys = list(product(range(len(space.layers) + 1), space.bits))
    found = {key: base_of(graph, space, CLASSES, *key, budget) for key in keys}
    return Costs({key: base for key, base in found.items() if base is not None})


@pytest.fixture(scope="module")
def costs(graph: Graph, space: Space) -> Costs:
    return all_bases(graph, space)


# --- networks behind a cut ---


@pytest.mark.parametrize("seed", range(4))
def test_what_is_behind_a_cut_computes_the_same(seed: int) -> None:
    whole = random_network(seed)
    shape = whole.tensors[whole.input.tensor].shape
    image = np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)
    runner = Executor(whole)
    logits, values = runner.forward(image), runner.env.values
    assert cuts(whole)[0] == whole.input.tensor
    for tensor in cuts(whole):
        assert np.array_equal(Executor(behind(whole, tensor)).forward(values[tensor]), logits)


def test_a_cut_needs_all_that_is_behind_it(graph: Graph) -> None:
    inside = next(n.outputs[0] for n in graph.nodes if n.outputs[0] not in cuts(graph))
    with pytest.raises(ConvertError, match="cannot be cut"):
        behind(graph, inside)


def test_bottlenecks_are_small_cuts(graph: Graph) -> None:
    found = bottlenecks(graph)
    assert found[0] == graph.input.tensor
    assert set(found) < set(cuts(graph))
    names = convolutions(graph)
    assert last_bottleneck(graph, names[0]) == graph.input.tensor
    assert last_bottleneck(graph, names[-1]) != graph.input.tensor


# --- trials ---


def whole_sha(lab: Lab, trial: Trial) -> str:
    """SHA-256 of what training the whole network from its images leaves."""
    machine = Tail(*compile_here(convert(lab.graph, trial.scheme, lab.classes, WHOLE), lab))
    log = new_log(machine, lab.training, Settings(trial.epochs, schedule="cosine"))
    train(machine, lab.training, None, log, Silent(), lambda s, epoch: lab.stored(lab.view(s, epoch)))
    return log.sha256


@pytest.mark.parametrize("place", [0, 3, 7, -2])
def test_a_trial_learns_what_the_whole_network_learns(lab: Lab, place: int) -> None:
    names = convolutions(lab.graph)
    first = place % len(names)
    weights: dict[str | int, float | tuple[int, ...]] = {names[first]: 0.5, names[-1]: 1.0}
    scheme = Scheme("t", len(names) - first, weights, fraction_bits=4, rates=(RATE, RATE, RATE))
    trial = Trial(scheme, 2, 0, 0)
    found = run(lab, trial)
    assert found.sha256 == whole_sha(lab, trial)
    assert (first_bottleneck(lab.graph, scheme) == lab.graph.input.tensor) == (first == 0)
    assert found.diverged is None
    assert run(lab, trial) == found != run(lab, replace(trial, seed=1))


@pytest.mark.parametrize("biases", [0, 6])
def test_a_trial_of_modules_learns_what_the_whole_network_learns(lab: Lab, biases: int) -> None:
    """Also behind a cut, where a module has to be the one of the whole network, weights at random and all."""
    names = [block.name for block in blocks(lab.graph)]
    wanted = LiteResiduals((names[2], names[3]), groups=1, rate=4.0)
    scheme = Scheme("t", biases, fraction_bits=4, rates=(RATE, RATE, RATE), lite=wanted)
    trial = Trial(scheme, 2, 0, 0)
    found = run(lab, trial)
    assert found.sha256 == whole_sha(lab, trial)
    assert first_bottleneck(lab.graph, scheme) != lab.graph.input.tensor
    other = replace(scheme, lite=replace(wanted, blocks=(names[3],)))
    assert run(lab, replace(trial, scheme=other)).sha256 != found.sha256


def test_trials_learn(lab: Lab, space: Space) -> None:
    """A class is a bright band: few passes at the scheme's own rates are enough to see that."""
    start, after = (run(lab, Trial(last_biases(space, 12), epochs, 0, 0)) for epochs in (1, 12))
    assert after.accuracy >= 0.5 > 0.3 >= start.accuracy
    assert after.likelihood > start.likelihood + 0.02


def test_likelihood_is_free_of_how_sure_a_network_is() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 200)
    logits = rng.normal(size=(200, 4))
    logits[np.arange(200), labels] += 1.0
    found = log_likelihood(logits, labels)
    assert -np.log(4) < found < -0.5
    assert log_likelihood(0.1 * logits, labels) == pytest.approx(found, abs=1e-6)
    assert log_likelihood(7.0 * logits, labels) == pytest.approx(found, abs=1e-6)
    logits[np.arange(200), labels] += 1.0
    assert log_likelihood(logits, labels) > found


def test_outcomes_are_kept_and_a_half_written_one_is_not(lab: Lab, space: Space) -> None:
    wanted = [Trial(last_biases(space, k), 1, 0, 0) for k in (0, 1)]
    outcomes = Outcomes(lab)
    assert outcomes.missing([*wanted, wanted[0]]) == wanted
    assert len(list(fill(lab, outcomes, wanted, ALONE))) == 2
    with outcomes.path.open("a") as file:
        file.write('{"trial": "half')
    again = Outcomes(lab)
    assert again.missing(wanted) == []
    assert again[wanted[1]] == outcomes[wanted[1]]
    assert list(fill(lab, again, wanted, ALONE)) == []


# --- costs ---


def random_candidates(space: Space, count: int, seed: int) -> list[Candidate]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        levels = [int(rng.choice([0, *usable])) if rng.random() < 0.5 else 0 for usable in space.usable]
        biases, bits = int(rng.integers(len(space.layers) + 1)), int(rng.choice(space.bits))
        found.append(space.normal(Candidate(biases, tuple(levels), bits)))
    return found


def test_costs_are_the_compilers(graph: Graph, space: Space, costs: Costs) -> None:
    for candidate in random_candidates(space, 25, 1):
        true, fast = compiled(graph, space.scheme(candidate), CLASSES).cost, costs.of(candidate)
        assert fast is not None
        assert fast.sram == true.sram
        assert fast.flash == pytest.approx(true.flash, abs=200)
        assert fast.instructions == pytest.approx(true.instructions, rel=0.01)


@pytest.mark.parametrize("seed", [1, 4, 6])
def test_costs_of_other_networks(seed: int) -> None:
    graph = random_network(seed)
    space = space_of(graph, (0,), 0.01)
    costs = all_bases(graph, space)
    for candidate in random_candidates(space, 6, seed):
        found = costs.of(candidate)
        assert found is not None
        assert found.sram == compiled(graph, space.scheme(candidate), CLASSES).cost.sram


def test_costs_of_lite_residual_modules() -> None:
    """Beside weights and beside each other, to the byte."""
    graph = residual_network(size=16, classes=CLASSES)
    space = space_of(graph, (0, 4), RATE, LiteResiduals(0, groups=1))
    assert len(space.blocks) >= 3
    costs = all_bases(graph, space)
    seen = set()
    for candidate in random_candidates(space, 25, 1):
        scheme, fast = space.scheme(candidate), costs.of(candidate)
        assert fast is not None
        assert fast.sram == compiled(graph, scheme, CLASSES).cost.sram
        seen.add(len(scheme.lite.blocks) if scheme.lite and isinstance(scheme.lite.blocks, tuple) else 0)
    assert {0, 1, 2} <= seen


def test_what_alone_is_too_much_is_left_out(graph: Graph, space: Space, costs: Costs) -> None:
    least = compiled(graph, Scheme("head-only"), CLASSES).cost.sram
    assert base_of(graph, space, CLASSES, 0, 0, Budget(least - 1)) is None
    tight = all_bases(graph, space, Budget(least + 300))
    assert set(tight.bases) < set(costs.bases)
    assert set(tight.weights()) < set(costs.weights())
    found = dict(bases(graph, space, CLASSES, Budget(least + 300), [(0, 0), (9, 0)], ALONE))
    assert found[0, 0] is not None
    assert found[9, 0] is None


def test_space_has_no_fraction_twice(graph: Graph, space: Space) -> None:
    for name, usable in zip(space.layers, space.usable, strict=True):
        counts = [int(graph.layers[name].columns * FRACTIONS[level - 1] + 0.5) for level in usable]
        assert len(set(counts)) == len(counts) > 0
        assert 0 not in counts


def test_a_kernel_that_was_never_counted_is_announced(
    lab: Lab, space: Space, costs: Costs, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = dict(instructions.coefficients())
    everything = {kind for kind in known if kind.startswith("conv2d_bwd_w")}
    monkeypatch.setattr(
        instructions, "coefficients", lambda: {k: v for k, v in known.items() if k not in everything}
    )
    with pytest.warns(UserWarning, match=r"instructions of .*conv2d_bwd_w.* were never counted"):
        warn_guessed(lab, space, costs)


LIMITS = (0.03, 0.1)  # of a conversion, and of what the search assumes of it
QUICK = {"mcunet-49kb": 8}  # fraction bits of a scheme


@pytest.mark.parametrize("schemes", [QUICK, pytest.param(None, marks=pytest.mark.slow)])
def test_instructions_are_those_of_the_bench(schemes: dict[str, int] | None) -> None:
    """Of the cases in lab/pages/bench.json: a conversion within 3 %, what the search assumes within 10 %."""
    folder = os.environ.get("MICROTRAIN_DATA")
    if not folder:
        pytest.skip("MICROTRAIN_DATA is not set: it names the folder with models/")

    @cache
    def checkpoint(name: str) -> Graph:
        return read_checkpoint(Path(folder) / f"models/{name}.pkl")

    (rows,) = json.loads((ROOT / "lab/pages/bench.json").read_text()).values()
    ratios = {}
    for row in rows:
        bits = row.get("fraction_bits")
        named = schemes.get(row["scheme"]) == bits if schemes else row["scheme"] == row.get("chosen")
        special = "weights_bits" in row or "requantize" in row or row["budget_kb"] is not None
        if named and not special and "step_instructions" in row:  # those that a search can find
            graph = checkpoint(row["network"])
            scheme = replace(find(Path(row["scheme"])), fraction_bits=bits)
            found = cost_of(compile_graph(graph, scheme, 10)), compiled(graph, scheme, 10)
            name = f"{row['network']}/{row['scheme']}+{bits}"
            ratios[name] = [cost.instructions / row["step_instructions"] - 1 for cost in found]
    assert len(ratios) >= (len(schemes) if schemes else 9)
    far = {
        n: both
        for n, both in ratios.items()
        if any(abs(r) > most for r, most in zip(both, LIMITS, strict=True))
    }
    assert far == {}


# --- gains and searches ---


def test_gains_rise(lab: Lab, space: Space, costs: Costs) -> None:
    assert smooth([0.1, 0.3, 0.2, -1.0]) == pytest.approx(sorted(smooth([0.1, 0.3, 0.2, -1.0])))
    assert smooth([-0.5]) == [0.0]
    few = Costs({key: base for key, base in costs.bases.items() if key[0] <= 2})
    plan, outcomes = Plan(1, 0, (0,)), Outcomes(lab)
    list(fill(lab, outcomes, trials(space, few, plan), Engine(2)))
    found = gains(space, few, plan, outcomes)
    assert found.biases[0] == 0.0
    assert list(found.biases.values()) == sorted(found.biases.values())
    assert set(found.weights) == set(few.weights())
    for layer, bits in {(layer, bits) for layer, _, bits in found.weights}:
        levels = sorted(level for other, level, b in found.weights if (other, b) == (layer, bits))
        rising = [found.weights[layer, level, bits] for level in levels]
        assert rising == sorted(rising)
        assert rising[0] >= 0.0


@pytest.fixture(scope="module")
def problem(space: Space, costs: Costs) -> tuple[Problem, Gains]:
    """Gains at random and a budget between the least and the most."""
    rng = np.random.default_rng(5)
    biases = {k: 0.01 * k**0.5 for k in costs.biases()}
    weights: dict[tuple[int, int, int], float] = {}
    for layer, level, bits in costs.weights():
        weights[layer, level, bits] = weights.get((layer, level - 1, bits), 0.0) + rng.uniform(0.0, 0.02)
    found = Gains(biases, weights)
    sizes = [cost.sram for c in random_candidates(space, 60, 2) if (cost := costs.of(c))]
    return Problem(space, costs, Budget(int(np.quantile(sizes, 0.6))), found.score), found


def test_the_exact_optimum_is_one(problem: tuple[Problem, Gains], space: Space) -> None:
    task, found = problem
    few = {key: base for key, base in task.costs.bases.items() if key in ((3, 0), (4, 4))}
    small = replace(
        task,
        costs=Costs(few),
        budget=Budget(int(np.mean([base.cost([]).sram for base in few.values()])) + 700),
    )
    best = exact.best(small, found)
    scores = []
    for biases, bits in few:
        near = [(0,)] * (len(space.layers) - biases) + [(0, *u) for u in space.usable[-biases:]]
        for levels in product(*near):
            candidate = Candidate(biases, levels, bits)
            if small.feasible(candidate):
                scores.append(found.score(candidate))
    assert best.score == pytest.approx(max(scores), abs=1e-4)
    assert small.feasible(best.candidate)


def test_evolution_comes_near_the_optimum_and_beats_chance(problem: tuple[Problem, Gains]) -> None:
    task, found = problem
    optimum = exact.best(task, found).score
    scores = {
        search_: [max(s.score for s in search_(task, 4000, seed)) for seed in range(3)]
        for search_ in (search_evolutionary, search_random)
    }
    assert np.median(scores[search_evolutionary]) >= 0.99 * optimum
    assert max(scores[search_evolutionary]) <= optimum + 1e-6
    assert np.median(scores[search_evolutionary]) > np.median(scores[search_random])


def test_searches_are_repaired_and_repeat(problem: tuple[Problem, Gains]) -> None:
    task, _ = problem
    for search_ in (search_evolutionary, search_random):
        evaluated = list(search_(task, 150, 3))
        assert len(evaluated) == 150
        assert all(task.feasible(s.candidate) for s in evaluated)
        assert evaluated == list(search_(task, 150, 3))


def test_finalists_differ(lab: Lab, problem: tuple[Problem, Gains]) -> None:
    task, _ = problem
    evaluated = list(search_evolutionary(task, 600, 0))
    careful = cautious(task)
    found = chosen(careful, evaluated, 600, 5, 0)
    assert len(found) >= 3
    assert max(c.biases for c in found) - min(c.biases for c in found) >= max(task.costs.biases()) // 2
    assert all(careful.feasible(c) for c in found)
    assert all(apart(a, b) for i, a in enumerate(found) for b in found[:i])
    assert all(
        cost_of(compile_graph(lab.graph, task.space.scheme(c), CLASSES)).within(task.budget) for c in found
    )
    assert task.score(found[0]) >= 0.97 * max(s.score for s in evaluated if careful.feasible(s.candidate))
    assert not apart(found[0], found[0])
    assert APART > 1


def test_rounds_learn_what_sums_of_contributions_do_not_know(
    lab: Lab, problem: tuple[Problem, Gains]
) -> None:
    """Sessions in which a layer is worth less than its contributions say, and 4 fraction bits more."""
    task, found = problem

    def truth(candidate: Candidate) -> float:
        late = sum(found.weights[n, x, candidate.bits] for n, x in enumerate(candidate.levels) if n > 4 and x)
        return found.score(candidate) - 1.5 * late + 0.02 * (candidate.bits == 4)

    known = {c: truth(c) for c in chosen(task, [], 600, 6, 0)}
    first = max(known.values())
    for _ in range(3):
        entered = promising(task, found.parts, known, 1200, 4, 0)
        assert len({*entered, *known}) == 4 + len(known)
        assert all(task.feasible(c) for c in entered)
        known |= {c: truth(c) for c in entered}
    assert max(known.values()) > first + 0.01
    assert truth(next(iter(likeliest(lab, task, found.parts, known)))) > first


def test_a_posterior_is_the_process_own(problem: tuple[Problem, Gains]) -> None:
    task, found = problem
    known = {s.candidate: s.score for s in search_random(task, 12, 0)}
    surrogate = Surrogate(found.parts, known)
    for scored in search_random(task, 20, 1):
        mean, deviation = surrogate.process.predict([surrogate.place(scored.candidate)], return_std=True)
        assert surrogate.posterior(scored.candidate) == pytest.approx((mean[0], deviation[0]), rel=1e-6)


def test_a_whole_plan_keeps_to_the_budget_or_not(graph: Graph) -> None:
    """To the byte and the instruction, whether or not instructions are limited."""
    scheme = Scheme("b", 6)
    cost = cost_of(compile_graph(graph, scheme, CLASSES))
    enough, less = int(cost.instructions) + 1, int(cost.instructions) - 1
    for most in (math.inf, enough):
        assert whole_cost(graph, scheme, CLASSES, Budget(cost.sram, instructions=most)).sram == cost.sram
        assert keeps(graph, scheme, CLASSES, Budget(cost.sram, cost.flash, most))
        assert not keeps(graph, scheme, CLASSES, Budget(cost.sram - 1, instructions=most))
        assert not keeps(graph, scheme, CLASSES, Budget(cost.sram, cost.flash - 1, most))
    assert not keeps(graph, scheme, CLASSES, Budget(cost.sram, instructions=less))


# --- the whole thing ---


def request_for(budget: int) -> Request:
    return Request(Budget(budget), Plan(1, 0, (0,)), Plan(2, 0, (0, 1)), 300, 3, 2, 0.6, 0)


@pytest.fixture(scope="module")
def result(graph: Graph, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Result]:
    lab = new_lab(graph, photos, tmp_path_factory.mktemp("search"))
    budget = compiled(graph, Scheme("b", 6), CLASSES).cost.sram + 200
    return lab, search(lab, space_of(graph, (0, 4), RATE), request_for(budget), ALONE, quiet)


@pytest.mark.slow
def test_a_search_chooses_from_modules_too(lab: Lab, tmp_path: Path) -> None:
    """Their contributions are measured, and a scheme with some is written as `convert` reads it."""
    space = space_of(lab.graph, (4,), RATE, LiteResiduals(0, groups=1, rate=2.0))
    budget = compiled(lab.graph, Scheme("b", 8), CLASSES).cost.sram + 3000
    request = replace(request_for(budget), measured=0.2, rounds=1)
    found = search(lab, space, request, ALONE, quiet)
    modules = range(len(space.layers), len(space.usable))
    measured = {part for part, _, _ in found.gains.weights} & set(modules)
    assert measured, "modules stay, however few layers are measured"
    assert any(any(s.candidate.levels[part] for part in modules) for s in found.evaluated)
    part = max(measured)
    levels = tuple(len(FRACTIONS) if other == part else 0 for other in range(len(space.usable)))
    winner = replace(found.winner, candidate=Candidate(space.behind(part), levels, 4))
    told = replace(found, ranked=[winner, *found.ranked[1:]])
    assert f"modules beside {space.parts[part].split('.')[0]}" in output.table(told)
    files = write(tmp_path / "s.yaml", lab, request, told, "photos")
    assert load_scheme(files[0]).lite == space.modules(winner.candidate) is not None
    document = json.loads(files[1].read_text())
    assert document["winner"]["lite_residuals"] == [space.parts[part].split(".")[0]]
    assert space.parts[part] in document["contributions"]["likelihood"]["weights"]


def test_blocks_without_a_place_for_a_module_are_told(graph: Graph) -> None:
    beside, reasons = places_for(graph, LiteResiduals(0, groups=4))
    assert 0 < len(beside) < len(blocks(graph))
    assert len(beside) + len(reasons) == len(blocks(graph))
    assert all("groups" in reason or "tile" in reason for reason in reasons)


def test_the_winner_keeps_to_the_budget(result: tuple[Lab, Result]) -> None:
    lab, found = result
    assert found.compiled.sram <= found.problem.budget.sram
    scheme = found.problem.space.scheme(found.winner.candidate)
    assert compile_graph(lab.graph, scheme, CLASSES).sram == found.compiled.sram
    for sessions in (2, 1):
        likelihoods = [one.likelihood for one in found.ranked if one.sessions == sessions]
        assert likelihoods == sorted(likelihoods, reverse=True)
    assert [one.sessions for one in found.ranked[: LAST + 1]] == [2] * LAST + [1]
    measured = {layer for layer, _, _ in found.gains.weights}
    assert len(measured) == -(-len(convolutions(lab.graph)) * 6 // 10) or len(measured) < 7
    assert not lab.scratch.exists()


def test_the_default_scheme_is_a_rival(result: tuple[Lab, Result]) -> None:
    """With as many seeds as the others in the table, which holds no single sessions beside means."""
    lab, found = result
    scheme = largest(Room(lab.graph, CLASSES, found.problem.budget.sram), ALL_PASSES)
    usual = compile_graph(lab.graph, scheme, CLASSES)
    assert (found.default.name, found.default.sram) == (scheme.name, usual.sram)
    assert found.default.sessions == 2 and found.default.fits
    trials = request_for(0).final.trials(replace(usual.scheme, rates=found.problem.space.rates))
    known = Outcomes(lab)
    assert found.default.likelihood == np.mean([known[trial].likelihood for trial in trials])
    table = output.table(found)
    assert table.count("%") == LAST + 1 and "mean of 2 sessions each" in table
    assert f"what convert takes by itself: {usual.scheme.name}, {usual.sram:,} B" in table
    assert f"{len(found.ranked) - LAST} others were trained once each" in table


def test_a_find_that_is_no_better_is_said_to_be_so(result: tuple[Lab, Result]) -> None:
    _, found = result
    winner = found.winner.likelihood
    for ahead, words in ((0.5, "no better"), (0.0, "no better"), (2.0, "worse"), (-2.0, "")):
        likelihood = winner + ahead * NOISE
        said = output.table(replace(found, default=replace(found.default, likelihood=likelihood)))
        assert (f"what was found is {words} than the default" in said) == bool(words)


def test_gains_that_chance_could_make_are_said_to_be_so(
    result: tuple[Lab, Result], capsys: pytest.CaptureFixture[str]
) -> None:
    lab, found = result
    faint = Gains({0: 0.0, 3: 0.004}, {})
    must_gain(lab, faint, 0.002)
    said = "gains more than 0.0040 nats, and chance alone moves a session by 0.008"
    assert said in capsys.readouterr().err
    assert said in output.table(replace(found, gains=faint))
    must_gain(lab, Gains({0: 0.0, 3: 0.05}, {}), 0.002)
    must_gain(lab, Gains({0: 0.0}, {}), 0.002)
    assert not capsys.readouterr().err


def test_a_rate_that_changes_nothing_is_refused(
    result: tuple[Lab, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, found = result
    request = request_for(found.problem.budget.sram)
    monkeypatch.setattr("microtrain.search.contribution.gains", lambda *_: Gains({0: 0.0, 3: 0.001}, {}))
    with pytest.raises(ConvertError, match=f"raise --lr, now {RATE:g}, or --epochs"):
        search(lab, space_of(lab.graph, (0, 4), RATE), request, ALONE, quiet)


def test_a_search_goes_on_where_it_was(result: tuple[Lab, Result]) -> None:
    lab, found = result
    path = lab.folder / "trials.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: len(lines) // 2]) + lines[-1][:20])
    again = search(lab, found.problem.space, request_for(found.problem.budget.sram), ALONE, quiet)
    assert again.winner == found.winner
    assert again.ranked == found.ranked
    assert sorted(path.read_text().splitlines(keepends=True)) == sorted(lines)


def test_a_budget_for_the_head_alone(graph: Graph, photos: Path, tmp_path: Path) -> None:
    lab = new_lab(graph, photos, tmp_path)
    budget = compile_graph(graph, Scheme("head-only"), CLASSES).sram
    found = search(lab, space_of(graph, (4,), RATE), request_for(budget), ALONE, quiet)
    assert found.winner.candidate == Candidate(0, (0,) * len(convolutions(graph)), 4)
    written = write(tmp_path / "2026.yaml", lab, request_for(budget), found, "photos")
    assert (load_scheme(written[0]).name, load_scheme(written[0]).biases) == ("2026", 0)
    about = json.loads(written[1].read_text())
    assert about["proxies"]["spearman"]["weights"] == {"norm": None, "fisher": None}


def test_a_budget_below_the_smallest_plan(lab: Lab, space: Space) -> None:
    with pytest.raises(ConvertError, match="the smallest, the head alone, takes") as error:
        search(lab, space, request_for(900), ALONE, quiet)
    assert "B of SRAM" in str(error.value)


def test_folders_of_images(photos: Path, tmp_path: Path) -> None:
    assert len(images(photos).samples) == 15 * CLASSES
    (tmp_path / "one" / "cat").mkdir(parents=True)
    with pytest.raises(Error, match="1 class folder: a search needs two"):
        images(tmp_path / "one")
    with pytest.raises(Error, match="no such folder"):
        images(tmp_path / "none")


def test_a_cache_of_another_model_is_refused(tmp_path: Path) -> None:
    one = {"model": "a", "images": "b", "kernels": "c"}
    assert checked(tmp_path / "cache", one, "net") == tmp_path / "cache"
    assert checked(tmp_path / "cache", one, "net") == tmp_path / "cache"
    with pytest.raises(Error, match="measured with other model and images"):
        checked(tmp_path / "cache", one | {"model": "x", "images": "y"}, "net")


def test_ray_is_an_extra() -> None:
    try:
        import ray  # noqa: F401
    except ImportError:
        with pytest.raises(Error, match="pip install ray"):
            engine(2, "ray")


def test_proxies_sum_over_all_but_the_channels() -> None:
    dense, depthwise = np.ones((5, 2, 3, 3, 2)), np.ones((7, 3, 3, 2))
    assert by_channel(dense).tolist() == [[45.0, 45.0]] * 2
    assert by_channel(depthwise).tolist() == [[9.0, 9.0]] * 7


# --- the command ---


@pytest.fixture(scope="module")
def digits(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight images of each of the example's classes, to learn from and to be tested with."""
    return few(digits, tmp_path_factory.mktemp("images"), 8, 8)


@pytest.mark.parametrize(
    "name",
    ["mcunet-5fps", "blocks.2.expand", "7", "1e5", "null", "a: b", "- a", "a,b", "#a", "a\nb", "'é'", ""],
)
def test_names_are_read_from_a_scheme_as_they_are(name: str) -> None:
    assert yaml.safe_load(f"name: {word(name)}\n{word(name)}: 1\n") == {"name": name, name: 1}
    assert word("mcunet-5fps") == "mcunet-5fps"


MODEL = str(EXAMPLE / "model.pt")
LITTLE = {
    "epochs": 1,
    "final-epochs": 1,
    "final-seeds": 1,
    "finalists": 2,
    "rounds": 1,
    "measured": 0.15,
    "evaluations": 400,
    "lr": 0.1,
    "compare": 1,
}


def command(digits: Path, output: Path) -> list[str]:
    about = {"data": digits, "budget-sram": 22, "fraction-bits": 0, "cache": output.parent / "cache"}
    options = [word for name, value in (about | LITTLE).items() for word in (f"--{name}", str(value))]
    return ["python", "tools/search", MODEL, *options, "-o", str(output)]


@pytest.fixture(scope="module")
def searched(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the command makes of the digits, and what it says."""

    def run(folder: Path) -> None:
        (folder / "said.txt").write_text(run_command(command(digits, folder / "s.yaml")))

    return once(tmp_path_factory, "searched", run)


def test_the_command_writes_a_scheme_that_converts(digits: Path, searched: Path, tmp_path: Path) -> None:
    shutil.copytree(searched, tmp_path, dirs_exist_ok=True)
    output, said = tmp_path / "s.yaml", (tmp_path / "said.txt").read_text()
    first = output.read_text()
    document = json.loads((tmp_path / "s.json").read_text())
    assert document["winner"]["sram"] <= 22 * 1024
    assert len(document["finalists"]) == 2
    assert document["default"]["sessions"] == document["winner"]["sessions"] == 1
    assert "what convert takes by itself: bias-" in said or "what convert takes by itself: head" in said
    assert "one session each" in said
    assert set(document["proxies"]["spearman"]) == {"weights", "biases"}
    assert "all-in SRAM" in said
    for end in ("contribution", "search"):
        assert "<svg" in (tmp_path / f"s-{end}.svg").read_text()
    assert {"random", "optimum"} <= set(re.findall(r"[a-z]+", (tmp_path / "s-search.svg").read_text()))
    compared = document["comparison"]
    assert compared["exact"] >= max(compared["evolutionary"] + compared["random"]) - 1e-6
    generated = tmp_path / "generated"
    made = ["--scheme", str(output), "--classes", "10", "--imprint", "off", "-o", str(generated)]
    run_command(["python", "tools/convert", MODEL, *made])
    sram = json.loads((generated / "plan.json").read_text())["sram"]
    assert sram["arena"] + sram["trainables"] + FIRMWARE_SRAM == document["winner"]["sram"]
    trials = (tmp_path / "cache/trials.jsonl").read_bytes()
    run_command(command(digits, output))
    assert output.read_text() == first
    assert (tmp_path / "cache/trials.jsonl").read_bytes() == trials


def killed_when(words: list[str], reached: Callable[[], bool]) -> bool:
    """Start the command and kill it, with all its processes, without a warning; False where it had ended."""
    process = subprocess.Popen(
        [sys.executable, *words[1:]], cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while process.poll() is None:
        if reached():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.01)
    return False


def holds(trials: Path, count: int) -> bool:
    """Whether so many trials have been run."""
    return trials.is_file() and trials.read_bytes().count(b"\n") >= count


@pytest.mark.slow
def test_a_search_that_is_killed_resumes_and_finds_the_same(
    digits: Path, searched: Path, tmp_path: Path
) -> None:
    """Killed once its features are there, and after some of its trials, how many differs."""
    undisturbed, killed = searched / "s.yaml", tmp_path / "s.yaml"
    cache = killed.with_name("cache")
    trials = [path.with_name("cache") / "trials.jsonl" for path in (undisturbed, killed)]
    count = len(trials[0].read_bytes().splitlines())
    point = int(np.random.default_rng().integers(1, count * 9 // 10))
    assert killed_when(command(digits, killed), (cache / "features.s8").is_file)
    assert killed_when(command(digits, killed), partial(holds, trials[1], point)), point
    run_command(command(digits, killed))
    for name in ("s.yaml", "s.json", "s-contribution.svg", "s-search.svg"):
        assert killed.with_name(name).read_bytes() == undisturbed.with_name(name).read_bytes(), point
    one, other = (sorted(path.read_text().splitlines()) for path in trials)
    assert one == other


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--budget-sram", "2", "the smallest, the head alone, takes"),
        ("--data", "/nowhere", "no such folder: /nowhere"),
        ("--fraction-bits", "3", "choose from 0, 4 and 8"),
    ],
)
def test_bad_input_gets_a_sentence(
    digits: Path, tmp_path: Path, option: str, value: str, sentence: str
) -> None:
    words = [*command(digits, tmp_path / "x.yaml"), option, value]
    words[0] = sys.executable
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert sentence in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x.yaml").exists()


def test_warnings_are_a_line_each(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warned(model: Path, *_: object) -> Graph:
        warnings.warn("62 channels became constants", stacklevel=2)
        raise ConvertError("and that is all.")

    monkeypatch.setattr("microtrain.search.command.quantized", warned)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    arguments = ["model.pt", "--data", str(photos), "--budget-sram", "100"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "convert: 62 channels became constants",
        "Error: and that is all.",
    ]


def test_weights_as_a_string_are_the_same_bytes(tmp_path: Path) -> None:
    """Of a trial, which a compiler alone reads: every byte, and numbers of more than one."""
    arrays: dict[str, np.ndarray] = {
        "int8_t": np.arange(-128, 128).astype(np.int8),
        "uint8_t": np.arange(256).astype(np.uint8).reshape(16, 16),
        "int32_t": np.array([-(2**31), 7], np.int32),
    }
    tables = [f"const {t} {t}s[{a.size}] = {{\n{string_body(a)}\n}};" for t, a in arrays.items()]
    (tmp_path / "a.c").write_text("\n".join(["#include <stdint.h>", *tables]))
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "a.c", "-o", "a.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "a.so"))
    for name, values in arrays.items():
        found = (ctypes.c_uint8 * values.nbytes).in_dll(library, f"{name}s")
        assert bytes(found) == values.tobytes()
