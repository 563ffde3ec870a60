"""Weights in the flash of checkpoints: more room, and a board that never saves."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import EXAMPLE, ROOT, Built, build_example
from PIL import Image
from pio_build import build, once, pio

from microtrain.base.errors import Error
from microtrain.base.pio import BOARD, NATIVE, product
from microtrain.base.plan import read_plan
from microtrain.convert import boards, obstacles
from microtrain.convert.cli import main
from microtrain.convert.obstacles import Weights
from microtrain.device.client import Device
from microtrain.elfcheck.rules import check
from microtrain.emulator import Board, EmulatedPort
from microtrain.memory_report.firmware import load_firmware
from microtrain.memory_report.usage import region_use

NUCLEO = "nucleo_f446re"
SCHEME = EXAMPLE / "scheme.yaml"
IMAGES = np.random.default_rng(7).integers(0, 256, (4, 32, 32, 1)).astype(np.uint8)


@pytest.fixture(scope="module")
def unsaved(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The example for both boards and this machine."""

    def fill(folder: Path) -> None:
        build_example(SCHEME, folder, True, "--no-checkpoints", "--replay", "off")
        done = pio(folder / "pio", "run", "-s", "-e", NUCLEO, model=folder / "generated")
        assert done.returncode == 0, done.stdout + done.stderr

    folder = once(tmp_path_factory, "unsaved", fill)
    elf, program = (product(folder / "pio", name) for name in (BOARD, NATIVE))
    return Built(folder / "generated", elf, program, "")


def elf_of(built: Built, board: str) -> Path:
    return built.elf.parent.parent / board / built.elf.name


def learned(board: Board) -> bytes:
    """All trainables after some steps."""
    device = Device(EmulatedPort(board))
    for label, image in enumerate(IMAGES):
        device.train(image, label)
    return device.pull()


@pytest.mark.parametrize("name", [BOARD, NUCLEO])
def test_weights_have_all_sectors_behind_the_code(unsaved: Built, name: str) -> None:
    regions = {region.name: region for region in load_firmware(elf_of(unsaved, name)).chip.regions}
    known = boards.find(name)
    assert regions["weights"].size == known.most == known.without_checkpoints.weights
    assert regions["checkpoint A"].size == regions["checkpoint B"].size == 0
    assert regions["code"].size + regions["weights"].size == known.flash
    upload = json.loads((ROOT / f"platform/boards/{name}.json").read_text())["upload"]
    assert regions["weights"].start == int(upload["weights_address"], 16), "where an upload puts them"


@pytest.mark.parametrize("name", [BOARD, NUCLEO])
def test_the_board_says_that_it_does_not_save_and_goes_on(unsaved: Built, name: str) -> None:
    board = Board(elf_of(unsaved, name))
    flash, device = board.flash_content(), Device(EmulatedPort(board))
    assert device.selftest()
    with pytest.raises(Error, match="no slot that is large enough"):
        device.save()
    device.autosave(1)
    device.train(IMAGES[0], 3)
    device.forget()
    assert device.stats()["saves_left"] == "0"
    assert board.flash_content() == flash, "nothing is erased or written"


@pytest.mark.parametrize("name", [BOARD, NUCLEO])
def test_it_starts_anew_each_time(unsaved: Built, name: str) -> None:
    board = Board(elf_of(unsaved, name))
    board.feed(b"autosave 1\nguard 1\n")
    board.run(seconds=0.2)
    board.reset()
    board.run(seconds=0.2)
    assert board.take_output().decode().splitlines().count("checkpoint none") == 2


def test_it_learns_the_same_bits(unsaved: Built, example: Built) -> None:
    assert (
        learned(Board(elf_of(unsaved, NUCLEO))) == learned(Board(unsaved.elf)) == learned(Board(example.elf))
    )
    assert check(unsaved.elf) == [] == check(elf_of(unsaved, NUCLEO))


def test_a_build_that_would_look_for_checkpoints_is_stopped(unsaved: Built) -> None:
    machine = ("-mcpu=cortex-m7", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard")
    paths = (f"-I{ROOT / 'firmware/include'}", f"-I{unsaved.folder}")
    command = ["arm-none-eabi-gcc", "-c", *machine, *paths, str(unsaved.folder / "model.c"), "-o"]
    done = subprocess.run([*command, "/dev/null"], capture_output=True, text=True, check=False)
    assert done.returncode and "was converted with --no-checkpoints" in done.stderr
    told = [*command, "/dev/null", "-DMICROTRAIN_CHECKPOINTS=0"]
    done = subprocess.run(told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_mcunet_fits_a_chip_of_512_kb(tmp_path: Path) -> None:
    """As docs/hardware.md has it: weights in four bits, the published 49 KB scheme, and records beside it."""
    data = os.environ.get("MICROTRAIN_DATA")
    if not data:
        pytest.skip("MICROTRAIN_DATA is not set: it names the folder with models/ and sets/")
    images = tmp_path / "photos"
    images.mkdir()
    for i, image in enumerate(np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3), np.uint8)):
        Image.fromarray(image).resize((128, 128)).save(images / f"{i}.png")
    words = [f"{data}/models/mcunet-5fps.pkl", "--calibration", images, "--classes", "10"]
    words += ["--scheme", "mcunet-49kb", "--board", NUCLEO, "--weights-bits", "4", "--no-checkpoints"]
    done = CliRunner().invoke(main, [*map(str, words), "-o", str(tmp_path / "generated")])
    assert done.exit_code == 0, done.output
    elf = build(tmp_path / "pio", NUCLEO, tmp_path / "generated")
    firmware = load_firmware(elf)
    used = region_use(firmware)
    assert 262_144 < used["weights"][0] <= 393_216 and used["code"][0] <= 131_072
    device, rng = Device(EmulatedPort(Board(elf))), np.random.default_rng(1)
    before = device.sha()
    device.train(rng.integers(0, 256, (128, 128, 3)).astype(np.uint8), 3)
    assert device.selftest() and device.sha() != before and int(device.info.records) > 10


def test_conversion_says_so(unsaved: Built) -> None:
    page = (unsaved.folder / "report.html").read_text()
    assert "never: --no-checkpoints" in page
    assert read_plan(unsaved.folder / "plan.json").name == "digits"


@pytest.mark.parametrize(
    ("size", "coded", "way"),
    [
        (200_000, 120_000, "--weights-bits 4, which takes 120,000 B"),
        (300_000, 160_000, "--no-checkpoints, which makes room for 393,216 B"),
        (487_000, 263_000, "--weights-bits 4, which takes 263,000 B, and --no-checkpoints"),
        (900_000, 500_000, "as many weights"),
    ],
)
def test_a_refusal_names_what_would_fit(size: int, coded: int, way: str) -> None:
    limits = boards.limits(boards.find(NUCLEO), None, None)
    weights = Weights(size, size, saved=size - coded)
    (sentence,) = obstacles.too_heavy(weights, limits, compress=False)
    assert way in sentence
    assert ("--no-checkpoints" in sentence) == (131_072 < coded <= 393_216)


def test_this_machine_has_none_to_give() -> None:
    done = CliRunner().invoke(main, [str(EXAMPLE / "model.pt"), "--board", "native", "--no-checkpoints"])
    assert done.exit_code == 1 and "leave the option out" in done.output


def test_what_is_given_is_not_offered_again() -> None:
    limits = boards.limits(boards.find(NUCLEO).without_checkpoints, None, None)
    weights = Weights(487_000, 487_000, saved=487_000 - 263_000)
    (sentence,) = obstacles.too_heavy(weights, limits, compress=False)
    assert "--no-checkpoints" not in sentence and "--weights-bits 4" in sentence
    assert not obstacles.too_heavy(weights, limits, compress=True)
    assert not replace(boards.find(NUCLEO), slot=0).can_save(0)
