"""`make mutation`: what it plants, in which order, what it counts, and that its list fits the firmware."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import conftest
import pytest

from lab import marks
from lab.mutation import bugs, builds, record, run, suites, table
from lab.mutation.operators import Mutant, mutants
from lab.mutation.programs import Fixtures, Programs, RefusedError
from lab.mutation.run import GROUPS, HAND, Plan
from lab.mutation.suites import Suite
from microtrain.base.paths import ROOT

ROBOTS = ("Robot, F746", "Robot, F446")
SOURCE = b"""/* a < b */
#define LIMIT 3
static const char *name = "a + b";
_Static_assert(1 < 2, "");
int f(int a)
{
    if (a < 4 && !(a & 1)) {
        a += 2;
    }
    return a;
}
"""
LOG = """\
arm-none-eabi-gcc -o build/disco/src/crc.o -c -g -O2 -Ifirmware/include firmware/src/base/crc.c
arm-none-eabi-gcc -o build/disco/src/text.o -c -g -O2 firmware/src/base/text.c -Os
cc -o build/native/src/crc.o -c -g firmware/src/base/crc.c
arm-none-eabi-gcc -o build/disco/firmware.elf -T x.ld build/disco/src/crc.o -Wl,-Map,firmware.map -lm
after_link(["build/disco/firmware.elf"])
"""


def test_operators_touch_code_alone() -> None:
    found = mutants("f.c", SOURCE)
    assert {m.name.split(" in ")[0] for m in found} == {
        "f.c f: < -> <=",
        "f.c f: && -> ||",
        "f.c f: ! -> nothing",
        "f.c f: & -> |",
        "f.c f: += -> -=",
        "f.c f: 4 -> 5",
        "f.c f: 1 -> 2",
        "f.c f: 2 -> 3",
        "f.c f: a += 2; -> ;",
        "f.c f: (a < 4 && !(a & 1)) -> (!(a < 4 && !(a & 1)))",
    }
    assert len({m.name for m in found}) == len(found)
    less = next(m for m in found if m.after == "<=")
    assert less.planted(SOURCE) == SOURCE.replace(b"a < 4", b"a <= 4")


def test_the_list_by_hand_fits_the_firmware(tmp_path: Path) -> None:
    found = list(bugs.by_hand(ROOT))
    assert len(found) > 90 and len({m.name for m in found}) == len(found)
    for file in bugs.BY_HAND:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("nothing of this\n")
    with pytest.raises(ValueError, match=r"does not hold .* once: mend lab/mutation/bugs.py"):
        list(bugs.by_hand(tmp_path))


def test_explanations_are_of_mutants_that_there_are() -> None:
    names = {m.name for file in run.sources() for m in mutants(file, (ROOT / file).read_bytes())}
    names |= {m.name for m in bugs.by_hand(ROOT)}
    generated = f"{builds.GENERATED}/model.c "
    assert [name for name in record.reasons() if name not in names and not name.startswith(generated)] == []


CHOICES = (
    (suites.HOST_TESTS, suites.HOST_OUT),
    (suites.BOARD_TESTS, suites.BOARD_IN),
    (suites.FEATURES, suites.FEATURES_IN),
    (suites.LIBRARY, suites.LIBRARY_OUT),
    (suites.HOPS, suites.HOPS_IN),
)


@pytest.mark.parametrize(("files", "chosen"), CHOICES)
def test_every_word_of_a_choice_is_of_a_test(files: tuple[str, ...], chosen: str) -> None:
    """A word that fits nothing would leave a test out without a word."""
    text = "\n".join([*files, *((ROOT / "test" / file).read_text(encoding="utf-8") for file in files)])
    words = set(re.findall(r"\w+", chosen)) - {"and", "or", "not"}
    assert {word for word in words if word not in text} == set()


def test_the_same_seed_plants_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "firmware/src/kernels").mkdir(parents=True)
    (tmp_path / "firmware/src/kernels/f.c").write_bytes(SOURCE)
    (tmp_path / builds.GENERATED).mkdir(parents=True)
    (tmp_path / builds.GENERATED / "model.c").write_bytes(SOURCE)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "by_hand", lambda root: [])
    names = [m.name for m in run.drawn(1)["kernels"]]
    assert names == [m.name for m in run.drawn(1)["kernels"]]
    assert names != [m.name for m in run.drawn(2)["kernels"]]
    assert len(run.drawn(1)["generated code"]) == len(names)


def a_mutant(number: int) -> Mutant:
    return Mutant(f"m{number}", "f.c", 0, 1, "x")


def a_plan(states: list[str], wanted: int) -> Plan:
    """A plan of the kernels, of which as many are tried as `states` has."""
    groups: dict[str, list[Mutant]] = {name: [] for name in (HAND, *GROUPS)} | {
        "kernels": [a_mutant(n) for n in range(9)]
    }
    plan = Plan(groups, dict.fromkeys(groups, wanted), {})
    for state in states:
        taken = plan.take()
        assert taken is not None
        by = "Robot, F746" if state == "noticed" else None
        plan.put(*taken, {"state": state, "by": by, "suites": {}})
    return plan


def test_mutants_that_mean_the_same_are_not_counted() -> None:
    plan = a_plan(["equivalent", "noticed", "refused", "survived"], 2)
    assert plan.take() is None
    assert [m.name for m in plan.counted("kernels")] == ["m1", "m3"]


def test_a_stopped_run_goes_on() -> None:
    first = a_plan(["noticed", "equivalent"], 3)
    again = Plan(first.groups, first.wanted, dict(first.results))
    taken = again.take()
    assert taken is not None and taken[1].name == "m2"
    assert [m.name for m in again.counted("kernels")] == ["m0"]


def test_the_record_names_survivors_without_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = a_plan(["noticed", "survived", "survived"], 3)
    monkeypatch.setattr(record, "reasons", lambda: {"m1": "nothing reads it"})
    found = record.made_of(plan, 1, {suite.name: 1.0 for suite in suites.SUITES})
    assert (found["planted"], found["noticed"], found["suites"]["Robot, F746"]) == (3, 1, 1)
    assert [survivor["why"] for survivor in found["survivors"]] == ["nothing reads it", record.UNEXPLAINED]
    assert record.short_of(found, 3) == ["noticed 33.3%, not 95%", "survived, and not explained: m2"]
    assert "| kernels | 3 | 1 | 33.3% |" in table.tables(found)
    assert table.summary(found).startswith("1 of 3 planted bugs were noticed")


def record_of_the_page() -> record.Record:
    found: record.Record = json.loads(table.RECORD.read_text(encoding="utf-8"))
    return found


def test_the_page_says_what_was_measured(tmp_path: Path) -> None:
    """At least 200 planted, 95 % noticed; each survivor is explained as survivors.json has it."""
    found, why = record_of_the_page(), record.reasons()
    assert record.short_of(found) == []
    assert found["planted"] == sum(group["planted"] for group in found["groups"].values())
    assert found["noticed"] == sum(found["suites"].values()) == found["planted"] - len(found["survivors"])
    assert [
        (each["name"], each["why"]) for each in found["survivors"] if each["why"] != why[each["name"]]
    ] == []
    assert written(found, tmp_path) == table.PAGE.read_text(encoding="utf-8")


def written(found: record.Record, folder: Path) -> str:
    """The page as it would be with a record."""
    page = folder / table.PAGE.name
    page.write_bytes(table.PAGE.read_bytes())
    marks.insert(page, table.COMMAND, table.parts(found))
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize("key", ["planted", "noticed"])
def test_another_record_is_another_page(tmp_path: Path, key: str) -> None:
    found = record_of_the_page()
    found[key] -= 20
    assert written(found, tmp_path) != table.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"planted": 199, "noticed": 199}, "planted 199, not 200"),
        ({"planted": 220, "noticed": 208}, "noticed 94.5%, not 95%"),
        (
            {"survivors": [{"name": "m", "file": "f", "why": record.UNEXPLAINED}]},
            "survived, and not explained: m",
        ),
    ],
)
def test_too_few_planted_noticed_or_explained_are_said(changed: dict[str, Any], said: str) -> None:
    good = {"planted": 200, "noticed": 190, "survivors": []}
    assert record.short_of(good) == [] and record.short_of(good | changed) == [said]


def test_the_bugs_that_once_passed_every_robot_suite_are_noticed_by_one() -> None:
    by_hand = {mutant.name for mutant in bugs.by_hand(ROOT)}
    assert set(bugs.NAMED.values()) <= by_hand
    named = record_of_the_page()["named"]
    assert set(named) == set(bugs.NAMED)
    assert [what for what, found in named.items() if not all(robot in found for robot in ROBOTS)] == []


def test_commands_come_from_platformios_log() -> None:
    recipe = builds.parse(LOG, "null", "disco")
    assert recipe.name == "null-disco"
    assert recipe.compile == {
        "firmware/src/base/crc.c": ["arm-none-eabi-gcc", "-c", "-O2", "-Ifirmware/include"],
        "firmware/src/base/text.c": ["arm-none-eabi-gcc", "-c", "-O2", "-Os"],
    }
    assert recipe.link == ["arm-none-eabi-gcc", "-T", "x.ld", "-lm"]


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """One program of one file, built without a bug."""
    tree, baseline = tmp_path / "tree", tmp_path / "baseline"
    tree.mkdir()
    (tree / "f.c").write_bytes(SOURCE)
    command = ["gcc", "-fPIC", "-Werror", "-c"]
    recipe = builds.Recipe("f", {"f.c": command}, ["gcc", "-shared"], {"f.c": ["f.c"]})
    assert builds.compile_sources(recipe, ["f.c"], tree, baseline / "f")
    (baseline / "f/f.c.o.i").write_bytes(builds.preprocessed(recipe, "f.c", tree))
    return Programs({"f": recipe}, baseline, tmp_path / "own", tree)


def test_its_helpers_take_what_those_of_the_tests_take(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every suite would fail without a bug."""
    helpers = (conftest.build_example, conftest.build)
    for helper in helpers:
        monkeypatch.setattr(conftest, helper.__name__, helper)
    Fixtures(programs).pytest_collection_modifyitems()
    assert conftest.build_example is not helpers[0]
    own = (conftest.build_example, conftest.build)
    assert [[*signature(f).parameters] for f in own] == [[*signature(f).parameters] for f in helpers]


@pytest.mark.parametrize(("after", "differs"), [("a += 3;", True), ("a += 1 + 1;", False), ("b += 2;", None)])
def test_a_mutant_changes_an_object_or_is_dropped(
    programs: Programs, after: str, differs: bool | None
) -> None:
    start = SOURCE.index(b"a += 2;")
    mutant = Mutant("f", "f.c", start, start + 7, after)
    (programs.tree / "f.c").write_bytes(mutant.planted(SOURCE))
    programs.plant(mutant)
    if differs is None:
        with pytest.raises(RefusedError):
            programs.differs("f")
    else:
        assert programs.differs("f") == differs


def passes(programs: Programs, tree: Path) -> int:
    return suites.PASSED


def fails(programs: Programs, tree: Path) -> int:
    return suites.NOTICED


def says(programs: Programs, tree: Path) -> int:
    print(f"{suites.SAID}a case")
    return suites.NOTICED


def hangs(programs: Programs, tree: Path) -> int:
    while True:
        pass


def sleeps(programs: Programs, tree: Path) -> int:
    while True:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("what", "noticed", "how"),
    [
        (passes, False, ""),
        (fails, True, ""),
        (says, True, "a case"),
        (hangs, True, "signal 24"),
        (sleeps, True, "signal 9"),
    ],
)
def test_a_suite_cannot_hang(
    programs: Programs, tmp_path: Path, what: Callable[[Programs, Path], int], noticed: bool, how: str
) -> None:
    outcome = suites.run(Suite("own", (), what), programs, tmp_path, 1, tmp_path / "log")
    assert (outcome.noticed, outcome.how) == (noticed, how)
