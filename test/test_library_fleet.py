"""Updates of a board in a fleet: the C of the library against tools/fleet/dgc.py, to the bit."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from fleet_boards import some_values
from library import ALIGNMENT, ARGUMENT, MEMORY, OK, pointer, shared, u32, written
from networks import residual_network
from test_library import groups_network, trained
from test_stream import awkward_network

from microtrain.base.plan import Origin, Plan
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import document
from microtrain.convert.pipeline import Compiled
from microtrain.fleet import dgc, masks
from microtrain.fleet.errors import FleetError
from microtrain.fleet.layout import Layout

DIVERGED = -20
NETWORKS: dict[str, Callable[[], Compiled]] = {
    "no_bits": lambda: trained(residual_network(4), bits=0),
    "four_bits": lambda: trained(awkward_network()),
    "eight_bits": lambda: trained(groups_network(), bits=8),
}
ROUNDS = 6


class Parts(ctypes.Structure):
    """struct microtrain_shared."""

    _fields_ = (("parts", pointer), ("count", u32), ("values", u32), ("held_bytes", u32))


class Places(ctypes.Structure):
    """struct microtrain_fleet_memory."""

    _fields_ = (("base", pointer), ("last", pointer), ("held", pointer), ("velocity", pointer))


class Rule(ctypes.Structure):
    _fields_ = (("room", u32), ("momentum", u32))


class Board:
    """What a board remembers, and the library's functions on it."""

    def __init__(self, lib: ctypes.CDLL, name: str, size: int) -> None:
        self.lib, self.shared = lib, Parts.in_dll(lib, f"{name}_shared")
        self.held, self.velocity = (np.zeros(self.shared.held_bytes // 4, np.int32) for _ in range(2))
        self.base, self.last, self.learned = (np.zeros(-(-size // 4), np.int32) for _ in range(3))
        self.first, self.size = True, size

    def places(self) -> Places:
        last = None if self.first else self.last.ctypes.data
        return Places(self.base.ctypes.data, last, self.held.ctypes.data, self.velocity.ctypes.data)

    def give(self, where: np.ndarray, block: bytes) -> None:
        where.view(np.uint8)[: self.size] = np.frombuffer(block, np.uint8)

    def begin(self, block: bytes) -> tuple[bytes, bool]:
        self.last[:] = self.base
        self.give(self.base, block)
        self.give(self.learned, block)
        places = self.places()
        along: int = self.lib.microtrain_fleet_along(ctypes.byref(self.shared), ctypes.byref(places))
        status = self.lib.microtrain_fleet_begin(
            ctypes.byref(self.shared),
            ctypes.byref(places),
            ctypes.c_int(along),
            pointer(self.learned.ctypes.data),
        )
        assert status == OK and along in (0, 1)
        self.first = False
        return self.learned.tobytes()[: self.size], bool(along)

    def update(self, along: bool, room: int, momentum: int) -> tuple[int, bytes]:
        body, count = np.full(room + 8, 0xA5, np.uint8), u32(0)
        places, rule = self.places(), Rule(room, momentum)
        status = self.lib.microtrain_fleet_update(
            ctypes.byref(self.shared),
            ctypes.byref(places),
            pointer(self.learned.ctypes.data),
            ctypes.c_int(along),
            ctypes.byref(rule),
            pointer(body.ctypes.data),
            ctypes.byref(count),
        )
        assert (body[count.value :] == 0xA5).all() and count.value <= room
        return status, body[: count.value].tobytes()

    def take_back(self, body: bytes) -> int:
        status: int = self.lib.microtrain_fleet_take_back(
            ctypes.byref(self.shared), pointer(self.held.ctypes.data), body, u32(len(body))
        )
        return status

    def values(self, layout: Layout, where: np.ndarray) -> np.ndarray:
        """What is held back, or its velocity, as dgc.py has it."""
        data, found, at = where.tobytes(), [], 0
        for part in layout.parts:
            kind = "<i4" if part.bits == 20 else "<i2"
            found.append(np.frombuffer(data, kind, part.size, at).astype(np.int64))
            at += -(-part.size * np.dtype(kind).itemsize // 4) * 4
        assert at == len(data)
        return np.concatenate(found)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, dict[str, Plan]]:
    root, plans = tmp_path_factory.mktemp("fleet"), {}
    for name, make in NETWORKS.items():
        compiled = make()
        written(compiled, name, root / "all", root / name)
        output = generate(compiled, "a test")
        plans[name] = document(compiled, output, Origin("", "", ""), None)
    return shared(root / "all", flags=("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all")), plans


def drawn(layout: Layout, rng: np.random.Generator, wide: bool) -> np.ndarray:
    """Changes of a round: most are small, and of a few places; some are as large as they can be."""
    size = np.minimum(layout.limits, 1 << 20) * (1.0 if wide else 0.02)
    values = rng.laplace(0, 0.2, layout.size) * size * (rng.random(layout.size) < 0.4)
    return np.asarray(np.rint(values), np.int64)


def learned(layout: Layout, block: bytes, change: np.ndarray) -> bytes:
    return layout.write(np.clip(layout.read(block) + change, -layout.limits, layout.limits), block)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("momentum", [0, 192, 255])
@pytest.mark.parametrize("name", NETWORKS)
def test_rounds_are_those_of_the_gateway(
    name: str, momentum: int, wide: bool, made: tuple[ctypes.CDLL, dict[str, Plan]]
) -> None:
    lib, plans = made
    layout, rng = Layout(plans[name]), np.random.default_rng(momentum)
    board = Board(lib, name, plans[name].trainables.bytes)
    block = layout.write(some_values(layout, 1), bytes(board.size))
    held, velocity, last = (np.zeros(layout.size, np.int64) for _ in range(3))
    turns = []
    for number in range(ROUNDS):
        shared_values = layout.read(block)
        along = number > 0 and dgc.goes_along(layout, held, shared_values - last)
        start = np.clip(shared_values + along * held, -layout.limits, layout.limits)
        begun, said = board.begin(block)
        assert (begun, said) == (layout.write(start, block), along)
        turns.append(along)
        after = learned(layout, begun, drawn(layout, rng, wide))
        room = (4, 40, 200, 10_000)[number % 4]
        sent = dgc.compressed(layout, layout.read(after) - start, held, velocity, room, momentum)
        board.give(board.learned, after)
        assert board.update(along, room, momentum) == (OK, sent.body)
        held, velocity, last = sent.held, sent.velocity, shared_values
        if number == 2:  # it does not arrive
            held = dgc.holdable(layout, held + sent.values)
            assert board.take_back(sent.body) == OK
        assert (board.values(layout, board.held) == held).all()
        assert (board.values(layout, board.velocity) == velocity).all()
        move = held // 2 if number % 2 else drawn(layout, rng, wide)  # the fleet goes along, or elsewhere
        block = learned(layout, block, move)
    assert set(turns) == {False, True}


def test_a_fleet_may_go_from_one_limit_to_the_other(made: tuple[ctypes.CDLL, dict[str, Plan]]) -> None:
    """Twice the limit of a head is no int32."""
    lib, plans = made
    layout = Layout(plans["four_bits"])
    board = Board(lib, "four_bits", plans["four_bits"].trainables.bytes)
    held = velocity = np.zeros(layout.size, np.int64)
    ends = [layout.write(sign * layout.limits, bytes(board.size)) for sign in (-1, 1)]
    for number in range(4):
        block, after = ends[number % 2], ends[(number + 1) % 2]
        move = layout.read(block) - layout.read(after)
        along = number > 0 and dgc.goes_along(layout, held, move)
        begun, said = board.begin(block)
        assert said == along
        start = layout.read(begun)
        board.give(board.learned, after)
        sent = dgc.compressed(layout, layout.read(after) - start, held, velocity, 60, 192)
        assert board.update(along, 60, 192) == (OK, sent.body)
        held, velocity = sent.held, sent.velocity
        assert (board.values(layout, board.held) == held).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_without_momentum_no_velocity_is_kept(name: str, made: tuple[ctypes.CDLL, dict[str, Plan]]) -> None:
    lib, plans = made
    layout = Layout(plans[name])
    boards = [Board(lib, name, plans[name].trainables.bytes) for _ in range(2)]
    boards[1].velocity = np.zeros(0, np.int32)
    bodies = []
    for board in boards:
        without = Places(board.base.ctypes.data, None, board.held.ctypes.data, None)
        if board is boards[1]:
            board.places = lambda without=without: without  # type: ignore[method-assign, misc]
        begun, along = board.begin(layout.write(some_values(layout, 1), bytes(board.size)))
        board.give(board.learned, learned(layout, begun, drawn(layout, np.random.default_rng(3), False)))
        bodies.append(board.update(along, 60, 0))
    assert bodies[0] == bodies[1] and len(bodies[0][1]) > 30
    assert (boards[0].held == boards[1].held).all()
    assert boards[1].update(False, 60, 1)[0] == ARGUMENT


def test_what_is_wrong_changes_nothing(made: tuple[ctypes.CDLL, dict[str, Plan]]) -> None:
    lib, plans = made
    layout = Layout(plans["four_bits"])
    board = Board(lib, "four_bits", plans["four_bits"].trainables.bytes)
    board.held[:] = np.random.default_rng(1).integers(-99, 99, board.held.size)
    begun, along = board.begin(layout.write(some_values(layout, 1), bytes(board.size)))
    held = board.held.copy()
    assert (board.update(along, 0, 192)[0], board.update(along, 100, 256)[0]) == (MEMORY, ARGUMENT)
    head = next(part for part in layout.parts if part.bits == 20)
    for bad in (np.nan, np.inf, -1025.0):
        board.learned.view(np.float32)[head.tensor.offset // 4] = bad
        assert board.update(along, 100, 192) == (DIVERGED, b"")
    board.learned.view(np.uint8)[: board.size] = np.frombuffer(begun, np.uint8)
    for body in (b"", b"\xff" * 99, b"\x80", bytes(20)):
        assert board.take_back(body) == ARGUMENT
    off = board.held.ctypes.data + 1
    assert lib.microtrain_fleet_take_back(ctypes.byref(board.shared), pointer(off), b"x", u32(1)) == ALIGNMENT
    assert (board.held == held).all()
    assert board.update(along, 100, 192)[0] == OK


def test_any_body_is_read_as_the_server_reads_it(made: tuple[ctypes.CDLL, dict[str, Plan]]) -> None:
    """Damaged ones too: the board refuses what the server refuses."""
    lib, plans = made
    layout, rng = Layout(plans["no_bits"]), np.random.default_rng(9)
    board = Board(lib, "no_bits", plans["no_bits"].trainables.bytes)
    nothing = np.zeros(layout.size, np.int64)
    taken = 0
    for _ in range(600):
        values = drawn(layout, rng, False)
        body = bytearray(dgc.compressed(layout, values, nothing, nothing, int(rng.integers(8, 99)), 0).body)
        for _ in range(int(rng.integers(0, 3))):
            body[int(rng.integers(len(body)))] ^= 1 << int(rng.integers(8))
        if rng.random() < 0.2:
            del body[int(rng.integers(len(body))) :]
        board.held[:] = 0
        try:
            said = dgc.unpacked(layout, memoryview(bytes(body)))
        except FleetError:
            assert board.take_back(bytes(body)) == ARGUMENT and not board.held.any()
            continue
        taken += 1
        assert board.take_back(bytes(body)) == OK
        assert (board.values(layout, board.held) == dgc.holdable(layout, said)).all()
    assert 200 < taken < 550


class Mask(ctypes.Structure):
    """struct microtrain_mask."""

    _fields_ = (("seed", ctypes.c_uint8 * 32), ("minus", u32))


def test_masks_are_added_as_the_gateway_adds_them(made: tuple[ctypes.CDLL, dict[str, Plan]]) -> None:
    lib, plans = made
    for name, plan in plans.items():
        layout, rng = Layout(plan), np.random.default_rng(3)
        board = Board(lib, name, plan.trainables.bytes)
        base = layout.write(some_values(layout, 1), bytes(board.size))
        after = learned(layout, base, drawn(layout, rng, True))
        board.give(board.base, base)
        board.give(board.learned, after)
        seeds = [rng.bytes(32) for _ in range(3)]
        given = (Mask * 3)(*(Mask((ctypes.c_uint8 * 32)(*seed), n == 1) for n, seed in enumerate(seeds)))
        blocks, found = -(-layout.size // masks.BLOCK), []

        def masked(block: int, board: Board = board, given: object = given) -> tuple[int, np.ndarray]:
            to = np.full(masks.BLOCK, 77, np.uint64)
            places = (pointer(where.ctypes.data) for where in (board.base, board.learned))
            status: int = board.lib.microtrain_fleet_masked(
                ctypes.byref(board.shared),
                *places,
                u32(9),
                given,
                u32(3),
                u32(block),
                pointer(to.ctypes.data),
            )
            return status, to

        for block in range(blocks):
            status, values = masked(block)
            assert status == OK
            found.append(values)
        change = 9 * (layout.read(after) - layout.read(base))
        streams = [masks.stream(layout, seed) for seed in seeds]
        whole = change.astype(np.uint64) + streams[0] - streams[1] + streams[2]
        said = np.concatenate(found)
        assert (said[: layout.size] == whole).all() and (said[layout.size :] == 77).all()
        assert len(set(said[: layout.size].tolist())) > 0.99 * layout.size
        assert masked(blocks)[0] == ARGUMENT and (masked(blocks)[1] == 77).all()
        head = next(part for part in layout.parts if part.bits == 20)
        last = masks.BLOCK - 1 - head.start % masks.BLOCK  # of its block
        board.learned.view(np.float32)[head.tensor.offset // 4 + last] = np.nan
        status, values = masked(head.start // masks.BLOCK)
        assert status == DIVERGED and (values == 77).all()
