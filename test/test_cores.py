"""The library learns the same weights on every core that QEMU has; `make cores` says where it does not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from library import written
from networks import residual_network

from lab.cores import cli, fuzzing, page, tiny
from lab.cores.machines import CORES, WORK, Core, Session
from lab.cores.measure import Row, differing, instructions, numbers, row
from microtrain.base.errors import Error
from microtrain.base.paths import FIRMWARE
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.scheme import Scheme

HOST = CORES[0]
QUICK = {"host-clang", "cortex-m4f", "rv32imc"}
OTHERS = [
    pytest.param(core, id=core.name, marks=[] if core.name in QUICK else [pytest.mark.slow])
    for core in CORES[1:]
]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    root = tmp_path_factory.mktemp("cores")
    compiled = compile_graph(residual_network(), Scheme("s", 4, {-1: 0.5}, head="random"), 5)
    return Session(written(compiled, "residual", root / "library", root / "generated"), "residual", 4)


@pytest.fixture(scope="module")
def host(session: Session) -> Row:
    return row(HOST, session, session.library)


@pytest.mark.parametrize("core", OTHERS)
def test_a_core_learns_what_this_machine_learns(core: Core, session: Session, host: Row) -> None:
    if core.missing:
        pytest.skip(f"{core.missing} is not installed")
    found = row(core, session, session.library)
    assert found["sha256"] == host["sha256"] and len(host["sha256"]) == 64
    assert found["fleet_sha256"] == host["fleet_sha256"] != host["sha256"]
    if core.qemu:
        assert 10_000 < found["inference_instructions"] < found["step_instructions"]
        assert found["update_instructions"] > 10_000
        assert 0 < found["slice_instructions"] < found["step_instructions"]
        assert 400 < found["stack"] < 1200
        assert found["flash"] > 10_000 and found["sram"] > 5_000


def test_helium_assembles_what_is_compiled_for_size(session: Session, tmp_path: Path) -> None:
    """GNU as before 2.41 takes a vcvt in an IT block, which -Os makes, for MVE's vcvtn."""
    (core,) = (each for each in CORES if each.name == "cortex-m55")
    if shutil.which(core.cc) is None:
        pytest.skip(f"{core.cc} is not installed")
    source, include = session.library / "src/microtrain/compress.c", f"-I{session.library / 'src'}"
    command = [core.cc, *core.flags, "-std=c11", "-Os", "--specs=picolibc.specs", include, "-c", str(source)]
    subprocess.run([*command, "-o", str(tmp_path / "compress.o")], check=True)


def test_other_weights_are_noticed(host: Row) -> None:
    assert differing([host, host]) == []
    assert differing([host, host | {"core": "x", "sha256": "0"}, host]) == ["x"]
    assert differing([host, host, host | {"core": "y", "fleet_sha256": "0"}]) == ["y"]


def test_a_program_that_fails_is_no_row() -> None:
    with pytest.raises(Error, match="host-gcc: the program failed: -16: a kernel"):
        numbers(HOST, "step 5\nfailed -16: a kernel does not compute what it should\nsha256 00\n")
    with pytest.raises(Error, match="did not end"):
        numbers(HOST, "step 5\n")


def test_ticks_become_instructions() -> None:
    (m4,) = (core for core in CORES if core.name == "cortex-m4f")
    assert instructions(m4, ["10", "25"]) == 1000 and instructions(HOST, ["0"]) is None


def test_the_longest_piece_is_said_with_the_number_it_was_measured_with() -> None:
    rows: list[Row] = [
        {"core": "cortex-m4f", "slice_instructions": 7},
        {"core": "cortex-m4f", "slice_instructions": 5},
        {"core": "rv32imc", "slice_instructions": 9},
    ]
    assert cli.pieces(rows) == {"slice_max_instructions": 5, "slice_work": WORK}
    assert cli.pieces(rows[2:]) == {"slice_max_instructions": None, "slice_work": WORK}


def test_a_core_that_cannot_run_here_is_named(capsys: pytest.CaptureFixture[str], session: Session) -> None:
    assert cli.measured([replace(HOST, cc="no-such-gcc")], session) == []
    assert "host-gcc: left out, no-such-gcc is not installed." in capsys.readouterr().err


def test_a_page_without_all_its_rows_is_not_written(session: Session) -> None:
    with pytest.raises(Error, match=r"--page writes every row of its tables\. Missing here: .*mcunet-5fps"):
        cli.whole(list(CORES[:1]), [session])


def test_the_table_of_the_page_is_that_of_the_record() -> None:
    rows = json.loads(page.RECORD.read_text(encoding="utf-8"))
    assert differing(rows) == [] and {r["core"] for r in rows} == {core.name for core in CORES}
    assert f"-->\n{page.table(rows)}\n<!--" in page.PAGE.read_text(encoding="utf-8")
    rows[-1]["step_instructions"] *= 2
    assert page.table(rows) not in page.PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_command_writes_a_row_for_each_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example on this machine and on a core, and enough sequences to reach each function."""
    monkeypatch.delenv("MICROTRAIN_DATA", raising=False)
    monkeypatch.setattr(cli, "FOLDER", tmp_path / "cores")
    monkeypatch.setattr(cli, "RESULT", tmp_path / "cores.json")
    chosen = [core for core in CORES if core.name in ("host-gcc", "cortex-m4f") and not core.missing]
    words = [word for core in chosen for word in ("--core", core.name)]
    done = CliRunner().invoke(cli.main, [*words, "--steps", "3", "--sequences", "12000"])
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "cores.json").read_text())
    rows = found["cores"]
    assert [r["core"] for r in rows] == [core.name for core in chosen]
    numbers = {"inference_instructions", "step_instructions", "flash", "sram"}
    for each in rows:
        assert {"core", "sha256", *numbers} <= each.keys() and len(each["sha256"]) == 64
        assert each["core"] == "host-gcc" or all(each[name] > 0 for name in numbers)
    assert len({r["sha256"] for r in rows}) == 1 and found["published"] == []
    assert (found["api_fuzz_sequences"], found["api_fuzz_failures"]) == (12000, 0)
    assert len(chosen) < 2 or found["slice_max_instructions"] > 0


# ---------------------------------------------------------------- random calls


def test_random_calls_do_what_they_should(session: Session) -> None:
    assert fuzzing.run(fuzzing.build(session, session.library), 7, 120)[:2] == (120, [])


def test_random_calls_reach_what_each_function_is_for(tmp_path: Path) -> None:
    """On one model or the other; and on one alone some do not, which is a failure."""
    made = tiny.sessions(tmp_path)
    found = fuzzing.tried(made, tmp_path, 7, 8000)
    assert found[:2] == (8000, []) and len(found.worked) == 15
    assert min(found.worked.values()) > 10
    lacks = {line.split()[0] for line in fuzzing.tried(made[1:2], tmp_path, 7, 4000).failures}
    assert lacks == {"train", "imprint", "recall", "feed_sound", "slide"}


def not_called(source: str) -> set[str]:
    """Functions of the public headers that the fuzzer's source does not call."""
    declared: set[str] = set()
    for name in ("microtrain.h", "microtrain_fleet.h"):
        header = (FIRMWARE / "include" / name).read_text(encoding="utf-8")
        declared |= set(re.findall(r"^[a-z][\w *]*\b(microtrain_\w+)\(", header, re.MULTILINE))
    assert {"microtrain_init", "microtrain_text", "microtrain_fleet_update"} <= declared
    return declared - set(re.findall(r"\b(microtrain_\w+)\(", source))


def test_random_calls_are_of_every_public_function() -> None:
    source = "".join(file.read_text() for file in fuzzing.FUZZ.parent.glob("fuzz*.[ch]"))
    assert not_called(source) == set()
    assert not_called(source.replace("microtrain_text(", "text(")) == {"microtrain_text"}


ONE_FUNCTION = {  # file, right, wrong, what is said of it
    "slide": ("session.c", "s->slides == 0", "s->slides == 9", "slide returned 0, not -7"),
    "sound": ("session.c", "if (at != s->heard) {", "if (at > s->heard) {", "feed_sound returned"),
    "records": ("replay.c", "s->replay.held = 0;", "", "records "),
    "scores": ("microtrain_library.c", "if (!scored) {", "if (!scored && !m) {", "scores returned 0, not -7"),
    "take back": (
        "compress.c",
        "!hear(shared, body, bytes, NULL)",
        "!hear(shared, body, bytes, held)",
        "failed",
    ),
    "diverged": ("compress.c", "if (!sound(shared, learned)) {", "if (!rule) {", "fleet_update returned 0"),
    "a load that fails": (
        "checkpoint.c",
        "to = size > INFO(s)->arena_bytes ? TRAINABLES(s) : ARENA(s)",
        "to = TRAINABLES(s)",
        "what a load leaves returned 0",
    ),
    "the newest save": (
        "checkpoint.c",
        "turn = c->status == CHECKPOINT_NONE ? 0 : 1;",
        "turn = 0;",
        "load returned 1, not 0",
    ),
    "an old save, behind a forget": (
        "checkpoint.c",
        "c->forgotten = c->saves ? c->saves : ERASED;",
        "",
        "what is loaded was saved last",
    ),
    "the slot that is forgotten last": (
        "storage.h",
        "((c)->slot + ((c)->offset != 0) + (turn))",
        "((c)->slot + (turn))",
        "what is loaded was saved last",
    ),
    "a damaged header": (
        "checkpoint.c",
        "owner(c, slot) == ANOTHER ? 0 : capacity",
        "owner(c, slot) != THIS_MODEL ? 0 : capacity",
        "load returned 1, not 0",
    ),
    "sync": (
        "storage.h",
        "return storage->sync(storage->context) == 0 ? BOARD_OK : BOARD_ERR_FLASH;",
        "return BOARD_OK;",
        "what is loaded was saved last",
    ),
    "another model": (
        "checkpoint.c",
        "h.model_id == CHECKPOINT_INFO(c)->id && FITS",
        "FITS",
        "save returned 0, not -12",
    ),
    "steps of a save": ("checkpoint.c", "s->step = r.step;", "", "what is loaded was saved last"),
    "twice programmed": (
        "checkpoint.c",
        "record_offset(c, i), stride(c))) {",
        "record_offset(c, i), 4)) {",
        "ended with -6",
    ),
    "mask": ("mask.c", "masks[k].minus ? 0u - s[i]", "masks[k].minus ? s[i]", "fleet_masked's values"),
}


FOUND_SOON = ("scores", "diverged", "steps of a save", "a load that fails", "an old save, behind a forget")


@pytest.mark.parametrize(
    ("file", "right", "wrong", "said"),
    [
        pytest.param(*bug, id=name, marks=[] if name in FOUND_SOON else [pytest.mark.slow])
        for name, bug in ONE_FUNCTION.items()
    ],
)
def test_a_bug_of_one_function_is_found(file: str, right: str, wrong: str, said: str, tmp_path: Path) -> None:
    made = tiny.sessions(tmp_path)[2 if file in ("replay.c", "checkpoint.c", "storage.h") else 0]
    source = made.library / "src/microtrain" / file
    assert right in source.read_text()
    source.write_text(source.read_text().replace(right, wrong))
    failures = fuzzing.run(fuzzing.build(made, tmp_path), 7, 8000).failures
    assert any(said in line for line in failures)


OF_ANY_MODEL = {  # right, wrong, what is said of it
    "busy": ("needs == NEEDS_NO_STEP && under_way(i)", "needs == NEEDS_NO_STEP && !m", "returned"),
    "slide": (
        "HOP(s) ? session_slide(s) : MICROTRAIN_ERR_ARGUMENT",
        "session_slide(s)",
        "slide returned",
    ),
    "memory": ("memory->arena_bytes < arena ||", "", "init returned 0"),
}


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        pytest.param(*bug, id=name, marks=[pytest.mark.slow] if name == "memory" else [])
        for name, bug in OF_ANY_MODEL.items()
    ],
)
def test_a_planted_bug_is_found(right: str, wrong: str, said: str, session: Session, tmp_path: Path) -> None:
    library = tmp_path / "library"
    shutil.copytree(session.library, library)
    (source,) = (p for p in (library / "src/microtrain").iterdir() if right in p.read_text())
    source.write_text(source.read_text().replace(right, wrong))
    found = fuzzing.run(fuzzing.build(replace(session, library=library), tmp_path), 7, 2000)
    assert found.failures and (found.sequences == 0 or said in " ".join(found.failures))


def test_what_is_planted_is_in_the_sources() -> None:
    """Of slow tests too, which would say so later."""
    sources = [file.read_text(encoding="utf-8") for file in (FIRMWARE / "src").rglob("*.[ch]")]
    planted = [bug[1] for bug in ONE_FUNCTION.values()] + [bug[0] for bug in OF_ANY_MODEL.values()]
    assert [right for right in planted if sum(right in source for source in sources) != 1] == []
