"""Runs Robot Framework suites for renode-test on the board model, and on Renode where it is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click

RENODE_TEST = "renode-test"
RENODE_VERSION = "1.16.1"  # whose platform files renode/*.repl change


def run_on_board_model(
    suites: list[Path], variables: dict[str, str], results: Path, first: bool = False
) -> int:
    """Run suites with the keywords of robotlib.py, as renode-test does it with Renode's.

    results   folder for output.xml and log.html
    first     stop at the first failed test
    Returns   the number of failed tests
    """
    from robot.api import ResultWriter, TestSuite

    results.mkdir(parents=True, exist_ok=True)
    suite = TestSuite.from_file_system(*suites)
    if suite.suites:
        suite.name = "Suites"  # by itself all their names, of which the console shows the first
    for one in [suite, *suite.suites]:
        one.resource.imports.create(type="Library", name=f"{__package__}.robotlib.BoardKeywords")
    settings = [f"{name}:{value}" for name, value in variables.items()]
    output = results / "output.xml"
    result = suite.run(output=str(output), variable=settings, report=None, log=None, exitonfailure=first)
    ResultWriter(str(output)).write_results(log=str(results / "log.html"), report=None)
    code: int = result.return_code
    return code


def run_on_renode(suites: list[Path], variables: dict[str, str], results: Path) -> int | None:
    """Run suites with renode-test. Returns its exit code, None where it is not installed."""
    program = shutil.which(RENODE_TEST)
    if program is None:
        return None
    environment = users_own(os.environ)
    found = renode_version(Path(program), environment)
    if found != RENODE_VERSION:
        kind = f"is {found}" if found else "does not say its version"
        click.echo(f"Renode {kind}; the suites and renode/*.repl are written for {RENODE_VERSION}.", err=True)
    results.mkdir(parents=True, exist_ok=True)
    settings = [part for name, value in variables.items() for part in ("--variable", f"{name}:{value}")]
    command = [program, "-r", str(results), *settings, *map(str, suites)]
    return subprocess.run(command, env=environment, check=False).returncode


def users_own(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the Python that runs this: Renode's runner needs modules of its own."""
    ours = Path(sys.executable).parent
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if Path(folder) != ours)
    kept = {name: value for name, value in environment.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    return {**kept, "PATH": path}


def renode_version(runner: Path, environment: Mapping[str, str]) -> str | None:
    """ "1.16.1", by the `renode` beside its runner or on PATH; None where it does not say."""
    beside = runner.resolve().with_name("renode")
    program = str(beside) if beside.is_file() else shutil.which("renode", path=environment["PATH"])
    if program is None:
        return None
    command = [program, "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    said = re.search(r"\d+\.\d+\.\d+", done.stdout)
    return said[0] if said else None


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
