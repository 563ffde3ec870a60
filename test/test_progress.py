"""Long work says how far it is: a line a minute where there is no terminal."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import ROOT
from PIL import Image
from rich.console import Console

from microtrain.base import progress
from microtrain.base.progress import Bar, Bars, duration
from microtrain.convert import command
from microtrain.convert.execute import batched
from microtrain.convert.loading import load
from microtrain.convert.pipeline import ALL_PASSES, Room
from microtrain.convert.scheme import Scheme
from microtrain.device import cli, target
from microtrain.device.testing import CLASSES, SHAPE, FakeDevice


def wait_for(lines: list[str], count: int) -> None:
    end = time.monotonic() + 20
    while len(lines) < count and time.monotonic() < end:
        time.sleep(0.01)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said, a minute being a fiftieth of a second."""
    told: list[str] = []
    monkeypatch.setattr(progress, "EVERY_S", 0.02)
    monkeypatch.setattr(progress, "say", lambda text, err: told.append(text))
    return told


def test_a_line_a_minute_even_where_nothing_goes_on(lines: list[str]) -> None:
    with Bars() as bars:
        bars.add("training", 4000).set(1000, "loss 1.203")
        wait_for(lines, 3)
    assert len(lines) >= 3
    assert all(line.startswith("training: 1,000 of 4,000, loss 1.203, ") for line in lines)
    assert all(line.endswith(" left") for line in lines)


def test_many_short_things_are_not_silent_together(lines: list[str]) -> None:
    """Weights in 4 bits took seven minutes, of which no part took one."""
    end = time.monotonic() + 20
    while not lines and time.monotonic() < end:
        with Bars() as bars:
            bars.add("layers", 20).set(7)
            time.sleep(0.01)
    assert lines and lines[0].startswith("layers: 7 of 20")


def test_the_end_of_what_was_told_is_told_once(lines: list[str]) -> None:
    with Bars() as bars:
        short, long = bars.add("features", 3), bars.add("costs")
        short.set(3)
        short.end()
        wait_for(lines, 1)
        long.end()
        wait_for(lines, 2)
        before = len(lines)
        time.sleep(0.1)
    assert not any("features" in line for line in lines), "it was over before there was anything to tell"
    assert lines[-1] == "costs: 0, took 0 s" and len(lines) <= before + 1


def test_the_time_left_is_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bar = Bar("training", 400)
    now[0] = 600.0
    bar.advance(100)
    assert bar.line() == "training: 100 of 400, 30 min left"


def test_durations() -> None:
    assert [duration(s) for s in (0, 89, 95, 3600, 11100)] == ["0 s", "89 s", "2 min", "60 min", "3 h 5 min"]


def test_a_terminal_shows_bars_and_no_lines(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "console", lambda **_: terminal)
    with Bars() as bars:
        outer = bars.add("training", 10)
        outer.advance(4, "loss 0.5")
        inner = bars.add("evaluating", 2)
        inner.end()
        inner.hide()
        bars.say("a report")
    assert "4/10" in screen.getvalue() and "loss 0.5" in screen.getvalue() and "a report" in screen.getvalue()
    assert not lines


def test_a_session_without_a_terminal_is_not_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """37 minutes of `device train` wrote nothing."""
    monkeypatch.setattr(progress, "EVERY_S", 0.02)
    device = FakeDevice()
    original = device.do_train

    def slowly(label: str) -> None:
        time.sleep(0.02)
        original(label)

    device.do_train = slowly  # type: ignore[method-assign]
    monkeypatch.setattr(target, "SerialPort", lambda name: device)
    for k in range(CLASSES):
        (tmp_path / f"c{k}").mkdir()
        for i in range(3):
            Image.fromarray(np.full(SHAPE[:2], 9 * k + i, np.uint8)).save(tmp_path / f"c{k}/{i}.png")
    said = CliRunner().invoke(cli.main, ["--port", "fake", "train", str(tmp_path)]).output
    found = [line for line in said.splitlines() if line.startswith("training: ")]
    assert found and " of 9, loss 0.125, right before learning " in found[-1] and found[-1].endswith(" left")


def test_calibration_of_many_images_says_how_far_it_is(lines: list[str]) -> None:
    """It was silent without a terminal, however long it took."""
    graph = load(ROOT / "examples/digits/model.pt", False, None).graph
    images = np.zeros((130, *graph.tensors[graph.input.tensor].shape), np.uint8)
    sizes = []
    for batch in batched.batches(graph, images, "calibrating"):
        sizes.append(len(batch))
        wait_for(lines, len(sizes))
    assert sum(sizes) == 130 and len(sizes) > 1
    assert lines[0].startswith("calibrating: 0 of 130")


def test_the_choice_of_a_scheme_says_how_far_it_is(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute and more for a large network."""

    def slow(room: Room, *arguments: object) -> Scheme:
        tell = arguments[-1]
        assert callable(tell)
        for count in range(1, 4):
            tell()
            wait_for(lines, count)
        return Scheme("slow")

    monkeypatch.setattr(command, "largest", slow)
    graph = load(ROOT / "examples/digits/model.pt", False, None).graph
    assert command.default_within(Room(graph, 10, 1 << 20), ALL_PASSES, "zeros", 0).name == "slow"
    assert lines[0].startswith("choosing what to train, schemes tried: ") and len(lines) >= 3
