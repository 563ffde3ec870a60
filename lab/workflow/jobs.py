"""The workflow file as jobs and steps, with its expressions filled in."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from microtrain.base.errors import Error
from microtrain.base.paths import ROOT

FILE = ROOT / ".github/workflows/ci.yml"
EXPRESSION = re.compile(r"\$\{\{\s*([\w.]+)\s*\}\}")


@dataclass(frozen=True)
class Step:
    """name: what it is called, or its first line; run: its commands, "" where it uses an action."""

    name: str
    run: str
    uses: str
    always: bool


@dataclass(frozen=True)
class Job:
    """A job for one line of its matrix. image: of its container, "" without one; chosen: the line."""

    name: str
    image: str
    minutes: int
    environment: dict[str, str]
    steps: tuple[Step, ...]
    chosen: dict[str, str]


def load(path: Path = FILE) -> dict[str, Any]:
    """The document. Error where it is none."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise Error(f"{path} cannot be read as a workflow: {error}.") from error
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), dict):
        raise Error(f"{path} holds no jobs.")
    return document


def jobs(document: Mapping[str, Any], variables: Mapping[str, str]) -> list[Job]:
    """Every job, once for each line of its matrix. variables: `vars.NAME` of the repository."""
    everywhere = document.get("env", {})
    return [
        _job(name, body, line, everywhere, variables)
        for name, body in document["jobs"].items()
        for line in matrix(body.get("strategy", {}).get("matrix", {}))
    ]


def matrix(said: Mapping[str, Any]) -> list[dict[str, str]]:
    """The lines of a matrix: every combination of its lists, and what it includes besides."""
    lists = {key: value for key, value in said.items() if key not in ("include", "exclude")}
    lines = [dict(zip(lists, map(str, each), strict=True)) for each in itertools.product(*lists.values())]
    included = [{key: str(value) for key, value in line.items()} for line in said.get("include", [])]
    return [*(lines if lists else []), *included] or [{}]


def _job(
    name: str,
    body: Mapping[str, Any],
    line: dict[str, str],
    everywhere: Mapping[str, Any],
    variables: Mapping[str, str],
) -> Job:
    known = {f"matrix.{key}": value for key, value in line.items()}
    known |= {f"vars.{key}": value for key, value in variables.items()}

    def filled(text: object) -> str:
        return EXPRESSION.sub(lambda found: known.get(found[1], ""), str(text))

    steps = tuple(_step(step, filled) for step in body["steps"])
    environment = {key: filled(value) for key, value in {**everywhere, **body.get("env", {})}.items()}
    image = filled(body.get("container", ""))
    return Job(name, image, int(body["timeout-minutes"]), environment, steps, line)


def _step(step: Mapping[str, Any], filled: Any) -> Step:
    run = filled(step.get("run", ""))
    name = filled(step.get("name", "")) or next(iter(run.splitlines()), "") or str(step.get("uses"))
    return Step(name, run, str(step.get("uses", "")), step.get("if") == "always()")


def chosen(every: list[Job], name: str, wanted: Mapping[str, str]) -> Iterator[Job]:
    """The jobs of a name whose line of the matrix has the wanted values. Error where there is none."""
    found = [job for job in every if job.name == name]
    if not found:
        raise Error(f"there is no job {name}: there are {', '.join(dict.fromkeys(j.name for j in every))}.")
    fitting = [job for job in found if wanted.items() <= job.chosen.items()]
    if not fitting:
        lines = "; ".join(str(job.chosen) for job in found)
        raise Error(f"job {name} has no line {dict(wanted)} in its matrix: {lines}.")
    yield from fitting
