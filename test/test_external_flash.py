"""Flash beside the chip: which weights lie there, that they are read alike, and what goes wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import EXAMPLE, ROOT, Built, build_example
from elftools.elf.elffile import ELFFile
from pio_build import copy_project, once, pio

from microtrain.base.errors import Error
from microtrain.base.pio import BOARD, product
from microtrain.base.plan import read_plan
from microtrain.convert import boards, obstacles
from microtrain.convert.cli import main
from microtrain.convert.emit import tables
from microtrain.convert.outside import Movable, least_touched, movable, place_outside
from microtrain.convert.pipeline import Compiled
from microtrain.device.client import Device
from microtrain.elfcheck.rules import check
from microtrain.emulator import Board, EmulatedPort
from microtrain.emulator.chips import N25Q128A
from microtrain.emulator.errors import Fault, PeripheralFault
from microtrain.emulator.peripherals.quadspi import CCR, CR, DCR, DLR, DR, SR, SR_BUSY
from microtrain.memory_report.firmware import load_firmware
from microtrain.memory_report.interrupts import analyse
from microtrain.memory_report.usage import check_places, flash_kinds, region_use

SCHEME = EXAMPLE / "scheme.yaml"
BUDGET_KB = 90  # of flash: too little for the example's weights
ASKED = ("--external-flash", "qspi", "--budget-flash", str(BUDGET_KB), "--replay", "off")
IMAGES = np.random.default_rng(7).integers(0, 256, (4, 32, 32, 1)).astype(np.uint8)
MAPPED = 0x0F28_2DEB  # QUADSPI_CCR for reading by 0xEB: 1 line, 4 and 24 bits, 10 dummy cycles, 4
READ_ID = 1 << 26 | 1 << 24 | 1 << 8 | 0x9F  # to be read: 1 line of instruction and of data
SLOW = 1 << 24 | 1 << 4 | 1  # QUADSPI_CR: half of the core's clock, half a cycle later, on
SIZE = 23 << 16 | 2 << 8  # QUADSPI_DCR: 2^24 bytes, 3 cycles of chip select


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Built:
    def fill(folder: Path) -> None:
        build_example(SCHEME, folder, True, *ASKED)

    folder = once(tmp_path_factory, "outside", fill)
    elf, program = (product(folder / "pio", name) for name in (BOARD, "native"))
    return Built(folder / "generated", elf, program, "")


def learned(board: Board) -> bytes:
    """All trainables after some steps."""
    device = Device(EmulatedPort(board))
    for label, image in enumerate(IMAGES):
        device.train(image, label)
    return device.pull()


def said(board: Board, seconds: float = 0.2) -> str:
    board.run(seconds=seconds)
    return board.take_output().decode()


# ---------------------------------------------------------------- the same bits
def test_weights_beside_the_chip_are_the_same_bits(outside: Built, example: Built) -> None:
    assert read_plan(outside.folder / "plan.json").external
    assert learned(Board(outside.elf)) == learned(Board(example.elf))


def test_they_cost_waiting_and_no_instruction(outside: Built, example: Built) -> None:
    counts = []
    for elf in (example.elf, outside.elf):
        board = Board(elf, caches=True)
        device = Device(EmulatedPort(board))
        board.watch_calls(["model_forward", "model_backward"], only_inside=True)
        device.train(IMAGES[0], 1)
        counts.append((sum(call.instructions for call in board.calls().values()), board.cache_use()))
    (plain, inside), (beside, waits) = counts
    assert plain == beside
    # A line of flash takes 12 cycles; one beside the chip 132, and 54 more where a command begins.
    more = waits.stalls - inside.stalls
    assert more > 100 * (read_plan(outside.folder / "plan.json").external.bytes // 32)  # type: ignore[union-attr]


def test_the_window_takes_what_its_registers_say(outside: Built) -> None:
    board = Board(outside.elf)
    said(board)
    assert board.quadspi is not None and board.quadspi.hz == N25Q128A.max_hz
    assert board.quadspi.cycles() == (2 * 64 + 4, 2 * (3 + 8 + 6 + 10))


def test_the_firmware_survives_resets_and_other_programs_settings(outside: Built) -> None:
    board = Board(outside.elf)
    assert "ready" in said(board)
    assert board.quadspi is not None
    board.quadspi.flash.lines = 4  # as a program leaves it that talks to it on four lines
    board.press_reset()
    assert "ready" in said(board) and board.quadspi.flash.lines == 1


def run_suite(suite: Path, outside: Built, folder: Path) -> subprocess.CompletedProcess[str]:
    words = ("--elf", outside.elf, "--program", outside.program, "--results", folder / "results", suite)
    return subprocess.run(
        [sys.executable, "renode/run.py", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_suite_passes_on_the_board_model(outside: Built, tmp_path: Path) -> None:
    done = run_suite(ROOT / "renode/external.robot", outside, tmp_path)
    assert done.returncode == 0 and "board model: passed" in done.stdout, done.stdout + done.stderr


# ---------------------------------------------------------------- planted faults
@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("${DUMMY_CYCLES}         10", "${DUMMY_CYCLES}         8"),
        ("${MAX_HZ}               108", "${MAX_HZ}               107"),
        ("28, 1, 0, 1, 0)", "28, 1, 6, 1, 0)"),
        ("[0-9a-f]{8} wrong:", "[0-9a-f]{8} ok:"),
        ("holds another model's weights", "does not answer"),
        ("Should Not Be Equal         ${before}", "Should Be Equal         ${before}"),
    ],
)
def test_a_failing_suite_fails_the_run(right: str, wrong: str, outside: Built, tmp_path: Path) -> None:
    suite = ROOT / "renode/external.robot"
    text = suite.read_text()
    assert right in text
    for shared in ("keywords.resource", "board.resc"):
        shutil.copy(suite.with_name(shared), tmp_path)
    (tmp_path / suite.name).write_text(text.replace(right, wrong))
    done = run_suite(tmp_path / suite.name, outside, tmp_path)
    assert done.returncode == 1 and "board model: FAILED" in done.stdout


def test_a_flash_that_does_not_answer_is_a_sentence(outside: Built) -> None:
    board = Board(outside.elf)
    assert board.quadspi is not None
    board.quadspi.flash.kind = None
    assert "the flash beside its chip does not answer" in said(board, 2.0)


def test_another_models_weights_are_noticed(outside: Built) -> None:
    board = Board(outside.elf)
    address = board.image.symbols["model_outside"]
    board.write_memory(address, bytes(b ^ 1 for b in board.read_memory(address, 4)))
    assert "holds another model's weights: upload again" in said(board)


def test_the_self_test_finds_a_damaged_byte(outside: Built) -> None:
    for damage in (0, 4):
        board = Board(outside.elf)
        said(board)
        address = board.image.symbols["model_outside"] + 32 + 5
        assert board.memory.in_external(address)
        board.write_memory(address, bytes([board.read_memory(address, 1)[0] ^ damage]))
        board.feed(b"selftest\n")
        answer = said(board, 3.0)
        assert ("ok selftest" in answer) == (damage == 0), answer


def test_a_firmware_that_does_not_open_the_window_faults(outside: Built, tmp_path: Path) -> None:
    """And elfcheck says so before anything runs."""
    project = copy_project(tmp_path)
    source = project / "firmware/src/board/stm32/board.c"
    text = source.read_text()
    assert "status : external_flash_init()" in text
    source.write_text(text.replace("status : external_flash_init()", "status : BOARD_OK"))
    result = pio(tmp_path / "pio", "run", "-s", "-e", BOARD, model=outside.folder, project=project)
    assert result.returncode == 0, result.stdout + result.stderr
    elf = product(tmp_path / "pio", BOARD)
    with pytest.raises(Fault, match="flash beside the chip, whose window QUADSPI or the MPU keeps shut"):
        said(Board(elf))
    assert any(finding.rule == "external" for finding in check(elf))


WRONG = {
    "dummy cycles: 8": (MAPPED & ~(31 << 18) | 8 << 18, SLOW, SIZE),
    "the instruction: 107": (MAPPED & ~0xFF | 0x6B, SLOW, SIZE),
    "lines of data: 1": (MAPPED & ~(3 << 24) | 1 << 24, SLOW, SIZE),
    "FSIZE: 22": (MAPPED, SLOW, SIZE - (1 << 16)),
    "chip select high": (MAPPED, SLOW, SIZE & ~(7 << 8)),
    "above the 108000000 of N25Q128A": (MAPPED, SLOW & ~(1 << 24), SIZE),
    "has it off": (MAPPED, SLOW & ~1, SIZE),
}


@pytest.mark.parametrize("why", WRONG)
def test_a_window_set_up_wrongly_is_refused(outside: Built, why: str) -> None:
    board, (ccr, control, device) = Board(outside.elf), WRONG[why]
    said(board)
    quadspi = board.quadspi
    assert quadspi is not None
    quadspi.write(CR, 2)  # abort
    quadspi.write(DCR, device)
    quadspi.write(CR, control)
    with pytest.raises(PeripheralFault, match=why):
        quadspi.write(CCR, ccr)
    quadspi.write(DCR, SIZE)
    quadspi.write(CR, SLOW)
    quadspi.write(CCR, MAPPED)
    assert quadspi.mapped


def test_pins_and_the_mpu_keep_the_window_shut(outside: Built) -> None:
    board = Board(outside.elf)
    said(board)
    assert board.quadspi is not None
    board.gpio["E"].write(0x00, 0)  # IO2 is an input again
    board.quadspi.write(CR, 2)
    board.quadspi.write(CR, SLOW)
    with pytest.raises(PeripheralFault, match="IO2 is on PE2"):
        board.quadspi.write(CCR, MAPPED)
    board = Board(outside.elf)
    said(board)
    assert board.core.may_read(N25Q128A.base) and not board.core.may_read(N25Q128A.base + N25Q128A.size)
    board.debug_write(0xE000_ED98, 4, 1)  # the region of the flash
    board.debug_write(0xE000_EDA0, 4, 0)
    board.feed(b"pattern 1\ninfer\n")
    with pytest.raises(Fault, match="or the MPU keeps shut"):
        board.run(seconds=1.0)


def test_it_is_busy_until_what_came_is_read(outside: Built) -> None:
    """RM0385, 14.3.13: the driver once waited for it in front of DR, which on the chip is for ever."""
    board = Board(outside.elf)
    said(board)
    quadspi = board.quadspi
    assert quadspi is not None and quadspi.read(SR) & SR_BUSY
    quadspi.write(CR, SLOW | 2)  # abort
    quadspi.write(DLR, 3)
    quadspi.write(CCR, READ_ID)
    assert [quadspi.read(SR) & SR_BUSY for _ in range(3)] == [SR_BUSY] * 3
    with pytest.raises(PeripheralFault, match="written while it is busy"):
        quadspi.write(CCR, MAPPED)
    assert quadspi.read(DR) == 0x1018BA20
    assert [quadspi.read(SR) & SR_BUSY for _ in range(3)] == [SR_BUSY, SR_BUSY, 0]
    quadspi.write(CCR, MAPPED)
    assert quadspi.mapped


def test_a_board_without_such_a_flash_does_not_compile_it(outside: Built, tmp_path: Path) -> None:
    result = pio(tmp_path / "pio", "run", "-s", "-e", "nucleo_f446re", model=outside.folder)
    assert result.returncode != 0 and "which this board has not: convert again, with --board" in result.stderr


# ---------------------------------------------------------------- what is told of it
def test_sizes_and_report_count_it_apart(outside: Built, example: Built) -> None:
    beside, inside = load_firmware(outside.elf), load_firmware(example.elf)
    check_places(beside)
    used, whole = region_use(beside)["external"]
    plan = read_plan(outside.folder / "plan.json")
    assert plan.external and 0 <= plan.external.bytes - used < 64 and whole == N25Q128A.size
    assert "external" not in region_use(inside) and read_plan(example.folder / "plan.json").external is None
    weights, others = (sum(flash_kinds(each).values()) for each in (beside, inside))
    assert weights < BUDGET_KB * 1024 < others
    assert check(outside.elf) == []


def test_weights_that_look_like_addresses_are_none(outside: Built, tmp_path: Path) -> None:
    """Of system registers, through which a pointer could reach priorities."""
    elf, image = tmp_path / "firmware.elf", bytearray(outside.elf.read_bytes())
    with outside.elf.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".external")
    image[section["sh_offset"] + 64 : section["sh_offset"] + 68] = bytes.fromhex("ccea00e0")
    elf.write_bytes(image)
    stack = analyse(load_firmware(elf))
    assert stack.problems == () and stack.worst == analyse(load_firmware(outside.elf)).worst


def test_an_upload_by_st_flash_is_refused(outside: Built, tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    settings = project / "platformio.ini"
    settings.write_text(settings.read_text().replace("[stm32]\n", "[stm32]\nupload_protocol = stflash\n"))
    upload = ("run", "-e", BOARD, "-t", "upload")
    result = pio(tmp_path / "pio", *upload, model=outside.folder, project=project)
    assert result.returncode != 0
    assert "st-flash cannot write the flash beside the chip" in result.stderr


# ---------------------------------------------------------------- what lies there
def test_the_least_touched_weights_go_and_none_could_stay() -> None:
    random = np.random.default_rng(5)
    for _ in range(200):
        sizes = random.integers(1024, 40_000, random.integers(1, 30)) // 4 * 4
        found = {
            f"layer{i}": Movable(int(size), float(random.integers(1, 5000))) for i, size in enumerate(sizes)
        }
        short = int(random.integers(1, sizes.sum() + 1))
        chosen = least_touched(found, short)
        moved = sum(found[layer].bytes for layer in chosen)
        assert moved >= short
        assert all(moved - found[layer].bytes < short for layer in chosen)
        most = max(found[layer].touches for layer in chosen)
        less = [layer for layer in found if found[layer].touches < most and layer not in chosen]
        assert all(moved - max(found[c].bytes for c in chosen) < short for _ in less)
    assert least_touched({"a": Movable(2048, 9.0), "b": Movable(2048, 3.0)}, 100) == ("b",)
    assert least_touched({"a": Movable(2048, 1.0), "b": Movable(8192, 3.0)}, 5000) == ("b",)


def test_all_that_can_move_is_frozen_weights(outside: Built) -> None:
    text = (outside.folder / "model_weights.c").read_text()
    beside = [line.split()[2] for line in text.splitlines() if line.startswith("MODEL_WEIGHTS_OUTSIDE ")]
    assert beside and all(name.startswith("w_") for name in beside)
    plan = read_plan(outside.folder / "plan.json")
    assert plan.external is not None and len(beside) == len(plan.external.layers)
    assert plan.external.region == "qspi"


def converted(tmp_path: Path, *options: str) -> tuple[int, str]:
    words = [str(EXAMPLE / "model.pt"), "--scheme", str(SCHEME), "--classes", "10"]
    result = CliRunner().invoke(main, [*words, *options, "-o", str(tmp_path / "out")])
    return result.exit_code, " ".join(result.output.split())


def test_what_fits_inside_stays_there(tmp_path: Path) -> None:
    code, output = converted(tmp_path, "--external-flash", "qspi")
    assert code == 0 and "outside nothing: all weights fit the chip's own flash" in output
    document = json.loads((tmp_path / "out/plan.json").read_text())
    assert "external" not in document
    assert "EXTERNAL" not in (tmp_path / "out/model.h").read_text()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--board", "nucleo_f446re"), "nucleo_f446re has no such flash beside its chip; it has none at all"),
        (("--board", "native"), "this machine has no such flash beside its chip"),
        ((), "--external-flash 'sdram': disco_f746ng has no such flash beside its chip; it has qspi."),
    ],
)
def test_a_flash_that_is_not_there_is_a_sentence(
    tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    name = "qspi" if options else "sdram"
    code, output = converted(tmp_path, "--external-flash", name, *options)
    assert code == 1 and sentence in output and "Traceback" not in output
    assert not (tmp_path / "out").exists()


def test_a_model_too_large_is_told_of_it(tmp_path: Path) -> None:
    code, output = converted(tmp_path, "--budget-flash", str(BUDGET_KB), "--replay", "off")
    assert code == 1 and "or pass --external-flash qspi" in output


def test_what_is_too_large_even_so_is_refused(compiled: Compiled) -> None:
    board = boards.find()
    small = replace(board, weights=1024)
    beside = boards.External("qspi", 2048)
    limits = boards.Limits(small, board.sram, board.flash, beside)
    placed = place_outside(compiled, limits)
    assert set(placed.graph.outside) == set(movable(compiled.graph))  # all, and it does not do
    sentences = " ".join(obstacles.of(placed, limits))
    assert "B of weights beside the chip" in sentences and "more than qspi has" in sentences
    assert "B more than the 1,024 B of flash" in sentences
    assert tables.inside_bytes(placed.graph) < tables.inside_bytes(compiled.graph)
    with pytest.raises(Error, match="has no such flash"):
        boards.limits(replace(board, external=()), None, None, "qspi")


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    from lab.sizes.networks import SCHEMES
    from lab.sizes.networks import example as quantized
    from microtrain.convert.pipeline import compile_graph

    return compile_graph(quantized(EXAMPLE.parents[1]), SCHEMES[0], 10)


def test_a_plan_that_fills_a_board_leaves_its_stack(compiled: Compiled) -> None:
    """What the linker script keeps for the stack is more than it reaches, and was once given to the plan."""
    board = boards.find()
    tight = replace(board, sram=compiled.sram + boards.STACK_RESERVE)
    assert obstacles.sram(compiled, boards.Limits(tight, tight.sram, board.flash)) == []
    (said,) = obstacles.sram(
        compiled, boards.Limits(replace(tight, sram=tight.sram - 8), tight.sram - 8, None)
    )
    assert "8 B over the budget" in said and "beside what is kept for the stack" in said
    assert (
        obstacles.sram(compiled, boards.Limits(board, compiled.sram, None)) == []
    )  # a budget below the board
