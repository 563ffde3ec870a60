"""The stack of each function of the library, proven; and painted, in QEMU."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from library import written
from test_library import activations_network, trained

from lab.cores import page, stacks
from lab.cores.machines import CORES, Core, Session
from lab.cores.measure import painted
from microtrain.base.paths import ROOT
from microtrain.memory_report.cli import main
from microtrain.memory_report.effects import Routine
from microtrain.memory_report.library import CORES as COMPILERS
from microtrain.memory_report.library import MODEL, RISCV, Entry, functions, proven
from microtrain.memory_report.routine import Walk
from microtrain.memory_report.values import State

CORE = stacks.CORE
CC = COMPILERS[CORE][0]
MEMCPY = 8  # bytes that picolibc's takes, which is not the library's

pytestmark = pytest.mark.skipif(shutil.which(CC) is None, reason=f"{CC} is not installed")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stack")
    return stacks.library(root)


@pytest.fixture(scope="module")
def found(library: Path) -> dict[str, Entry]:
    return {entry.name: entry for entry in proven(library, CORE)}


def test_every_function_is_proven(library: Path, found: dict[str, Entry]) -> None:
    assert list(found) == list(functions(library)) and len(found) > 24
    assert [entry for entry in found.values() if entry.problems] == []
    names = [frame.name for frame in found["microtrain_train"].path.frames]
    assert "step" in names and found["microtrain_train"].path.bytes > found["microtrain_init"].path.bytes
    storage = {name for name, entry in found.items() if entry.callbacks}
    assert storage == {"microtrain_save", "microtrain_load", "microtrain_forget"}
    assert set(found["microtrain_load"].callbacks) == {"storage.read", "storage.sync"}
    assert len(found["microtrain_save"].callbacks) == 4


def test_every_pointer_of_a_model_is_followed() -> None:
    table = (ROOT / "firmware/include/model_table.h").read_text(encoding="utf-8")
    struct = table[table.index("struct microtrain_model {") :]
    assert re.findall(r"\(\*(\w+)\)\(", struct[: struct.index("};")]) == list(MODEL)


def record_of(core: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(stacks.RECORD.read_text(encoding="utf-8"))[core]
    if shutil.which(COMPILERS[core][0]) is None:
        pytest.skip(f"{COMPILERS[core][0]} is not installed")
    if record["compiler"] != stacks.compiler(core):
        pytest.skip(f"the record was made with {record['compiler']}, this is {stacks.compiler(core)}")
    return record


def test_no_frame_has_grown(found: dict[str, Entry]) -> None:
    assert {name: entry.path.bytes for name, entry in found.items()} == record_of(CORE)["small"]


def test_no_frame_has_grown_on_a_risc_v_core(library: Path) -> None:
    record = record_of("rv32imc")
    assert {entry.name: entry.path.bytes for entry in proven(library, "rv32imc")} == record["small"]


def test_the_table_of_the_page_is_that_of_the_record() -> None:
    record = json.loads(stacks.RECORD.read_text(encoding="utf-8"))
    assert record.keys() == COMPILERS.keys()
    assert f"-->\n{stacks.table(record)}\n<!--" in page.PAGE.read_text(encoding="utf-8")
    for row in record.values():
        assert row["painted"] <= row["digits"]["microtrain_train"] + MEMCPY
    record[CORE]["digits"]["microtrain_train"] += 8
    assert stacks.table(record) not in page.PAGE.read_text(encoding="utf-8")


def test_a_frame_that_grows_is_seen(library: Path, found: dict[str, Entry], tmp_path: Path) -> None:
    grown = tmp_path / "library"
    shutil.copytree(library, grown)
    source = grown / "src/microtrain/pool.c"
    text = source.read_text()
    begin = re.search(r"^void avgpool_fwd_s8\([^{]*\{\n", text, re.MULTILINE)
    assert begin
    more = "    volatile uint8_t room[3000];\n    room[x[0] & 1] = 1;\n"
    source.write_text(text[: begin.end()] + more + text[begin.end() :])
    after = {entry.name: entry.path.bytes for entry in proven(grown, CORE)}
    assert after["microtrain_predict"] > 3000 > found["microtrain_predict"].path.bytes
    assert after["microtrain_load"] == found["microtrain_load"].path.bytes


@pytest.mark.slow
def test_a_call_that_cannot_be_followed_is_a_problem(library: Path, tmp_path: Path) -> None:
    open_end = tmp_path / "library"
    shutil.copytree(library, open_end)
    source = open_end / "src/microtrain/guard.c"
    source.write_text(source.read_text().replace("#include", "extern void (*hook)(void);\n#include", 1))
    text = source.read_text()
    begin = re.search(r"^int guard_diverged\([^{]*\{\n", text, re.MULTILINE)
    assert begin
    source.write_text(text[: begin.end()] + "    hook();\n" + text[begin.end() :])
    (open_end / "src/hook.c").write_text("void (*hook)(void);\n")
    problems = {entry.name: entry.problems for entry in proven(open_end, CORE)}
    assert any("calls through a pointer" in text for text in problems["microtrain_state"])
    assert problems["microtrain_init"] == ()
    done = CliRunner().invoke(main, ["--library", str(open_end)])
    assert done.exit_code == 1 and "the stack is not bounded" in done.output


@pytest.mark.slow
def test_stages_of_a_stream_are_followed(tmp_path: Path) -> None:
    made = written(trained(activations_network()), "activations", tmp_path / "library", tmp_path / "made")
    entries = {entry.name: entry for entry in proven(made, CORE)}
    reached = [frame.name for frame in entries["microtrain_feed"].path.frames]
    assert not any(entry.problems for entry in entries.values()) and "take_row" in reached


REACH = Walk.reach
QUICK = {CORE, "rv32imc"}
EACH = [
    pytest.param(core, id=core.name, marks=[] if core.name in QUICK else [pytest.mark.slow])
    for core in CORES
    if core.name in COMPILERS
]


def deeper(took: dict[str, int], entries: list[Entry]) -> dict[str, tuple[int, int]]:
    """Functions that took more than was proven: bytes painted and proven."""
    assert took.keys() == {entry.name for entry in entries}
    pairs = {entry.name: (took[entry.name], entry.path.bytes) for entry in entries}
    return {name: (painted, proven) for name, (painted, proven) in pairs.items() if painted > proven + MEMCPY}


@pytest.mark.parametrize("core", EACH)
def test_no_function_takes_more_than_is_proven(
    core: Core, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if core.missing:
        pytest.skip(f"{core.missing} is not installed")
    took, entries = painted(core, Session(library, stacks.NAME, 2), tmp_path), proven(library, core.name)
    assert [entry.name for entry in entries] == list(functions(library))
    assert [problem for entry in entries for problem in entry.problems] == []
    assert deeper(took, entries) == {}
    most = {entry.name: entry.path.bytes for entry in entries}
    assert most["microtrain_train"] <= 1.1 * took["microtrain_train"]
    if core.name == "rv32imc":
        monkeypatch.setattr(Walk, "reach", calls_cost_nothing)
        assert "microtrain_train" in deeper(took, proven(library, core.name))


def calls_cost_nothing(self: Walk, target: int, state: State, callee: Routine) -> None:
    """A fault: what a function has on its stack when it calls is not counted."""
    REACH(self, target, state, callee)
    self.routine.calls[target] = 0


PLANTED = {
    "a larger frame": ("    volatile uint8_t room[3000];\n    room[x[0] & 1] = 1;\n", None),
    "a recursion": ("    if (x[0] == 77) {\n        avgpool_fwd_s8(p, x + 1, y);\n        y[0]++;\n    }\n",
                    "recursion: "),
    "a pointer": ("    extern void (*hook)(void);\n    hook();\n", "calls through a pointer"),
}  # fmt: skip


@pytest.mark.parametrize(
    "planted", ["a larger frame", *(pytest.param(n, marks=pytest.mark.slow) for n in PLANTED if n[2] != "l")]
)
def test_what_is_planted_in_a_kernel_is_noticed_on_a_risc_v_core(
    planted: str, library: Path, tmp_path: Path
) -> None:
    if shutil.which(RISCV) is None:
        pytest.skip(f"{RISCV} is not installed")
    more, problem = PLANTED[planted]
    changed = tmp_path / "library"
    shutil.copytree(library, changed)
    source = changed / "src/microtrain/pool.c"
    text = source.read_text()
    begin = re.search(r"^void avgpool_fwd_s8\([^{]*\{\n", text, re.MULTILINE)
    assert begin
    source.write_text(text[: begin.end()] + more + text[begin.end() :])
    (changed / "src/hook.c").write_text("void (*hook)(void);\n")
    entries = {entry.name: entry for entry in proven(changed, "rv32imc")}
    predict = entries["microtrain_predict"]
    assert entries["microtrain_load"].problems == ()
    if problem is None:
        assert predict.path.bytes > 3000 and predict.problems == ()
    else:
        assert any(problem in text for text in predict.problems), predict.problems


@pytest.mark.slow
def test_the_command_says_what_is_wrong(library: Path, tmp_path: Path) -> None:
    none = CliRunner().invoke(main, ["--library", str(tmp_path)])
    assert none.exit_code == 1 and "holds no library that" in none.output
    missing = CliRunner().invoke(main, ["--library", str(library), "--cc", "no-such-gcc"])
    assert missing.exit_code == 1 and "no-such-gcc is not installed" in missing.output
    written_down = tmp_path / "stack.json"
    done = CliRunner().invoke(main, ["--library", str(library), "--json", str(written_down)])
    document = json.loads(written_down.read_text())
    assert done.exit_code == 0 and "microtrain_train " in done.output and "storage.erase" in done.output
    assert document["core"] == CORE
    assert [each["function"] for each in document["functions"]] == list(functions(library))
