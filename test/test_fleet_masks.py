"""Secure aggregation: the server gets the sum, whoever drops out, and of one change nothing but noise.

Where Flower is not installed, keys and shares are those of flower_crypto.py. Rounds over Flower are in
test_fleet_masked_rounds.py.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import flower_crypto
import numpy as np
import pytest
from fleet_boards import NAME, Learner, federation, member, noise_like, some_values, sparse_plan, update

from microtrain.fleet.errors import FleetError
from microtrain.fleet.federation import Federation
from microtrain.fleet.layout import Layout
from microtrain.fleet.masks import SUM_BITS, Masked, Masker, body_bytes, pair_seed, stream, threshold
from microtrain.fleet.member import Member
from microtrain.fleet.message import Report, Work, written

NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture(autouse=True)
def cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    flower_crypto.install(monkeypatch)


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
    with pytest.raises(FleetError, match="of or for another member"):  # its own, sent back to it
        members["b"].take({"a": sent["b"]["a"]})
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


def masked_round(fleet: Federation, members: dict[str, Member], gone: tuple[str, ...] = ()) -> list[float]:
    """A round under masks. gone: they share their secrets and send nothing. Returns the losses said."""
    number = fleet.begin()
    maskers = agreed(fleet.layout, tuple(members), number)
    fleet.expect({name: masker.keys() for name, masker in maskers.items()})
    stayed = [name for name in members if name not in gone]
    losses = []
    for name in stayed:
        node = list(members).index(name)
        losses.append(
            fleet.take(members[name].handle(fleet.task(Work(NAME), node), maskers[name]), node).loss
        )
    fleet.lift(fleet.masked().total({name: maskers[name].unmask(set(stayed)) for name in stayed}))
    fleet.close()
    return losses


def four(layout: Layout) -> dict[str, Member]:
    return {name: member(name, Learner(layout.plan), layout, 5 + n) for n, name in enumerate("abcd")}


@pytest.mark.parametrize("gone", [(), ("b",)])
def test_a_masked_round_is_the_plain_one(layout: Layout, gone: tuple[str, ...]) -> None:
    """The same shared values to the bit, weights of samples too; and no board says its loss."""
    plain, masked = federation(layout), federation(layout)
    members = four(layout)
    assert masked_round(masked, members, gone) == [0.0] * (4 - len(gone))
    plain.begin()
    for node, (name, one) in enumerate(four(layout).items()):
        if name not in gone:
            plain.take(one.handle(plain.task(Work(NAME), node)), node)
    plain.close()
    assert masked.sha256() == plain.sha256() != federation(layout).sha256()
    assert masked.got == plain.got == {name: 1 for name in "abcd" if name not in gone}


def test_masks_that_were_not_lifted_change_nothing(layout: Layout) -> None:
    fleet, before = federation(layout), federation(layout).sha256()
    number, members = fleet.begin(), four(layout)
    maskers = agreed(layout, tuple(members), number)
    fleet.expect({name: masker.keys() for name, masker in maskers.items()})
    fleet.take(members["a"].handle(fleet.task(Work(NAME), 0), maskers["a"]), 0)
    closed = fleet.close()
    assert (fleet.sha256(), closed.moved, closed.reports, fleet.got) == (before, 0, (), {})
    assert closed.received > body_bytes(layout)


def test_a_masked_round_has_bounds(layout: Layout) -> None:
    """Three boards at least, no more samples than a sum has room for, no sum beyond its weights."""
    fleet = federation(layout)
    fleet.begin()
    with pytest.raises(FleetError, match="a masked round needs 3 boards, 2 are there"):
        fleet.expect(dict.fromkeys("ab", (b"", b"")))
    fleet.expect(dict.fromkeys("abc", (b"", b"")))
    over = update(layout, 1, np.zeros(layout.size, np.int64), samples=(1 << SUM_BITS) + 1, body="masked")
    with pytest.raises(FleetError, match="samples is "):
        fleet.take(over, 1)
    total = np.zeros(layout.size, np.int64)
    for samples, name in enumerate("ab", 4):
        fleet.take(under(layout, 1, name, samples), ord(name))
    total[0] = 2 * 9 * layout.limits[0] + 1
    with pytest.raises(FleetError, match="one of its values is out of its range"):
        fleet.lift(total)
    total[0] -= 1
    fleet.lift(total)
    fleet.begin()
    fleet.expect(dict.fromkeys("abc", (b"", b"")))
    fleet.take(under(layout, 2, "a", 1 << SUM_BITS), ord("a"))
    with pytest.raises(FleetError, match="the round has too many samples"):
        fleet.take(under(layout, 2, "b", 1), ord("b"))


def under(layout: Layout, number: int, name: str, count: int) -> bytes:
    """An update of a masked round."""
    report = Report(board=name, federation=NAME, samples=count, steps=1, body="masked")
    return written(2, layout.plan.model_id, number, report, bytes(body_bytes(layout)))


def test_a_mask_can_be_made_anywhere(layout: Layout) -> None:
    """Of a seed the same values, whatever the size; of another seed others."""
    whole = stream(layout, b"s" * 32)
    assert whole.dtype == np.uint64 and whole.shape == (layout.size,)
    assert len(set(whole.tolist())) == layout.size
    assert (whole != stream(layout, b"t" * 32)).all()


def test_a_pair_shares_another_mask_in_each_round() -> None:
    seeds = {pair_seed(b"shared", name, number) for name in (NAME, NAME[::-1]) for number in (1, 2)}
    assert len(seeds) == 4 and pair_seed(b"shared", NAME, 1) in seeds


def test_a_member_that_forgets_goes_on(layout: Layout) -> None:
    """All of it as text and back: the same body, and asked twice is asked twice."""
    members, weighted = agreed(layout), changes(layout)
    again = Masker.loads("a", layout, members["a"].dumps())
    assert again.masked(weighted["a"]) == members["a"].masked(weighted["a"])
    again.unmask(set(NAMES))
    with pytest.raises(FleetError, match="asked twice"):
        Masker.loads("a", layout, again.dumps()).unmask(set(NAMES))
