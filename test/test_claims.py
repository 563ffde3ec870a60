"""README and pages/demo.md say what was measured: they are the records in words, and a fresh demo agrees."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab import marks
from lab.claims import cli, record, text


@pytest.fixture
def known() -> record.Record:
    return record.load()


def pages(known: record.Record, folder: Path) -> tuple[str, str]:
    """Both pages as the command would write them from a record."""
    parts = text.readme(known, cli.benchmark()), text.demo_page(known)
    for page, found in zip((cli.README, cli.DEMO_PAGE), parts, strict=True):
        shutil.copy(page, folder / page.name)
        marks.insert(folder / page.name, text.COMMAND, found)
    return (folder / cli.README.name).read_text(), (folder / cli.DEMO_PAGE.name).read_text()


def test_the_pages_say_what_the_records_say(known: record.Record, tmp_path: Path) -> None:
    assert pages(known, tmp_path) == (cli.README.read_text(), cli.DEMO_PAGE.read_text())


@pytest.mark.parametrize("key", ["accuracy_before", "accuracy_after", "accuracy_head_only", "sram_reported"])
def test_another_record_is_another_page(known: record.Record, tmp_path: Path, key: str) -> None:
    """Every number of the demo in README comes from the record: none can go stale alone."""
    known["report"][key] *= 1.1
    readme, demo_page = pages(known, tmp_path)
    assert readme != cli.README.read_text() and demo_page != cli.DEMO_PAGE.read_text()


@pytest.mark.parametrize("key", ["sram_all_in", "flash_bytes", "inference_instructions", "step_instructions"])
def test_the_table_follows_the_benchmark(key: str) -> None:
    rows = copy.deepcopy(cli.benchmark())
    text.case(rows, None)[key] *= 2
    assert text.engine(rows) != text.engine(cli.benchmark())


def test_a_stale_record_is_noticed(known: record.Record) -> None:
    """93.8 against 94.2 %: what is learned must be the same, what a compiler makes of it near."""
    fresh = copy.deepcopy(known)
    assert record.differences(known, fresh) == []
    fresh["report"]["accuracy_after"] = 0.9425
    (said,) = record.differences(known, fresh)
    assert said == "accuracy_after is 0.9425, and the record of the demo says 0.9375"
    fresh["compiler"] = "another one"
    assert record.differences(known, fresh) == [said]
    fresh["report"] |= {"accuracy_after": 0.9375, "flash_bytes": known["report"]["flash_bytes"] + 100}
    assert record.differences(known, fresh) == []
    fresh["report"] |= {"sha256_device": "other", "flash_bytes": 200_000}
    del fresh["report"]["train_steps"]
    assert len(record.differences(known, fresh)) == 3


def test_a_page_without_its_marks_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "README.md"
    page.write_text("no numbers here")
    monkeypatch.setattr(cli, "README", page)
    done = CliRunner().invoke(cli.main)
    assert done.exit_code == 1 and "for a demo to stand between" in done.output
    assert page.read_text() == "no numbers here"
