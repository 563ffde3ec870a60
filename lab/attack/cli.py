"""Command line of the attacks."""

from __future__ import annotations

import sys
import warnings

import click

from lab.notes import note, tell
from lab.soak import firmware
from microtrain.base.paths import ROOT
from microtrain.base.progress import bar
from microtrain.base.terminal import Sentences, say

from . import corpus, cuts, files, gradients, names

FOLDER = ROOT / "build/attack"
RESULT = ROOT / "build/attack.json"
FILES, NAMES, CUTS = 100_000, 200, 1_000
LEAST_COSINE = 0.99
NULL_CLASSES = 3  # of soak.firmware.smallest()
SEED = click.option(
    "--seed", type=click.IntRange(0, 2**31), default=1, show_default=True, help="Of all that is random."
)


@click.group(
    cls=Sentences, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Attack what the project promises (SECURITY.md). Without a command, all of it.

    Numbers go to build/attack.json; the exit status is 1 where a promise was broken.
    """
    if ctx.invoked_subcommand is None:
        good = [read_files(FILES, 1), compile_names(NAMES, 1), cut_forgets(CUTS, 1), sum_gradients()]
        sys.exit(0 if all(good) else 1)


@main.command("files")
@click.option("--count", type=click.IntRange(10), default=FILES, show_default=True, help="Damaged files.")
@SEED
def files_command(count: int, seed: int) -> None:
    """Read damaged and hostile files with every reader, in processes that can write nothing."""
    sys.exit(0 if read_files(count, seed) else 1)


@main.command("names")
@click.option("--count", type=click.IntRange(1), default=NAMES, show_default=True, help="Networks.")
@SEED
def names_command(count: int, seed: int) -> None:
    """Compile networks whose layers, file and scheme have hostile names."""
    sys.exit(0 if compile_names(count, seed) else 1)


@main.command("cuts")
@click.option("--count", type=click.IntRange(10), default=CUTS, show_default=True, help="Cuts.")
@SEED
def cuts_command(count: int, seed: int) -> None:
    """Cut the power while checkpoints are forgotten."""
    sys.exit(0 if cut_forgets(count, seed) else 1)


@main.command("gradients")
def gradients_command() -> None:
    """Compare gradients and sums of layers of extreme size with 64 bits."""
    sys.exit(0 if sum_gradients() else 1)


def read_files(count: int, seed: int) -> bool:
    """Returns whether no file ran code, wrote, hung, or ended in a traceback."""
    warnings.simplefilter("ignore")  # torch's, of what it writes for the corpus
    seeds = corpus.seeds(FOLDER / "corpus", firmware.smallest(FOLDER).elf)
    with bar("files", count) as advance:
        report = files.attack_files(FOLDER, seeds, count, seed, advance)
    note(
        RESULT,
        hostile_files=report.files,
        code_executed=len(report.executed),
        file_failures=len(report.failures),
        files_confined=report.confined,
        files_megabytes=report.megabytes,
    )
    where = "that could not write elsewhere" if report.confined else "NOT confined, as this kernel cannot"
    bad = f"{len(report.executed)} ran or wrote something, {len(report.failures)} ended without a sentence"
    say(
        f"files: {report.files} damaged or hostile ones, read by processes {where}; {bad}; "
        f"{report.megabytes} MB at most"
    )
    return tell([*report.executed, *report.failures])


def compile_names(count: int, seed: int) -> bool:
    """Returns whether no name became code."""
    with bar("names", count) as advance:
        report = names.attack_names(FOLDER / "names", count, seed, lambda: advance(1))
    note(RESULT, names_compiled=report.compiled, names_broken=len(report.broken))
    say(f"names: {report.compiled} networks with hostile names compiled; {len(report.broken)} broken")
    return tell(list(report.broken))


def cut_forgets(count: int, seed: int) -> bool:
    """Returns whether no cut brought an older checkpoint back."""
    elf = firmware.smallest(FOLDER).elf
    assert elf is not None
    with bar("power cuts", count) as advance:
        report = cuts.cut_forget(elf, NULL_CLASSES, count, seed, lambda: advance(1))
    note(RESULT, forget_cuts=report.cuts, forget_losses=len(report.losses))
    say(f"cuts: {report.cuts} power cuts in `forget`; {len(report.losses)} losses")
    return tell(report.losses)


def sum_gradients() -> bool:
    """Returns whether gradients and sums are right."""
    least = gradients.min_cosine_hidden_linear()
    wrong, cases = gradients.overflow_cases_wrong()
    note(RESULT, min_cosine_hidden_linear=least, overflow_cases=cases, overflow_cases_wrong=wrong)
    say(
        f"gradients: least cosine through hidden linear layers over maps {least:.5f}; "
        f"{wrong} of {cases} sums of extreme size wrong"
    )
    return least > LEAST_COSINE and not wrong
