"""The workflow: what every job must have, and lab/workflow, which replays one in a bare root."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pages import fault, simple

from lab.workflow import cli, jobs
from lab.workflow.jobs import Job, Step
from lab.workflow.root import SUITES, Root
from microtrain.base.errors import Error

DOCUMENT = jobs.load()
EVERY = jobs.jobs(DOCUMENT, {"TORCH_INDEX": "address"})


def test_every_job_has_an_end_and_the_last_waits_for_all() -> None:
    bodies = DOCUMENT["jobs"]
    assert all(0 < body["timeout-minutes"] <= 120 for body in bodies.values())
    assert set(bodies["release"]["needs"]) == set(bodies) - {"release"}


def test_what_is_downloaded_is_checked() -> None:
    """A file that curl brings is compared with a checksum that stands in the workflow, before it is used."""
    fetched = [step for job in EVERY for step in job.steps if "curl -" in step.run]
    assert fetched
    for job in EVERY:
        for step in job.steps:
            if "curl -" in step.run:
                assert re.search(r"sha256sum --check", step.run.partition("tar x")[0])
                assert re.fullmatch("[0-9a-f]{64}", job.environment["RENODE_SHA256"])


def test_nothing_is_left_unfilled() -> None:
    for job in EVERY:
        assert job.environment["TORCH_INDEX"] == "address"
        assert not [step.run for step in job.steps if "${{" in step.run]
        assert job.image in (*SUITES, "")


def test_every_command_of_ours_in_it_exists() -> None:
    lines = [line for job in EVERY for step in job.steps for line in step.run.splitlines()]
    found = {" ".join(words): fault(words) for line in lines for words in simple(line)}
    assert {command: problem for command, problem in found.items() if problem} == {}
    assert any("lab/compilers" in command for command in found)


def test_a_matrix_is_every_combination_and_what_it_includes() -> None:
    said = {"a": [1, 2], "b": ["x"], "include": [{"c": 3}]}
    assert jobs.matrix(said) == [{"a": "1", "b": "x"}, {"a": "2", "b": "x"}, {"c": "3"}]
    assert jobs.matrix({}) == [{}]


def test_a_line_of_a_matrix_is_chosen_by_its_values() -> None:
    (job,) = jobs.chosen(EVERY, "compilers", {"image": "debian:13"})
    assert job.image == "debian:13" and any("gcc-14" in step.run for step in job.steps)
    with pytest.raises(Error, match="there is no job nothing"):
        list(jobs.chosen(EVERY, "nothing", {}))
    with pytest.raises(Error, match="has no line"):
        list(jobs.chosen(EVERY, "compilers", {"image": "debian:1"}))


@pytest.mark.parametrize("text", ["", "[1, 2]", "jobs: 3", "{"])
def test_a_damaged_workflow_is_a_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "ci.yml").write_text(text)
    with pytest.raises(Error, match=r"ci\.yml"):
        jobs.load(tmp_path / "ci.yml")


class Fake(Root):
    """A root that runs nothing and says which scripts it was given."""

    def run(self, script: str, environment: Any, seconds: float) -> int:
        self.folder.joinpath("ran").open("a").write(script + "\n")
        return 1 if "false" in script else 0


def test_what_follows_a_failure_is_left_out_but_for_what_always_runs(tmp_path: Path) -> None:
    def step(run: str, uses: str = "", always: bool = False) -> Step:
        return Step(run or uses, run, uses, always)

    steps = (step("one"), step("", "other/action@v1"), step("skipped"), step("false"), step("two"))
    job = Job("test", "debian:12", 1, {}, (*steps, step("last", always=True)), {})
    rows = cli.replayed(job, Fake(tmp_path), {}, ("skip",))
    verdicts = ["passed", "left out", "left out", "failed", "left out", "passed"]
    assert [row["verdict"] for row in rows] == verdicts
    assert (tmp_path / "ran").read_text().split() == ["one", "false", "last"]


def test_without_an_image_there_is_no_root(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.main, ["registry", "--root", str(tmp_path)])
    assert done.exit_code == 1 and "only debian:12, debian:13 can be made here" in done.output
