"""What the host's compiler made is kept, under the hash of all that it was made from."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from microtrain.base import hostcc
from microtrain.base.errors import Error
from microtrain.base.hostcc import Parts, cache_folder, compiled, compiler
from microtrain.base.paths import ROOT
from renode import exerciser

FLAGS = ("-std=c11", "-shared", "-fPIC")


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    (tmp_path / "include/deep").mkdir(parents=True)
    (tmp_path / "include/deep/number.h").write_text("#define NUMBER 4\n")
    (tmp_path / "before.h").write_text("#define FORCED 1\n")
    (tmp_path / "part.c").write_text("static int part(void) { return NUMBER; }\n")
    source = tmp_path / "answer.c"
    source.write_text(
        '#include "deep/number.h"\n#include "part.c"\nint answer(void) { return part() * MORE + FORCED; }\n'
    )
    include = (tmp_path / "include",)
    return Parts("the answer", "answer", (source,), (*FLAGS, "-DMORE=10"), include, (tmp_path / "part.c",),
                 tmp_path / "before.h", "try again")  # fmt: skip


def answer(parts: Parts, folder: Path) -> int:
    return int(ctypes.CDLL(str(compiled(parts, folder))).answer())


def write(path: Path, text: str) -> None:
    path.write_text(text)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a header": lambda at: write(at / "include/deep/number.h", "#define NUMBER 5\n"),
    "an included file": lambda at: write(at / "part.c", "static int part(void) { return 5; }\n"),
    "the forced header": lambda at: write(at / "before.h", "#define FORCED 11\n"),
    "the source": lambda at: write(at / "answer.c", "int answer(void) { return 51; }\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_is_compiled_again(change: str, parts: Parts, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    assert answer(parts, folder) == 41
    CHANGES[change](tmp_path)
    assert answer(parts, folder) == 51 and len(list(folder.iterdir())) == 2


def test_flags_and_compiler_count_too(parts: Parts, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    assert answer(parts, folder) == 41
    assert answer(replace(parts, flags=(*FLAGS, "-DMORE=20")), folder) == 81
    assert compiled(parts, folder, "gcc").name != compiled(parts, folder, "clang").name


def test_what_is_the_same_is_not_compiled_again(parts: Parts, tmp_path: Path) -> None:
    made = compiled(parts, tmp_path / "kept")
    before = made.stat()
    time.sleep(0.01)
    assert compiled(parts, tmp_path / "kept") == made
    assert (made.stat().st_ino, made.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_change_costs_the_file_it_is_in(parts: Parts, tmp_path: Path) -> None:
    write(tmp_path / "other.c", "int other(void) { return NUMBER; }\n")
    forced = tmp_path / "include/deep/number.h"
    several = replace(parts, sources=(*parts.sources, tmp_path / "other.c"), forced=forced, flags=(
        *FLAGS, "-DMORE=10", "-DFORCED=1"))  # fmt: skip
    folder = tmp_path / "kept"
    assert answer(several, folder) == 41
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.o")}
    assert len(before) == 2
    write(tmp_path / "other.c", "int other(void) { return 7; }\n")
    assert ctypes.CDLL(str(compiled(several, folder))).other() == 7
    after = {path: path.stat().st_mtime_ns for path in folder.glob("*.o")}
    assert before.items() < after.items() and len(after) == 3


def test_errors_are_one_sentence(parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kept"
    (tmp_path / "answer.c").write_text("int answer(void) { return nobody; }\n")
    with pytest.raises(
        Error, match=r"could not compile the answer \(.*answer\.c:1.*nobody.*\): try again\.$"
    ):
        compiled(parts, folder)
    assert not list(folder.iterdir())
    with pytest.raises(Error, match=r"gone\.c cannot be read \(No such file or directory\): try again\.$"):
        compiled(replace(parts, sources=(tmp_path / "gone.c",)), folder)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "my-cc")
    with pytest.raises(
        Error, match=r"no C compiler on PATH \(looked for my-cc, cc, gcc, clang\): install one"
    ):
        compiler()


def test_many_processes_make_one_file(parts: Parts, tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from microtrain.base.hostcc import Parts, compiled;"
        "source, folder = map(pathlib.Path, sys.argv[1:]);"
        "compiled(Parts('it', 'it', (source,), ('-shared', '-fPIC')), folder)"
    )
    source, folder = tmp_path / "it.c", tmp_path / "kept"
    source.write_text("int it(void) { return 1; }\n")
    command = [sys.executable, "-c", code, str(source), str(folder)]
    several = [subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}) for _ in range(3)]
    assert [process.wait(60) for process in several] == [0, 0, 0]
    assert [path.suffix for path in folder.iterdir()] == [".so"]


def test_a_cache_that_cannot_be_written_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr("microtrain.base.paths.cache", lambda: tmp_path / "file")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert cache_folder() == tmp_path / f"microtrain-{os.getuid()}"
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "file"))
    with pytest.raises(Error, match="can be written: set XDG_CACHE_HOME"):
        cache_folder()


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="there is no compiler for Arm")
def test_the_exerciser_is_kept_until_its_linker_script_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = exerciser.build(tmp_path / "first.elf", "disco_f746ng").read_bytes()

    def refuse(*_: object) -> None:
        raise Error("compiled again")

    monkeypatch.setattr(hostcc, "_compile", refuse)
    assert exerciser.build(tmp_path / "second.elf", "disco_f746ng").read_bytes() == first
    other = tmp_path / exerciser.SCRIPT.name
    other.write_text(exerciser.SCRIPT.read_text() + "/* changed */\n")
    monkeypatch.setattr(exerciser, "SCRIPT", other)
    with pytest.raises(Error, match="compiled again"):
        exerciser.build(tmp_path / "third.elf", "disco_f746ng")


def test_a_compiler_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Error, match=r"looked for arm-none-eabi-gcc\).*`apt-get install gcc-arm-none-eabi`"):
        compiler("arm-none-eabi-gcc")
