"""`make coverage`: what is counted is what was run, in killed, restarted and child processes too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.coverage import cli, measure, tally
from lab.coverage.measure import CoverageError, counting
from lab.coverage.tally import Counts, room_of
from microtrain.base.paths import FIRMWARE, ROOT

PROGRAM = """
#include <unistd.h>
#include "text.h"
extern int execv(const char *, char *const *);
int main(int n, char **words)
{
    unsigned value;
    char *again[] = {words[0], 0};
    (void)parse_hex32("a", &value);
    return n > 1 ? execv(words[0], again) : 0;
}
"""


def text_source() -> Path:
    return next(FIRMWARE.rglob("text.c"))


def compiled(folder: Path, environment: dict[str, str]) -> Path:
    (folder / "main.c").write_text(PROGRAM)
    program = folder / "program"
    sources = [str(folder / "main.c"), str(text_source())]
    flags = ["-std=c11", "-O2", "-fsanitize=address", f"-I{FIRMWARE / 'include'}", "-o", str(program)]
    subprocess.run(["gcc", *flags, *sources], env=environment, check=True)
    return program


def counted(folder: Path) -> Counts:
    return tally.c_rooms(folder)[room_of(text_source().relative_to(ROOT))]


def test_c_counts_what_runs_and_nothing_else(tmp_path: Path) -> None:
    environment = counting(os.environ, tmp_path)
    program = compiled(tmp_path, environment)
    (tmp_path / "counts/python").mkdir(parents=True, exist_ok=True)
    assert b"__asan_init" not in program.read_bytes()
    subprocess.run([program], check=True)
    once = counted(tmp_path)
    assert 0 < once.lines < once.all_lines / 2
    assert 0 < once.branches < once.all_branches / 2


def test_a_program_that_starts_itself_again_has_counted(tmp_path: Path) -> None:
    program = compiled(tmp_path, counting(os.environ, tmp_path))
    subprocess.run([program, "again"], check=True)
    merged = next((tmp_path / "counts/c").glob("*/*text.gcda"))
    report = subprocess.run(["gcov", "-t", merged], capture_output=True, text=True, check=True).stdout
    assert " 2:" in next(line for line in report.splitlines() if "int parse_hex32" in line)


@pytest.mark.slow
def test_python_counts_its_children(tmp_path: Path) -> None:
    environment = counting(os.environ, tmp_path)
    child = "import sys; sys.path.insert(0, '.'); import microtrain.base.errors as e; e.short('x' * 500)"
    script = tmp_path / "script.py"
    script.write_text(
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    )
    command = [sys.executable, "-m", "coverage", "run", measure.SETTINGS, str(script)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    rooms = tally.python_rooms(tmp_path)
    assert 0 < rooms["tools/base"].lines < rooms["tools/base"].all_lines
    assert rooms["tools/device"].lines == 0


def test_a_machine_without_gcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("COUNTING_GCC", raising=False)
    with pytest.raises(CoverageError, match=r"gcc is not installed.*`make setup`"):
        counting(os.environ, tmp_path)


def test_a_report_that_fails_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CoverageError, match="coverage html failed: No data"):
        tally.python_rooms(tmp_path)


@pytest.mark.parametrize(
    ("file", "room"),
    [
        ("tools/cli.py", "tools"),
        ("tools/device/cli.py", "tools/device"),
        ("tools/emulator/peripherals/spi.py", "tools/emulator"),
        ("tools/convert/memory/plan.py", "tools/convert/memory"),
        ("firmware/src/board/host/board.c", "firmware/src/board/host"),
    ],
)
def test_rooms(file: str, room: str) -> None:
    assert room_of(Path(file)) == room


def test_percents_are_never_rounded_up() -> None:
    assert Counts(1999, 2000, 0, 0).percent == {"lines": 99.9, "branches": 100.0}
    assert (Counts(1, 2, 3, 4) + Counts(1, 1, 1, 1)) == Counts(2, 3, 4, 5)


def test_a_number_under_the_floor_is_named() -> None:
    floor = {"python": {"lines": 90.0}, "c": {"branches": 80.0}}
    found = {"python": {"lines": 90.0, "branches": 1.0}, "c": {"lines": 1.0, "branches": 79.9}}
    (sentence,) = cli.below(found, floor)
    assert sentence.startswith("79.9 % of the branches of c are run, and 80.0 % must be")


def test_a_room_whose_tests_are_skipped_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = {"tools/fleet": Counts(1, 9, 1, 9), "tools/device": Counts(9, 9, 9, 9)}
    monkeypatch.setattr(tally, "find_spec", lambda name: None)
    assert tally.without_their_extra(rooms) == {"tools/fleet": "microtrain[fleet]"}
    assert tally.without_their_extra({"tools/device": Counts()}) == {}
    monkeypatch.setattr(tally, "find_spec", lambda name: name)
    assert tally.without_their_extra(rooms) == {}


def test_the_boards_own_code_is_said_to_be_uncounted() -> None:
    folders = tally.uncounted({"firmware/src/runtime": Counts()})
    assert "firmware/src/board/stm32" in folders
    assert "firmware/src/runtime" not in folders


def test_the_table_fits_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    cli.show({"tools/convert/frontends": Counts(1, 2, 3, 4)}, {"firmware/src/board/host": Counts(1, 2, 3, 4)})
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line[:1] in "┏┃┡│├└"]
    assert len(table) > 5
    assert max(map(len, table)) <= cli.WIDTH
