"""Messages of a fleet whose sender means ill: refused in one sentence, and nothing has changed."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from fleet_boards import NAME, Learner, federation, member, some_values, sparse_plan, update
from hypothesis import given, settings
from hypothesis import strategies as st

from microtrain.fleet import dgc
from microtrain.fleet.errors import FleetError
from microtrain.fleet.federation import Federation
from microtrain.fleet.layout import Layout
from microtrain.fleet.member import Member
from microtrain.fleet.message import (
    HEADER,
    MAGIC,
    REPORT,
    TASK,
    Report,
    Work,
    dense,
    longest,
    overhead,
    written,
)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    return Layout(sparse_plan(tmp_path_factory.mktemp("plan")))


def a_member(layout: Layout) -> tuple[Federation, Member, Learner]:
    """A member that has been in one round, and its federation in the second."""
    board = Learner(layout.plan)
    fleet, one = federation(layout), member("a", board, layout)
    fleet.begin()
    fleet.take(one.handle(fleet.task(Work(NAME), 1)), 1)
    fleet.close()
    fleet.begin()
    return fleet, one, board


def refused_task(layout: Layout, task: bytes, why: str) -> None:
    """The member refuses a task with this sentence, and its board has not even been spoken to."""
    fleet, one, board = a_member(layout)
    before, spoken = one.state, len(board.seen)
    with pytest.raises(FleetError, match=why) as error:
        one.handle(task)
    assert one.state is before and len(board.seen) == spoken and "\n" not in str(error.value)
    fleet.take(one.handle(fleet.task(Work(NAME), 1)), 1)  # it goes on


def document(task: bytes, **changes: object) -> bytes:
    """The task with other settings."""
    length = HEADER.unpack_from(task)[4]
    said = json.loads(task[HEADER.size : HEADER.size + length]) | changes
    text = json.dumps({k: v for k, v in said.items() if v is not ...}).encode()
    return HEADER.pack(*HEADER.unpack_from(task)[:4], len(text)) + text + task[HEADER.size + length :]


BAD_SETTINGS: dict[str, tuple[dict[str, object], str]] = {
    "rate is nan": ({"rate": float("nan")}, "NaN is no number"),
    "rate is infinite": ({"rate": float("inf")}, "Infinity is no number"),
    "rate is text": ({"rate": "x"}, "rate is 'x', not a number"),
    "rate is negative": ({"rate": -1.0}, "rate is -1.0"),
    "rate is huge": ({"rate": 10**300}, "rate is 1000"),
    "no epochs": ({"epochs": 0}, "epochs is 0, not 1 or more"),
    "years of epochs": ({"epochs": 10**9}, "epochs is 1000000000"),
    "no federation": ({"federation": ...}, "federation is missing"),
    "a path for a federation": (
        {"federation": "../../etc/passwd"},
        "federation is '../../etc/passwd', not of",
    ),
    "an unknown schedule": ({"schedule": "later"}, "schedule is 'later', not one of"),
    "a seed beyond 32 bits": ({"seed": 2**32}, "seed is 4294967296"),
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_bad_settings_of_a_task_are_refused(layout: Layout, name: str) -> None:
    changes, why = BAD_SETTINGS[name]
    task = a_member(layout)[0].task(Work(NAME), 1)
    refused_task(layout, document(task, **changes), why)


def test_a_task_of_wrong_size_is_refused(layout: Layout) -> None:
    task = a_member(layout)[0].task(Work(NAME), 1)
    refused_task(layout, task[:-1], "is missing, cut off or of no known width")
    refused_task(layout, task + b"\0", "1 bytes follow its last tensor")
    refused_task(layout, b"", "it has no whole header")
    refused_task(layout, task[: HEADER.size + 3], "its settings are longer than it is")
    refused_task(layout, task + bytes(longest(layout)), "none here has more than")


def test_a_task_of_another_kind_model_or_round_is_refused(layout: Layout) -> None:
    fleet, _, _ = a_member(layout)
    task = fleet.task(Work(NAME), 1)
    refused_task(layout, b"MTF3" + task[4:], "not of this protocol")
    refused_task(layout, update(layout, 2, some_values(layout, 1)), "not of the expected kind")
    refused_task(layout, task[:5] + bytes(32) + task[37:], "it is of another model than small")
    fleet.number = 1
    refused_task(layout, fleet.task(Work(NAME), 1), "it has worked in round 1 already")
    fleet.number = 0
    refused_task(layout, fleet.task(Work(NAME), 1), "there is no round 0")


def test_a_task_whose_values_no_board_can_hold_is_refused(layout: Layout) -> None:
    values = np.zeros(layout.size, np.int64)
    values[0] = layout.limits[0] + 1
    task = written(TASK, layout.plan.model_id, 2, Work(NAME), dense(layout, values))
    refused_task(layout, task, r"a value of conv\.weight is out of its range")


def test_settings_that_are_no_object_are_refused(layout: Layout) -> None:
    for text, why in (
        (b"[]", "no object"),
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 4000, "no JSON"),
    ):
        head = HEADER.pack(MAGIC, TASK, bytes.fromhex(layout.plan.model_id), 2, len(text))
        refused_task(layout, head + text, why)


# ---------------------------------------------------------------- updates


def refused_update(layout: Layout, data: bytes, why: str, node: int = 1) -> None:
    fleet, one, _ = a_member(layout)
    untouched = fleet.values.copy()
    with pytest.raises(FleetError, match=why):
        fleet.take(data, node)
    fleet.take(one.handle(fleet.task(Work(NAME), 1)), 1)
    assert len(fleet.close().reports) == 1
    honest, twin, _ = a_member(layout)
    assert (untouched == honest.values).all()
    honest.take(twin.handle(honest.task(Work(NAME), 1)), 1)
    honest.close()
    assert (fleet.values == honest.values).all()  # as if nothing had come


def test_updates_that_do_not_belong_here_are_refused(layout: Layout, tmp_path: Path) -> None:
    change = some_values(layout, 1)
    other = Layout(sparse_plan(tmp_path, bits=0))
    refused_update(layout, update(layout, 1, change), "it is of round 1, and this is round 2")
    refused_update(layout, update(layout, 3, change), "it is of round 3")
    refused_update(layout, update(other, 2, some_values(other, 1)), "which has no part in this fleet")
    refused_update(layout, update(layout, 2, change, federation="f" * 16), "of another federation")
    refused_update(layout, update(layout, 2, change), "another node has this board", node=2)
    refused_update(
        layout, update(layout, 2, 5 * layout.limits), r"a value of conv\.weight is out of its range"
    )
    refused_update(layout, update(layout, 2, change, samples=1 << 25), "samples is 33554432")
    refused_update(layout, update(layout, 2, change)[:-2], "cut off")
    refused_update(layout, update(layout, 2, change) + bytes(1 << 16), "none here has more than")


def test_a_board_counts_once_a_round(layout: Layout) -> None:
    fleet, one, _ = a_member(layout)
    sent = one.handle(fleet.task(Work(NAME), 1))
    fleet.take(sent, 1)
    with pytest.raises(FleetError, match="this round has one already"):
        fleet.take(sent, 1)
    with pytest.raises(FleetError, match="no round is under way"):
        federation(layout).take(sent, 1)


# ---------------------------------------------------------------- a fuzzer


def mutated(data: bytes, hits: list[tuple[int, int]], cut: int | None, more: bytes) -> bytes:
    changed = bytearray(data)
    for place, byte in hits:
        changed[place % len(changed)] = byte
    return bytes(changed[:cut]) + more


MUTATIONS = st.builds(
    lambda hits, cut, more: (hits, cut, more),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6),
    st.none() | st.integers(0, 400),
    st.just(b"") | st.binary(max_size=20),
)


@settings(max_examples=400)
@given(MUTATIONS, st.booleans())
def test_a_mutated_task_is_worked_off_or_refused(
    layout: Layout, mutation: tuple[list[tuple[int, int]], int | None, bytes], sparse: bool
) -> None:
    fleet, one, board = a_member(layout)
    task = mutated(fleet.task(Work(NAME, share=100_000 if sparse else 0, limit=1), 1), *mutation)
    before, spoken = one.state, len(board.seen)
    try:
        one.handle(task)
        assert (np.abs(layout.read(board.seen[-1])) <= layout.limits).all()
    except FleetError:
        assert one.state is before and len(board.seen) == spoken


@settings(max_examples=400)
@given(MUTATIONS, st.booleans())
def test_a_mutated_update_is_taken_or_refused(
    layout: Layout, mutation: tuple[list[tuple[int, int]], int | None, bytes], sparse: bool
) -> None:
    fleet, one, _ = a_member(layout)
    sent = mutated(one.handle(fleet.task(Work(NAME, share=300_000 if sparse else 0), 1)), *mutation)
    before = fleet.values.copy()
    try:
        fleet.take(sent, 1)
        fleet.close()
        assert (np.abs(fleet.values) <= layout.limits).all()
    except FleetError:
        fleet.close()
        assert (fleet.values == before).all()


@settings(max_examples=300)
@given(st.binary(max_size=120))
def test_any_bytes_are_a_sparse_body_or_refused(layout: Layout, data: bytes) -> None:
    try:
        found = dgc.unpacked(layout, memoryview(data))
        assert (np.abs(found) <= dgc.REACH * layout.limits).all()
    except FleetError as error:
        assert str(error).startswith("a message is refused:")


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_an_update_says_what_a_report_can(layout: Layout, data: bytes) -> None:
    """An update whose settings are any bytes: it is taken or refused, and never more than that."""
    fleet, _, _ = a_member(layout)
    head = HEADER.pack(MAGIC, 2, bytes.fromhex(layout.plan.model_id), fleet.number, len(data))
    try:
        fleet.take(head + data, 1)
    except FleetError as error:
        assert str(error).endswith(".")


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_any_bytes_are_no_message(layout: Layout, data: bytes) -> None:
    fleet, one, _ = a_member(layout)
    for target in (one.handle, lambda sent: fleet.take(sent, 1)):
        with pytest.raises(FleetError):
            target(data)


def octets(bits: str) -> bytes:
    """These bits, and zeros that fill the last byte."""
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))


def test_a_sparse_body_cannot_name_a_place_twice_or_none(layout: Layout) -> None:
    places = layout.parts[0].size
    body, _ = dgc.packed(layout, some_values(layout, 1), np.arange(places))
    assert body[:2] == bytes((0b00001010, 0b1 << 7 | body[1] & 0x7F))  # 20 and one more, of 20
    for bits, why in (
        ("000010110", r"21 values for conv\.weight, which has 20"),
        ("0" * 40 + "1" * 41, r"conv\.weight has not so many values"),
        ("00001010", r"it ends within conv\.weight"),
        ("000010101" + "00000000" + "1" * 20 + "0", r"conv\.weight has no place 20"),
        ("000010101" + "00000000" + "01" * 5, r"it ends within conv\.weight"),
        ("1" * len(layout.parts) + "0" * 8, "something follows its last tensor"),
        ("1" * len(layout.parts) + "1", "something follows its last tensor"),
    ):
        with pytest.raises(FleetError, match=f"a message is refused: {why}"):
            dgc.unpacked(layout, memoryview(octets(bits)))


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ((1, 1, 0, float("nan"), 0), "its loss is no number"),
        ((1, 1, 0, float("inf"), 0), "its loss is no number"),
        ((1, 1, 0, 0.0, 3), "its body of no known kind"),
        ((0, 1, 0, 0.0, 0), "samples"),
        (((1 << 24) + 1, 1, 0, 0.0, 0), "samples is 16777217"),
    ],
)
def test_a_report_that_cannot_be_is_refused(
    layout: Layout, numbers: tuple[int, int, int, float, int], why: str
) -> None:
    fleet, _, _ = a_member(layout)
    text = REPORT.pack(bytes.fromhex(NAME), *numbers) + b"a"
    head = HEADER.pack(MAGIC, 2, bytes.fromhex(layout.plan.model_id), fleet.number, len(text))
    with pytest.raises(FleetError, match=f"a message is refused: .*{why}"):
        fleet.take(head + text, 1)


@pytest.mark.parametrize("name", [b"", b"\xff", b"two words", b"n" * 41])
def test_a_report_without_a_proper_name_is_refused(layout: Layout, name: bytes) -> None:
    fleet, _, _ = a_member(layout)
    text = REPORT.pack(bytes.fromhex(NAME), 1, 1, 0, 0.0, 0) + name
    head = HEADER.pack(MAGIC, 2, bytes.fromhex(layout.plan.model_id), fleet.number, len(text))
    with pytest.raises(FleetError, match=r"a message is refused: .*board"):
        fleet.take(head + text, 1)


def test_the_header_is_as_it_is_written_down() -> None:
    report = Report("a", NAME, 1, 1)
    data = written(2, "ab" * 32, 7, report, b"xyz")
    assert len(data) == overhead("a") + 3 and data[:5] == b"MTF2\x02" and data[5:37] == b"\xab" * 32
    assert struct.unpack("<I", data[37:41]) == (7,) and data.endswith(b"xyz")
