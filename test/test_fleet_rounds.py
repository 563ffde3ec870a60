"""Rounds on real boards: emulated ones and the host library learn the same bits, whatever happens to them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import Built
from fleet_boards import NAME, a_round, sparse_plan
from PIL import Image

from lab.soak.hard_life import HardLife
from microtrain.base.plan import Plan, read_plan
from microtrain.device.errors import LinkError
from microtrain.device.link import EmulatorPort, Port, ProgramPort
from microtrain.device.session import Settings
from microtrain.device.testing import FakeDevice
from microtrain.emulator import Board as EmulatedBoard
from microtrain.fleet.board import TRIES, Host, HostBoard, PortBoard
from microtrain.fleet.errors import FleetError
from microtrain.fleet.federation import Federation
from microtrain.fleet.layout import Layout
from microtrain.fleet.member import Member
from microtrain.fleet.message import Work
from microtrain.fleet.split import dirichlet
from microtrain.samples.source import Dataset, scan

WORK = Work(NAME, rate=3.0)


@pytest.fixture(scope="module")
def plan(example: Built) -> Plan:
    return read_plan(example.folder / "plan.json")


@pytest.fixture(scope="module")
def host(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(plan, tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("images")
    draws = np.random.default_rng(1)
    for label in range(10):
        (folder / str(label)).mkdir()
        for n in range(2):
            pixels = draws.integers(0, 256, (32, 32)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / str(label) / f"{n}.png")
    return scan(folder, 10)


def some(images: Dataset, first: int) -> Dataset:
    return Dataset(images.classes, images.samples[first::4])


def federated(
    plan: Plan, images: Dataset, board: Callable[[str], HostBoard | PortBoard], rounds: int = 2
) -> str:
    """SHA-256 of the shared values and of both boards after some rounds."""
    layout = Layout(plan)
    members = {n: Member(f"b{n}", board(f"b{n}"), some(images, n), layout, layout) for n in range(2)}
    fleet = Federation(layout, layout.read(members[0].board.fresh()), 7, NAME)
    for _ in range(rounds):
        assert a_round(fleet, members, WORK) == []
    blocks = b"".join(one.state.block for one in members.values())
    for one in members.values():
        one.board.close()
    return fleet.sha256() + hashlib.sha256(blocks).hexdigest()


def test_emulated_boards_and_the_host_library_are_one_federation(
    example: Built, plan: Plan, host: Host, images: Dataset
) -> None:
    def emulated(where: str) -> PortBoard:
        return PortBoard(plan, lambda: EmulatorPort(example.elf), where)

    here = federated(plan, images, lambda where: HostBoard(host, where))
    assert federated(plan, images, emulated) == here
    assert federated(plan, some_others(images), lambda where: HostBoard(host, where)) != here


def some_others(images: Dataset) -> Dataset:
    return Dataset(images.classes, images.samples[1:])


class Breaking:
    """A port to the firmware on this machine whose program ends at a certain write."""

    def __init__(self, program: Path, writes: int) -> None:
        self.port, self.left = ProgramPort(program), writes

    def write(self, data: bytes) -> None:
        self.left -= 1
        if self.left == 0:
            self.port.close()
            raise LinkError("the cable is out.")
        self.port.write(data)

    def read(self, size: int, timeout_s: float) -> bytes:
        return self.port.read(size, timeout_s)

    def close(self) -> None:
        self.port.close()


def test_a_board_that_restarts_ends_where_a_calm_one_does(
    example: Built, plan: Plan, host: Host, images: Dataset
) -> None:
    ports = iter([Breaking(example.program, n) for n in (1, 5, 15, 30)])

    def opened() -> Port:
        return next(ports, None) or ProgramPort(example.program)

    board = PortBoard(plan, opened, "b")
    settings = Settings(seed=3, rate=2.0)
    start = HostBoard(host, "b").fresh()
    calm = HostBoard(host, "b").learn(start, some(images, 0), settings)
    done = board.learn(start, some(images, 0), settings)
    board.close()
    assert done.block == calm.block and done.again == 4 and done.steps == calm.steps == 5


def test_noise_power_cuts_and_resets_change_no_bit(
    example: Built, plan: Plan, host: Host, images: Dataset
) -> None:
    port = HardLife(EmulatedBoard(example.elf), random.Random(5), every=25_000_000, noise=0.002)
    board = PortBoard(plan, lambda: port, "b")
    start = HostBoard(host, "b").fresh()
    settings = Settings(seed=3, rate=2.0, epochs=3)
    calm = HostBoard(host, "b").learn(start, some(images, 0), settings)
    done = board.learn(start, some(images, 0), settings)
    assert done.block == calm.block and done.again > 0
    assert port.troubles.power_cuts + port.troubles.resets > 0


def test_a_restart_that_nobody_heard_is_noticed(example: Built, plan: Plan, images: Dataset) -> None:
    """The board counts fewer steps than the round has."""
    board = EmulatedBoard(example.elf)

    class Deaf(HardLife):
        def _strike(self) -> None:
            super()._strike()
            self.board.run(seconds=1.0, stop_on_sleep=True)
            self.board.take_output()  # its banner is lost
            self.calm = True

    port = Deaf(board, random.Random(1), every=1, noise=0.0)
    port.calm = True
    member = PortBoard(plan, lambda: port, "b")
    start = member.fresh()
    port._trouble_at, port.calm = board.instructions + 8_000_000, False
    done = member.learn(start, some(images, 0), Settings(seed=3))
    assert port.troubles.power_cuts + port.troubles.resets == 1 and done.again == 1


def test_a_board_that_never_answers_is_left_out(plan: Plan, images: Dataset) -> None:
    opened = []

    def broken() -> Port:
        opened.append(1)
        raise LinkError("no such port: /dev/ttyACM9.")

    with pytest.raises(FleetError, match=r"b is left out of this round: no such port: /dev/ttyACM9"):
        PortBoard(plan, broken, "b").fresh()
    assert len(opened) == TRIES


def test_a_board_with_another_firmware_is_left_out_at_once(tmp_path: Path) -> None:
    device = FakeDevice()
    before = device.block
    with pytest.raises(FleetError, match=r"b runs model tiny 0123abcd, but .* describes small"):
        PortBoard(sparse_plan(tmp_path), lambda: device, "b").fresh()
    assert device.block == before and "reset" not in device.commands


def test_a_board_whose_training_diverges_sends_nothing(host: Host, images: Dataset) -> None:
    board = HostBoard(host, "b")
    with pytest.raises(FleetError, match="b is left out of this round: its training diverged at step"):
        board.learn(board.fresh(), images, Settings(epochs=10, rate=1000.0))


def test_samples_are_divided_without_rest(images: Dataset) -> None:
    for alpha in (0.1, 100.0):
        parts = dirichlet(images, 3, alpha, seed=4)
        assert sorted(s.path for part in parts for s in part.samples) == sorted(
            s.path for s in images.samples
        )
        assert min(len(part.samples) for part in parts) >= 1
        assert dirichlet(images, 3, alpha, seed=4) == parts != dirichlet(images, 3, alpha, seed=5)
    with pytest.raises(FleetError, match="20 samples do not go round among 21 boards"):
        dirichlet(images, 21, 1.0)
