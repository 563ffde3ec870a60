"""Secure aggregation: the server gets the sum, whoever drops out, and of one change nothing but noise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from fleet_boards import NAME, Learner, federation, member, some_values, sparse_plan, update

pytest.importorskip("flwr", reason="flwr is 300 MB: `pip install 'microtrain[fleet]'`")

from flwr.app import Message
from flwr.clientapp import ClientApp

from microtrain.fleet.errors import FleetError
from microtrain.fleet.events import Event
from microtrain.fleet.federation import Federation
from microtrain.fleet.flower import Nearby, Rounds, app_of
from microtrain.fleet.layout import Layout
from microtrain.fleet.masks import Masked, Masker, body_bytes, threshold
from microtrain.fleet.message import Work, parsed

NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    return Layout(sparse_plan(tmp_path_factory.mktemp("plan")))


def agreed(layout: Layout, names: tuple[str, ...] = NAMES, number: int = 1) -> dict[str, Masker]:
    """Members that have shared their secrets."""
    members = {name: Masker(name, layout, NAME, number) for name in names}
    keys = {name: one.keys() for name, one in members.items()}
    sent = {name: one.shares(keys) for name, one in members.items()}
    for name, one in members.items():
        one.take({sender: shares[name] for sender, shares in sent.items() if sender != name})
    return members


def changes(layout: Layout, names: tuple[str, ...] = NAMES) -> dict[str, np.ndarray]:
    return {name: (n + 1) * some_values(layout, n) for n, name in enumerate(names)}


@pytest.mark.parametrize("gone", [(), ("b",), ("a", "e")])
def test_the_sum_is_that_of_those_who_stayed(layout: Layout, gone: tuple[str, ...]) -> None:
    members, weighted = agreed(layout), changes(layout)
    stayed = [name for name in NAMES if name not in gone]
    bodies = {name: members[name].masked(weighted[name]) for name in stayed}
    keys = {name: one.keys() for name, one in members.items()}
    masked = Masked(layout, NAME, 1, keys, bodies)
    answering = stayed[: threshold(len(NAMES))]  # the others are gone by now
    total = masked.total({name: members[name].unmask(set(stayed)) for name in answering})
    assert (total == sum(weighted[name] for name in stayed)).all()


def test_too_few_make_no_sum(layout: Layout) -> None:
    members, weighted = agreed(layout), changes(layout)
    bodies = {name: members[name].masked(weighted[name]) for name in NAMES}
    masked = Masked(layout, NAME, 1, {n: m.keys() for n, m in members.items()}, bodies)
    with pytest.raises(FleetError, match="2 members are left, 3 are needed"):
        masked.total({name: members[name].unmask(set(NAMES)) for name in NAMES[:2]})
    with pytest.raises(FleetError, match="too few changes have arrived"):
        members["c"].unmask({"a", "b"})


def test_what_the_server_reads_is_noise(layout: Layout) -> None:
    """Bits are as likely 0 as 1, and those beside them say nothing of them; what is not masked is noticed."""
    rounds = []
    for number in range(1, 20):
        members = agreed(layout, NAMES[:3], number)
        rounds.append([members[name].masked(changes(layout)[name]) for name in NAMES[:3]])
    bits = np.unpackbits(np.frombuffer(b"".join(itertools.chain(*rounds)), np.uint8)).astype(float)
    assert noise_like(bits)
    plain = np.concatenate([changes(layout)[name] for name in NAMES[:3]] * 19).astype("<i8")
    assert not noise_like(np.unpackbits(plain.view(np.uint8)).astype(float))
    first = [np.frombuffer(sent[0], np.uint8) for sent in rounds]  # the same change, again and again
    same = np.mean([np.mean(x == y) for x, y in itertools.pairwise(first)])
    assert same == pytest.approx(1 / 256, abs=0.003)


def noise_like(bits: np.ndarray) -> bool:
    """Mean and correlations of fair coins, within five standard deviations."""
    room = 5 / np.sqrt(bits.size)
    fair = bits * 2 - 1
    return bool(abs(fair.mean()) < room) and all(
        abs(np.mean(fair[:-lag] * fair[lag:])) < room for lag in (1, 2, 7, 8, 32, 64)
    )


def test_a_member_without_its_masks_is_noise_too(layout: Layout) -> None:
    """The sum less all changes but one is that change; with a wrong seed it is none."""
    members, weighted = agreed(layout), changes(layout)
    bodies = {name: members[name].masked(weighted[name]) for name in NAMES}
    keys = {n: m.keys() for n, m in members.items()}
    shares = {name: members[name].unmask(set(NAMES)) for name in NAMES}
    for one in shares.values():
        one["a"] = one["b"]
    wrong = Masked(layout, NAME, 1, keys, bodies).total(shares)
    assert np.mean(wrong == sum(weighted.values())) < 0.01


def test_a_member_is_careful(layout: Layout) -> None:
    members = agreed(layout)
    members["a"].unmask(set(NAMES))
    with pytest.raises(FleetError, match="asked twice"):
        members["a"].unmask({"b", "c", "d"})  # the own mask of a that stayed, and its key: its change
    with pytest.raises(FleetError, match="has shared its secrets already"):
        members["a"].shares({})
    fresh = Masker("a", layout, NAME, 1)
    other = Masker("b", layout, NAME, 1)
    for keys in ({"a": fresh.keys()}, {n: other.keys() for n in "abc"}, {n: fresh.keys() for n in "abc"}):
        with pytest.raises(FleetError, match="refuses a list of keys"):
            fresh.shares(keys)


def test_shares_that_were_changed_are_refused(layout: Layout) -> None:
    members = {name: Masker(name, layout, NAME, 1) for name in "abc"}
    keys = {name: one.keys() for name, one in members.items()}
    sent = {name: one.shares(keys) for name, one in members.items()}
    with pytest.raises(FleetError, match="refuses a share that was changed"):
        members["b"].take({"a": sent["a"]["b"][:-1] + b"x"})
    with pytest.raises(FleetError, match="refuses a share that was changed"):
        members["b"].take({"a": sent["a"]["c"]})
    with pytest.raises(FleetError, match="too few members are left"):
        members["c"].masked(changes(layout)["c"])


def test_a_body_of_another_size_is_refused(layout: Layout, tmp_path: Path) -> None:
    members = agreed(layout, NAMES[:3])
    keys = {n: m.keys() for n, m in members.items()}
    bodies = {n: m.masked(changes(layout)[n]) for n, m in members.items()}
    shares = {n: m.unmask(set(NAMES[:3])) for n, m in members.items()}
    for bad in (b"", bodies["a"][:-1], bytes(body_bytes(layout) + 1)):
        with pytest.raises(FleetError, match="a masked change of"):
            Masked(layout, NAME, 1, keys, bodies | {"a": bad}).total(shares)


# ---------------------------------------------------------------- on Flower


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


def test_a_board_that_insists_sends_nothing_in_the_open(layout: Layout) -> None:
    one = member("a", Learner(layout.plan), layout)
    one.masked = True
    fleet = federation(layout)
    fleet.begin()
    with pytest.raises(FleetError, match="its updates travel under masks alone"):
        one.handle(fleet.task(Work(NAME), 1))
    with pytest.raises(FleetError, match="its masks are of another round"):
        one.handle(fleet.task(Work(NAME), 1), Masker("a", layout, NAME, 2))


def test_a_masked_round_takes_masked_updates_of_its_boards_alone(layout: Layout) -> None:
    fleet, one = federation(layout), member("a", Learner(layout.plan), layout)
    fleet.begin()
    sent = one.handle(fleet.task(Work(NAME), 1))
    fleet.expect(dict.fromkeys("bcd", (b"", b"")))
    with pytest.raises(FleetError, match="this round is masked"):
        fleet.take(sent, 1)
    under = update(layout, 1, some_values(layout, 1), body="masked")
    with pytest.raises(FleetError, match="it has shared no keys"):
        fleet.take(under, 1)
    fleet.expect(dict.fromkeys("abc", (b"", b"")))
    with pytest.raises(FleetError, match="a masked change of"):
        fleet.take(under, 1)
    plain = federation(layout)
    plain.begin()
    with pytest.raises(FleetError, match="this round is not masked"):
        plain.take(under, 1)
