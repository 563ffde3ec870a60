"""The device's test of itself, and faults that it must find."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest
import selftest_vectors
from click.testing import CliRunner
from conftest import Built
from pio_build import build_once

from lab.soak.line import BoardLine
from microtrain.device.cli import main
from microtrain.emulator import Board, Stop, Until


def test_vectors_are_what_pytorch_computes() -> None:
    assert selftest_vectors.HEADER.read_text(encoding="ascii") == selftest_vectors.text()


@pytest.fixture(scope="module")
def line(example: Built) -> BoardLine:
    return BoardLine(Board(example.elf))


def test_a_sound_board_passes_and_keeps_what_it_learned(line: BoardLine) -> None:
    line.boot()
    line.train(3, 10)
    before = line.state()
    kernels, weights, memory, final = line.ask("selftest")
    assert kernels == "kernels ok"
    assert re.fullmatch("weights [0-9a-f]{8} ok", weights)
    assert re.fullmatch(r"memory \d+ bytes ok", memory)
    assert final == "ok selftest"
    assert line.state() == before
    assert line.ask("infer")[-1].startswith("err image")


@pytest.mark.parametrize("symbol", ["w_stem", "b_stem", "m_stem", "model_trainables_init"])
def test_a_flipped_bit_in_flash_is_found(line: BoardLine, symbol: str) -> None:
    board = line.board
    place = board.image.symbols[symbol] + 5
    old = board.read_memory(place, 1)
    board.write_memory(place, bytes([old[0] ^ 0x10]))
    try:
        line.boot()
        said = line.ask("selftest")
    finally:
        board.write_memory(place, old)
    assert re.fullmatch("weights [0-9a-f]{8} wrong: converted with [0-9a-f]{8}", said[1])
    assert said[-1].startswith("err selftest")


@pytest.mark.parametrize(
    ("symbol", "kernel"),
    [
        ("selftest_dense_w", "dense convolution"),
        ("selftest_depthwise_w", "depthwise convolution"),
        ("selftest_mask", "gradient to the input"),
        ("selftest_qas", "update of the weights"),
    ],
)
def test_a_wrong_result_of_a_kernel_is_found(line: BoardLine, symbol: str, kernel: str) -> None:
    """Here because one of its operands is changed."""
    board = line.board
    place = board.image.symbols[symbol] + 7
    old = board.read_memory(place, 1)
    board.write_memory(place, bytes([old[0] ^ 0x04]))
    try:
        line.boot()
        said = line.ask("selftest")
    finally:
        board.write_memory(place, old)
    assert said[0] == f"kernels wrong: {kernel}"
    assert said[-1].startswith("err selftest")


@pytest.mark.parametrize("level", [0, 1])
def test_a_stuck_bit_of_the_memory_is_found(tmp_path_factory: pytest.TempPathFactory, level: int) -> None:
    """After every few instructions the bit is what it always is."""
    workspace, _ = build_once(tmp_path_factory, "pio-null", "disco_f746ng", "native")
    board = Board(workspace / "build/disco_f746ng/firmware.elf")
    BoardLine(board).boot()
    place = board.image.symbols["model_arena"] + 42
    board.feed(b"selftest\n")
    said = b""
    while b"selftest" not in said:
        value = board.read_memory(place, 1)[0]
        board.write_memory(place, bytes([value | 4 if level else value & ~4]))
        stop = board.run(seconds=1, instructions=40, until=Until.LINE)
        assert stop in (Stop.OUTPUT, Stop.LIMIT)
        said += board.take_output()
    assert b"memory 40 wrong: the word at this offset of the arena" in said
    assert b"err selftest" in said


def test_the_converter_lists_every_table(example: Built) -> None:
    """Each array of model_weights.c is in the list once."""
    weights = (example.folder / "model_weights.c").read_text(encoding="utf-8")
    model = (example.folder / "model.c").read_text(encoding="utf-8")
    arrays = re.findall(r"^(?:const|MODEL_WEIGHTS) \S+ (\w+)\[", weights, re.MULTILINE)
    listed = re.search(r"struct model_part parts\[\] = \{\n(.*?)\};", model, re.DOTALL)
    assert listed is not None
    assert re.findall(r"\{(\w+), ", listed[1]) == arrays


def test_the_client_shows_it(example: Built) -> None:
    result = CliRunner().invoke(main, ["--native", str(example.program), "selftest"])
    assert result.exit_code == 0, result.output
    assert "kernels ok" in result.stdout.splitlines()


def test_the_null_model_says_its_crc() -> None:
    source = (Path(__file__).parent / "fixtures/null_model/model.c").read_text()
    assert f"0x{zlib.crc32(bytes(range(1, 65))):08x}u" in source
