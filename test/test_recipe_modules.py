"""The table of lite residual modules at equal SRAM (lab/recipe/modules.py)."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from lab import marks, notes
from lab.recipe import modules
from lab.recipe.cases import SCHEMES, SEEDS
from microtrain.convert.scheme import find, load

CELLS = len(modules.SETS) * len(modules.PASSES)


def found(accuracy: float = 50.0) -> dict[str, Any]:
    """A record of all sessions, as good as each other."""
    rows = [
        dict(zip(modules.KEYS, key, strict=True)) | {"accuracy": accuracy}
        for key in product(modules.SETS, SCHEMES, modules.PASSES, modules.ARMS, SEEDS)
    ]
    return {"sram": {network: dict.fromkeys(modules.ARMS, 70_000) for network in SCHEMES}, "rows": rows}


def test_means_are_those_of_the_networks_and_seeds() -> None:
    record = found()
    for row in record["rows"]:
        if row["network"] == "mcunet-5fps" and row["arm"] == "lite":
            row["accuracy"] = 80.0 + 3 * row["seed"]
    lines = modules.table(record).splitlines()
    assert len(lines) == 2 + 3 * 3 + 3
    assert lines[-1] == "| mean | biases, head, modules |  |" + " 61.0 |" * CELLS
    assert lines[-2].count(" 50.0 ") == CELLS


def test_a_set_that_not_all_were_measured_on_has_no_column() -> None:
    record = found()
    left_out = record["rows"].pop(0)
    assert f"{left_out['dataset']}, one look" not in modules.table(record)
    assert modules.table(record).splitlines()[-1].count(" 50.0 ") == CELLS - 1


def test_schemes_differ_in_one_thing() -> None:
    for network, published in SCHEMES.items():
        biases, sparse, lite = (load(modules.scheme_file(network, arm)) for arm in modules.ARMS)
        assert biases.biases == sparse.biases == lite.biases == find(Path(published)).biases
        assert dict(sparse.weights) == dict(find(Path(published)).weights)
        assert not biases.weights and not lite.weights and not biases.lite and not sparse.lite
        assert lite.lite is not None and isinstance(lite.lite.blocks, tuple)
        assert [int(str(name).split(".")[1]) for name in lite.lite.blocks] == [*modules.BLOCKS[network]]


def test_modules_have_no_more_memory_than_weights_and_nearly_as_much() -> None:
    for network, sram in notes.read(modules.RESULT, None)["sram"].items():
        assert sram["biases"] < sram["lite"] <= sram["sparse"], network
        assert sram["lite"] > 0.93 * sram["sparse"], network


def test_the_page_has_the_record(tmp_path: Path) -> None:
    page = tmp_path / "arithmetic.md"
    page.write_text(modules.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    marks.insert(page, modules.COMMAND, {"lite": modules.table(notes.read(modules.RESULT, None))})
    assert page.read_text(encoding="utf-8") == modules.PAGE.read_text(encoding="utf-8")
