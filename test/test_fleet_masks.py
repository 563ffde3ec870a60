"""Secure aggregation: the server gets the sum, whoever drops out, and of one change nothing but noise."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from fleet_boards import NAME, some_values, sparse_plan

pytest.importorskip("flwr", reason="flwr is 300 MB: `pip install 'microtrain[fleet]'`")

from microtrain.fleet.errors import FleetError
from microtrain.fleet.layout import Layout
from microtrain.fleet.masks import Masked, Masker, body_bytes, threshold

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
    for number in range(1, 40):
        members = agreed(layout, NAMES[:3], number)
        rounds.append([members[name].masked(changes(layout)[name]) for name in NAMES[:3]])
    bits = np.unpackbits(np.frombuffer(b"".join(itertools.chain(*rounds)), np.uint8)).astype(float)
    assert noise_like(bits)
    plain = np.concatenate([changes(layout)[name] for name in NAMES[:3]] * 39).astype("<i8")
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
