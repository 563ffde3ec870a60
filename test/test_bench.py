"""`python lab/bench`: what it measures, what it remembers, and what it calls a rise."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import EXAMPLE, Built

from lab.bench import build, measure, picture, records, table
from lab.bench.cases import BAR, BEST, FIXED, GENERIC, SCHEMES, TIGHT_KB, Case, all_cases, choose
from lab.bench.cli import PAGES, main
from lab.bench.run import run_case
from lab.golden.data import NETWORKS, VARIABLE, Data, find
from microtrain.base.errors import Error
from microtrain.base.plan import read_plan
from microtrain.convert.scheme import PUBLISHED
from microtrain.device.client import Device
from microtrain.emulator import Board, EmulatedPort

CCR = 0xE000_ED14
CACHES_ON = 1 << 16 | 1 << 17


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (32, 32, 1)).astype(np.uint8)


@dataclass(frozen=True)
class DigitsData(Data):
    """The digits example in the place of every published network."""

    image: np.ndarray

    def checkpoint(self, network: str) -> Path:
        return EXAMPLE / "model.pt"

    def train_step(self, network: str) -> dict[str, np.ndarray]:
        return {"images_u8": self.image[np.newaxis]}


@pytest.fixture(scope="module")
def measured(example: Built, image: np.ndarray) -> dict[str, Any]:
    """The row of the digits example."""
    row = measure.on_board(example.elf, example.folder / "plan.json", image, 3)
    return {"network": "digits", "scheme": "mcunet-49kb", "budget_kb": None, **row}


# ---------------------------------------------------------------- cases
def test_the_cases_are_all_published_schemes_and_the_generic_ones() -> None:
    cases = all_cases()
    coded = [case for case in cases if case.weights_bits]
    fixed = [case for case in cases if case.requantize == FIXED]
    int8 = [case for case in cases if case not in coded and case not in fixed]
    plain = [case for case in int8 if not case.fraction_bits and case.budget_kb is None]
    assert [case.scheme for case in coded] == [case.scheme for case in fixed] == ["mcunet-49kb"]
    assert fixed[0].options()[4:6] == ["--requantize", FIXED] and "+fixed" in fixed[0].name
    board = [case for case in plain if case.on_board]
    published = {path.stem for path in PUBLISHED.glob("*-*kb.yaml")}
    assert len({case.name for case in cases}) == len(cases)
    assert {case.scheme for case in board} == published | set(GENERIC)
    assert len(board) == 27
    assert [case.network for case in cases if not case.on_board] == list(NETWORKS) == list(SCHEMES)
    assert sum(case.fraction_bits > 0 and case.budget_kb is None for case in cases) == 2 * len(BAR)
    assert {(case.scheme, case.fraction_bits): case.budget_kb for case in cases if case.budget_kb} == TIGHT_KB


def test_cases_are_chosen_by_a_part_of_their_name_or_a_pattern() -> None:
    assert [case.name for case in choose(("mcunet-49kb+8b", "mbv2*head"))] == [
        "mcunet-5fps/mcunet-49kb+8b",
        "mbv2-w0.35/head-only",
    ]
    assert choose(()) == all_cases()
    assert choose(("nothing like it",)) == []


def test_a_budget_is_the_scheme_where_the_converter_chooses() -> None:
    assert "--scheme" not in Case("mcunet-5fps", BEST).options()
    assert "--fraction-bits" in Case("mcunet-5fps", "mcunet-49kb", 4).options()


# ---------------------------------------------------------------- measuring
def is_stream(kernel: str) -> bool:
    """Whether a kernel's numbers are those of other kernels once more."""
    return kernel.startswith("stream")


def test_counts_repeat_exactly(example: Built, measured: dict[str, Any], image: np.ndarray) -> None:
    again = measure.instruction_counts(example.elf, read_plan(example.folder / "plan.json"), image, 3)
    assert {key: measured[key] for key in again} == again


def test_numbers_of_a_row_agree_with_each_other(measured: dict[str, Any]) -> None:
    assert measured["step_instructions"] > measured["inference_instructions"]
    for phase in ("inference", "step"):
        outer = [k["instructions"] for n, k in measured["kernels"][phase].items() if not is_stream(n)]
        assert 0.9 < sum(outer) / measured[f"{phase}_instructions"] < 1.0
        found = measured["cycles"][phase]
        assert found["stalls"] >= 12 * found["instruction_misses"] > 0
        if found["estimate"] is not None:
            assert found["estimate"] == pytest.approx(found["issue"] + found["stalls"], abs=1)
            assert 0.5 < found["issue"] / measured[f"{phase}_instructions"] < 2
    assert measured["sram_measured"] <= measured["sram_all_in"]
    assert sum(measured["flash"].values()) == measured["flash_bytes"]
    named = measured["arena"] + measured["trainables"] + measured["stack"]
    assert 0 < measured["sram_all_in"] - named < 4096


def test_macs_belong_to_the_kernels_that_compute_them(measured: dict[str, Any]) -> None:
    kernels = measured["kernels"]["step"]
    forward = ("conv2d_fwd_s8", "dwconv2d_fwd_s8", "head_fwd_f32")
    assert sum(kernels[name]["macs"] for name in forward) == measured["macs_forward"]
    backward = [k["macs"] for name, k in kernels.items() if name not in forward and not is_stream(name)]
    assert sum(backward) == measured["macs_backward"]


def test_the_firmware_switches_on_the_caches_that_are_modelled(example: Built) -> None:
    board = Board(example.elf)
    Device(EmulatedPort(board)).stats()
    assert board.core.read(CCR - 0xE000_E000) & CACHES_ON == CACHES_ON


@pytest.mark.slow
# ---------------------------------------------------------------- running cases
def test_a_case_is_not_run_again_until_something_changes(tmp_path: Path, image: np.ndarray) -> None:
    data, case = DigitsData(EXAMPLE, image), Case("digits", "last-6")
    first = run_case(case, data, "a compiler", tmp_path)
    assert first.error is None and first.row is not None and not first.known
    again = run_case(case, data, "a compiler", tmp_path)
    assert (again.known, again.row) == (True, first.row)
    assert first.row["chosen"] == "last-6"
    (tmp_path / case.folder / "result.json").write_text("damaged")
    assert build.digest([tmp_path], "a compiler", b"") != build.digest([tmp_path], "another", b"")
    assert not run_case(case, data, "a compiler", tmp_path).known


def test_what_should_be_refused_and_is_not_is_a_failure(tmp_path: Path, image: np.ndarray) -> None:
    """The digits fit the board whole: a planted fault for the full update's refusal."""
    outcome = run_case(Case("digits", "full"), DigitsData(EXAMPLE, image), "a compiler", tmp_path)
    assert outcome.row is None
    assert outcome.error is not None and "digits/full should be refused" in outcome.error


def test_a_case_that_cannot_be_converted_is_one_sentence(tmp_path: Path, image: np.ndarray) -> None:
    outcome = run_case(Case("digits", "mcunet-49kb"), DigitsData(EXAMPLE, image), "a compiler", tmp_path)
    assert outcome.error is not None and "made for mcunet-5fps" in outcome.error
    assert "Traceback" not in outcome.error


def test_without_data_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 1
    assert result.output.startswith(f"bench: {VARIABLE} is not set")
    assert result.output.count("\n") == 1


def test_a_pattern_without_a_case_is_refused() -> None:
    result = CliRunner().invoke(main, ["--only", "resnet"])
    assert result.exit_code == 2
    assert "no case matches resnet" in result.output


def test_no_cross_compiler_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Error, match="arm-none-eabi-gcc is not on PATH"):
        build.compiler_version()


# ---------------------------------------------------------------- the table
def test_a_rise_of_more_than_a_percent_is_told(measured: dict[str, Any]) -> None:
    def changed(key: str, factor: float) -> list[str]:
        return records.rises([measured], [{**measured, key: int(measured[key] * factor)}])

    assert records.rises([measured], [measured]) == []
    for key in records.COMPARED:
        assert changed(key, 1.009) == changed(key, 0.5) == []
        (sentence,) = changed(key, 1.011)
        assert key in sentence and "make bench" in sentence
    slower = copy.deepcopy(measured)
    if measured["cycles"]["step"]["estimate"] is not None:
        slower["cycles"]["step"]["estimate"] *= 2
        (sentence,) = records.rises([measured], [slower])
        assert "step_cycles" in sentence
    slower["cycles"]["step"]["estimate"] = None
    assert records.rises([measured], [slower]) == []
    (sentence,) = records.rises([], [measured])
    assert "digits with mcunet-49kb is not in the table" in sentence


def test_compilers_keep_their_own_rows(tmp_path: Path, measured: dict[str, Any]) -> None:
    path = tmp_path / "bench.json"
    assert records.load(path) == {}
    other = {**copy.deepcopy(measured), "flash_bytes": 1}
    records.save(path, "gcc 1", [measured])
    records.save(path, "gcc 2", [other])
    assert records.load(path) == {"gcc 1": [measured], "gcc 2": [other]}


def test_the_summary_has_the_promised_keys(measured: dict[str, Any]) -> None:
    (row,) = records.summary([measured, {"refused": "too large"}])
    assert set(row) == {*records.SUMMARY, "inference_cycles", "step_cycles"}
    assert row["step_cycles"] == measured["cycles"]["step"]["estimate"]


def refused_row() -> dict[str, Any]:
    numbers = dict.fromkeys(("arena", "trainables", "macs_forward", "macs_backward"), 1000)
    return {"network": "mcunet-5fps", "scheme": "full", "refused": "does not fit", "loss": 2.0, **numbers}


def test_the_document_names_its_estimates(measured: dict[str, Any]) -> None:
    text = table.markdown("gcc 1", [measured, refused_row()], ["digits/other: went wrong"])
    assert "ESTIMATE" in text
    assert f"{measured['step_instructions']:,}" in text
    assert "`conv2d_bwd_w_s8`" in text
    assert "- does not fit" in text
    assert "- digits/other: went wrong" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(line.endswith(" |") for line in rows)


def test_without_llvm_mca_the_document_has_no_cycles(measured: dict[str, Any]) -> None:
    row = copy.deepcopy(measured)
    for found in row["cycles"].values():
        found["estimate"] = found["issue"] = None
    assert "| - | - |" in table.markdown("gcc 1", [row], [])


def test_the_picture_is_the_same_every_time(tmp_path: Path, measured: dict[str, Any]) -> None:
    rows = [{**measured, "network": "mcunet-5fps"}, refused_row()]
    for name in ("a.svg", "b.svg"):
        picture.draw(rows, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "paper: 173 KB" in (tmp_path / "a.svg").read_text()


# ---------------------------------------------------------------- the checked-in numbers
def test_the_checked_in_table_has_every_case_or_says_why_not() -> None:
    document = (PAGES / "bench.md").read_text(encoding="utf-8")
    for rows in records.load(PAGES / "bench.json").values():
        found = {(row["network"], row["scheme"]) for row in rows}
        missing = [case for case in all_cases() if (case.network, case.scheme) not in found]
        assert all(f"- {case.name}: " in document for case in missing)


@pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} is not set")
@pytest.mark.parametrize("scheme", ["mcunet-49kb", pytest.param("head-only", marks=pytest.mark.slow)])
def test_nothing_rose_above_the_checked_in_table(scheme: str, tmp_path: Path) -> None:
    compiler = build.compiler_version()
    rows = records.load(PAGES / "bench.json").get(compiler)
    if rows is None:
        pytest.skip(f"lab/pages/bench.json has no rows of {compiler}: `make bench` adds them")
    outcome = run_case(Case("mcunet-5fps", scheme), find(), compiler, tmp_path)
    assert outcome.error is None and outcome.row is not None
    assert records.rises(rows, [outcome.row]) == []
