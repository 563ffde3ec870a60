"""Averages of what boards have learned: exact, reproducible, and nothing learned is lost."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from fleet_boards import (
    NAME,
    Learner,
    a_round,
    change_of,
    federation,
    member,
    some_values,
    sparse_plan,
    update,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from microtrain.device.weights import unpack
from microtrain.fleet import dgc
from microtrain.fleet.errors import FleetError
from microtrain.fleet.layout import Layout
from microtrain.fleet.member import loaded
from microtrain.fleet.message import Work
from microtrain.fleet.private import Private, blurred, epsilon
from microtrain.fleet.rounding import divided, noise, rounded
from microtrain.fleet.sharing import share


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(sparse_plan(tmp_path))


# ---------------------------------------------------------------- integers


@pytest.mark.parametrize("bits", [0, 4, 8])
def test_trainables_are_integers_and_back(tmp_path: Path, bits: int) -> None:
    layout = Layout(sparse_plan(tmp_path, bits=bits))
    values = np.random.default_rng(3).integers(-layout.limits, layout.limits, endpoint=True)
    head = next(part for part in layout.parts if part.name == "head.weight")
    values[head.start :] >>= 7  # float32 holds 24 bits
    values[:2] = layout.limits[0], -layout.limits[0]
    block = layout.write(values, bytes(layout.plan.trainables.bytes))
    assert (layout.read(block) == values).all()
    weights = unpack(layout.plan, block)["conv.weight"].reshape(-1)
    assert (weights == np.floor(values[: weights.size] / 2**bits + (0.5 if bits else 0))).all()


def test_a_head_that_is_no_number_is_refused(layout: Layout) -> None:
    block = bytearray(layout.plan.trainables.bytes)
    block[-4:] = np.float32(np.nan).tobytes()
    with pytest.raises(FleetError, match=r"head\.bias holds values that are no numbers"):
        layout.read(bytes(block))


def test_what_is_kept_stays_on_the_board(tmp_path: Path) -> None:
    plan = sparse_plan(tmp_path)
    layout = Layout(plan, ("head",))
    assert [part.name for part in layout.parts] == ["conv.weight", "conv.bias"]
    own = bytes(range(1, 1 + plan.trainables.bytes))
    arrays = unpack(plan, layout.write(np.zeros(layout.size, np.int64), own))
    assert not arrays["conv.weight"].any() and not arrays["conv.fraction"].any()
    assert arrays["head.weight"].tobytes() == unpack(plan, own)["head.weight"].tobytes()


# ---------------------------------------------------------------- rounding


@given(st.lists(st.tuples(st.integers(-(2**60), 2**60), st.integers(1, 2**31 - 1)), min_size=1, max_size=20))
def test_a_quotient_is_one_of_its_neighbours(pairs: list[tuple[int, int]]) -> None:
    total, count = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    found = divided(total, count, noise(1, 2, "x", len(pairs)))
    for (a, b), c in zip(pairs, found.tolist(), strict=True):
        assert abs(Fraction(a, b) - c) < 1


def test_rounding_is_right_on_average() -> None:
    size = 200_000
    bits = noise(7, 1, "average", size)
    exact = divided(np.full(size, -7), np.full(size, 3), bits)
    assert set(exact.tolist()) == {-3, -2}
    assert exact.mean() == pytest.approx(-7 / 3, abs=0.005)
    assert rounded(np.full(size, 0.1), bits).mean() == pytest.approx(0.1, abs=0.005)
    assert (noise(7, 1, "average", 5) == bits[:5]).all()
    assert (noise(8, 1, "average", 50) != bits[:50]).all()


# ---------------------------------------------------------------- rounds


def test_an_average_is_weighted_by_samples(layout: Layout) -> None:
    fleet = federation(layout)
    before = fleet.values.copy()
    changes = [some_values(layout, n, 0.1) for n in range(3)]
    fleet.begin()
    for node, (change, samples) in enumerate(zip(changes, (1, 10, 100), strict=True)):
        fleet.take(update(layout, 1, change, board=f"b{node}", samples=samples), node)
    fleet.close()
    mean = sum(w * c for w, c in zip((1, 10, 100), changes, strict=True)) / 111
    assert (np.abs(fleet.values - before - mean) < 1).all()


def test_the_order_of_updates_changes_nothing(layout: Layout) -> None:
    shas = set()
    for order in ((0, 1, 2), (2, 0, 1)):
        fleet = federation(layout)
        fleet.begin()
        for n in order:
            fleet.take(update(layout, 1, some_values(layout, n), board=f"b{n}", samples=3 + n), n)
        shas.add(fleet.close().sha256)
    other = federation(layout, seed=2)
    other.begin()
    for n in range(3):
        other.take(update(layout, 1, some_values(layout, n), board=f"b{n}", samples=3 + n), n)
    assert len(shas) == 1 and other.close().sha256 not in shas


def test_a_federation_is_reproducible(layout: Layout) -> None:
    def whole() -> tuple[str, list[bytes]]:
        boards = [Learner(layout.plan) for _ in range(3)]
        members = {n: member(f"b{n}", board, layout, 10 * (n + 1)) for n, board in enumerate(boards)}
        fleet = federation(layout)
        for _ in range(4):
            assert a_round(fleet, members) == []
        return fleet.sha256(), [block for board in boards for block in board.seen]

    assert whole() == whole()


def test_what_a_board_learned_in_a_lost_round_is_in_the_next(layout: Layout) -> None:
    board = Learner(layout.plan)
    fleet, one = federation(layout), member("a", board, layout)
    fleet.begin()
    _, first = change_of(layout, one.handle(fleet.task(Work(NAME), 1)))  # the server never sees it
    fleet.close()
    fleet.begin()
    sent = one.handle(fleet.task(Work(NAME), 1))
    _, second = change_of(layout, sent)
    assert fleet.take(sent, 1).board == "a"
    fleet.close()
    alone = layout.read(one.state.block) - layout.read(board.seen[1])
    assert (second == first + alone).all() and first.any()
    fleet.begin()
    _, third = change_of(layout, one.handle(fleet.task(Work(NAME), 1)))  # the second one has arrived
    assert (third == layout.read(one.state.block) - layout.read(board.seen[2])).all()


def test_a_gateway_that_restarts_goes_on(layout: Layout, tmp_path: Path) -> None:
    def whole(restarts: bool) -> str:
        folder = tmp_path / str(restarts)
        fleet, one = federation(layout), member("a", Learner(layout.plan), layout, 10, folder / "a.npz")
        for _ in range(3):
            assert a_round(fleet, {1: one}, Work(NAME, share=200_000, momentum=100)) == []
            if restarts:
                one = member("a", Learner(layout.plan), layout, 10, folder / "a.npz")
                fleet.save(folder / "server.npz")
                fleet = federation(layout, seed=5)
                fleet.resume(folder / "server.npz")
        return fleet.sha256()

    assert whole(True) == whole(False)


def test_a_damaged_state_is_one_sentence(layout: Layout, tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    member_ = member("a", Learner(layout.plan), layout, 10, file)
    a_round(federation(layout), {1: member_})
    for cut in (b"", file.read_bytes()[:100], b"PK" + bytes(200)):
        file.write_bytes(cut)
        with pytest.raises(FleetError, match="is damaged: delete it"):
            loaded(file, layout)
        with pytest.raises(FleetError, match="cannot be gone on with"):
            federation(layout).resume(file)


def test_a_proximal_term_draws_a_board_back(layout: Layout) -> None:
    def size(mu: float) -> float:
        fleet, one = federation(layout), member("a", Learner(layout.plan), layout)
        fleet.begin()
        sent = one.handle(fleet.task(Work(NAME, mu=mu), 1))
        return float(np.abs(change_of(layout, sent)[1]).sum())

    assert size(1e-6) == pytest.approx(size(0), rel=0.01)
    assert 0 < size(20) < 0.75 * size(0)


# ---------------------------------------------------------------- other schemes


def test_boards_with_other_schemes_average_what_they_share(tmp_path: Path) -> None:
    all_ = Layout(sparse_plan(tmp_path / "all"))
    fewer = Layout(sparse_plan(tmp_path / "fewer", channels=[1, 3], bits=0))
    biases = Layout(sparse_plan(tmp_path / "biases", biases=False))
    sharing = share(all_, fewer)
    values = some_values(all_, 4)
    taken = sharing.to_board(values, np.zeros(fewer.size, np.int64))
    own = values[:20].reshape(5, 4)[:, [1, 3]]
    assert (taken[:10].reshape(5, 2) == (own + 8) >> 4).all()  # as the int8 plane rounds
    back = sharing.to_all(np.ones(fewer.size, np.int64))
    assert back[:20].reshape(5, 4)[0].tolist() == [0, 16, 0, 16]
    fleet = federation(all_, others=(fewer, biases))
    before = fleet.values.copy()
    boards = {0: Learner(all_.plan), 1: Learner(fewer.plan), 2: Learner(biases.plan)}
    members = {n: member(f"b{n}", board, all_) for n, board in boards.items()}
    assert a_round(fleet, members) == []
    conv = slice(all_.parts[1].start, all_.parts[1].end)
    assert fleet.layout.parts[1].name == "conv.bias" and (fleet.values != before)[conv].any()


def test_a_board_without_a_value_has_no_say_in_it(tmp_path: Path) -> None:
    """A value moves by the mean of the boards that have it, each weighted by its samples."""
    all_ = Layout(sparse_plan(tmp_path / "all"))
    fewer = Layout(sparse_plan(tmp_path / "fewer", channels=[1, 3]))
    fleet = federation(all_, others=(fewer,))
    fleet.values = before = np.zeros(all_.size, np.int64)
    fleet.begin()
    fleet.take(update(all_, 1, np.full(all_.size, 40), board="a", samples=1), 0)
    fleet.take(update(fewer, 1, np.full(fewer.size, 80), board="b", samples=3), 1)
    fleet.close()
    moved = (fleet.values - before)[:20].reshape(5, 4)
    assert (moved[:, [0, 2]] == 40).all() and (moved[:, [1, 3]] == (40 + 3 * 80) // 4).all()


def test_a_value_that_nobody_has_stays(tmp_path: Path) -> None:
    all_ = Layout(sparse_plan(tmp_path / "all"))
    fewer = Layout(sparse_plan(tmp_path / "fewer", channels=[1, 3]))
    fleet = federation(all_, others=(fewer,))
    before = fleet.values.copy()
    assert a_round(fleet, {1: member("a", Learner(fewer.plan), all_)}) == []
    moved = (fleet.values != before)[:20].reshape(5, 4)
    assert moved[:, [1, 3]].any() and not moved[:, [0, 2]].any()


def test_boards_with_other_classes_keep_their_heads(tmp_path: Path) -> None:
    three, four = sparse_plan(tmp_path / "3"), sparse_plan(tmp_path / "4", classes=4)
    with pytest.raises(FleetError, match=r"head\.(weight|bias) has another size"):
        share(Layout(three), Layout(four))
    all_ = Layout(three, ("head",))
    fleet = federation(all_, others=(Layout(four, ("head",)),))
    boards = {1: Learner(three), 2: Learner(four)}
    members = {n: member(f"b{n}", board, all_) for n, board in boards.items()}
    assert a_round(fleet, members) == a_round(fleet, members) == []
    assert unpack(four, boards[2].seen[0])["head.weight"].any() is np.False_
    assert unpack(four, boards[2].seen[1])["head.weight"].any()  # what it learned in the first round


def test_another_network_or_finer_weights_are_refused(tmp_path: Path) -> None:
    plan = sparse_plan(tmp_path / "a")
    stranger = replace(sparse_plan(tmp_path / "b", bits=0), source=replace(plan.source, sha256="cd" * 32))
    with pytest.raises(FleetError, match="converted from another model"):
        share(Layout(plan), Layout(stranger))
    with pytest.raises(FleetError, match="8 fraction bits in small, 4 in the federation"):
        share(Layout(plan), Layout(sparse_plan(tmp_path / "c", bits=8)))


# ---------------------------------------------------------------- compression


def zeros(layout: Layout) -> np.ndarray:
    return np.zeros(layout.size, np.int64)


def test_what_is_not_sent_is_sent_later(layout: Layout) -> None:
    change, none = some_values(layout, 1, 0.1), zeros(layout)
    total, sent = zeros(layout), dgc.compressed(layout, change, none, none, 10, 0)
    assert 0 < np.count_nonzero(sent.values) < layout.size
    for _ in range(400):
        total += sent.values
        sent = dgc.compressed(layout, none, sent.held, none, 10, 0)
    assert (total == change).all()


@pytest.mark.parametrize("room", [7, 26, 130])
@pytest.mark.parametrize("size", [0.001, 0.1, 1.0])
def test_a_body_keeps_to_its_bytes_and_fills_them(layout: Layout, room: int, size: float) -> None:
    none = zeros(layout)
    change = some_values(layout, 1, size)
    sent = dgc.compressed(layout, change, none, none, room, 0)
    assert len(sent.body) <= room
    assert len(sent.body) >= room - 3 or (sent.values != 0).sum() == (change != 0).sum()
    assert (dgc.unpacked(layout, memoryview(sent.body)) == sent.values).all()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32 - 1), st.integers(0, 46))
def test_the_length_of_a_body_is_known_before(layout: Layout, seed: int, count: int) -> None:
    draws = np.random.default_rng(seed)
    values = some_values(layout, seed)
    places = np.sort(draws.permutation(np.flatnonzero(values))[:count])
    body, said = dgc.packed(layout, values, places)
    assert len(body) == -(-dgc.bits(layout, places) // 8)
    assert (np.flatnonzero(said) == places).all() and (said * values >= 0).all()
    assert (dgc.unpacked(layout, memoryview(body)) == said).all()


@given(st.integers(1, 2**31))
def test_a_size_is_the_largest_that_is_not_above_the_mean(mean: int) -> None:
    code = dgc.size_code(mean)
    assert dgc.size_of(code) <= mean and (mean < 16 or dgc.size_of(code) > 0.88 * mean)
    assert dgc.size_of(code) == max(dgc.size_of(c) for c in range(256) if dgc.size_of(c) <= mean)


def test_the_largest_are_chosen_in_the_units_of_the_float_model(layout: Layout) -> None:
    """A one of the head is worth a millionth of what a one of a weight is."""
    change, none = zeros(layout), zeros(layout)
    head = next(part for part in layout.parts if part.name == "head.weight")
    change[: layout.parts[0].size] = 40
    change[head.start : head.end] = 4000
    sent = dgc.compressed(layout, change, none, none, 7, 0).values
    assert sent[: layout.parts[0].size].any() and not sent[head.start : head.end].any()


def test_momentum_accumulates_and_is_masked_where_it_was_sent(layout: Layout) -> None:
    change = some_values(layout, 1, 0.05)
    first = dgc.compressed(layout, change, zeros(layout), zeros(layout), 7, 128)
    assert first.values.any() and not first.velocity[first.values != 0].any()
    waits = (first.values == 0) & (change > 100)
    second = dgc.compressed(layout, change, first.held, first.velocity, 7, 128)
    assert waits.any()
    assert np.allclose((second.held + second.values)[waits], 2.5 * change[waits], atol=2)


def test_a_lost_sparse_update_is_held_back_again(layout: Layout) -> None:
    fleet, board = federation(layout), Learner(layout.plan)
    one = member("a", board, layout)
    work = Work(NAME, share=600_000)
    fleet.begin()
    _, lost = change_of(layout, one.handle(fleet.task(work, 1)))
    held = one.state.held
    fleet.close()
    fleet.begin()
    _, sent = change_of(layout, one.handle(fleet.task(work, 1)))
    alone = layout.read(one.state.block) - layout.read(board.seen[1])
    assert held is not None and one.state.held is not None and lost.any()
    assert (one.state.held + sent == held + lost + alone).all()


def test_the_cosine_is_compared_exactly(layout: Layout) -> None:
    """Of 16 values that moved, 9 go the way of what is held back and 7 do not."""
    part = max(layout.parts, key=lambda part: part.size)
    own, all_ = zeros(layout), zeros(layout)
    places = np.arange(part.start, part.start + 16)
    all_[places] = 3
    own[places] = np.where(np.arange(16) < 9, 5, -5)
    assert dgc.goes_along(layout, own, all_)  # 2 / 16
    own[places[0]] = -5
    assert not dgc.goes_along(layout, own, all_) and not dgc.goes_along(layout, -own, all_)
    assert not dgc.goes_along(layout, own, zeros(layout))
    own[places[0]] = 4
    assert not dgc.goes_along(layout, own, all_)


@pytest.mark.parametrize("along", [True, False])
def test_a_board_trains_on_from_what_it_holds_back_where_the_fleet_goes_its_way(
    layout: Layout, along: bool
) -> None:
    fleet, board = federation(layout), Learner(layout.plan)
    one = member("a", board, layout)
    work = Work(NAME, share=600_000)
    a_round(fleet, {1: one}, work)
    held, before = one.state.held, one.state.shared
    assert held is not None and before is not None and held.any()
    fleet.values = before + np.sign(held) * (1 if along else -1)
    expected = np.clip(fleet.values + (held if along else 0), -layout.limits, layout.limits)
    a_round(fleet, {1: one}, work)
    assert (layout.read(board.seen[1]) == expected).all()


# ---------------------------------------------------------------- noise


def test_an_update_is_cut_and_blurred_as_it_says(layout: Layout) -> None:
    draws = np.random.default_rng(1)
    change = some_values(layout, 1, 0.4)
    length = float(np.linalg.norm(layout.real(change)))
    faint = blurred(layout, change, Private(length / 4, 1e-9), draws)
    assert np.linalg.norm(layout.real(faint)) == pytest.approx(length / 4, rel=0.02)
    quiet = blurred(layout, change, Private(4 * length, 1e-12), draws)
    assert (np.abs(quiet - change) <= 1).all()
    zero = np.zeros(layout.size, np.int64)
    drawn = np.concatenate([layout.real(blurred(layout, zero, Private(2.0, 0.5), draws)) for _ in range(200)])
    assert drawn.std() == pytest.approx(1.0, rel=0.05) and abs(drawn.mean()) < 0.05


def test_epsilon_is_that_of_the_gaussian_mechanism() -> None:
    """A little above the exact value of one round, which is 0.5 at noise 14.6; and it composes."""
    one = epsilon(14.6, 1)
    assert 0.5 < one < 0.8
    assert epsilon(14.6, 16) == pytest.approx(epsilon(14.6 / 4, 1), rel=1e-6) and epsilon(14.6, 16) > 3 * one
    assert epsilon(1.0, 100) > 200


def test_a_private_board_sends_noise_and_no_loss(layout: Layout) -> None:
    one, plain = (member("a", Learner(layout.plan), layout) for _ in range(2))
    one.private = Private(1.0, 1.0)
    fleet = federation(layout)
    fleet.begin()
    task = fleet.task(Work(NAME), 1)
    report, change = change_of(layout, one.handle(task))
    said, plain_change = change_of(layout, plain.handle(task))
    assert report.loss == 0 != said.loss and (change != plain_change).any()
    assert one.draws.random() != plain.draws.random()  # nobody knows another's noise
    with pytest.raises(FleetError, match="clip and noise must be larger than 0"):
        Private(0.0, 1.0).checked()
