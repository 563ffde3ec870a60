"""lab/compilers: names of compilers, rows that agree, and the page that shows them."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lab.compilers import cli, found, measure, table
from lab.compilers.found import ARM, Compiler
from microtrain.base.errors import Error


@pytest.mark.parametrize(
    ("command", "said", "name"),
    [
        (ARM, f"{ARM} (15:8-2019-q3-1+b1) 8.3.1 20190703 (release) [gcc-8-branch]", f"{ARM} 8.3.1"),
        (ARM, f"{ARM} (Arm GNU Toolchain 13.2.rel1 (Build arm-13.7)) 13.2.1 20231009", f"{ARM} 13.2.1"),
        ("gcc-12", "gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0", "gcc 12.2.0"),
        ("clang-14", "Debian clang version 14.0.6\nTarget: x86_64", "clang 14.0.6"),
        ("python -m ziglang cc", "clang version 22.1.8 (https://host/zig 1.2.3)", "zig cc, clang 22.1.8"),
    ],
)
def test_compilers_are_named(command: str, said: str, name: str) -> None:
    assert f"{found.program(command.split())} {found.version(command, said)}" == name


def test_what_is_no_compiler_is_a_sentence() -> None:
    with pytest.raises(Error, match="there is no compiler gcc-99"):
        found.named("gcc-99")
    with pytest.raises(Error, match="holds no version"):
        found.version("gcc", "hello (1.2.3)")


def test_a_version_that_has_two_names_is_built_once(tmp_path: Path) -> None:
    assert len(found.at_hand((), ("gcc", "gcc"))) == 1


def row(compiler: str = "gcc 12.2.0", target: str = "this machine", **changes: Any) -> dict[str, Any]:
    made = {"compiler": compiler, "for": target, "flash": 1, "sha256": "a" * 64, "wrong": []}
    return {**made, "sram": 2, "stack": 3, "step_instructions": 4, **changes}


def test_other_weights_and_broken_rules_are_faults() -> None:
    others = [row("gcc 11.3.0"), row("clang 14.0.6")]
    assert table.faults([row(), *others]) == []
    (found,) = table.faults([row(sha256="b" * 64), *others])
    assert found == "gcc 12.2.0 for this machine learns other weights"
    (found,) = table.faults([row(wrong=["double in f"]), *others])
    assert found == "gcc 12.2.0 for this machine: double in f"


def test_rows_of_other_runs_are_kept_and_the_newest_counts() -> None:
    known = [row("gcc 9.1.0"), row("gcc 12.2.0"), row(f"{ARM} 8.1.0", "disco_f746ng")]
    rows = table.merged(known, [row("gcc 12.2.0", flash=5)])
    assert [r["compiler"] for r in rows] == [f"{ARM} 8.1.0", "gcc 9.1.0", "gcc 12.2.0"]
    assert rows[-1]["flash"] == 5


def test_the_page_shows_the_record_and_all_learn_the_same() -> None:
    record = json.loads(cli.RECORD.read_text(encoding="utf-8"))
    page = cli.PAGE.read_text(encoding="utf-8")
    assert table.boards(record) in page and table.hosts(record) in page
    assert table.faults(record) == []
    assert len({row["sha256"] for row in record}) == 1


@pytest.mark.slow
def test_a_compiler_of_this_machine_makes_a_row(tmp_path: Path, monkeypatch: Any) -> None:
    """The record's weights, from a program that is compiled here; another arithmetic learns others."""
    monkeypatch.setattr(measure, "WORK", tmp_path)
    record = json.loads(cli.RECORD.read_text(encoding="utf-8"))
    generated, shown = measure.converted(), measure.samples()
    (compiler,) = found.at_hand((), ("gcc",))
    made = measure.of_host(compiler, generated, shown)
    assert made["sha256"] == record[0]["sha256"] and made["flash"] > 50_000
    wrong = tmp_path / "wrong"
    wrong.write_text(f'#!/bin/sh\nexec {shutil.which("gcc")} "$@" -Drintf=floorf\n')
    wrong.chmod(wrong.stat().st_mode | stat.S_IXUSR)
    other = measure.of_host(Compiler("wrong 1.0", str(wrong), False), generated, shown)
    assert other["sha256"] != made["sha256"]


def test_a_warning_in_the_library_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "src/microtrain"
    folder.mkdir(parents=True)
    (folder / "good.c").write_text("unsigned f(unsigned x);\nunsigned f(unsigned x) { return x; }\n")
    gcc = Compiler("gcc 12.2.0", "gcc", False)
    assert measure.refused(gcc, tmp_path, "") == []
    (folder / "other.c").write_text("unsigned g(int x);\nunsigned g(int x) { return x; }\n")
    (line,) = measure.refused(gcc, tmp_path, "")
    assert line.startswith("other.c of the library: ") and "conversion" in line
    if on_path := shutil.which(ARM):
        (same,) = measure.refused(Compiler(ARM, str(Path(on_path).parent), True), tmp_path, "nucleo_f446re")
        assert same.startswith("other.c of the library: ")


def test_a_header_that_is_not_of_cpp_is_told(tmp_path: Path) -> None:
    gcc, header = Compiler("gcc 12.2.0", "gcc", False), tmp_path / "src/good.h"
    header.parent.mkdir()
    header.write_text("struct good { int a; };\nstatic inline int f(void) { return 1; }\n")
    both = [gcc, Compiler("clang 14.0.6", "clang", False)] if shutil.which("clang") else [gcc]
    assert [measure.refused(each, tmp_path, "") for each in both] == [[]] * len(both)
    header.with_name("other.h").write_text('_Static_assert(sizeof(int) == 4, "an int");\n')
    (line,) = measure.refused(gcc, tmp_path, "")
    assert line.startswith("other.h of the library: ")


def test_a_compiler_that_does_not_compile_is_told(tmp_path: Path, monkeypatch: Any) -> None:
    broken = tmp_path / "gcc-broken"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "gcc 1.2.3" || exit 1\n')
    broken.chmod(0o755)
    monkeypatch.setattr(measure, "WORK", tmp_path)
    monkeypatch.setattr(cli, "RESULT", tmp_path / "compilers.json")
    done = CliRunner().invoke(cli.main, ["--host", str(broken)])
    assert done.exit_code == 1 and "gcc 1.2.3: " in done.output and "failed" in done.output
    assert json.loads((tmp_path / "compilers.json").read_text())["failures"]
