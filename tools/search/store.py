"""Outcomes of trials in a file, a line each, so that a search that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial

from microtrain.base.schema import encode

from .engine import Engine
from .lab import Lab
from .trial import Outcome, Trial, run


class Outcomes:
    """What is known of a lab's trials."""

    def __init__(self, lab: Lab) -> None:
        self.path = lab.folder / "trials.jsonl"
        self.known: dict[str, Outcome] = {}
        text = self.path.read_text(encoding="utf-8") if self.path.is_file() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # stopped while it wrote
            self.path.write_text(whole, encoding="utf-8")
        for row in map(json.loads, whole.splitlines()):
            self.known[row["trial"]] = Outcome(**row["outcome"])

    def __getitem__(self, trial: Trial) -> Outcome:
        return self.known[name(trial)]

    def missing(self, trials: Sequence[Trial]) -> list[Trial]:
        """Those that are not known yet, each once."""
        return list({name(t): t for t in trials if name(t) not in self.known}.values())

    def add(self, trial: str, outcome: Outcome) -> None:
        self.known[trial] = outcome
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"trial": trial, "outcome": asdict(outcome)}) + "\n")


def name(trial: Trial) -> str:
    """Names a trial by all that it is."""
    names = ("epochs", "limit", "seed")
    session = {name: getattr(trial, name) for name in names}
    about = encode(trial.scheme.summary()) | {"name": ""} | session
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:24]


def run_named(lab: Lab, trial: Trial) -> tuple[str, Outcome]:
    return name(trial), run(lab, trial)


def fill(lab: Lab, outcomes: Outcomes, trials: Sequence[Trial], engine: Engine) -> Iterator[int]:
    """Run what is missing; yields 1 for each trial that has finished."""
    for trial, outcome in engine.each(partial(run_named, lab), outcomes.missing(trials)):
        outcomes.add(trial, outcome)
        yield 1
