"""Every command that README and docs/ show is run, or has a reason why not; options that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import walk
from conftest import ROOT
from pages import CODE, fault, option_faults, simple
from test_own_model import fresh_copy
from walk import GUIDE, WALKS, Walk, changed, reason, typed, unknown_blocks

from microtrain import cli
from microtrain.convert.scheme import find


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", walk.pages())
def test_every_command_is_run_or_has_a_reason(page: str) -> None:
    text = text_of(page)
    assert unknown_blocks(page, text) == [] or page == GUIDE
    left = [line for line in typed(text) if reason(line) is None]
    assert not left or page in (GUIDE, *(each.page for each in WALKS)), left


def test_no_reason_is_stale() -> None:
    lines = [line for page in walk.pages() for line in typed(text_of(page))]
    assert [start for start in walk.NOT_RUN if not any(line.startswith(start) for line in lines)] == []
    shown = {(p, body.splitlines()[0]) for p in walk.pages() for _, body in walk.blocks(text_of(p))}
    assert set(walk.NO_COMMANDS) <= shown


LONG = ("docs/README.md",)  # half a minute of a core


@pytest.mark.parametrize(
    "each",
    [pytest.param(w, marks=pytest.mark.slow if w.page in LONG else (), id=w.page) for w in WALKS],
)
def test_the_commands_of_a_page_run_in_order(each: Walk, tmp_path: Path) -> None:
    folder = fresh_copy(tmp_path)
    walk.furnish(folder)
    lines, unused = changed(each, text_of(each.page))
    assert lines and not unused, f"the page no longer says {unused}"
    done = walk.shell(lines, folder)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"


def test_the_scheme_of_the_page_is_one(tmp_path: Path) -> None:
    (scheme,) = [b for _, b in walk.blocks(text_of("docs/schemes.md")) if b.startswith("name: digits-sparse")]
    (tmp_path / "scheme.yaml").write_text(scheme)
    assert find(tmp_path / "scheme.yaml").weights


@pytest.mark.parametrize("page", walk.pages())
def test_every_option_that_the_prose_names_exists(page: str) -> None:
    assert option_faults(text_of(page)) == []


@pytest.mark.parametrize("said", ["`--calibratoin`", "`convert --mena imagenet`", "`simulate --emulate`"])
def test_an_option_that_does_not_exist_is_noticed(said: str) -> None:
    assert option_faults(f"Use `--calibration`, or {said}.") == [CODE.findall(said)[0].strip("`")]


@pytest.mark.parametrize("name", cli.TOOLS)
def test_examples_in_a_help_exist_as_they_are_written(name: str) -> None:
    helps = [cli.command(name).help or ""]
    lines = [line.strip() for text in helps for line in text.splitlines() if "microtrain " in line[:16]]
    found = {line: fault(words) for line in lines for words in simple(line)}
    assert {line: problem for line, problem in found.items() if problem} == {}


def test_some_helps_have_examples() -> None:
    texts = [cli.command(name).help or "" for name in cli.TOOLS]
    assert sum(bool(re.search(r"^\s*microtrain ", text, re.MULTILINE)) for text in texts) >= 4


def test_a_command_that_nothing_runs_is_noticed() -> None:
    assert [line for line in typed("    make demo   # all\n    make dinner\n") if reason(line) is None] == [
        "make dinner"
    ]
    assert unknown_blocks("docs/new.md", "```\nwho knows\n```\n") == ["who knows"]


def test_a_command_that_fails_is_noticed(tmp_path: Path) -> None:
    done = walk.shell(["true", "python -c 'import sys; sys.exit(3)'", "true"], tmp_path)
    assert done.returncode == 3


def test_comments_are_not_typed() -> None:
    assert typed("    make demo      # five minutes: `x`\n") == ["make demo"]
    assert re.search("#", " ".join(typed("    pip install a#b\n")))
