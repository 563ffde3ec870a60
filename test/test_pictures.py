"""The page of a conversion says what plan.json says, in HTML that holds together whatever a name contains."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from plans import write_plan

from microtrain.base.plan import Budget, Layer, Plan, read_plan
from microtrain.pictures.report import Firmware, Story, report

VOID = {"meta", "br", "rect", "line"}
STORY = Story(
    choices=(("trained", "the head"),),
    commands=(("build & flash", "pio run -t upload"),),
    firmware=Firmware(sram=3000, flash=40000),
)


class Page(HTMLParser):
    """Words and the tags that are still open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opens nothing."""

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return read_plan(write_plan(tmp_path))


def layer(name: str, trained: str) -> Layer:
    return Layer(name, "conv2d", (8, 8, 3), (4, 4, 6), (3, 3), (2, 2), 1296, trained, 234, 12, 30, 4)


def test_the_page_tells_choices_sizes_layers_and_commands(plan: Plan) -> None:
    layers = (layer("stem", "-"), layer("last", "weight 3/6 + bias"))
    page = Page(report(replace(plan, layers=layers), STORY))
    assert not page.open
    for word in ("the head", "stem", "weight 3/6 + bias", "8x8x3", "1,296", "234", "34"):
        assert word in page.words
    assert any("pio run -t upload   # build & flash" in word for word in page.words)
    total = plan.sram.arena + plan.sram.trainables + 3000
    assert any(f"{total:,}" in word for word in page.words)


def test_rows_that_learn_stand_out(plan: Plan) -> None:
    text = report(replace(plan, layers=(layer("stem", "-"), layer("last", "bias"))), STORY)
    learns = [row for row in text.splitlines() if "class=learns" in row]
    assert len(learns) == 1 and "last" in learns[0]


@pytest.mark.parametrize(("flash", "over"), [(40_000_000, False), (40_000, True)])
def test_what_is_over_the_budget_is_said(plan: Plan, flash: int, over: bool) -> None:
    text = report(replace(plan, budget=Budget(10_000_000, flash)), STORY)
    assert ("class='over'" in text) == over


def test_names_are_text(plan: Plan) -> None:
    hostile = "</table><script>alert('x')</script>"
    story = replace(STORY, choices=((hostile, hostile),), commands=((hostile, hostile),))
    named = replace(plan, name=hostile, layers=(layer(hostile, hostile),))
    text = report(named, story)
    assert "<script" not in text and not Page(text).open


def test_a_picture_of_the_quantization_is_put_in(plan: Plan) -> None:
    text = report(plan, replace(STORY, quantization="<?xml version='1.0'?>\n<svg id='q'></svg>"))
    assert "<svg id='q'></svg>" in text and "<?xml" not in text
    assert "--quantization" in report(plan, STORY)
