"""pages/demo.json: what `make demo` gave, and the same sessions with other seeds and more passes."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from typing import Any

from lab import notes
from lab.bench.build import compiler_version
from microtrain.base.commands import logged, ours
from microtrain.base.paths import ROOT

Record = dict[str, Any]
PAGES = ROOT / "lab/pages"
RECORD = PAGES / "demo.json"
DEMO = ROOT / "build/demo"
WORK = ROOT / "build/claims"
SCHEMES = ("scheme", "bias", "head")
SEEDS = (0, 1, 2)
SLACK = 0.01  # by which a size or a number of instructions may differ where the compiler is another


@dataclass(frozen=True)
class Course:
    """How long a session is, and its learning rate: the schedule, and a factor on the scheme's rates."""

    title: str
    passes: int
    schedule: str
    factor: float


COURSES = (
    Course("1 pass, cosine from 3 x rate", 1, "cosine", 3.0),
    Course("2 passes, constant", 2, "constant", 1.0),
    Course("3 passes, constant", 3, "constant", 1.0),
)


def load() -> Record:
    """The checked-in record."""
    record: Record = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def save(record: Record) -> None:
    notes.write(RECORD, record)


def measure() -> Record:
    """Run the demo, then every scheme with every seed and course on this machine."""
    logged(ours("tools/demo"), WORK / "demo.log")
    return {"format": 1, **demo(), "schemes": {name: scheme(name) for name in SCHEMES}}


def demo() -> Record:
    """What the last `make demo` left: its report, of which conversion it is and by which compiler."""
    report = json.loads((DEMO / "report.json").read_text(encoding="utf-8"))
    return {"compiler": compiler_version(), "model_id": plan("scheme")["model_id"], "report": report}


def plan(name: str) -> dict[str, Any]:
    """plan.json of the demo's conversion with one of its schemes."""
    document: dict[str, Any] = json.loads((DEMO / name / "plan.json").read_text(encoding="utf-8"))
    return document


def scheme(name: str) -> Record:
    """Bytes, multiply-accumulates, and accuracy by course and seed."""
    converted = plan(name)
    return {
        "trainables": converted["trainables"]["bytes"],
        "backward_macs": sum(s["macs"] for s in converted["steps"] if s["phase"] == "backward"),
        "accuracy": {course.title: sessions(name, course) for course in COURSES},
    }


def sessions(name: str, course: Course) -> list[float]:
    """Accuracy after a session of each seed, by the simulator: bit for bit what the board would have."""
    folder = WORK / f"{name}-{course.passes}"
    arguments: list[object] = [DEMO / name, "--data", DEMO / "images", "--augment", "none", "-o", folder]
    arguments += ["--epochs", course.passes, "--lr-factor", course.factor, "--schedule", course.schedule]
    arguments += [part for seed in SEEDS for part in ("--seed", seed)]
    logged(ours("tools/simulate", *arguments), WORK / f"{name}-{course.passes}.log")
    runs = json.loads((folder / "results.json").read_text(encoding="utf-8"))["runs"]
    return [run["accuracy"]["after"] for run in runs]


def mean(record: Record, name: str) -> float:
    """Accuracy of a scheme after the demo's course, over the seeds."""
    return statistics.fmean(record["schemes"][name]["accuracy"][COURSES[0].title])


def differences(record: Record, fresh: Record) -> list[str]:
    """A sentence for everything that a fresh demo has otherwise than the record.

    What is learned is the same everywhere; sizes and instructions are near where the compiler is another.
    """
    same = fresh["compiler"] == record["compiler"]
    return [
        f"{key} is {now}, and the record of the demo says {then}"
        for key, then in record["report"].items()
        if (now := fresh["report"].get(key)) != then and (same or not near(key, then, now))
    ]


def near(key: str, then: Any, now: Any) -> bool:
    """Whether two numbers can be of two compilers, which none that is learned can."""
    learned = key.startswith(("sha256", "accuracy"))
    return not learned and now is not None and abs(now - then) <= SLACK * then
