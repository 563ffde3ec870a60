"""Runs the cases with tools/convert and tools/simulate, and reads what they wrote."""

from __future__ import annotations

import json
import shlex
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any

from microtrain.base.commands import last_line, ours, run
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.plan import Plan, Replay, read_plan

from .cases import CLASSES, RATES, SEEDS, SPARE, Case, family

WORK = Path("build/forgetting")


def call(arguments: list[str]) -> None:
    """Run a program of this project in its root; what it reports goes to the terminal.

    Errors   Error with its last line
    """
    done = run(ours(*arguments), shown=True)
    if done.returncode:
        raise Error(f"`python {shlex.join(arguments)}` failed: {last_line(done)}")


def plan_of(scheme: str, network: Path) -> Plan:
    """The plan of the network with a scheme and as large a replay buffer as the board's SRAM leaves."""
    folder = WORK / scheme
    options = ["--scheme", scheme, "--classes", str(CLASSES), "--replay", "spare", "--imprint", "off"]
    call(["tools/convert", str(network), *options, "-o", str(folder)])
    return read_plan(ROOT / folder / "plan.json")


def simulate(case: Case, records: int, data: Path, rest: list[str], name: str) -> dict[str, Any]:
    """results.json of a simulation; not run again where it is there, of the same command and model."""
    folder, plan = WORK / name, WORK / case.scheme
    options = [*case.options(records), *rest, "--jobs", "1", "-o", str(folder)]
    command = ["tools/simulate", str(plan), "--data", str(data), *options]
    file = ROOT / folder / "results.json"
    model_id = read_plan(ROOT / plan / "plan.json").model_id
    if not (file.is_file() and same(file, command, model_id)):
        call(command)
    return {
        **json.loads(file.read_text(encoding="utf-8")),
        "command": shlex.join(["python", "tools/simulate", str(plan), "--data", data.name, *options]),
    }


def same(file: Path, command: list[str], model_id: str) -> bool:
    before = json.loads(file.read_text(encoding="utf-8"))
    return shlex.split(before["command"])[1:] == command[1:] and before["plan"]["model_id"] == model_id


def best_rate(case: Case, records: int, data: Path) -> dict[str, Any]:
    """The rate with which a family of cases is run, chosen on training images that are held out."""
    wanted = family(case)
    rates = [word for rate in RATES for word in ("--lr-factor", f"{rate:g}")]
    results = simulate(wanted, records, data, ["--validation", *rates, "--seed", "0"], f"{wanted.name}-rates")
    found = {row["lr_factor"]: row["accuracy"] for row in results["by_lr"]}
    return {"rate": max(found, key=lambda rate: found[rate]), "by_rate": found, "command": results["command"]}


def measure(case: Case, plan: Plan, rates: dict[str, Any], data: Path) -> dict[str, Any]:
    """A row of pages/replay.json: accuracy on the test images by seed, after the session and on the way."""
    records = replay_of(plan).records if case.records == SPARE else case.records
    seeds = [word for seed in SEEDS for word in ("--seed", str(seed))]
    results = simulate(case, records, data, ["--lr-factor", f"{rates['rate']:g}", *seeds], case.name)
    runs = results["runs"]
    final = [run["accuracy"]["after"] for run in runs]
    curves = zip(*(run["accuracy"]["curve"] for run in runs), strict=True)
    return {
        **asdict(case),
        "records": records,
        "rate": rates["rate"],
        "all_in_sram": all_in(plan, records),
        "before_rehearsal": [
            run["accuracy"]["curve"][-2 if case.rehearse else -1]["accuracy"] for run in runs
        ],
        "accuracy": final,
        "mean": statistics.fmean(final),
        "seen": [statistics.fmean(point["seen"] for point in points) for points in list(curves)[1:]],
        "trained_sha256": [run["trained_sha256"] for run in runs],
        "command": results["command"],
    }


def all_in(plan: Plan, records: int) -> int:
    """Estimated bytes of SRAM with a buffer of another size."""
    replay = replay_of(plan)
    if not records:
        return replay.all_in_sram - replay.bytes
    label = 2  # bytes beside a record
    return replay.all_in_sram - (replay.records - records) * (replay.record_bytes + label)


def replay_of(plan: Plan) -> Replay:
    """The buffer of a plan that was made with one."""
    assert plan.replay is not None, f"{plan.path} was converted without --replay"
    return plan.replay
