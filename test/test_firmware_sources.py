"""What the firmware's sources promise: licence, which room includes which, a handler for each command."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from networks import residual_network
from pio_build import NULL_MODEL

from lab.house.includes import ROOMS, SOURCES, arrows, of_one_room, sources, wrong
from microtrain.base.paths import FIRMWARE, ROOT
from microtrain.convert.emit.code import generate
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.scheme import Scheme

LICENCE = "/* SPDX-License-Identifier: Apache-2.0 */\n"


# ---------------------------------------------------------------- licence


def unlicensed(paths: list[Path]) -> list[str]:
    """Names of the files that do not begin with the licence."""
    return [path.name for path in paths if not path.read_text(encoding="utf-8").startswith(LICENCE)]


def test_every_source_names_its_licence() -> None:
    found = sources(FIRMWARE, ROOT / "examples", ROOT / "test")
    assert {path.suffix for path in found} == set(SOURCES) and len(found) > 100
    assert unlicensed(found) == []


def test_a_source_without_licence_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "good.c").write_text(LICENCE + "int one;\n")
    (tmp_path / "late.h").write_text("int two;\n" + LICENCE)
    (tmp_path / "none.S").write_text("    nop\n")
    assert unlicensed(sources(tmp_path)) == ["late.h", "none.S"]


def test_what_is_generated_says_whose_it_is() -> None:
    files = generate(compile_graph(residual_network(), Scheme("s", 1), 3), "a test").files
    texts = {name: text for name, text in files.items() if name.endswith((".c", ".h"))}
    assert len(texts) == 3
    for text in texts.values():
        head = text.partition("*/")[0]
        assert "It belongs to whoever ran the conversion." in head and "SPDX" not in text


# ---------------------------------------------------------------- rooms


def copy(folder: Path) -> Path:
    for name in ("firmware", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("generated", "digits"))
    return folder


def test_no_include_runs_up() -> None:
    found = list(arrows(ROOT))
    assert len(found) > 150
    assert {arrow.start for arrow in found} == set(ROOMS) - {"board.h", "application.h", "microtrain.h"}
    assert wrong(ROOT) == []


def test_the_public_headers_are_those_that_others_need() -> None:
    assert of_one_room(ROOT) == []


@pytest.mark.parametrize(
    ("file", "header"),
    [
        ("firmware/src/board/stm32/fault.c", "reply.h"),
        ("firmware/src/board/host/board.c", "model_api.h"),
        ("firmware/src/kernels/pool.c", "board.h"),
        ("firmware/src/base/crc.c", "board.h"),
        ("firmware/src/fleet/compress.c", "session.h"),
        ("firmware/src/runtime/session.c", "demo.h"),
        ("firmware/src/runtime/session.c", "drivers.h"),
        ("firmware/src/runtime/checkpoint.c", "reply.h"),
        ("firmware/src/serial/protocol.c", "session.h"),
        ("firmware/src/serial/commands.c", "model_api.h"),
        ("firmware/src/serial/transfer.c", "kernels/numeric.h"),
        ("firmware/src/main.c", "runtime/replay.h"),
        ("examples/camera/shot.c", "handlers.h"),
        ("examples/camera/shot.c", "words.h"),
        ("firmware/include/board.h", "session.h"),
    ],
)
def test_a_planted_include_that_runs_up_is_noticed(tmp_path: Path, file: str, header: str) -> None:
    root = copy(tmp_path)
    text = (root / file).read_text()
    (root / file).write_text(text.replace("#include", f'#include "{header}"\n#include', 1))
    assert wrong(root) == [(Path(file).name, header)]


def test_a_public_header_of_one_room_is_noticed(tmp_path: Path) -> None:
    root = copy(tmp_path)
    shutil.move(root / "firmware/src/runtime/replay.h", root / "firmware/include/replay.h")
    assert of_one_room(root) == ["replay.h"]


# ---------------------------------------------------------------- commands

TABLES = {"serial": FIRMWARE / "src/serial/commands.c", "camera": ROOT / "examples/camera/demo_commands.c"}
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wdouble-promotion", "-Werror"]
FOLDERS = [FIRMWARE / "include", FIRMWARE / "src/serial", ROOT / "examples/camera", NULL_MODEL]
INCLUDE = [f"-I{folder}" for folder in FOLDERS]
LAST_ROWS = {
    "serial": r"    ROW\(led, .*\n.*",
    "camera": r"    ROW\(label, .*\n.*",
}


def with_row(table: str, row: str) -> str:
    """The source of a table with this text in place of its last row, which the text may call LAST."""
    text = TABLES[table].read_text()
    (last,) = re.findall(LAST_ROWS[table], text)
    return text.replace(last, row.replace("LAST", last))


def compiled(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    source = folder / "commands.c"
    source.write_text(text)
    command = ["gcc", "-c", *STRICT, *INCLUDE, str(source), "-o", str(folder / "commands.o")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('LAST ROW(forgotten, run_forgotten(p), 0, 0, NEEDS_NOTHING, "forgotten")', "run_forgotten"),
        ('LAST ROW(forgotten, 0, 0, NEEDS_NOTHING, "forgotten")', "requires 6 arguments"),
        ("LAST LAST", "redeclaration of enumerator"),
        ('ROW(other, reply_ok("ok"), 0, 0, NEEDS_NOTHING, "other")', "defined but not used"),
    ],
    ids=["no such handler", "no handler", "twice", "a handler without a row"],
)
def test_a_command_and_its_handler_come_together(tmp_path: Path, table: str, row: str, message: str) -> None:
    assert compiled(tmp_path, with_row(table, "LAST")).returncode == 0
    done = compiled(tmp_path, with_row(table, row))
    assert done.returncode != 0 and message in done.stderr


def test_a_row_is_all_that_a_command_needs(tmp_path: Path) -> None:
    """Its name, its dispatch, its arguments and its line of `help`; and what has no row does nothing."""
    row = 'LAST ROW(hello, reply_ok("ok hello"), 0, 1, NEEDS_NOTHING, " [X]: a greeting")'
    own = {"commands.c": with_row("serial", row)}
    (tmp_path / "commands.c").write_text(own["commands.c"])
    found = [p for p in sources(FIRMWARE / "src") if p.suffix == ".c" and "board" not in p.parts]
    found = [p for p in found if p.name not in own] + [*(FIRMWARE / "src/board/host").glob("*.c")]
    program, model = tmp_path / "program", sorted(NULL_MODEL.glob("*.c"))
    units = map(str, [*found, *model, tmp_path / "commands.c"])
    subprocess.run(["gcc", "-std=c11", *INCLUDE, *units, "-lm", "-o", str(program)], check=True)
    lines = "hello\nhello you\nhello you all\nhellas\nhelp\n"
    done = subprocess.run([program], input=lines, capture_output=True, text=True, timeout=10, check=True)
    said = done.stdout.splitlines()[4:]
    assert said[:4] == ["ok hello"] * 2 + ["err argument hello [X]: a greeting", said[3]]
    assert said[3].startswith("err command unknown")
    assert said[-2:] == ["hello [X]: a greeting", "ok"]


@pytest.mark.parametrize("table", TABLES)
def test_the_line_of_help_goes_on_behind_the_name(table: str) -> None:
    """A command is found by the first word of its line, so that its name stands in flash once."""
    text = TABLES[table].read_text()
    rest = re.findall(r'ROW\(.*\n +"(.)', text)
    assert len(rest) == text.count("ROW(") > 4
    assert set(rest) <= {" ", ":"}


@pytest.mark.parametrize("table", TABLES)
def test_every_command_is_in_the_protocol(table: str) -> None:
    names = re.findall(r"^    ROW\((\w+), ", TABLES[table].read_text(), re.MULTILINE)
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    assert len(names) >= 5
    assert [name for name in names if not re.search(rf"`{name}\b", text)] == []


def test_every_word_of_an_error_is_in_the_protocol() -> None:
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    named = re.findall(r"the word one of `([a-z ]+)`", text)
    sources = "".join(path.read_text() for path in (FIRMWARE / "src/serial").glob("*.c"))
    said = set(re.findall(r'(?:reply_error\("|"err )([a-z]+)', sources))
    assert len(said) > 5 and [set(words.split()) for words in named] == [said]
