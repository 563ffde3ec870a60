"""The estimate of flash, against the firmware that is built; and a table that can be read in 80 columns."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import ROOT
from pio_build import build
from rich.console import Console

from lab.sizes import networks
from lab.sizes.firmware import flash_bytes, sram_bytes, written
from microtrain.base.columns import broken, short
from microtrain.convert import boards
from microtrain.convert.cli import main
from microtrain.convert.emit import firmware_flash, tables
from microtrain.convert.emit.document import flash_bound, flash_total
from microtrain.convert.emit.report import print_table
from microtrain.convert.ops import TABLE
from microtrain.convert.ops.ctext import Table
from microtrain.convert.pipeline import ALL_PASSES, Compiled, compile_graph
from microtrain.convert.quantize.fidelity_report import print_report
from microtrain.convert.quantize.ptq import Choices, calibration_images, quantization_report, quantize_model

MODEL = ROOT / networks.EXAMPLE
CLOSE, MORE = 0.01, 160  # a share of flash, bytes of SRAM
OTHER_SOUND = "log-mel:rate=16000,frame=256,hop=160,bands=20"


def other(folder: Path) -> Compiled:
    """A network of all ops that was not among those which the sizes were fitted to."""
    graph = networks.everything(5, True, folder, shuffled=2)
    return compile_graph(graph, networks.SCHEMES[4], networks.CLASSES)


def measured(compiled: Compiled, board: str, folder: Path) -> int:
    """Bytes of flash that the firmware takes; the estimate of its SRAM is just above what it has."""
    elf = build(folder / "pio", board, written(compiled, folder / "generated"))
    assert 0 <= compiled.sram - sram_bytes(elf) <= MORE
    return flash_bytes(elf)


def off(compiled: Compiled, board: str, true: int) -> float:
    """How far the estimate of flash is from that of the firmware, as a share of it."""
    return abs(flash_total(compiled.graph, board) - true) / true


def test_the_estimate_is_within_one_percent_of_the_firmware(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, board = other(tmp_path), "nucleo_f446re"
    true = measured(compiled, board, tmp_path)
    assert off(compiled, board, true) < CLOSE
    known = firmware_flash.sizes(board)
    wrong = replace(known, base=40960, sections=dict.fromkeys(known.sections, 0), steps={})
    monkeypatch.setattr(firmware_flash, "sizes", lambda _: wrong)  # what was estimated before
    assert off(compiled, board, true) > 10 * CLOSE


@pytest.mark.slow
@pytest.mark.parametrize("board", boards.names())
@pytest.mark.parametrize(
    "model",
    [
        "example",
        "replayed",
        "coded",
        "hearing",
        "moving",
        "moved whole",
        "sharing",
        "outside",
        "twice",
        "other",
    ],
)
def test_so_is_that_of_every_board(model: str, board: str, tmp_path: Path) -> None:
    example = networks.example(ROOT)
    made = {
        "example": lambda: compile_graph(example, networks.SCHEMES[3], networks.CLASSES),
        "replayed": lambda: networks.replayed(example),
        "coded": lambda: networks.replayed(example, part=4),
        "hearing": lambda: networks.hearing(tmp_path, OTHER_SOUND),
        "moving": lambda: networks.moving(example, ALL_PASSES),
        "moved whole": lambda: networks.moving(example, networks.KEPT),
        "sharing": lambda: networks.sharing(example),
        "outside": lambda: networks.outside(example),
        "twice": lambda: networks.rounding_twice(example),
        "other": lambda: other(tmp_path),
    }
    if model == "outside" and not boards.find(board).external:
        pytest.skip(f"{board} has no flash beside its chip")
    compiled = made[model]()
    assert off(compiled, board, measured(compiled, board, tmp_path)) < CLOSE


def test_the_sizes_are_of_all_boards_and_kernels() -> None:
    document = json.loads(firmware_flash.FILE.read_text())
    assert sorted(document) == boards.names()
    graph = compile_graph(networks.example(ROOT), networks.SCHEMES[3], networks.CLASSES).graph
    for board in document:
        known = firmware_flash.sizes(board)
        assert set(TABLE) <= set(known.steps)
        assert all(name in known.sections for names in known.calls.values() for name in names)
    assert flash_total(graph) < flash_bound(graph)


@pytest.mark.parametrize(("kb", "fits"), [(107, False), (108, True)])
def test_a_budget_of_flash_is_held_against_that_estimate(kb: int, fits: bool, tmp_path: Path) -> None:
    """The firmware takes 110,481 B by the estimate, which was 84,192 B before it was measured."""
    words = [str(MODEL), "--scheme", "full", "--classes", "10", "--budget-flash", str(kb)]
    result = CliRunner().invoke(main, [*words, "-o", str(tmp_path / "out")])
    assert (result.exit_code == 0) == fits, result.output
    assert fits or "raise --budget-flash" in result.output


@pytest.mark.parametrize("width", [80, 160])
def test_tables_name_every_layer_at_any_width(width: int) -> None:
    from microtrain.convert.frontends.module import load_model

    loaded = load_model(MODEL)
    images = calibration_images(loaded.graph, loaded.calibration, None)
    graph = quantize_model(loaded.graph, images, Choices())
    compiled = compile_graph(graph, networks.SCHEMES[4], networks.CLASSES)
    out = io.StringIO()
    console = Console(file=out, width=width)
    print_table(compiled, boards.limits(boards.find(), None, None), console)
    print_report(quantization_report(loaded.graph, graph, images, Choices(), None), console)
    said = out.getvalue()
    assert "…" not in said and max(map(len, said.splitlines())) <= width
    for node in graph.nodes:
        assert said.count(f"{node.name} ") >= 2, node.name
    for words in ("16x16x32", "8x8x80", "trained", "flash B"):
        assert words in said


def test_long_names_break_behind_their_points() -> None:
    assert broken("features.18.conv.0.0", 20) == "features.18.conv.0.0"
    assert broken("encoder.layers.3.project", 20) == "encoder.layers.3.\nproject"
    assert "".join(broken("a.b.c", 1).split("\n")) == "a.b.c"
    assert [short(n) for n in (7, 984, 36_864, 131_072, 10_838_016)] == ["7", "984", "36.9k", "131k", "10.8M"]


def test_constants_leave_room_for_the_code() -> None:
    """Beyond their room they lie with the weights, and none is lost."""
    made = [Table(f"const float qas_{n}[6000]", np.ones(6000, np.float32), "tables") for n in range(4)]
    placed = tables.beside_the_code(
        [*made, Table("MODEL_WEIGHTS int8_t w[9]", np.ones(9, np.int8), "weights")]
    )
    assert [table.name for table in placed] == [*(f"qas_{n}" for n in range(4)), "w"]
    beside = [table for table in placed if table.declaration.startswith("const ")]
    assert sum(len(table.bytes) for table in beside) <= tables.CONSTANTS_ROOM
    assert [table.declaration for table in placed[2:4]] == [
        f"MODEL_WEIGHTS float qas_{n}[6000]" for n in (2, 3)
    ]
    assert placed[2].bytes == made[2].bytes
