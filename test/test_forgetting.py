"""Figures of pages/replay.md: in step with one another, above the bar, and made as they say."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import ROOT
from pio_build import NULL_MODEL

from lab.forgetting import picture, table
from lab.forgetting.cases import CASES, MAIN, SPARE, Case, family
from lab.forgetting.cli import main
from lab.forgetting.run import all_in
from microtrain.base.plan import Replay, read_plan

PAGES = ROOT / "lab/pages"
BAR = 0.8  # of joint training


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = json.loads((PAGES / "replay.json").read_text())["rows"]
    return result


def test_the_table_is_that_of_the_json(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "replay.md"
    shutil.copy(PAGES / "replay.md", file)
    table.insert(file, rows)
    assert file.read_text() == (PAGES / "replay.md").read_text()
    rows[0]["before_rehearsal"] = [0.5]
    table.insert(file, rows)
    assert file.read_text() != (PAGES / "replay.md").read_text()


def test_replay_keeps_four_fifths_of_joint_training(rows: list[dict[str, Any]]) -> None:
    for scheme in {row["scheme"] for row in rows}:
        whole = table.joint(rows, scheme)
        own = [row for row in rows if row["scheme"] == scheme and row["order"] == "classes"]
        largest = max(own, key=lambda row: (row["records"], row["replay"]))
        assert min(largest["accuracy"]) > BAR * whole
        assert all(row["mean"] < 0.2 for row in own if not row["records"])
        assert all(len(row["accuracy"]) >= 3 for row in own)


def test_a_row_says_how_it_was_made(rows: list[dict[str, Any]]) -> None:
    for row, case in zip(rows, CASES, strict=False):
        assert all(option in row["command"].split() for option in case.options(row["records"]))
        assert f"--lr-factor {row['rate']:g}" in row["command"] and "/tmp" not in row["command"]
        assert row["all_in_sram"] < 320 * 1024


def test_a_row_shares_the_rate_of_its_family() -> None:
    whole = Case(MAIN, "classes", SPARE, 4, 2000)
    assert family(replace(whole, records=20)) == family(replace(whole, scheme="mcunet-99kb")) == whole
    assert family(Case("mcunet-99kb", "shuffled")) == Case(MAIN, "shuffled")


def test_a_smaller_buffer_takes_less_sram() -> None:
    buffer = Replay(10, 38, 1, 424, 1000, ("input",), 0)
    plan = replace(read_plan(NULL_MODEL / "plan.json"), replay=buffer)
    assert [all_in(plan, records) for records in (10, 4, 0)] == [1000, 760, 576]


def test_the_picture_is_the_same_every_time(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    picture.draw(tmp_path / "replay.svg", rows)
    assert (tmp_path / "replay.svg").read_bytes() == (PAGES / "replay.svg").read_bytes()


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--network", str(tmp_path)])
    assert done.exit_code != 0 and "no such network" in done.output
    (tmp_path / "replay.md").write_text("no table")
    with pytest.raises(ValueError, match="for a table to stand between"):
        table.insert(tmp_path / "replay.md", [])
