"""Runs Robot Framework suites for renode-test on the board model, and on Renode where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click

RENODE_TEST = "renode-test"


def run_on_board_model(suites: list[Path], variables: dict[str, str], results: Path) -> int:
    """Run suites with the keywords of robotlib.py, as renode-test does it with Renode's.

    results   folder for output.xml and log.html
    Returns   the number of failed tests
    """
    from robot.api import ResultWriter, TestSuite

    results.mkdir(parents=True, exist_ok=True)
    suite = TestSuite.from_file_system(*suites)
    for one in [suite, *suite.suites]:
        one.resource.imports.create(type="Library", name=f"{__package__}.robotlib.BoardKeywords")
    settings = [f"{name}:{value}" for name, value in variables.items()]
    output = results / "output.xml"
    result = suite.run(output=str(output), variable=settings, report=None, log=None)
    ResultWriter(str(output)).write_results(log=str(results / "log.html"), report=None)
    code: int = result.return_code
    return code


def run_on_renode(suites: list[Path], variables: dict[str, str], results: Path) -> int | None:
    """Run suites with renode-test. Returns its exit code, None where it is not installed."""
    program = shutil.which(RENODE_TEST)
    if program is None:
        return None
    results.mkdir(parents=True, exist_ok=True)
    settings = [part for name, value in variables.items() for part in ("--variable", f"{name}:{value}")]
    command = [program, "-r", str(results), *settings, *map(str, suites)]
    return subprocess.run(command, check=False).returncode


def run_everywhere(
    suites: list[Path], variables: dict[str, str], results: Path, not_on_renode: str | None = None
) -> bool:
    """Run suites on the board model, and on Renode where it is installed; say what came of both.

    not_on_renode   why they cannot run there, None: they can
    Returns         whether all that ran have passed
    """
    on_model = run_on_board_model(suites, variables, results / "board_model")
    on_renode = None if not_on_renode else run_on_renode(suites, variables, results / "renode")
    click.echo(f"board model: {_verdict(on_model)}")
    if on_renode is None:
        click.echo(f"Renode: NOT RUN ({not_on_renode or f'{RENODE_TEST} is not on PATH'})")
    else:
        click.echo(f"Renode: {_verdict(on_renode)}")
    return not (on_model or on_renode)


def _verdict(code: int) -> str:
    return "passed" if code == 0 else f"FAILED (exit code {code})"
