"""The fleet on Flower: its strategies by name, boards that are missing, late or hostile."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from fleet_boards import NAME, Learner, a_round, federation, member, some_values, sparse_plan, update

pytest.importorskip("flwr", reason="flwr is 300 MB: `pip install 'microtrain[fleet]'`")

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from microtrain.fleet.cli import main
from microtrain.fleet.errors import FleetError
from microtrain.fleet.events import Event
from microtrain.fleet.federation import Federation
from microtrain.fleet.flower import Nearby, Rounds, app_of, client_app, nearby, step_of
from microtrain.fleet.layout import Layout
from microtrain.fleet.message import Work
from microtrain.fleet.settings import Tuning


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(sparse_plan(tmp_path))


def run(fleet: Federation, members: list[Any], rounds: int = 2, **options: Any) -> list[Event]:
    """A federation of members, or of ready ClientApps, within this process; what was told of each round."""
    events: list[Event] = []
    apps = [m if isinstance(m, ClientApp) else app_of(m) for m in members]
    grid = Nearby(apps, len(apps))
    try:
        Rounds(fleet, Work(NAME), tell=events.append, **options).run(grid, rounds)
    finally:
        grid.close()
    return events


def test_flower_runs_the_very_rounds(layout: Layout) -> None:
    """Threads, Flower's messages and its loop give the bits of plain calls."""
    plain, here = federation(layout), federation(layout)
    names = ("a", "b", "c")
    members = {100 + n: member(name, Learner(layout.plan), layout, 5 + n) for n, name in enumerate(names)}
    for _ in range(3):
        assert a_round(plain, members) == []
    twins = [member(name, Learner(layout.plan), layout, 5 + n) for n, name in enumerate(names)]
    events = run(here, twins, 3)
    assert here.sha256() == plain.sha256() == events[-1].sha256
    assert [sorted(event.boards) for event in events] == [list(names)] * 3
    assert events[0].bytes_up > 0 < events[0].bytes_down and not events[0].missing


# ---------------------------------------------------------------- strategies


def one_round(layout: Layout, name: str, rounds: int = 1) -> tuple[np.ndarray, np.ndarray, Federation]:
    """Real values before and after, and what plain averaging makes of the same changes."""
    fleet, step = federation(layout), step_of(name, Tuning(momentum=0.5, server_rate=0.8, eta=0.02, tau=0.1))
    means = []
    before = layout.real(fleet.values)
    for number in range(1, rounds + 1):
        fleet.begin()
        change = some_values(layout, number, 0.05)
        fleet.take(update(layout, number, change, samples=3), 1)
        means.append(layout.real(change))
        fleet.close(step)
    return layout.real(fleet.values) - before, np.array(means), fleet


def test_averaging_and_the_proximal_strategy_move_by_the_mean(layout: Layout) -> None:
    for name in ("fedavg", "fedprox"):
        moved, means, _ = one_round(layout, name)
        assert np.allclose(moved, means[0])


def test_momentum_on_the_server_is_that_of_the_paper(layout: Layout) -> None:
    moved, means, _ = one_round(layout, "fedavgm", 2)
    expected = 0.8 * means[0] + 0.8 * (0.5 * means[0] + means[1])
    assert (np.abs(moved - expected) <= 2.01 * layout.scales).all()
    assert (np.abs(moved - 0.8 * means.sum(0)) > 2.01 * layout.scales).any()


def test_adam_on_the_server_is_that_of_the_paper(layout: Layout) -> None:
    moved, means, _ = one_round(layout, "fedadam")
    m, v = 0.1 * means[0], 0.01 * means[0] ** 2
    rate = 0.02 * np.sqrt(1 - 0.99**2) / (1 - 0.9**2)
    assert (np.abs(moved - rate * m / (np.sqrt(v) + 0.1)) <= 1.01 * layout.scales).all()


def test_a_strategy_that_leaves_the_numbers_is_refused(layout: Layout) -> None:
    fleet = federation(layout)
    before = fleet.values.copy()
    fleet.begin()
    fleet.take(update(layout, 1, some_values(layout, 1)), 1)
    with pytest.raises(FleetError, match="the strategy left the numbers"):
        fleet.close(lambda number, old, mean: mean * np.nan)
    assert (fleet.values == before).all()


# ---------------------------------------------------------------- boards that are not as they should be


def test_a_board_that_drops_out_is_missed_and_comes_back(layout: Layout) -> None:
    calls: list[int] = []

    def trouble() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise FleetError("b is left out of this round: the cable is out.")

    members = [member("a", Learner(layout.plan), layout), member("b", Learner(layout.plan, trouble), layout)]
    events = run(federation(layout), members, 3)
    assert [sorted(event.boards) for event in events] == [["a", "b"], ["a"], ["a", "b"]]
    assert events[1].missing == ("b",) and "the cable is out" in events[1].refused[0]


def test_a_slow_board_stops_no_round_and_loses_nothing(layout: Layout) -> None:
    """Its late update is not heard, and is part of the one that it sends when it is in time."""
    go, calls = threading.Event(), []

    def slow() -> None:
        calls.append(1)
        if len(calls) == 1:
            go.wait(30)

    board = Learner(layout.plan, slow)
    late = member("slow", board, layout)
    fleet = federation(layout)
    events: list[Event] = []

    def told(event: Event) -> None:
        events.append(event)
        go.set()
        while not late.state.rounds:  # until it has answered round 1, to nobody
            threading.Event().wait(0.01)

    grid = Nearby([app_of(late), app_of(member("quick", Learner(layout.plan), layout))], 2)
    Rounds(fleet, Work(NAME), patience=0.5, tell=told).run(grid, 2)
    grid.close()
    assert [sorted(event.boards) for event in events] == [["quick"], ["quick", "slow"]]
    first = layout.read(Learner(layout.plan).learn(board.seen[0], late.samples, _settings(1)).block)
    second = layout.read(late.state.block) - layout.read(board.seen[1])
    assert late.state.pending is not None
    assert (late.state.pending == first - layout.read(board.seen[0]) + second).all()


def _settings(number: int) -> Any:
    from microtrain.device.session import Settings
    from microtrain.fleet.rounding import derived

    return Settings(seed=derived(1, number, "slow"))


def test_rounds_go_on_where_nobody_answers(layout: Layout) -> None:
    def silent() -> None:
        raise FleetError("a is left out of this round: it is switched off.")

    fleet = federation(layout)
    before = fleet.values.copy()
    events = run(fleet, [member("a", Learner(layout.plan, silent), layout)], 3)
    assert len(events) == 3 and all(not event.boards for event in events)
    assert (fleet.values == before).all()


BAD_REPLIES: dict[str, Callable[[Message], Message]] = {
    "an error": lambda m: Message(Error(0, "out of\x1b[2J memory"), reply_to=m),
    "nothing": lambda m: Message(RecordDict(), reply_to=m),
    "no list": lambda m: Message(
        RecordDict({"config": ConfigRecord({"updates": 3, "refused": ""})}), reply_to=m
    ),
    "numbers": lambda m: Message(
        RecordDict({"config": ConfigRecord({"updates": [1 << 40], "refused": []})}), reply_to=m
    ),
    "noise": lambda m: Message(
        RecordDict({"config": ConfigRecord({"updates": [b"MTF1" + bytes(99)], "refused": []})}), reply_to=m
    ),
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_hostile_node_changes_nothing(layout: Layout, name: str) -> None:
    hostile = ClientApp()
    hostile.train()(lambda message, context: BAD_REPLIES[name](message))
    fleet, alone = federation(layout), federation(layout)
    events = run(fleet, [member("a", Learner(layout.plan), layout), hostile])
    run(alone, [member("a", Learner(layout.plan), layout)])
    assert fleet.sha256() == alone.sha256()
    assert len(events[0].refused) == 1 and "\x1b" not in events[0].refused[0]


def test_a_task_without_a_task_is_answered_in_a_sentence(layout: Layout) -> None:
    from flwr.app import Context

    app = app_of(member("a", Learner(layout.plan), layout))
    Nearby([app])  # gives messages their run
    for content in (RecordDict(), RecordDict({"config": ConfigRecord({"task": "text"})})):
        reply = app(
            Message(content, dst_node_id=1, message_type="train"), Context(1, 1, {}, RecordDict(), {})
        )
        assert "the task cannot be worked off" in str(reply.content.config_records["config"]["refused"])


def test_a_gateway_sends_the_updates_of_its_boards(layout: Layout) -> None:
    both = [member(name, Learner(layout.plan), layout) for name in ("a", "b")]
    fleet = federation(layout)
    events = run(fleet, [client_app(lambda context: nullcontext(both))])
    apart = federation(layout)
    run(apart, [member(name, Learner(layout.plan), layout) for name in ("a", "b")])
    assert sorted(events[0].boards) == ["a", "b"] and fleet.sha256() == apart.sha256()


def test_nearby_is_the_same_in_one_call(layout: Layout) -> None:
    fleet, other = federation(layout), federation(layout)
    nearby([member("a", Learner(layout.plan), layout)], Rounds(fleet, Work(NAME)), 2)
    run(other, [member("a", Learner(layout.plan), layout)])
    assert fleet.sha256() == other.sha256()


# ---------------------------------------------------------------- the command


def test_the_log_is_shown_as_it_was(layout: Layout, tmp_path: Path) -> None:
    log = tmp_path / "fleet.jsonl"
    events = run(federation(layout), [member("kitchen", Learner(layout.plan), layout)])
    log.write_text("".join(json.dumps(event.as_json()) + "\n" for event in events))
    done = CliRunner().invoke(main, ["watch", str(log), "--once"])
    assert done.exit_code == 0 and "kitchen" in done.output and "round 2 of 2" in done.output
    log.write_text("{}\n")
    done = CliRunner().invoke(main, ["watch", str(log), "--once"])
    assert done.exit_code == 1 and "no round of a fleet (round is missing)" in done.output
    done = CliRunner().invoke(main, ["watch", str(tmp_path / "none"), "--once"])
    assert done.exit_code == 1 and "no such log" in done.output


def test_an_app_is_written_with_its_settings(tmp_path: Path) -> None:
    import tomllib

    from microtrain.fleet.apps import settings_of

    plan = sparse_plan(tmp_path / "plan").path
    command = ["new", str(tmp_path / "app"), "--plan", str(plan), "--keep", "head", "--strategy", "fedprox"]
    done = CliRunner().invoke(main, [*command, "--compress", "0.01", "--name", 'odd "name"'])
    assert done.exit_code == 0, done.output
    config = tomllib.loads((tmp_path / "app/pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    settings = settings_of(config)
    assert settings.keep == ("head",) and settings.name == 'odd "name"'
    work = settings.work(NAME)
    assert settings.masked == "no" and work.share == 10_000 and work.mu == 0.1
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 1 and "is there already" in done.output
    done = CliRunner().invoke(main, [*command, "--masked", "--compress", "0.1"])
    assert done.exit_code == 1 and "leave one out" in done.output
    for key, value in (("rounds", 0), ("strategy", "best"), ("keep", "weights"), ("rate", "x")):
        with pytest.raises(FleetError, match="the run's settings are not as they must be"):
            settings_of(config | {key: value})
