"""The numbers that `make house` writes, those that may not get worse; and that each can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.house import arrows, bench, sources, speed
from lab.house.cli import counted
from microtrain.cli import TOOLS

FUNCTION = """static int sum(const int *values,
               uint32_t count)
{
    return 0;
}
"""


def test_the_house_stays_in_order() -> None:
    found = counted()
    assert found["silent_failures"] == 0, arrows.silent_failures()
    assert found["upward_arrows"] == 0, arrows.upward()
    assert found["files_per_op"] <= 8, arrows.files_per_op()
    assert found["most_parameters"] <= 8


def test_files_can_be_read_at_one_sitting() -> None:
    assert sources.too_long(sources.files(sources.ROOMS)) == []


def test_a_long_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file, lines in zip(files, (400, 401), strict=True):
        file.write_text("pass\n" * lines)
    assert sources.too_long(files) == ["b.py"]


@pytest.mark.parametrize("name", TOOLS)
def test_a_help_text_imports_nothing_heavy(name: str) -> None:
    assert speed.heavy_modules(name) == []


def test_a_heavy_import_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "HEAVY", ("click", "torch"))
    assert speed.heavy_modules("new") == ["click"]


@pytest.mark.parametrize("name", ["", *TOOLS])
def test_a_help_takes_half_a_second_of_a_processor(name: str) -> None:
    assert speed.is_quick(name)


def test_a_slow_help_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "TURNS", 2)
    assert not speed.is_quick("new", most=0.001)


def test_functions_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    (tmp_path / "a.c").write_text("int early(void);\n\n" + FUNCTION)
    (tmp_path / "a.py").write_text("class A:\n    def f(self, a, *, b):\n        return a\n")
    assert list(sources.c_functions(tmp_path / "a.c")) == [sources.Function("a.c", "sum", 5, 2)]
    assert list(sources.python_functions(tmp_path / "a.py")) == [sources.Function("a.py", "f", 2, 2)]


def test_a_case_that_costs_more_than_before_is_seen() -> None:
    row = {"network": "n", "scheme": "s", "fraction_bits": 0, "budget_kb": 1} | dict.fromkeys(bench.KEYS, 100)
    assert bench.changes([row], [row | {"flash_bytes": 110}])["flash_bytes"] == {
        "least": pytest.approx(0.1),
        "most": pytest.approx(0.1),
    }
    with pytest.raises(ValueError, match="no row of n with s"):
        bench.changes([row], [])


def test_the_bench_rose_by_less_than_one_percent() -> None:
    assert all(change["most"] < 0.01 for change in bench.compared().values())
