"""The pictures can be read: nothing is cut off, covered or empty."""

from __future__ import annotations

import json
import re

import pytest
from conftest import ROOT
from matplotlib.figure import Figure

from lab.bench import picture as bench
from microtrain.convert.quantize.fidelity import Accuracy, LayerError, Report
from microtrain.convert.quantize.fidelity_report import draw
from microtrain.search.contribution import Gains
from microtrain.search.picture import contributions
from microtrain.search.space import Space


def quantization(clipped: float, model: str = "digits") -> list[str]:
    """The texts of the picture of one layer, which matplotlib leaves beside their outlines."""
    layer = LayerError("stem", "conv2d", (-1.0, 1.0), (-1.0, 1.0), clipped, 40.0, 40.0, 38.0)
    report = Report(model, "minmax", True, 32, (layer,), Accuracy(512, 0.987, 0.91, 0.90))
    return re.findall(r"<!-- (.*?) -->", draw(report))


def test_the_title_of_a_narrow_picture_is_wrapped() -> None:
    """Of a network with few layers it was wider than the picture."""
    texts = quantization(0.01, "own/" + "long " * 30)
    assert len(" ".join(texts)) > 150 and max(map(len, texts)) <= 76
    assert any(text.startswith("top-1 of 512 samples: float 91.00%") for text in texts)


@pytest.mark.parametrize("clipped", [0.0, 0.01])
def test_a_panel_of_clipping_only_where_something_is_clipped(clipped: float) -> None:
    texts = quantization(clipped)
    assert ("clipped, %" in texts) == bool(clipped)
    assert ("no value is clipped in any layer" in texts) == (not clipped)


def test_there_is_no_half_a_convolution() -> None:
    space = Space(("a", "b", "c"), ((1, 2),) * 3, (4,), 0.1)
    text = contributions(space, Gains({k: 0.1 * k for k in range(4)}, {(0, 1, 4): 0.1}))
    first = text[: text.index("biases of the last k convolutions")]
    ticks = re.findall(r">([0-9.]+)</text>", first)
    assert ticks == ["0", "1", "2", "3"]


def test_numbers_stand_clear_of_the_limits() -> None:
    """The paper's and the chip's line are broken where a number stands on them."""
    record = json.loads((ROOT / "lab/pages/bench.json").read_text())
    rows = [
        row for row in next(iter(record.values())) if row["network"] == "mbv2-w0.35" and "refused" not in row
    ]
    axes = Figure().subplots()
    bench.bars(axes, "mbv2-w0.35", rows)
    assert len(axes.texts) == len(rows)
    boxes = [box for text in axes.texts if (box := text.get_bbox_patch()) is not None]
    assert [box.get_facecolor() for box in boxes] == [(1, 1, 1, 1)] * len(rows)


def test_the_client_and_the_board_talk_both_ways() -> None:
    flow = (ROOT / "docs/flow.svg").read_text()
    line = next(line for line in flow.splitlines() if "marker-start" in line and "<path" in line)
    assert "marker-end" in line and ">serial<" in flow
