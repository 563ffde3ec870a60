"""The camera demo on the emulated board: pictures, labels, buttons, LED, and cameras that fail."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from camera_demo import Demo
from camera_twin import scale
from PIL import Image
from pio_build import build_once
from sklearn.datasets import load_sample_image

from microtrain.emulator import Board, EmulatorError
from microtrain.emulator.peripherals import display
from microtrain.emulator.peripherals.camera import CameraFault, Ov2640, rgb565

SIZE = (320, 240)
FAULTS = {
    CameraFault.NO_CHIP: "no camera answers on SPI",
    CameraFault.SILENT_BUS: "no sensor answers on I2C",
    CameraFault.STUCK_BUS: "no sensor answers on I2C",
    CameraFault.WRONG_ID: "the sensor is no OV2640",
}
LATER_FAULTS = {
    CameraFault.NEVER_FULL: "the picture did not become complete within 2 s",
    CameraFault.SHORT: "the picture is too short",
}


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace, _ = build_once(tmp_path_factory, "pio-camera", "camera")
    return workspace / "build/camera/firmware.elf"


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    return [Image.fromarray(load_sample_image(name)) for name in ("china.jpg", "flower.jpg")]


@pytest.fixture
def demo(elf: Path) -> Iterator[Demo]:
    demo = Demo(elf)
    demo.boot()
    yield demo


# ---------------------------------------------------------------- pictures


def test_the_banner_names_the_sensor(elf: Path) -> None:
    assert "camera 320x240 sensor 2642" in Demo(elf).boot()


@pytest.mark.parametrize("number", [0, 1])
def test_a_picture_is_what_its_twin_makes_of_it(demo: Demo, photos: list[Image.Image], number: int) -> None:
    demo.camera.show(photos[number])
    assert demo.ask("capture") == ["ok capture"]
    seen = demo.logits()
    for y, row in enumerate(scale(rgb565(photos[number], SIZE), 8, 8, 1)):
        assert demo.answer(f"row {y} 0 {row.tobytes().hex()}") == f"ok row {y}"
    assert np.array_equal(demo.logits(), seen)
    assert len(set(seen)) > 1


def test_each_picture_shows_the_next_scene(demo: Demo, photos: list[Image.Image]) -> None:
    demo.camera.show(*photos)
    seen = []
    for _ in range(4):
        demo.ask("capture")
        seen.append(demo.logits().tobytes())
    assert seen[0] == seen[2] != seen[1] == seen[3]


def test_capture_gives_an_image_like_any_other(demo: Demo) -> None:
    demo.ask("capture")
    assert demo.answer("train 1").startswith("ok train 1 ")
    assert demo.answer("infer").startswith("err image rows missing")


def test_the_led_survives_that_it_is_the_clock(demo: Demo) -> None:
    demo.ask("led 1")
    demo.ask("capture")
    assert demo.board.led
    demo.ask("led 0")
    demo.ask("capture")
    assert not demo.board.led


def test_the_sensor_is_set_to_what_the_firmware_expects(demo: Demo) -> None:
    assert demo.camera.sensor.size == SIZE
    registers = demo.camera.sensor.registers[0]
    registers[0x5A] = 0xFF  # wider than the window
    with pytest.raises(EmulatorError, match="each must fit the next"):
        _ = demo.camera.sensor.size
    registers[0x5A], registers[0xDA] = 80, 0x00
    with pytest.raises(EmulatorError, match="RGB565 only"):
        demo.camera.sensor.picture(Image.new("RGB", SIZE))


def test_a_single_read_hands_out_what_a_burst_does(demo: Demo) -> None:
    demo.camera.show(bytes(range(256)) * 600)
    demo.ask("capture")
    demo.camera.exchange(0)
    demo.camera._at = 0
    for expected in (0, 1, 2):
        demo.camera.select()
        demo.camera.exchange(0x3D)
        assert demo.camera.exchange(0) == expected


def test_banks_of_the_sensor_are_apart() -> None:
    sensor = Ov2640()
    for data in (b"\xff\x01", b"\x50\x77", b"\xff\x00", b"\x50"):
        sensor.write(data)
    assert sensor.read(1) == b"\x00"
    sensor.write(b"\xff\x01")
    sensor.write(b"\x50")
    assert sensor.read(1) == b"\x77"


# ---------------------------------------------------------------- cameras that fail


@pytest.mark.parametrize("fault", list(FAULTS))
def test_without_a_camera_the_serial_line_goes_on(elf: Path, fault: CameraFault) -> None:
    demo = Demo(elf, fault)
    assert any(line.startswith(f"camera none: {FAULTS[fault]}") for line in demo.boot())
    for command in ("camera", "capture", "shoot"):
        assert demo.answer(command).startswith(f"err camera {FAULTS[fault]}")
    assert demo.press(0).startswith(f"no shot: {FAULTS[fault]}")
    demo.ask("pattern 1")
    assert demo.answer("train 1").startswith("ok train 1")
    demo.camera.set_fault(CameraFault.NONE)
    assert demo.answer("shoot").startswith("ok shoot infer")


@pytest.mark.parametrize("fault", list(LATER_FAULTS))
def test_a_picture_that_does_not_come(demo: Demo, fault: CameraFault) -> None:
    demo.camera.set_fault(fault)
    start = demo.board.seconds
    assert demo.answer("shoot").startswith(f"err camera {LATER_FAULTS[fault]}")
    assert demo.board.seconds - start < 3.0
    assert demo.answer("infer").startswith("err image rows missing 8")
    assert demo.answer("ping") == "ok pong"
    demo.camera.set_fault(CameraFault.NONE)
    assert demo.answer("shoot").startswith("ok shoot infer")


def test_a_sensor_without_an_id_is_taken_with_a_warning(elf: Path) -> None:
    """Renode's model of the sensor tells none."""
    demo = Demo(elf, CameraFault.NO_ID)
    assert "camera 320x240 sensor 0000, which is no id: taken for an OV2640" in demo.boot()
    assert demo.ask("camera")[1].startswith("warning the sensor tells no id")
    assert demo.answer("shoot").startswith("ok shoot infer")


def test_a_camera_that_is_pulled_out_and_put_back(demo: Demo) -> None:
    demo.ask("shoot")
    demo.camera.set_fault(CameraFault.NO_CHIP)
    assert demo.answer("shoot").startswith("err camera no camera answers on SPI")
    demo.camera.reset()
    demo.camera.set_fault(CameraFault.NONE)
    assert demo.answer("shoot").startswith("ok shoot infer")


# ---------------------------------------------------------------- labels, modes, buttons


def test_modes_say_what_a_shot_does(demo: Demo, photos: list[Image.Image]) -> None:
    demo.camera.show(photos[0])
    assert demo.answer("shoot").split()[:3] == ["ok", "shoot", "infer"]
    assert demo.answer("mode train") == "ok mode train"
    _, _, mode, label, _, percent, loss = demo.answer("shoot 2").split()
    assert (mode, label) == ("train", "2")
    assert int(percent) == round(100 * float(np.exp(-float(loss))))
    assert demo.answer("mode evaluate") == "ok mode evaluate"
    before = demo.answer("sha")
    _, _, mode, label, predicted, _, correct, total = demo.answer("shoot 1").split()
    assert (mode, label, total) == ("evaluate", "1", "1") and correct == str(int(predicted == "1"))
    assert demo.answer("sha") == before


def test_confidence_is_the_softmax(demo: Demo, photos: list[Image.Image]) -> None:
    demo.camera.show(photos[1])
    percent = int(demo.answer("shoot").split()[4])
    demo.ask("capture")
    logits = demo.logits()
    shares = np.exp(logits - logits.max())
    assert abs(percent - 100 * shares.max() / shares.sum()) <= 0.51


BAD = ("mode sleep", "mode", "label 3", "label 0 3", "label", "shoot 3", "shoot x")


@pytest.mark.parametrize("command", BAD)
def test_bad_arguments(demo: Demo, command: str) -> None:
    assert demo.answer(command).startswith("err argument ")
    assert demo.answer("label 0") == "ok label 0 1"


def test_buttons_label_what_the_camera_sees(demo: Demo) -> None:
    demo.ask("label 2 1")
    demo.ask("mode train")
    assert demo.press(0).startswith("shot train 2 ")
    assert demo.press(1).startswith("shot train 1 ")
    assert "steps 2" in demo.ask("stats")


def test_a_long_press_changes_the_mode(demo: Demo) -> None:
    said = [demo.press(0, 1.5) for _ in range(3)]
    assert said == ["mode train\r\n", "mode evaluate\r\n", "mode infer\r\n"]
    assert demo.press(1, 3.0) == "mode train\r\n"


def test_a_bounce_is_no_press(demo: Demo) -> None:
    for _ in range(5):
        demo.board.button(True)
        assert demo.wait(0.004) == ""
        demo.board.button(False)
        assert demo.wait(0.004) == ""
    assert demo.wait(0.5) == ""


def test_a_shot_waits_for_a_push(demo: Demo) -> None:
    assert demo.answer("push 64 00000000 6c6c756e") == "ok push"
    assert demo.press(0).startswith("no shot: a push is under way")
    assert demo.answer("shoot").startswith("err busy")
    demo.ask("image")
    assert demo.press(0).startswith("shot infer ")


# ---------------------------------------------------------------- factory reset


def learned(elf: Path) -> tuple[Demo, str]:
    """A device with a checkpoint, and its trainables' hash before it learned."""
    demo = Demo(elf)
    demo.boot()
    before = demo.answer("sha")
    demo.ask("mode train")
    demo.ask("shoot")
    demo.ask("save")
    assert demo.answer("sha") != before
    return demo, before


def hold_at_boot(demo: Demo) -> None:
    demo.board.button(True)
    demo.board.power_on()
    assert any(line.startswith("factory reset? let the button go") for line in demo.boot())
    assert demo.wait(2.0) == ""


def test_a_confirmed_factory_reset_forgets_everything(elf: Path) -> None:
    demo, before = learned(elf)
    hold_at_boot(demo)
    demo.board.button(False)
    assert demo.wait(1.0) == ""
    demo.board.button(True)
    assert demo.lines(("factory",))[-1] == "factory reset done"
    demo.board.button(False)
    assert demo.wait(0.5) == ""
    assert demo.answer("sha") == before
    demo.board.power_on()
    assert "checkpoint none" in demo.boot()


def test_without_the_second_press_everything_stays(elf: Path) -> None:
    demo, before = learned(elf)
    now = demo.answer("sha")
    hold_at_boot(demo)
    demo.board.button(False)
    assert demo.wait(6.0) == "factory reset not confirmed: everything learned stays\r\n"
    assert demo.answer("sha") == now != before
    assert demo.press(0).startswith("shot infer ")


# ---------------------------------------------------------------- LED


def blinks(demo: Demo, seconds: float) -> list[tuple[int, int]]:
    """Times in ms that the LED is on and then off, over and over, from the first change on."""
    changes = [(demo.board.led, 0.0)]

    def note() -> None:
        if demo.board.led != changes[-1][0]:
            changes.append((demo.board.led, demo.board.seconds))

    demo.board.gpio["I"].watchers.append(note)
    demo.board.run(seconds=seconds)
    demo.board.gpio["I"].watchers.remove(note)
    lasted = [round(1000 * (b[1] - a[1])) for a, b in pairwise(changes[1:])]
    first = 0 if changes[1][0] else 1
    return list(zip(lasted[first::2], lasted[first + 1 :: 2], strict=False))


def test_the_led_counts_the_class(demo: Demo, photos: list[Image.Image]) -> None:
    demo.camera.show(photos[0])
    for label in (1, 2):  # the null model soon believes what it was told last
        demo.ask("mode train")
        for _ in range(20):
            demo.ask(f"shoot {label}")
        demo.ask("mode infer")
        predicted, percent = (int(word) for word in demo.answer("shoot").split()[3:])
        assert predicted == label
        on_ms = 800 if percent >= 90 else 400 if percent >= 60 else 150
        seen = blinks(demo, 12)[1:]
        pauses = [i for i, (_, off) in enumerate(seen) if off > 1000]
        assert len(pauses) > 1 and set(np.diff(pauses)) == {predicted + 1}
        assert {on for on, _ in seen} <= {on_ms - 1, on_ms, on_ms + 1}


def test_the_led_flickers_where_there_is_no_picture(demo: Demo) -> None:
    demo.camera.set_fault(CameraFault.NO_CHIP)
    demo.ask("shoot")
    seen = blinks(demo, 3)
    assert 18 <= len(seen) <= 19
    # the first one begins while the answer is still on its way
    assert all(abs(on - 50) <= 1 and abs(off - 50) <= 1 for on, off in seen[1:]), seen
    assert not demo.board.led


def test_the_led_tells_the_mode(demo: Demo) -> None:
    demo.ask("mode evaluate")
    assert len(blinks(demo, 2)) == 2  # the third has no end to its pause


# ---------------------------------------------------------------- display


def shown(demo: Demo) -> np.ndarray:
    picture = display.picture(demo.board)
    assert picture is not None
    return np.asarray(picture)


def bar(demo: Demo) -> int:
    """Length of the green bar in pixels."""
    return int((shown(demo)[154] == (0, 255, 0)).all(axis=1).sum())


def test_the_display_shows_the_picture_and_the_confidence(demo: Demo, photos: list[Image.Image]) -> None:
    demo.camera.show(photos[0])
    percent = int(demo.answer("shoot").split()[4])
    words = np.frombuffer(rgb565(photos[0], SIZE), ">u2").reshape(240, 320).astype(np.int64)
    colours = [(words >> 11) * 255 // 31, (words >> 5 & 63) * 255 // 63, (words & 31) * 255 // 31]
    assert np.array_equal(shown(demo)[16:256, :320], np.stack(colours, axis=-1))
    assert bar(demo) == 136 * percent // 100
    assert shown(demo)[52:130, 332:].any()


def test_the_display_says_that_there_is_no_picture(demo: Demo) -> None:
    demo.ask("shoot")
    before = shown(demo)
    demo.camera.set_fault(CameraFault.NEVER_FULL)
    demo.ask("shoot")
    assert bar(demo) == 0
    assert ((shown(demo) == (255, 0, 0)).all(axis=2)).any() and not (
        (before == (255, 0, 0)).all(axis=2)
    ).any()


def test_the_display_follows_the_mode(demo: Demo) -> None:
    def text() -> bytes:
        return shown(demo)[16:30, 332:].tobytes()

    first = text()
    assert not shown(demo)[52:190, 332:].any()  # no result before the first shot
    demo.ask("mode train")
    second = text()
    assert demo.press(0, 1.5).startswith("mode evaluate")
    assert len({first, second, text()}) == 3 and any(first)


def test_without_sdram_the_demo_goes_on(elf: Path) -> None:
    demo = Demo(elf)
    demo.board.fmc.registers[0x158] = 1 << 5  # SDSR: busy for ever
    demo.boot()
    assert display.picture(demo.board) is None
    assert demo.answer("shoot").startswith("ok shoot infer")


# ---------------------------------------------------------------- the plain firmware


def test_the_plain_firmware_knows_nothing_of_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    workspace, _ = build_once(tmp_path_factory, "pio-null", "disco_f746ng", "native")
    board = Board(workspace / "build/disco_f746ng/firmware.elf")
    assert not {"camera_open", "demo_command", "spi_init", "i2c_init"} & set(board.image.symbols)
    demo = Demo(workspace / "build/disco_f746ng/firmware.elf")
    assert not any(line.startswith("camera") for line in demo.boot())
    assert demo.answer("camera").startswith("err command")
