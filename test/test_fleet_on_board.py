"""Boards that make their updates themselves: emulated ones, and what their serial line says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import EXAMPLE, Built, build_example
from fleet_boards import NAME, some_values
from networks import residual_network
from PIL import Image

from lab.fleet.troubles import survive
from microtrain.base.plan import Plan, read_plan
from microtrain.convert import boards, obstacles
from microtrain.convert.memory.fleet import fleet_bytes
from microtrain.convert.pipeline import Passes, compile_graph
from microtrain.convert.scheme import Scheme
from microtrain.convert.trainables import block_bytes, layout
from microtrain.device.client import Device
from microtrain.device.conversation import greet
from microtrain.device.errors import AnswerError
from microtrain.device.link import EmulatorPort, ProgramPort
from microtrain.device.session import Settings
from microtrain.fleet.board import Board, Host, HostBoard, PortBoard
from microtrain.fleet.errors import FleetError
from microtrain.fleet.federation import Federation
from microtrain.fleet.gateway import members_of
from microtrain.fleet.layout import Layout
from microtrain.fleet.member import Member
from microtrain.fleet.message import UPDATE, Work, longest, parsed
from microtrain.memory_report.firmware import load_firmware
from microtrain.memory_report.interrupts import analyse
from microtrain.memory_report.usage import make_report
from microtrain.samples.source import Dataset, Sample, load

SHARE = 0.1
FLEET = NAME[:8]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The example with memory for updates."""
    folder = tmp_path_factory.mktemp("fleet")
    return build_example(EXAMPLE / "scheme.yaml", folder, True, "--fleet", str(SHARE))


@pytest.fixture(scope="module")
def plan(built: Built) -> Plan:
    return read_plan(built.folder / "plan.json")


@pytest.fixture(scope="module")
def host(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(plan, tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder, draws = tmp_path_factory.mktemp("images"), np.random.default_rng(1)
    for n in range(10):
        Image.fromarray(draws.integers(0, 256, (32, 32)).astype(np.uint8)).save(folder / f"{n}.png")
    found = tuple(Sample(folder / f"{n}.png", n) for n in range(10))
    return Dataset(tuple(map(str, range(10))), found)


@pytest.fixture
def device(built: Built) -> Iterator[Device]:
    with Device(EmulatorPort(built.elf)) as found:
        yield found


def test_boards_send_what_their_gateway_would(built: Built, plan: Plan, host: Host, images: Dataset) -> None:
    """To the bit, over rounds of which one is lost on its way and one is missed; and after a restart."""
    layout, own = Layout(plan), Work(NAME, limit=3, rate=3.0, share=40_000, momentum=192)
    boards: list[Board] = [HostBoard(host, "b"), PortBoard(plan, lambda: EmulatorPort(built.elf), "b")]
    said: list[list[bytes]] = []
    for board in boards:
        member = Member("b", board, images, layout, layout)
        fleet = Federation(layout, layout.read(HostBoard(host, "b").fresh()), 7, NAME)
        said.append([])
        for number in range(1, 6):
            fleet.begin()
            if number != 4:
                update = member.handle(fleet.task(own, 0))
                body = parsed(update, UPDATE, longest(layout)).body
                said[-1].append(bytes(body))
                if number != 2:
                    fleet.take(update, 0)
            fleet.close()
        said[-1].append(fleet.sha256().encode())
        board.close()
    assert said[0] == said[1] and all(300 < len(body) <= 420 for body in said[0][:-1])
    assert len(set(said[0])) == 5


def test_troubles_change_no_bit(built: Built, plan: Plan, images: Dataset, tmp_path: Path) -> None:
    parts = [Dataset(images.classes, images.samples[n::2]) for n in range(2)]
    report = survive(plan, built.elf, tmp_path, parts, 4, 11, lambda number: None, share=40_000)
    assert report.equal and report.stuck == 0
    assert report.power_cuts + report.resets > 0 and report.again > 0


def begun(device: Device, plan: Plan) -> bytes:
    """Trainables that a round can begin with."""
    layout = Layout(plan)
    return layout.write(some_values(layout, 1, 0.1), bytes(plan.trainables.bytes))


def power_cut(device: Device) -> None:
    port = device.port
    assert isinstance(port, EmulatorPort)
    port._port.board.power_on()
    greet(device._talk, "the board")
    device.reset()


def trained(device: Device, count: int = 2) -> None:
    draws = np.random.default_rng(count)
    for n in range(count):
        device.train(draws.integers(0, 256, device.info.shape).astype(np.uint8), n)


def test_a_round_that_is_over_says_its_update_again(device: Device, plan: Plan) -> None:
    assert plan.fleet is not None and device.info.fleet == plan.fleet.room == 1050
    block = begun(device, plan)
    device.push(block)
    assert not device.join(FLEET, 1, 0)
    trained(device)
    learned = device.pull()
    first = device.share(300, 192)
    assert first.steps == 2 and first.loss > 0 and 200 < len(first.body) <= 300
    assert device.pull() == learned and device.share(9, 0) == first
    device.reboot()
    assert device.pull() == block  # what the round began with
    assert device.join(FLEET, 1, 0) and device.share(300, 192) == first
    device.reset()
    device.push(block)
    assert not device.join("0000beef", 1, 0)  # another fleet begins anew
    trained(device)
    assert device.share(300, 192).body == first.body


def same_update_after(device: Device, plan: Plan, trouble: Callable[[Device], None]) -> None:
    """Assert that a round begun again after one sample and `trouble` ends with the update of one without."""
    block = begun(device, plan)
    bodies = []
    for fleet, troubled in (("00000000", False), ("00000001", True)):
        device.forget()
        device.push(block)
        device.join(fleet, 1, 0)
        if troubled:
            trained(device, 1)
            trouble(device)
            device.push(block)
            assert not device.join(fleet, 1, 0)
        trained(device)
        bodies.append(device.share(300, 192).body)
        device.reset()
    assert bodies[0] == bodies[1]


def test_a_round_that_was_cut_short_is_begun_again(device: Device, plan: Plan) -> None:
    same_update_after(device, plan, power_cut)


def test_what_was_saved_in_a_round_costs_its_steps_only(device: Device, plan: Plan) -> None:
    """The way out that `share` names leads out: the same update as where nobody has saved."""

    def saved(board: Device) -> None:
        board.save()
        with pytest.raises(AnswerError, match="something was saved since the round began: push and join"):
            board.share(300, 192)
        board.reset()

    same_update_after(device, plan, saved)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("join garden 1 0", "join takes a fleet of 8 hex digits"),
        ("join 00000001 0 0", "join takes a fleet of 8 hex digits"),
        ("join 00000001 1", "takes"),
        ("share 99999 0", "share takes a number of bytes, at most that of `info`"),
        ("share 100 256", "share takes a number of bytes"),
        ("share 100 0", "no round was begun"),
    ],
)
def test_what_is_wrong_is_one_sentence(device: Device, line: str, said: str) -> None:
    with pytest.raises(AnswerError, match=re.escape(said)):
        device._talk.command(line)


def test_rounds_that_cannot_be_are_refused(device: Device, plan: Plan) -> None:
    block = begun(device, plan)
    device.push(block)
    device.join(FLEET, 5, 0)
    with pytest.raises(AnswerError, match="the round is over"):
        device.join(FLEET, 4, 0)
    trained(device, 1)
    with pytest.raises(AnswerError, match="begun with other weights"):
        device.join(FLEET, 5, 0)
    device.save()
    with pytest.raises(AnswerError, match="something was saved since"):
        device.share(300, 192)
    device.push(block)
    device.join(FLEET, 6, 0)
    with pytest.raises(AnswerError, match="so few bytes say nothing"):
        device.share(0, 0)
    layout = Layout(plan)
    head = next(part for part in layout.parts if part.tensor.kind == "head_weight").tensor
    spoilt = bytearray(block)
    spoilt[head.offset : head.offset + 4] = np.float32(np.nan).tobytes()
    device.push(bytes(spoilt))
    with pytest.raises(AnswerError, match="no number"):
        device.join(FLEET, 7, 0)


def test_a_fleet_whose_updates_have_no_room_is_refused(plan: Plan, images: Dataset) -> None:
    class Small(HostBoard):
        def room(self) -> int:
            return 64

    layout = Layout(plan)
    board = Small.__new__(Small)
    member = Member("b", board, images, layout, layout)
    fleet = Federation(layout, np.zeros(layout.size, np.int64), 7, NAME)
    fleet.begin()
    with pytest.raises(FleetError, match="its updates have 64 bytes at most, and this fleet's have"):
        member.handle(fleet.task(Work(NAME, share=40_000), 0))


def test_its_memory_is_reported(built: Built, plan: Plan) -> None:
    firmware = load_firmware(built.elf)
    report = make_report(firmware, plan, analyse(firmware), None, None)
    assert plan.fleet is not None
    assert report.sram["updates of a fleet"] == plan.fleet.bytes
    assert report.sram["trainables"] == plan.trainables.bytes


def test_what_a_board_cannot_save_is_refused() -> None:
    graph = residual_network()
    scheme = Scheme("s", 4, {-1: 1.0}, head="random")
    compiled = compile_graph(graph, scheme, 5, Passes(fleet=0.5))
    kept = block_bytes(layout(compiled.graph)) + fleet_bytes(compiled.graph)
    for room, found in ((96 + kept, 0), (96 + kept - 32, 1)):
        board = replace(boards.find(), slot=-(-room // 32) * 32)
        said = obstacles.of(compiled, boards.Limits(board, board.sram, board.flash))
        assert len(said) == found
    assert said[0].startswith(f"{kept:,} B to save at both ends of a fleet's round") and "--fleet" in said[0]
    over = obstacles.of(compiled, boards.Limits(board, 5000, board.flash))
    assert f"B of trainables and {fleet_bytes(compiled.graph):,} B of --fleet" in over[0]


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The example with a replay buffer and memory for updates, for this machine."""
    folder = tmp_path_factory.mktemp("records")
    options = ("--replay", "12", "--replay-code", "off", "--fleet", str(SHARE))
    return build_example(EXAMPLE / "scheme.yaml", folder, False, *options)


def seen(port: ProgramPort, images: Dataset) -> int:
    """Let a board learn from images; the records that it then has."""
    with Device(port) as device:
        for sample in images.samples:
            device.train(load(sample.path, device.info.shape), sample.label)
        return int(device.stats()["records_held"])


class Kept:
    """A port that stays open: what closes it only says that a program is done with it."""

    def __init__(self, port: ProgramPort) -> None:
        self.port = port

    def write(self, data: bytes) -> None:
        self.port.write(data)

    def read(self, size: int, timeout_s: float) -> bytes:
        return self.port.read(size, timeout_s)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("share", [0, 40_000])
def test_a_board_learns_from_its_own_records(share: int, remembering: Built, images: Dataset) -> None:
    plan = read_plan(remembering.folder / "plan.json")
    layout, program = Layout(plan), ProgramPort(remembering.program)
    held = seen(Kept(program), images)  # type: ignore[arg-type]
    assert 5 < held <= 12
    board = PortBoard(plan, lambda: Kept(program), "b")
    member = Member("b", board, None, layout, layout)
    fleet = Federation(layout, layout.read(bytes(plan.trainables.bytes)), 7, NAME)
    for limit, steps in ((0, held), (4, 4)):
        fleet.begin()
        report = fleet.take(member.handle(fleet.task(Work(NAME, limit=limit, share=share), 0)), 0)
        before = fleet.sha256()
        fleet.close()
        assert (report.samples, report.again) == (held, 0) and fleet.sha256() != before
        assert share or report.steps == steps
    program.close()


def test_without_records_a_board_is_left_out(remembering: Built) -> None:
    plan = read_plan(remembering.folder / "plan.json")
    board = PortBoard(plan, lambda: ProgramPort(remembering.program), "shed")
    with pytest.raises(FleetError, match="shed is left out of this round: it has no records"):
        board.learn(bytes(plan.trainables.bytes), None, Settings())
    board.close()


def test_a_gateway_says_where_boards_can_learn_from_nothing(
    built: Built, remembering: Built, tmp_path: Path
) -> None:
    file = tmp_path / "boards.json"

    def members(plan: Path, **entry: str) -> list[Member]:
        document = {"plan": str(plan / "plan.json"), "boards": [{"name": "shed", **entry}]}
        file.write_text(json.dumps(document))
        with members_of(file) as found:
            return found

    with pytest.raises(FleetError, match="shed names no data to learn from, and the model has no records"):
        members(built.folder, native=str(built.program))
    with pytest.raises(FleetError, match="shed needs data"):
        members(built.folder, host="yes")
    (member,) = members(remembering.folder, native=str(remembering.program))
    assert member.samples is None
