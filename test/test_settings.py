"""Every setting of every command, with values that it cannot have: one sentence that names it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from microtrain.base.paths import ROOT

ROOMS = (
    "check_board",
    *("convert", "simulate", "search", "device", "memory_report", "emulator", "demo", "elfcheck", "new"),
    "fleet",
)
LAB = (
    "attack",
    "bench",
    "claims",
    "compilers",
    "cores",
    "coverage",
    "fleet",
    "floor",
    "forgetting",
    "golden",
    "house",
    "instructions",
    "mutation",
    "order",
    "pieces",
    "prior",
    "recipe",
    "results",
    "sizes",
    "soak",
    "tasks",
    "trellis",
    "workflow",
    "worlds",
    "zoo",
)
LINE = 100  # characters of a summary


@dataclass(frozen=True)
class Setting:
    """An option or argument of a command."""

    command: click.Command
    path: str
    parameter: click.Parameter

    @property
    def name(self) -> str:
        return f"{self.path} {self.parameter.opts[0]}"

    def given(self, value: str) -> list[str]:
        option = isinstance(self.parameter, click.Option)
        return [self.parameter.opts[0], value] if option else [value]


def commands(
    package: str = "microtrain", rooms: Iterable[str] = ROOMS
) -> Iterator[tuple[str, click.Command]]:
    for room in rooms:
        main = importlib.import_module(f"{package}.{room}.cli").main
        yield room, main
        if isinstance(main, click.Group):
            yield from ((f"{room} {name}", command) for name, command in main.commands.items())


SETTINGS = [
    Setting(command, path, parameter)
    for path, command in commands()
    for parameter in command.params
    if not getattr(parameter, "is_flag", False)
]


def wrong_values(kind: Any) -> list[str]:
    """Values that a setting of this kind refuses; none for plain text and files that are written."""
    if isinstance(kind, click.Choice):
        return ["nonsense", ""]
    if isinstance(kind, click.IntRange | click.FloatRange):
        outside = [str(kind.min - 1)] if kind.min is not None else []
        outside += [str(kind.max + 1)] if kind.max is not None else []
        return ["x", "", *outside, *(["nan", "inf"] if isinstance(kind, click.FloatRange) else ["1.5"])]
    if isinstance(kind, click.Path):
        return ["nowhere/at/all"] if kind.exists else []
    if kind in (click.INT, click.FLOAT):
        return ["x", "-1", *(["nan"] if kind is click.FLOAT else ["1.5"])]
    return [] if kind is click.STRING else ["?"]


CASES = [
    pytest.param(setting, value, id=f"{setting.name}={value or 'nothing'}")
    for setting in SETTINGS
    for value in wrong_values(setting.parameter.type)
]


def invoke(setting: Setting, value: str) -> Result:
    return CliRunner().invoke(setting.command, setting.given(value), obj=None)


@pytest.mark.parametrize(("setting", "value"), CASES)
def test_a_value_that_cannot_be(setting: Setting, value: str) -> None:
    result = invoke(setting, value)
    assert result.exit_code == 2, result.output or result.exception
    errors = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    name = setting.parameter.opts[-1].lstrip("-")
    assert name.lower() in errors[0].lower() or setting.parameter.opts[0] in errors[0]
    assert "Traceback" not in result.output


def test_there_are_settings_of_every_command() -> None:
    """The list above comes from the commands: an empty one would test nothing."""
    tested = {setting.path.split()[0] for setting in SETTINGS}
    assert tested >= {"convert", "simulate", "search", "device", "emulator", "demo"}
    assert len(CASES) > 100


def test_a_value_that_can_be_is_not_refused(tmp_path: Path) -> None:
    """The test above can fail: what fits gets past the settings, and fails for the missing rest."""
    main = importlib.import_module("microtrain.convert.cli").main
    result = CliRunner().invoke(main, ["--classes", "2"])
    assert "'--classes'" not in result.output
    assert "Missing argument" in result.output


@pytest.mark.parametrize(("path", "command"), list(commands()))
def test_help_names_every_setting(path: str, command: click.Command) -> None:
    told = CliRunner().invoke(command, ["--help"]).output
    assert (command.help or "").strip()
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.opts[0] in told, path


def unexplained(command: click.Command) -> list[str]:
    """What the help of a command leaves a reader to guess: its use in a line, an option, an argument."""
    told = (command.help or "").strip()
    summary = told.split("\n\n")[0]
    wrong = [] if 0 < len(summary) <= LINE and "\n" not in summary else ["a summary of one line"]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            wrong += [] if parameter.help or parameter.hidden else [parameter.opts[0]]
        elif str(parameter.name).upper() not in told:
            wrong.append(str(parameter.name).upper())
    return wrong


def test_help_explains_every_option_and_argument() -> None:
    every = dict([*commands(), *commands("lab", LAB)])
    assert {path: wrong for path, command in every.items() if (wrong := unexplained(command))} == {}
    assert set(LAB) == {path.parent.name for path in (ROOT / "lab").glob("*/cli.py")}
    assert set(ROOMS) == {path.parent.name for path in (ROOT / "tools").glob("*/cli.py")}


def test_a_help_that_explains_nothing_is_noticed() -> None:
    @click.command()
    @click.argument("what")
    @click.option("--how")
    @click.option("--why", help="The reason.")
    def do(what: str, how: str, why: str) -> None:
        """Two lines
        of summary."""

    assert unexplained(do) == ["a summary of one line", "WHAT", "--how"]
