"""lab/floor: bounds that hold, and kernels whose calls go to their layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Built

from lab.floor.bound import (
    POINTERS,
    REGISTERS,
    Bound,
    best_tile,
    dense,
    gradient_of_input,
    held,
    tiles,
    windows,
)
from lab.floor.measure import Measured, Watcher, measured
from lab.floor.page import write
from lab.floor.rows import Row, in_front_of_a_pool, rows, weights_trained
from microtrain.base.errors import Error
from microtrain.base.plan import Plan, read_plan
from microtrain.device.client import Device
from microtrain.emulator import Board, EmulatedPort

PHASES = ("inference", "step")


@pytest.fixture(scope="module")
def plan(example: Built) -> Plan:
    return read_plan(example.folder / "plan.json")


@pytest.fixture(scope="module")
def found(example: Built, plan: Plan) -> dict[str, Measured]:
    image = np.random.default_rng(1).integers(0, 256, plan.layers[0].input, np.uint8)
    return measured(example.elf, plan, image, 3)


def test_the_tile_of_the_kernels_is_the_best_that_registers_hold() -> None:
    """18 instructions for 24 products, as dense_armv7em.S says."""
    tile = best_tile()
    assert (tile.rows, tile.lanes, tile.words) == (1, 6, 4)
    assert dense(24, 24).total == 18
    assert all(t.rows * t.lanes + t.words + 2 * t.rows + POINTERS <= REGISTERS for t in tiles())
    assert max(t.rows for t in tiles()) > 1


def test_a_short_row_stays_in_registers() -> None:
    """Eight weights: an LDM and four products, as narrow_armv7em.S says; up to 16 the tile takes more."""
    assert dense(8, 8).total == 5
    assert held(16) < best_tile().operands < held(18)
    assert held(24) == float("inf")


def test_a_window_takes_its_last_column_alone() -> None:
    assert windows(10, (3, 3)) == Bound(products=60, operands=30)
    assert windows(10, (7, 7)).products == 10 * 7 * 4


@pytest.mark.parametrize("phase", PHASES)
def test_no_layer_takes_less_than_its_floor(found: dict[str, Measured], plan: Plan, phase: str) -> None:
    done = rows(plan, found[phase], phase)
    assert {row.op for row in done} >= {"conv2d", "dwconv2d"}
    assert all(row.measured > row.bound.total > 0 for row in done)
    assert sum(row.measured for row in done) < found[phase].instructions


def test_every_call_of_a_kernel_goes_to_a_layer(found: dict[str, Measured], plan: Plan) -> None:
    """A step has the layers of an inference, none of which gets less work than there."""
    whole = {(row.op, row.layer) for row in plan.layers if row.op in ("conv2d", "dwconv2d")}
    assert set(found["inference"].by_layer) == whole
    assert set(found["step"].by_layer) > whole
    assert all(found["step"].by_layer[key] >= found["inference"].by_layer[key] for key in whole)


def test_a_kernel_that_is_given_no_layer_is_an_error(example: Built, plan: Plan) -> None:
    strangers = replace(plan, layers=tuple(replace(row, layer=f"not_{row.layer}") for row in plan.layers))
    board = Board(example.elf)
    device = Device(EmulatedPort(board))
    Watcher(board, strangers)
    with pytest.raises(Error, match="names a layer"):
        device.infer(np.zeros(plan.layers[0].input, np.uint8))


def test_errors_that_are_alike_take_one_pixels_products(plan: Plan) -> None:
    layer = next(row for row in plan.layers if row.op == "conv2d" and row.kernel == (1, 1))
    assert gradient_of_input(layer, True).total < gradient_of_input(layer).total / 3
    pool = replace(layer, layer="pool", op="avgpool", output=(1, 1, layer.output[2]), kernel=None)
    assert in_front_of_a_pool(replace(plan, layers=(layer, pool))) == {layer.layer}
    assert in_front_of_a_pool(replace(plan, layers=(layer, replace(pool, output=(2, 2, 8))))) == set()


def test_weights_that_are_trained_are_counted(plan: Plan) -> None:
    layer = next(row for row in plan.layers if row.op == "conv2d" and row.kernel == (1, 1))
    some, all_of_it = replace(layer, trained="weight 3/24 + bias"), replace(layer, trained="all")
    assert weights_trained(some) == 3 * layer.output[2]
    assert weights_trained(all_of_it) == layer.input[2] * layer.output[2]


def test_the_page_says_what_was_found(tmp_path: Path, found: dict[str, Measured], plan: Plan) -> None:
    page = tmp_path / "floor.md"
    names = ("sums", "cycles", *PHASES)
    page.write_text("".join(f"<!-- {n}: python lab/floor -->\n<!-- end of {n} -->\n" for n in names))
    own: dict[str, tuple[Measured, list[Row]]] = {p: (found[p], rows(plan, found[p], p)) for p in PHASES}
    write(own, page)
    text = page.read_text()
    assert all(f"| {row.layer} | {row.op} |" in text for _, each in own.values() for row in each)
    assert "beyond the floor" in page.with_suffix(".svg").read_text()
