"""Masked rounds over Flower: they are the plain ones, and all that a server receives is noise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from fleet_boards import NAME, Learner, federation, member, noise_like, sparse_plan

pytest.importorskip("flwr", reason="flwr is 300 MB: `pip install 'microtrain[fleet]'`")

from flwr.app import Message
from flwr.clientapp import ClientApp

from microtrain.fleet.errors import FleetError
from microtrain.fleet.events import Event
from microtrain.fleet.federation import Federation
from microtrain.fleet.flower import Nearby, Rounds, app_of
from microtrain.fleet.layout import Layout
from microtrain.fleet.message import Work, parsed


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    return Layout(sparse_plan(tmp_path_factory.mktemp("plan")))


class Spied(Nearby):
    """A grid that keeps all that the server is sent."""

    def __init__(self, apps: list[ClientApp]) -> None:
        super().__init__(apps, len(apps))
        self.seen: list[tuple[str, Message]] = []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        replies = list(super().send_and_receive(messages, timeout=timeout))
        self.seen += [(reply.metadata.message_type, reply) for reply in replies]
        return replies


def fleet_of(
    layout: Layout, boards: list[Learner], rounds: int, masked: bool
) -> tuple[Federation, list[Event], Spied]:
    members = [member(f"b{n}", board, layout, 5 + n) for n, board in enumerate(boards)]
    for one in members:
        one.masked = masked
    fleet, events = federation(layout), list[Event]()
    grid = Spied([app_of(one) for one in members])
    Rounds(fleet, Work(NAME), tell=events.append, masked=masked).run(grid, rounds)
    grid.close()
    return fleet, events, grid


def gone_in(calls: set[int]) -> Callable[[], None]:
    """Trouble in certain rounds of a board, behind the exchange of its keys."""
    count = itertools.count(1)

    def trouble() -> None:
        if next(count) in calls:
            raise FleetError("the board is left out of this round: the cable is out.")

    return trouble


def test_masked_rounds_are_the_plain_ones(layout: Layout) -> None:
    def boards() -> list[Learner]:
        return [Learner(layout.plan) for _ in range(3)] + [Learner(layout.plan, gone_in({2}))]

    plain, _, _ = fleet_of(layout, boards(), 3, masked=False)
    masked, events, _ = fleet_of(layout, boards(), 3, masked=True)
    assert masked.sha256() == plain.sha256()
    assert [len(event.boards) for event in events] == [4, 3, 4] and events[1].missing == ("b3",)
    assert all(said["loss"] == 0 for event in events for said in event.boards.values())


def test_all_that_a_server_receives_is_noise(layout: Layout) -> None:
    """Bodies of updates are fair coins; nothing else that comes has a change in it."""
    _, _, grid = fleet_of(layout, [Learner(layout.plan) for _ in range(3)], 10, masked=True)
    bodies, others = [], []
    for kind, reply in grid.seen:
        for name, value in reply.content.config_records["config"].items():
            if kind == "train" and name == "updates":
                message = parsed(bytes(value[0]), 2, 1 << 20)
                bodies.append(bytes(message.body))
                others.append(sorted(message.settings))
            else:
                assert (kind, name) in KNOWN
    assert len(bodies) == 30 and noise_like(np.unpackbits(np.frombuffer(b"".join(bodies), np.uint8)) * 1.0)
    assert set(map(tuple, others)) == {tuple(sorted(SAID))}
    _, _, open_ = fleet_of(layout, [Learner(layout.plan) for _ in range(3)], 10, masked=False)
    plain = [bytes(reply.content.config_records["config"]["updates"][0]) for _, reply in open_.seen]  # type: ignore[index, unused-ignore]
    assert not noise_like(np.unpackbits(np.frombuffer(b"".join(plain), np.uint8)) * 1.0)


KNOWN = {
    *(("query.keys", name) for name in ("board", "cipher", "mask")),
    *(("query.shares", name) for name in ("from", "to", "data")),
    *(("query.unmask", name) for name in ("from", "of", "data")),
    ("train", "refused"),
}
SAID = ("board", "federation", "samples", "steps", "again", "loss", "body")


def test_too_few_for_a_sum_change_nothing_and_lose_nothing(layout: Layout) -> None:
    two, events, _ = fleet_of(layout, [Learner(layout.plan) for _ in range(2)], 1, masked=True)
    assert "a masked round needs 3 boards, 2 are there" in events[0].refused[0]
    assert two.sha256() == federation(layout).sha256()
    boards = [Learner(layout.plan), *(Learner(layout.plan, gone_in({1})) for _ in range(2))]
    fleet, events, _ = fleet_of(layout, boards, 2, masked=True)
    assert "the round has no sum: " in events[0].refused[-1] and not events[0].boards
    assert len(events[1].boards) == 3
    assert fleet.sha256() != federation(layout).sha256()
