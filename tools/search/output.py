"""What a search leaves behind: the scheme, what it was found with, and pictures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import yaml

from microtrain.base.files import replacing
from microtrain.base.terminal import say

from . import picture
from .comparison import SEARCHES, Comparison
from .contribution import Gains
from .cost import cost_of
from .evolution import Scored, search_random
from .finalists import Finalist
from .lab import Lab
from .pipeline import NOISE, Request, Result, faint
from .proxy import correlations
from .space import FRACTIONS, Candidate, Space

KB = 1024


def write(path: Path, lab: Lab, request: Request, result: Result, data: str) -> list[Path]:
    """The scheme at `path`, and beside it NAME.json, NAME-contribution.svg and NAME-search.svg."""
    beside = [path.with_name(f"{path.stem}{end}") for end in (".json", "-contribution.svg", "-search.svg")]
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [
        scheme_text(path.stem, lab, result, data),
        json.dumps(document(lab, request, result), indent=1) + "\n",
        picture.contributions(result.problem.space, result.gains),
        picture.progress(result.evaluated, rivals(request, result), result.comparison),
    ]
    for file, text in zip((path, *beside), texts, strict=True):
        with replacing(file) as part:
            part.write_text(text, encoding="utf-8")
    return [path, *beside]


def rivals(request: Request, result: Result) -> list[Scored]:
    """What random search evaluates in as many evaluations."""
    return list(search_random(result.problem, request.evaluations, request.seed))


def scheme_text(name: str, lab: Lab, result: Result, data: str) -> str:
    """A scheme file (docs/schemes.md)."""
    winner, space = result.winner.candidate, result.problem.space
    weights = described(space, winner)["weights"]
    layers = [f"  {word(layer)}: {fraction:g}" for layer, fraction in weights.items()]
    accuracy = f"{result.winner.accuracy:.1%} of its validation samples"
    return "\n".join(
        [
            f"# Found by tools/search on {Path(data).name}: {accuracy},",
            f"# {result.compiled.sram:,} B of SRAM, all in.",
            f"name: {word(name)}",
            f"network: {word(lab.graph.name)}",
            f"biases: {winner.biases}",
            *(["weights:  # fraction of the layer's input channels", *layers] if layers else []),
            *modules_text(space, winner),
            f"fraction_bits: {winner.bits}",
            f"learning_rate: {space.rate:g}",
        ]
    ) + "\n"  # fmt: skip


def modules_text(space: Space, candidate: Candidate) -> list[str]:
    """The lines of a scheme file that name its modules."""
    modules = space.modules(candidate)
    if modules is None:
        return []
    assert not isinstance(modules.blocks, int)
    names = ", ".join(word(str(name)) for name in modules.blocks)
    about = {name: value for name, value in vars(modules).items() if name != "blocks"}
    return [
        "lite_residuals:",
        f"  blocks: [{names}]",
        *(f"  {name}: {value:g}" for name, value in about.items()),
    ]


def word(text: str) -> str:
    """The text in YAML on one line, in quotes where it would be read as something else."""
    plain = yaml.safe_dump([text], default_flow_style=True, allow_unicode=True, width=math.inf)[1:-2]
    return text if plain == text else json.dumps(text, ensure_ascii=False)


def document(lab: Lab, request: Request, result: Result) -> dict[str, Any]:
    """Everything that was measured and found, as plain data."""
    space, costs = result.problem.space, result.problem.costs
    cost, alive = cost_of(result.compiled), costs.of(result.winner.candidate)
    assert alive is not None
    return {
        "network": lab.graph.name,
        "images": {"training": len(lab.training.samples), "validation": len(lab.validation.samples)},
        "budget": {k: v for k, v in vars(request.budget).items() if v != float("inf")},
        "winner": finalist(result, result.winner)
        | {
            "sram": cost.sram,
            "searched_sram": alive.sram,
            "flash": cost.flash,
            "step_instructions": round(cost.instructions),
        },
        "finalists": [finalist(result, one) for one in result.ranked],
        "default": vars(result.default),
        "contributions": {
            "likelihood": gains_document(space, result.gains),
            "accuracy": gains_document(space, result.accuracies),
        },
        "proxies": {"spearman": correlations(lab, space, result.proxies, result.gains)},
        "evaluations": len(result.evaluated),
        "comparison": comparison_document(result.comparison),
    }


def comparison_document(found: Comparison | None) -> dict[str, Any] | None:
    """Best scores by seed, and their medians as shares of the optimum."""
    if found is None:
        return None
    shares = {how: round(found.median(how), 5) for how in SEARCHES}
    return vars(found) | {"median_of_exact": shares}


def described(space: Space, candidate: Candidate) -> dict[str, Any]:
    chosen = zip(space.layers, candidate.levels, strict=False)
    modules = space.modules(candidate)
    return {
        "biases": candidate.biases,
        "weights": {layer: FRACTIONS[level - 1] for layer, level in chosen if level},
        **({"lite_residuals": modules.blocks} if modules else {}),
        "fraction_bits": candidate.bits,
    }


def finalist(result: Result, one: Finalist) -> dict[str, Any]:
    about = {"accuracy": one.accuracy, "likelihood": one.likelihood, "sessions": one.sessions}
    score = result.problem.score(one.candidate)
    return described(result.problem.space, one.candidate) | about | {"score": score}


def gains_document(space: Space, gains: Gains) -> dict[str, Any]:
    """Gains, in nats and 0..1."""
    weights: dict[str, dict[str, dict[str, float]]] = {}
    for (layer, level, bits), gain in gains.weights.items():
        own = weights.setdefault(space.parts[layer], {}).setdefault(str(bits), {})
        own[f"{FRACTIONS[level - 1]:g}"] = round(gain, 5)
    return {"biases": {str(k): round(v, 5) for k, v in gains.biases.items()}, "weights": weights}


def table(result: Result) -> str:
    """What was trained with all seeds, the best first, and the default scheme beside it."""
    default, sessions = result.default, result.winner.sessions
    each = f"mean of {sessions} sessions each" if sessions > 1 else "one session each"
    lines = [f"accuracy and log-likelihood of the validation samples, {each}:"]
    for one in result.last:
        about = described(result.problem.space, one.candidate)
        weights = ", ".join(f"{layer}@{fraction:g}" for layer, fraction in about["weights"].items())
        modules = ", ".join(about.get("lite_residuals", ()))
        trained = (
            f"{about['biases']} biases, {about['fraction_bits']} fraction bits, {weights or 'no weights'}"
            f"{modules and f', modules beside {modules}'}"
        )
        mark = "*" if one == result.winner else " "
        lines.append(f"{mark} {one.accuracy:6.1%} {one.likelihood:7.3f}  {trained}")
    over = "" if default.fits else ", over the other budgets"
    own = f"what convert takes by itself: {default.name}, {default.sram:,} B{over}"
    lines.append(f"  {default.accuracy:6.1%} {default.likelihood:7.3f}  {own}")
    if others := len(result.ranked) - len(result.last):
        lines.append(
            f"{others} others were trained once each, with the first seed: not comparable with these"
        )
    return "\n".join([*lines, *remarks(result)])


def remarks(result: Result) -> list[str]:
    """What to know before the scheme is taken."""
    said = []
    gained = result.winner.likelihood - result.default.likelihood
    if gained < NOISE:
        less, good = ("no better", "as good") if gained > -NOISE else ("worse", "better")
        said.append(
            f"what was found is {less} than the default scheme ({gained:+.3f} nats, chance {NOISE}): "
            f"convert without --scheme is {good}"
        )
    most = result.gains.most
    if most is not None and most < NOISE:
        said.append(faint(most, result.problem.space.rate))
    return said


def show(result: Result, files: list[Path]) -> None:
    """The result in a few lines."""
    say(table(result))
    sram = result.compiled.sram
    if found := result.comparison:
        shares = ", ".join(f"{how} search {found.median(how):.1%}" for how in SEARCHES)
        say(f"of the optimum, median of {len(found.random)} seeds: {shares}")
    say(f"all-in SRAM {sram:,} B of {result.problem.budget.sram:,} B")
    say(f"wrote {', '.join(map(str, files))}")
