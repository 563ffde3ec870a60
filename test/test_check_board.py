"""A board against the emulated one: a sound board passes, and every planted deviation is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pio_build import build_once

from microtrain.base.progress import Bars
from microtrain.check_board import cli, report
from microtrain.check_board.line import clean_rates
from microtrain.check_board.probe import Found, probe
from microtrain.check_board.report import Check
from microtrain.device.client import Device
from microtrain.device.errors import LinkError
from microtrain.device.link import EmulatorPort

SLOTS = (0x0802_0000, 0x080C_0000)  # sectors 4 and 7 of the STM32F746 (RM0385, table 3)


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace, _ = build_once(tmp_path_factory, "pio-null", "disco_f746ng", "native")
    return workspace / "build/disco_f746ng/firmware.elf"


class Planted(EmulatorPort):
    """A board with something wrong: what a test makes of it."""

    @property
    def board(self):  # type: ignore[no-untyped-def]
        return self._port.board


def asked(port: EmulatorPort, clock: Callable[[], float] | None = None) -> Found:
    with Device(port) as device, Bars() as bars:
        return probe(device, clock or cli.clock_of(port), bars, "board")


@pytest.fixture(scope="module")
def expected(elf: Path) -> Found:
    return asked(EmulatorPort(elf))


def check(found: Found, expected: Found) -> Check:
    return Check(found, expected, "the emulated board", {})


def test_the_probe_repeats_itself_and_leaves_the_board_as_new(elf: Path, expected: Found) -> None:
    port = EmulatorPort(elf)
    with Device(port) as device, Bars() as bars:
        for _ in range(2):
            cli.must_be_new(device)
            found = probe(device, cli.clock_of(port), bars, "board")
            assert check(found, expected).passed
    assert expected.answers > 70


@pytest.mark.parametrize(("symbol", "group"), [("model_trainables_init", "weights as converted")])
def test_a_flipped_bit_of_the_model_is_named(elf: Path, expected: Found, symbol: str, group: str) -> None:
    port = Planted(elf)
    place = port.board.image.symbols[symbol] + 5
    port.board.write_memory(place, bytes([port.board.read_memory(place, 1)[0] ^ 0x10]))
    found = check(asked(port), expected)
    assert {"self-test", group, "inference", "training"} <= {each.group for each in found.differences}
    assert not found.passed
    assert "weights" in next(each.found for each in found.differences if each.group == "self-test")


def test_flash_that_forgets_is_named(elf: Path, expected: Found) -> None:
    class Forgetful(Planted):
        def write(self, data: bytes) -> None:
            if data == b"reboot\n":
                for start in SLOTS:
                    self.board.write_memory(start, b"\xff" * 4096)
            super().write(data)

    found = check(asked(Forgetful(elf)), expected)
    assert {each.group for each in found.differences} == {"after a restart"}
    assert "steps: 0, not 50" in str(found.differences[0])


def test_one_wrong_answer_of_many_is_named(elf: Path, expected: Found) -> None:
    said = expected.groups["training"]["pattern 7"]

    class Wrong(Planted):
        def read(self, size: int, timeout_s: float) -> bytes:
            return super().read(size, timeout_s).replace(said.encode(), said[:-1].encode() + b"x")

    (difference,) = check(asked(Wrong(elf)), expected).differences
    assert (difference.group, difference.item) == ("training", "pattern 7")


def test_a_tick_that_goes_wrong_is_named(elf: Path, expected: Found) -> None:
    port = EmulatorPort(elf)
    (difference,) = check(asked(port, lambda: 1.1 * port.seconds), expected).differences
    assert difference.group == "clock"


def test_rates_that_the_cable_does_not_bear_are_told(elf: Path) -> None:
    class Poor(Planted):
        host = 115200

        def set_baud(self, baud: int) -> None:
            self.host = baud
            super().set_baud(baud)

        def read(self, size: int, timeout_s: float) -> bytes:
            data = super().read(size, timeout_s)
            return bytes(byte ^ 0x10 for byte in data) if self.host > 1000000 else data

    with Device(Poor(elf)) as device:
        rates = clean_rates(device)
        assert device.stats()["frames_bad"] == "0"
    assert [baud for baud, clean in rates.items() if not clean] == [2000000, 3000000]


def test_a_board_that_stops_still_gets_its_page(elf: Path, expected: Found, tmp_path: Path) -> None:
    class Stops(Planted):
        steps = 0

        def write(self, data: bytes) -> None:
            self.steps += data.startswith(b"train")
            if self.steps == 20:
                raise LinkError("the line broke: plug it in again.")
            super().write(data)

    found = check(asked(Stops(elf)), expected)
    assert not found.passed
    page, _ = report.save(found, tmp_path / "page")
    assert "The check stopped after" in page.read_text()
    assert "the line broke" in page.read_text()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(word) for word in arguments])


def test_the_command_writes_both_pages(elf: Path, tmp_path: Path) -> None:
    done = run("--emulate", elf, "--against", elf, "-o", tmp_path / "first")
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "first.json").read_text())
    assert record["passed"]
    assert record["rates"]["115200"]
    page = (tmp_path / "first.md").read_text()
    assert "| training | 50 | 50 |" in page
    assert max(map(len, done.output.splitlines())) < 200
    record["expected"] = record["found"]
    record["found"]["groups"]["self-test"]["selftest"] = "another"
    (tmp_path / "other.json").write_text(json.dumps(record))
    done = run("--emulate", elf, "--against", tmp_path / "other.json", "-o", tmp_path / "second")
    assert done.exit_code == 1
    assert "self-test, selftest" in done.output


def test_a_board_that_has_learned_is_left_alone(elf: Path, tmp_path: Path) -> None:
    port = EmulatorPort(elf)
    with Device(port) as device:
        device.exchange("pattern 1")
        device.exchange("train 1")
        with pytest.raises(cli.DeviceError, match="has learned: 1 steps"):
            cli.must_be_new(device)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "name one board"),
        (("--port", "/dev/none", "--emulate", "x.elf"), "name one board"),
        (("--port", "/dev/none"), "no such port"),
        (("--emulate", "ELF", "--against", "none.elf"), "no such file"),
        (("--emulate", "ELF"), "--against"),
        (("--emulate", "ELF", "--against", "BAD"), "is not the .json of a check-board"),
    ],
)
def test_bad_use_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, elf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text('{"found": {"board": 1}}')
    monkeypatch.setattr(cli, "probe", lambda *_: Found("a", "b"))
    names = {"ELF": str(elf), "BAD": "bad.json"}
    done = run(*(names.get(word, word) for word in arguments), "-o", "out")
    assert done.exit_code == 1
    assert sentence in done.output
    assert done.output.startswith("Error: ")
    assert not list(tmp_path.glob("out*"))
