"""lab/pages/worlds.md: its networks are those of the papers, and its rows are those of today's converter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from lab.golden.data import Data, find
from lab.worlds import page
from lab.worlds.cases import CASES, MCUNET, SCHEME, choose
from lab.worlds.networks import MobileNetV2, rounded
from microtrain.base.errors import Error
from microtrain.convert.cli import main


@pytest.fixture
def data() -> Iterator[Data]:
    try:
        yield find()
    except Error as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("width", "parameters"), [(1.0, 3_504_872), (0.5, 1_968_680)])
def test_mobilenet_has_the_parameters_that_others_count(width: float, parameters: int) -> None:
    """Of ImageNet's 1,000 classes."""
    network = MobileNetV2(width, 1000)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert rounded(32 * 0.35) == 16 and rounded(24 * 0.35) == 8
    assert network.eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)


def test_every_case_has_its_row_and_the_page_its_tables() -> None:
    rows, text = page.rows(), page.PAGE.read_text()
    assert [case.name for case in CASES] == list(rows)
    for name, row in rows.items():
        sizes = " | ".join(f"{row[key]:,}" for key in ("sram", "flash", "outside"))
        assert f"| {name} | {row['scheme']} | {sizes} |" in text
        assert row["sram"] < 320 * 1024 and row["flash"] < 1024 * 1024
        assert (row["outside"] == 0) == (row["outside_layers"] == 0)
    with pytest.raises(Error, match="the first is MCUNet-5FPS, 128x128"):
        choose(("resnet",))


@pytest.mark.parametrize("kb", [440, 280])
def test_the_rows_are_of_this_converter(kb: int, data: Data, tmp_path: Path) -> None:
    """Bytes beside the chip, for one network with fewer and fewer of its weights inside."""
    (case,) = (case for case in CASES if case.flash_kb == kb)
    model, options = data.checkpoint(MCUNET), case.options(tmp_path)
    result = CliRunner().invoke(main, [str(model), *options, "--check"])
    assert result.exit_code == 0 and SCHEME in options, result.output
    said = dict(line.split(maxsplit=1) for line in result.output.splitlines() if line.startswith("  "))
    assert abs(int(said["outside"].split()[0].replace(",", "")) - page.rows()[case.name]["outside"]) < 64
