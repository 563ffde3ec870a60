"""What is written about a run: build/mutation.json, and the page."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from microtrain.base.errors import Error

from .bugs import NAMED
from .run import GROUPS, HAND, Plan
from .suites import SUITES
from .worker import EQUIVALENT, NOTICED, REFUSED, SURVIVED

REASONS = Path(__file__).with_name("survivors.json")
UNEXPLAINED = "not explained yet"
PLANTED, NOTICED_SHARE = 200, 0.95  # at least
Record = dict[str, Any]


def reasons() -> dict[str, str]:
    """Why a mutant may live, by its name.

    Errors   Error where the file is none
    """
    try:
        found: dict[str, str] = json.loads(REASONS.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Error(f"{REASONS} cannot be read: {error}.") from error
    return found


def made_of(plan: Plan, seed: int, seconds: dict[str, float]) -> Record:
    """The record of a run.

    seconds   of each suite without a bug
    """
    counted = {group: plan.counted(group) for group in (HAND, *GROUPS)}
    results = [plan.results[mutant.name] for mutants in counted.values() for mutant in mutants]
    by_suite = Counter(result["by"] for result in results if result["state"] == NOTICED)
    alive = [m for mutants in counted.values() for m in mutants if plan.results[m.name]["state"] == SURVIVED]
    why = reasons()
    states = Counter(result["state"] for result in plan.results.values())
    return {
        "seed": seed,
        "planted": len(results),
        "noticed": len(results) - len(alive),
        "suites": {suite.name: by_suite[suite.name] for suite in SUITES},
        "suite_seconds": seconds,
        "groups": {group: _counts(plan, mutants) for group, mutants in counted.items()},
        "dropped": {EQUIVALENT: states[EQUIVALENT], REFUSED: states[REFUSED]},
        "survivors": [
            {"name": m.name, "file": m.file, "why": why.get(m.name, UNEXPLAINED)}
            for m in sorted(alive, key=lambda m: m.name)
        ],
        "every_suite": _every(plan),
        "named": {what: _noticed_by(plan, name) for what, name in NAMED.items()},
        "core_minutes": round(sum(map(_seconds, results)) / 60),
    }


def _counts(plan: Plan, mutants: list[Any]) -> dict[str, int]:
    noticed = sum(plan.results[mutant.name]["state"] == NOTICED for mutant in mutants)
    return {"planted": len(mutants), "noticed": noticed}


def _every(plan: Plan) -> dict[str, Any]:
    """Of the mutants on which every suite was run: how many each suite could notice, and how many it did."""
    results = plan.results.items()
    sample = [result for name, result in results if result.get("every") and name not in NAMED.values()]
    tried: Counter[str] = Counter()
    noticed: Counter[str] = Counter()
    for result in sample:
        tried.update(result["suites"].keys())
        noticed.update(name for name, outcome in result["suites"].items() if outcome["noticed"])
    suites = {s.name: {"could": tried[s.name], "noticed": noticed[s.name]} for s in SUITES}
    return {"mutants": len(sample), "suites": suites}


def _noticed_by(plan: Plan, name: str) -> dict[str, str]:
    """By suite, the first of its tests that notices a mutant."""
    suites = plan.results.get(name, {}).get("suites", {})
    return {suite: outcome["how"] for suite, outcome in suites.items() if outcome["noticed"]}


def _seconds(result: dict[str, Any]) -> float:
    return sum(float(outcome["seconds"]) for outcome in result["suites"].values())


def short_of(record: Record, planted: int = PLANTED) -> list[str]:
    """What a record lacks: bugs planted, bugs noticed, survivors explained."""
    found = [f"planted {record['planted']}, not {planted}"] if record["planted"] < planted else []
    share = record["noticed"] / max(1, record["planted"])
    if share < NOTICED_SHARE:
        found.append(f"noticed {share:.1%}, not {NOTICED_SHARE:.0%}")
    alive = [survivor["name"] for survivor in record["survivors"] if survivor["why"] == UNEXPLAINED]
    return found + [f"survived, and not explained: {name}" for name in alive]
