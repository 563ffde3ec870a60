"""Command line of the memory report."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from microtrain.base.errors import Error
from microtrain.base.files import replacing
from microtrain.base.options import collected, option
from microtrain.base.plan import Plan, read_plan
from microtrain.base.reading import reading
from microtrain.base.terminal import console
from microtrain.pictures.arena_map import check_suffix, draw

from . import interrupts, traps
from .firmware import load_firmware
from .library import CORES, proven
from .library import as_json as library_json
from .show import show, show_diff, show_functions
from .usage import as_json, make_report

ELF = Path(".pio/build/disco_f746ng/firmware.elf")
PLAN = Path("firmware/generated/plan.json")
FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Wanted:
    """A library in the place of a firmware."""

    folder: Path | None = option(
        "--library",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Instead of a firmware: the stack of each function of what export-library wrote.",
    )
    core: str = option(
        "--core",
        type=click.Choice(sorted(CORES)),
        default="cortex-m4f",
        show_default=True,
        help="The library's.",
    )
    cc: str | None = option("--cc", metavar="GCC", help="The library's compiler, instead of Debian's.")


class Bytes(click.ParamType):  # type: ignore[type-arg]
    """A size: 131072, 128K, 128KB or 1M."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d+) *([kKmM]?)[bB]?", str(value))
        if not found:
            self.fail(f"{value!r} is not a size: write 131072, 128K or 1M.", param, ctx)
        return int(found[1]) * {"": 1, "k": 1024, "m": 1024 * 1024}[found[2].lower()]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--elf", default=ELF, show_default=True, type=FILE, help="The linked firmware.")
@click.option("--plan", type=FILE, help=f"plan.json of its model. [default: {PLAN}, where it is there]")
@click.option("--json", "json_path", type=FILE, metavar="FILE", help="Also write the report as JSON.")
@click.option("--diff", type=FILE, metavar="OLD.json", help="Show what grew since that report.")
@click.option(
    "--picture", type=FILE, metavar="FILE.svg|.html", help="Draw the arena over one training iteration."
)
@collected(Wanted, into="library")
@click.option("--budget-sram", type=Bytes(), help="Budget of SRAM, instead of the plan's.")
@click.option("--budget-flash", type=Bytes(), help="Budget of flash, instead of the plan's.")
def main(
    elf: Path,
    plan: Path | None,
    json_path: Path | None,
    diff: Path | None,
    picture: Path | None,
    budget_sram: int | None,
    budget_flash: int | None,
    library: Wanted,
) -> None:
    """Show how much flash, SRAM and stack a firmware needs, against the chip and the budget.

    All-in SRAM is everything the CPU can write: .data, .bss (with the arena and the trainables) and the worst
    stack, proven from the machine code. Exits with 1 where a limit is passed or the stack not bounded.

    With --library, the proven stack of each function of microtrain.h on a Cortex-M or a RISC-V core. The
    caller's storage functions are named, and come on top.
    """
    try:
        if library.folder is not None:
            sys.exit(0 if of_library(library.folder, library, json_path) else 1)
        passed = run(elf, plan, json_path, diff, picture, (budget_sram, budget_flash))
    except Error as error:
        raise click.ClickException(str(error)) from error
    sys.exit(0 if passed else 1)


def run(
    elf: Path,
    plan_path: Path | None,
    json_path: Path | None,
    diff: Path | None,
    picture: Path | None,
    budgets: tuple[int | None, int | None],
) -> bool:
    """Make the report; True where nothing is over a limit."""
    firmware = load_firmware(elf)
    plan = choose_plan(plan_path)
    if picture is not None and plan is None:
        raise Error(f"--picture needs a plan, and {PLAN} is not there: name one with --plan.")
    if picture is not None:
        check_suffix(picture.suffix)
    old = load_report(diff) if diff is not None else None
    analyse = traps.analyse if firmware.elf.machine == "riscv" else interrupts.analyse
    report = make_report(firmware, plan, analyse(firmware), *budgets)
    terminal = console()
    show(terminal, report)
    document = as_json(report)
    if old is not None:
        show_diff(terminal, old, document)
    if json_path is not None:
        write(json_path, json.dumps(document, indent=1) + "\n")
    if picture is not None and plan is not None:
        write(picture, draw(plan, picture.suffix))
        terminal.print(f"arena over the steps: {picture}")
    return not report.failures()


def of_library(folder: Path, wanted: Wanted, json_path: Path | None) -> bool:
    """The stacks of a library's functions; True where all are proven."""
    found = proven(folder, wanted.core, wanted.cc)
    show_functions(console(), found, f"{folder.name} on a {wanted.core}")
    if json_path is not None:
        write(json_path, json.dumps(library_json(found, wanted.core), indent=1) + "\n")
    return not any(entry.problems for entry in found)


def choose_plan(path: Path | None) -> Plan | None:
    """The plan that was named, or the one beside the firmware where it exists."""
    if path is None and not PLAN.exists():
        return None
    return read_plan(path or PLAN)


def load_report(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise Error(f"no such report: {path}.")
    with reading(Error, lambda _: f"{path} is not a report that --json wrote."):
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != 1 or not {"flash", "sram", "symbols"} <= document.keys():
            raise ValueError("not a report")
    return document


def write(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
