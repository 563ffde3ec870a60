"""The report as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from microtrain.base.columns import wrapped

from .library import Entry
from .stack import Path
from .usage import Report

BIGGEST = 12
INDENT = 4  # of a line that goes on


def show(console: Console, report: Report) -> None:
    """Print everything."""
    title = report.firmware.path.name
    if report.plan is not None:
        title += f", model {report.plan.name} {report.plan.id:08x}"
    sram, flash = report.firmware.chip.sram.size, report.firmware.chip.flash.size
    console.print(
        kinds_table(f"SRAM of {title}", report.sram, sram, report.sram_budget, report.arena, report)
    )
    if report.dtcm:
        console.print(dtcm_table(report))
    console.print(kinds_table(f"Flash of {title}", report.flash, flash, report.flash_budget, None, report))
    console.print(regions_table(report))
    show_stack(console, report)
    console.print(symbols_table(report))
    for sentence in report.failures():
        console.print(f"OVER: {sentence}", style="bold red")


def kinds_table(
    title: str,
    kinds: dict[str, int],
    chip: int,
    budget: int | None,
    arena: dict[str, int] | None,
    report: Report,
) -> Table:
    """Bytes by kind; the arena's own kinds are indented below it."""
    table = new_table(title, "", "bytes", "% of chip")
    for name, size in kinds.items():
        table.add_row(name, f"{size:,}", percent(size, chip))
        if name == "arena" and arena is not None and report.plan is not None:
            peak = report.plan.arena.peak_step
            table.add_row(f"  at its peak, step {peak} ({step_name(report)}):", "", "", style="dim")
            for kind, part in arena.items():
                table.add_row(f"    {kind}", f"{part:,}", "", style="dim")
    total = sum(kinds.values())
    table.add_section()
    table.add_row("total", f"{total:,}", percent(total, chip), style="bold")
    table.add_row("chip", f"{chip:,}", f"{chip - total:+,} left")
    if budget is not None:
        table.add_row(
            "budget", f"{budget:,}", f"{budget - total:+,} left", style="bold red" if total > budget else None
        )
    return table


def dtcm_table(report: Report) -> Table:
    """Which part of SRAM is in the memory that never waits."""
    table = new_table("In DTCM, which never waits", "", "bytes", "of")
    for part, (inside, size) in report.dtcm.items():
        table.add_row(part, f"{inside:,}", f"{size:,}")
    return table


def regions_table(report: Report) -> Table:
    table = new_table("Flash regions", "", "bytes", "of")
    for name, (used, size) in report.regions.items():
        table.add_row(name, f"{used:,}", f"{size:,}")
    return table


def show_stack(console: Console, report: Report) -> None:
    stack = report.stack
    reserved = "" if stack.reserved is None else f" of {stack.reserved:,} reserved"
    handler = "".join(
        f" + exception frame {stack.frame} + handler {path.bytes:,}"
        for path in (stack.handler, *stack.nested)
        if path.frames
    )
    text = f"Worst stack: {stack.worst:,} bytes{reserved} = thread {stack.thread.bytes:,}{handler}"
    console.print(wrapped(text, console.width, INDENT), style="bold")
    for name, path in (
        ("thread", stack.thread),
        ("handler", stack.handler),
        *(("nested handler", path) for path in stack.nested),
        ("fault, not counted", stack.fault),
    ):
        if path.frames:
            console.print(wrapped(f"  {name}: {path_text(path)}", console.width, INDENT))


def show_functions(console: Console, found: list[Entry], title: str) -> None:
    """The stack of each function of a library, and what is not proven."""
    table = new_table(f"Stack of {title}", "", "bytes", "and that of")
    for entry in found:
        table.add_row(entry.name, f"{entry.path.bytes:,}", ", ".join(entry.callbacks))
    console.print(table)
    deepest = max(found, key=lambda entry: entry.path.bytes)
    console.print(wrapped(f"  deepest: {path_text(deepest.path)}", console.width, INDENT))
    for problem in dict.fromkeys(problem for entry in found for problem in entry.problems):
        console.print(f"OVER: the stack is not bounded: {problem}", style="bold red")


def path_text(path: Path) -> str:
    return " > ".join(f"{frame.name} {frame.bytes}" for frame in path.frames)


def symbols_table(report: Report) -> Table:
    table = new_table("Biggest symbols", "", "bytes", "in")
    for where in ("SRAM", "flash"):
        found = [(name, size) for name, (size, place) in report.symbols.items() if place == where]
        for name, size in found[:BIGGEST]:
            table.add_row(name, f"{size:,}", where)
        table.add_section()
    return table


def show_diff(console: Console, old: dict[str, Any], new: dict[str, Any]) -> None:
    """What grew and what shrank between two reports, by kind and by symbol."""
    table = new_table("Changes", "", "before", "now", "change")
    for key, memory in (("sram", "SRAM"), ("flash", "flash")):
        changed(table, memory, old[key]["kinds"], new[key]["kinds"])
        changed(table, f"{memory}, total", {"": old[key]["total"]}, {"": new[key]["total"]})
        table.add_section()
    sizes = [{name: s["bytes"] for name, s in report["symbols"].items()} for report in (old, new)]
    changed(table, "symbol", *sizes)
    if table.row_count:
        console.print(table)
    else:
        console.print("No change in size.")


def changed(table: Table, what: str, old: dict[str, int], new: dict[str, int]) -> None:
    """Rows for the entries that differ, the largest change first."""
    names = [name for name in {**old, **new} if old.get(name, 0) != new.get(name, 0)]
    for name in sorted(names, key=lambda n: (-abs(new.get(n, 0) - old.get(n, 0)), n)):
        before, after = old.get(name, 0), new.get(name, 0)
        table.add_row(f"{what} {name}".strip(), f"{before:,}", f"{after:,}", f"{after - before:+,}")


def new_table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=index > 0, overflow="fold")
    return table


def step_name(report: Report) -> str:
    plan = report.plan
    if plan is None or not 0 <= plan.arena.peak_step < len(plan.steps):
        return "?"
    step = plan.steps[plan.arena.peak_step]
    return f"{step.op} of {step.layer}"


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"
