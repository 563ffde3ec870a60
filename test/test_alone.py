"""Two runs of a lab tool in one folder: the second one refuses, and the first one goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import ROOT

TAKES = "import sys; from pathlib import Path; from lab.alone import hold; import click\n"
TRIES = "try:\n    hold(Path(sys.argv[1]))\nexcept click.ClickException as error:\n    sys.exit(str(error))\n"
WAITS = "print('has it', flush=True); sys.stdin.read()"


def start(folder: Path, then: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TAKES + TRIES + then, str(folder)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_the_second_run_in_a_folder_refuses_in_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "build"
    first = start(folder, "hold(Path(sys.argv[1])); " + WAITS)  # its own folder is no obstacle to it
    assert first.stdout is not None
    assert first.stdout.readline() == "has it\n"
    out, said = start(folder, WAITS).communicate("")
    assert (out, said) == ("", f"{folder} is in use by another run: wait until that one ends.\n")
    first.communicate("")
    assert first.returncode == 0
    out, said = start(folder, WAITS).communicate("")
    assert (out, said) == ("has it\n", "")
