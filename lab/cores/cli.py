"""Command line: `make cores`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from lab.alone import hold
from lab.bench.cases import Case
from lab.notes import note, tell
from microtrain.base.columns import Column, table
from microtrain.base.commands import logged, ours
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.terminal import console

from . import fuzzing, page, tiny
from .machines import CORES, WORK, Core, Session
from .measure import Row, differing, row

FOLDER = ROOT / "build/cores"
RESULT = ROOT / "build/cores.json"
EXAMPLE = ("examples/digits/model.pt", "--scheme", "examples/digits/scheme.yaml", "--classes", "10")
PUBLISHED = Case("mcunet-5fps", "mcunet-49kb")
MCUNET_STEPS = 3  # the first is of a head of zeros, whose errors are all 0, and the second is in pieces
SEED = 1  # of the sequences
NAMES = [core.name for core in CORES]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--core", "chosen", multiple=True, type=click.Choice(NAMES), help="Only these cores.")
@click.option(
    "--sequences", type=click.IntRange(0), default=1_000_000, show_default=True, help="Of API calls."
)
@click.option("--steps", type=click.IntRange(2), default=20, show_default=True, help="That are trained.")
@click.option("--page", "to_page", is_flag=True, help="Also write the tables of docs/embed.md.")
def main(chosen: tuple[str, ...], steps: int, sequences: int, to_page: bool) -> None:
    """Train the same session through microtrain.h on every core, under QEMU and on this machine.

    The example; and, where MICROTRAIN_DATA names the folder with the published networks, MCUNet. Then
    random sequences of calls under sanitizers. Numbers go to build/cores.json. The exit status is 1 where two
    cores do not learn the same weights, or a call did not do what it should.
    """
    hold(FOLDER)
    cores = [core for core in CORES if core.name in chosen or not chosen]
    try:
        chosen_sessions = sessions(steps)
        if to_page:
            whole(cores, chosen_sessions)
        rows = [each for session in chosen_sessions for each in measured(cores, session)]
        show(rows)
        example, published = ([r for r in rows if (r["model"] == "digits") is so] for so in (True, False))
        note(RESULT, cores=example, published=published, **pieces(rows))
        tried = fuzzing.tried(tiny.sessions(FOLDER), FOLDER, SEED, sequences)
    except Error as error:
        raise click.ClickException(str(error)) from error
    note(RESULT, api_fuzz_sequences=tried.sequences, api_fuzz_failures=len(tried.failures))
    tell(tried.failures)
    if to_page:
        from . import stacks

        page.write(rows)
        stacks.write(stacks.measured(chosen_sessions[0], rows, FOLDER))
    wrong = differing(rows)
    if wrong:
        click.echo(f"cores: {', '.join(wrong)} learned other weights, or sent other updates.", err=True)
    sys.exit(1 if wrong or tried.failures or not rows else 0)


def whole(cores: list[Core], sessions: list[Session]) -> None:
    """Raises Error where a table of docs/embed.md would lose a row."""
    without = [f"{core.name} ({core.missing} is not installed)" for core in CORES if core.missing]
    without += [core.name for core in CORES if core not in cores]
    without += [] if len(sessions) > 1 else [f"{PUBLISHED.network} (no such file under MICROTRAIN_DATA)"]
    if without:
        raise Error(f"--page writes every row of its tables. Missing here: {', '.join(without)}")


def measured(cores: list[Core], session: Session) -> list[Row]:
    """A row for each core; one that cannot run here is named and left out."""
    rows = []
    for core in cores:
        if core.missing:
            click.echo(f"{core.name}: left out, {core.missing} is not installed.", err=True)
            continue
        rows.append(row(core, session, FOLDER))
    return rows


def sessions(steps: int) -> list[Session]:
    """The example's library, and that of MCUNet where its file is here."""
    made = [exported(EXAMPLE, "digits", steps)]
    data = os.environ.get("MICROTRAIN_DATA")
    if data and (published := Path(data) / f"models/{PUBLISHED.network}.pkl").is_file():
        made.append(exported((str(published), *PUBLISHED.options()), "mcunet", MCUNET_STEPS))
    return made


def exported(options: tuple[str, ...], name: str, steps: int) -> Session:
    generated, library = FOLDER / f"generated-{name}", FOLDER / f"library-{name}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    logged(
        ours("tools/convert", *options, "--replay", "off", "-o", generated), FOLDER / f"convert-{name}.log"
    )
    command = ours("tools/convert.export", library, "--model", generated, "--name", name)
    logged(command, FOLDER / f"export-{name}.log")
    return Session(library, name, steps)


def pieces(rows: list[Row]) -> dict[str, int | None]:
    """The longest piece of a training step of the largest model, on a Cortex-M4, and the number that
    microtrain_step was given for it."""
    found = [r["slice_instructions"] for r in rows if r["core"] == "cortex-m4f"]
    return {"slice_max_instructions": found[-1] if found else None, "slice_work": WORK}


def show(rows: list[Row]) -> None:
    words = (Column("core", number=False), Column("model", number=False), Column("sha256", number=False))
    counts = ("inference", "step", "piece", "flash B", "SRAM B")
    made = table("the library on other cores", [*words, *(Column(name) for name in counts)], narrow=True)
    keys = ("inference_instructions", "step_instructions", "slice_instructions", "flash", "sram")
    for r in rows:
        cells = [f"{r[key]:,}" if r[key] is not None else "" for key in keys]
        made.add_row(r["core"], r["model"], r["sha256"][:8], *cells)
    console().print(made)
