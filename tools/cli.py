"""The command `microtrain`: one name for all tools. Each is imported when it is called, not before."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import click

from . import __version__


@dataclass(frozen=True)
class Tool:
    """room: its package, whose cli.main is the command; summary: what it does, in a line."""

    room: str
    summary: str


TOOLS = {
    "new": Tool("new", "Write a PlatformIO project with the firmware into FOLDER."),
    "convert": Tool("convert", "Turn a model and a sparse update scheme into the firmware's C files."),
    "export-library": Tool("convert.export", "Write a model and the engine as C for a firmware of your own."),
    "simulate": Tool("simulate", "Train on this machine in the device's arithmetic."),
    "search": Tool("search", "Find out which layers to train."),
    "device": Tool("device", "Talk to a device that learns: send samples, train, fetch weights."),
    "check-board": Tool("check_board", "Prove that a board computes what the emulated one does."),
    "fleet": Tool("fleet", "Let many boards learn one model together."),
    "report": Tool("memory_report", "Show flash, SRAM and stack of a firmware, from its ELF."),
    "elfcheck": Tool("elfcheck", "Prove that a firmware keeps to the numeric contract."),
    "emulate": Tool("emulator", "Run a firmware on the emulated board."),
    "demo": Tool("demo", "Train the example on the emulated board, from conversion to curve."),
}


class Tools(click.Group):
    """The tools by name. Their help is read from the table above; only the one that is called is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(TOOLS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in TOOLS:
            return None
        return command(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, tool.summary) for name, tool in TOOLS.items()])


def command(name: str) -> click.Command:
    """The click command of a tool."""
    found: click.Command = importlib.import_module(f"microtrain.{TOOLS[name].room}.cli").main
    return found


@click.group(cls=Tools, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="microtrain")
def main() -> None:
    """On-device training for microcontrollers.

    A new project: `microtrain new FOLDER`, then in it `microtrain convert MODEL` and `pio run -t upload`.
    """
