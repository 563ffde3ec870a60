"""The emulated board that stays on between two commands of `device --emulate`."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import deque
from pathlib import Path
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import Built
from emulator_firmware import build
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from microtrain.device import cli
from microtrain.device.client import Device
from microtrain.device.errors import LinkError
from microtrain.device.link import EmulatorPort
from microtrain.emulator import Board, EmulatedPort, EmulatorError, Fault, KeptPort, kept, snapshot

PLAIN = (bool, int, float, str, tuple, list, dict, set, frozenset, bytes, bytearray, deque, type(None))
# fixed, of the line's other end, or of the last run alone
LEFT_OUT = ("_constant", "lines", "watchers", "listeners", "host_baud", "chip", "_sent", "_event", "_held")


@pytest.fixture
def elf(example: Built, tmp_path: Path) -> Path:
    return Path(shutil.copy(example.elf, tmp_path / "firmware.elf"))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for label in range(10):
        (folder / f"{label}").mkdir()
        Image.fromarray(rng.integers(0, 256, (32, 32), np.uint8)).save(folder / f"{label}/a.png")
    return folder


def device(elf: Path, *words: object) -> str:
    """Run a command on the kept board; returns what it prints."""
    result = CliRunner().invoke(cli.main, ["--emulate", str(elf), *map(str, words)])
    assert result.exit_code == 0, result.output
    return str(result.output)


def refused(elf: Path, *words: object) -> str:
    result = CliRunner().invoke(cli.main, ["--emulate", str(elf), *map(str, words)])
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
    return str(result.output)


def state_of(board: Board) -> dict[str, object]:
    """Every plain attribute of every part of a board, what a snapshot leaves out included."""
    parts = {"loop": board.loop, "core": board.core, "systick": board.core.systick, "clock": board.clock}
    parts |= {"cycles": board.cycle_counter} | {part.name: part for part in board.peripherals}
    usart = {n: getattr(board.engine.state.usart, n) for n, _ in board.engine.state.usart._fields_[:17]}
    usart["rx_tail"] -= usart.pop("rx_head")
    found: dict[str, object] = {"memory": (board.memory.sram[:], board.memory.flash[:])}
    for name, part in parts.items():
        found[name] = {k: v for k, v in vars(part).items() if isinstance(v, PLAIN) and k not in LEFT_OUT}
    return found | {"usart": usart, "time": (board.instructions, board.now, board.seconds)}


@pytest.mark.parametrize("chip", ["disco", "nucleo"])
def test_a_restored_board_goes_on_as_the_one_that_stayed_on(
    chip: str, example: Built, nucleo_elf: Path, tmp_path: Path
) -> None:
    """To the instruction, and in every attribute of every part."""
    elf = example.elf if chip == "disco" else nucleo_elf

    def learn(board: Board, first: int) -> tuple[list[float], str]:
        with Device(EmulatedPort(board)) as there:
            images = [np.full((32, 32, 1), 40 * n, np.uint8) for n in range(first, first + 3)]
            return [there.train(image, 3).loss for image in images], json.dumps(there.stats())

    stays = Board(elf)
    learn(stays, 0)
    kept.keep(stays, tmp_path / "board", on=True)
    back = Board(elf)
    assert kept.restore(back, tmp_path / "board") == "still on"
    assert state_of(back) == state_of(stays)
    assert learn(back, 3) == learn(stays, 3)
    assert state_of(back) == state_of(stays)


def test_what_one_command_learns_the_next_one_pulls(elf: Path, example: Built, images: Path) -> None:
    """As on a board on the cable: weights, counters, settings, without a checkpoint."""
    output = device(elf, "train", images)
    assert f"emulated board: a new board, kept in {elf.with_suffix('.board')}" in output
    learned = output.split("sha256 ")[1].split()[0]
    output = device(elf, "stats")
    assert "emulated board: still on" in output and "steps           10" in output
    pulled = elf.with_name("trained.npz")
    device(elf, "--plan", example.folder / "plan.json", "pull", "-o", pulled)
    assert learned in device(elf, "info")
    device(elf, "save")
    assert "saves           1" in device(elf, "stats")
    device(elf, "reset")
    assert learned not in device(elf, "info")
    device(elf, "--plan", example.folder / "plan.json", "push", pulled)
    assert learned in device(elf, "info")
    assert "steps           0" in device(elf, "--fresh", "stats") and learned not in device(elf, "info")


def test_two_commands_at_once(elf: Path) -> None:
    port = KeptPort(elf)
    assert "is in use: wait until the other command ends" in refused(elf, "info")
    port.close()
    port.close()
    device(elf, "info")


def test_a_new_firmware_finds_the_checkpoints(elf: Path, images: Path) -> None:
    """Uploading leaves the sectors alone that the ELF has nothing for."""
    device(elf, "train", images)
    device(elf, "save")
    learned = device(elf, "info")
    content = elf.read_bytes()
    assert content.count(b"unknown") == 1
    elf.write_bytes(content.replace(b"unknown", b"unheard"))
    output = device(elf, "info")
    assert "with the new firmware, and the checkpoints that were in its flash" in output
    assert output.splitlines()[1:] == learned.splitlines()[1:]


def test_a_board_with_another_chip(elf: Path, nucleo_elf: Path) -> None:
    device(elf, "info")
    shutil.copy(nucleo_elf, elf)
    assert "is a board with the chip STM32F746NG, and the firmware is for the STM32F446RE" in refused(
        elf, "info"
    )
    assert "nucleo_f446re" in device(elf, "--fresh", "info")


def test_a_firmware_that_fails_is_switched_on_again(tmp_path: Path) -> None:
    elf = build(tmp_path, "-DWAIT_STATES=7")
    port = KeptPort(elf)
    port.write(b"f")
    while b"ok" not in port.read(1000, 2.0):
        pass
    flash = port.board.flash_content()
    port.write(b"w")
    with pytest.raises(Fault):
        port.read(1000, 1.0)
    port.close()
    again = KeptPort(elf)
    assert "switched on again with what its flash holds, as its last command failed" in again.told
    assert again.board.flash_content() == flash and again.board.instructions == 0
    again.close()


def test_another_emulator_takes_only_the_flash(elf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device(elf, "save")
    monkeypatch.setattr(kept, "model", lambda: "another")
    output = device(elf, "stats")
    assert "as microtrain has changed" in output and "saves           1" in output


def test_a_killed_command(elf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is a minute old at most, and the next command says so."""
    monkeypatch.setattr(kept, "EVERY_S", 0.0)
    port = KeptPort(elf)
    port.write(b"seed 77\n")
    assert b"ok seed 77" in port.read(1000, 1.0) + port.read(1000, 1.0)
    assert port._lock is not None
    port._lock.close()  # as the system does where a process is killed
    output = device(elf, "stats")
    assert "as it was at most a minute before the last command was killed" in output
    assert "seed            77" in output
    assert "was killed" not in device(elf, "stats")


def test_a_command_cut_off_in_a_step_ends_it_first(elf: Path) -> None:
    port = KeptPort(elf)
    port.write(b"pattern 1\ntrain 3\n")
    port.board.run(instructions=1_500_000)
    assert not snapshot.at_rest(port.board)
    port.close()
    assert "steps           1" in device(elf, "stats")


def test_a_folder_that_cannot_be_written(elf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elf.with_name("firmware.board.lock").mkdir()
    with pytest.raises(LinkError, match=r"cannot be kept in .*firmware.board .*copy the ELF to a folder"):
        EmulatorPort(elf, kept=True)


def test_fresh_is_for_the_emulated_board() -> None:
    result = CliRunner().invoke(cli.main, ["--port", "x", "--fresh", "info"])
    assert result.exit_code == 1 and "--fresh is for --emulate" in result.output


def test_a_damaged_file(elf: Path) -> None:
    """One sentence, whatever is wrong with it, and a new board is the way out."""
    device(elf, "info")
    path = elf.with_suffix(".board")
    good = path.read_bytes()
    for bad in (b"", good[:5000], good[:-900_000] + b"?" + good[-899_999:]):
        path.write_bytes(bad)
        assert "--fresh takes a new" in refused(elf, "info")
    assert "a new board" in device(elf, "--fresh", "info")


@pytest.fixture(scope="module")
def good(example: Built, tmp_path_factory: pytest.TempPathFactory) -> tuple[Board, dict[str, object]]:
    board = Board(example.elf)
    board.run(seconds=1, stop_on_sleep=True)
    board.take_output()
    return Board(example.elf), snapshot.take(board)


@given(st.randoms(use_true_random=False), st.sampled_from([None, -1, 1 << 70, "x", [], {}, [[1]], 1.5]))
def test_a_damaged_state_is_refused_or_taken(
    good: tuple[Board, dict[str, object]], rng: Random, value: object
) -> None:
    """Nothing but ValueError comes of it."""
    board, state = good
    spoiled = json.loads(json.dumps(state))
    at = spoiled
    while True:
        key = rng.choice(sorted(at) if isinstance(at, dict) else range(len(at)))
        if isinstance(at[key], (dict, list)) and at[key] and rng.random() < 0.9:
            at = at[key]
            continue
        at[key] = value
        break
    with contextlib.suppress(ValueError):
        snapshot.put(board, spoiled)


def test_errors_name_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "x.board").write_bytes(b"nothing")
    with pytest.raises(EmulatorError, match=r"x.board is damaged .*: --fresh takes a new one"):
        kept.read(tmp_path / "x.board")
