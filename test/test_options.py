"""A command's options are the fields of one dataclass."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from click.testing import CliRunner

from lab.house.sources import parameters
from microtrain.base.options import collected, option
from microtrain.base.paths import ROOT

MOST = 8  # parameters of any function


@dataclass(frozen=True)
class Looks:
    size: int = option("-s", "--size", type=click.IntRange(1), default=3, help="Of it.")
    names: tuple[str, ...] = option("--name", multiple=True)
    loud: bool = option("--loud", is_flag=True)
    where: str = option("--where", required=True)
    note: str = "not an option"


@click.command()
@click.argument("what")
@collected(Looks, into="looks")
def show(what: str, looks: Looks) -> None:
    """Says what it was given."""
    click.echo(f"{what} {looks}")


def test_options_arrive_in_the_dataclass() -> None:
    words = ["it", "-s", "4", "--name", "a", "--name", "b", "--where", "here"]
    assert CliRunner().invoke(show, words).output.strip() == f"it {Looks(4, ('a', 'b'), False, 'here')}"
    assert CliRunner().invoke(show, ["it", "--where", "x"]).output.strip() == f"it {Looks(where='x')}"


def test_options_stand_in_the_help_in_their_order_and_are_checked() -> None:
    shown = CliRunner().invoke(show, ["--help"]).output
    places = [shown.index(word) for word in ("-s, --size", "Of it.", "--name", "--loud", "--where")]
    assert places == sorted(places)
    assert "Invalid value for '-s' / '--size'" in CliRunner().invoke(show, ["it", "-s", "0"]).output
    assert "Missing option '--where'" in CliRunner().invoke(show, ["it"]).output


def crowded(source: str) -> Iterator[str]:
    """Functions with more than MOST parameters; self and cls do not count."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and parameters(node) > MOST:
            yield node.name


def test_no_function_has_more_parameters_than_a_reader_can_keep_apart() -> None:
    files = [path for room in ("tools", "lab") for path in sorted((ROOT / room).rglob("*.py"))]
    assert len(files) > 200
    assert {str(path.relative_to(ROOT)): name for path in files for name in crowded(path.read_text())} == {}
    eight = "class A:\n def eight(self, a, b, c, d, e, f, g, h): ...\n"
    assert list(crowded(eight)) == []
    assert list(crowded(eight + " def nine(self, a, b, c, d, e, f, g, h, *, i): ...")) == ["nine"]


def test_options_are_listed_once(tmp_path: Path) -> None:
    """In the commands with many options each name stands in its own declaration only."""
    for room in ("convert", "search", "simulate", "emulator"):
        text = (ROOT / f"tools/{room}/cli.py").read_text(encoding="utf-8")
        assert "@click.option" not in text and "@collected(" in text
