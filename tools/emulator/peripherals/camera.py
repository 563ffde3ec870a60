"""The ArduCAM Mini 2MP Plus: the ArduChip with its picture memory on SPI, the OV2640 sensor on I2C.

Sources: ArduCAM, "ArduCAM-M-2MP Plus hardware application note"; OmniVision, "OV2640 data sheet" 1.6.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from microtrain.emulator.errors import EmulatorError

if TYPE_CHECKING:
    from PIL import Image

    from microtrain.emulator.board import Board

# The ArduChip's registers
TEST, FIFO_CONTROL, BURST_READ, SINGLE_READ, STATUS, FIFO_SIZE = 0x00, 0x04, 0x3C, 0x3D, 0x41, 0x42
WRITE = 0x80
CLEAR, START, RESET_READ = 1 << 0, 1 << 1, 1 << 4
DONE = 1 << 3
FRAME_S = 1 / 15  # at 1600x1200; a picture begins with the next frame and takes one
# The sensor's
BANK, DSP, SENSOR = 0xFF, 0, 1
PIDH, PIDL, COM7 = 0x0A, 0x0B, 0x12
CTRLI, HSIZE, VSIZE, VHYX, ZMOW, ZMOH, ZMHH, IMAGE_MODE = 0x50, 0x51, 0x52, 0x55, 0x5A, 0x5B, 0x5C, 0xDA
COM7_RESET, RGB565, LOW_BYTE_FIRST = 0x80, 0x08, 0x01
ADDRESS = 0x30
FULL = (1600, 1200)
PICTURES = (".bmp", ".jpeg", ".jpg", ".png")


class CameraFault(StrEnum):
    """What can be wrong with it."""

    NONE = "none"
    NO_CHIP = "no-chip"  # nothing answers on SPI
    SILENT_BUS = "silent-bus"  # nothing answers on I2C
    STUCK_BUS = "stuck-bus"  # I2C: something holds SDA down
    WRONG_ID = "wrong-id"  # another sensor
    NO_ID = "no-id"  # PIDH and PIDL read 0, as in Renode's model
    NEVER_FULL = "never-full"  # a picture never becomes complete
    SHORT = "short"  # it ends too early


class Ov2640:
    """The sensor: two banks of registers, and what they make of a picture."""

    def __init__(self) -> None:
        self.fault = CameraFault.NONE
        self.reset()

    def reset(self) -> None:
        self._bank, self._pointer = DSP, 0
        self.registers: tuple[dict[int, int], dict[int, int]] = ({}, {PIDH: 0x26, PIDL: 0x42})

    def write(self, data: bytes) -> None:
        """A register's number, and its value where that follows."""
        self._pointer = data[0]
        if len(data) < 2:
            return
        if data[0] == BANK:
            self._bank = data[1] & 1
        elif self._bank == SENSOR and data[0] == COM7 and data[1] & COM7_RESET:
            self.reset()
        else:
            self.registers[self._bank][data[0]] = data[1]

    def read(self, count: int) -> bytes:
        value = self.registers[self._bank].get(self._pointer, 0)
        if self._bank == SENSOR and self._pointer in (PIDH, PIDL):
            value = {CameraFault.WRONG_ID: 0x56, CameraFault.NO_ID: 0}.get(self.fault, value)
        return bytes([value] * count)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the pictures that the registers ask for.

        Errors   EmulatorError where they contradict one another
        """
        get = self.registers[DSP].get
        zoomed = (get(ZMHH, 0) & 3) << 8 | get(ZMOW, 0), (get(ZMHH, 0) >> 2 & 1) << 8 | get(ZMOH, 0)
        width, height = 4 * zoomed[0], 4 * zoomed[1]
        window = get(HSIZE, 0) | (get(VHYX, 0) >> 3 & 1) << 8, get(VSIZE, 0) | (get(VHYX, 0) >> 7) << 8
        reduced = FULL[0] >> (get(CTRLI, 0) & 7), FULL[1] >> (get(CTRLI, 0) >> 3 & 7)
        if not 0 < width <= window[0] <= reduced[0] or not 0 < height <= window[1] <= reduced[1]:
            raise EmulatorError(
                f"the OV2640 is set to {width}x{height} out of {window} out of {reduced}: "
                "each must fit the next."
            )
        return width, height

    def picture(self, image: Image.Image) -> bytes:
        """What the sensor makes of what it sees: RGB565.

        Errors   EmulatorError where it is set to another format
        """
        mode = self.registers[DSP].get(IMAGE_MODE, 0)
        if mode & ~LOW_BYTE_FIRST != RGB565:
            raise EmulatorError(
                f"the OV2640's IMAGE_MODE is {mode:#04x}: this board model knows RGB565 only."
            )
        return rgb565(image, self.size, swapped=bool(mode & LOW_BYTE_FIRST))


def rgb565(image: Image.Image, size: tuple[int, int], swapped: bool = False) -> bytes:
    """A picture, seen whole with black beside it, in RGB565, the high byte first."""
    import numpy as np
    from PIL import Image, ImageOps

    seen = ImageOps.pad(image.convert("RGB"), size, method=Image.Resampling.BOX)
    red, green, blue = np.moveaxis(np.asarray(seen, np.uint16), 2, 0)
    packed = red >> 3 << 11 | green >> 2 << 5 | blue >> 3
    return bytes(packed.astype("<u2" if swapped else ">u2"))


class Camera:
    """The module. Each picture it takes shows the next of what stands before it, over and over.

    fault   what is wrong with it
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self.sensor = Ov2640()
        self._scenes: list[Image.Image | bytes] = []
        self._next = 0
        self.set_fault(CameraFault.NONE)
        self.reset()

    def reset(self) -> None:
        """As after power-on."""
        self.sensor.reset()
        self._registers: dict[int, int] = {}
        self._command: int | None = None
        self._memory = b""
        self._at = 0
        self._done_s: float | None = None

    def set_fault(self, fault: CameraFault) -> None:
        self.fault = self.sensor.fault = fault
        board = self.board
        board.spi2.chip = None if fault is CameraFault.NO_CHIP else self
        board.i2c1.devices = {} if fault is CameraFault.SILENT_BUS else {ADDRESS: self.sensor}
        board.i2c1.stuck = fault is CameraFault.STUCK_BUS

    # ---------------------------------------------------------------- what it sees
    def show(self, *scenes: Image.Image | bytes) -> None:
        """Put something before the lens: pictures, or bytes that are handed out as they are."""
        self._scenes, self._next = list(scenes), 0

    def show_file(self, path: Path) -> None:
        """A picture, the pictures of a folder in the order of their names, or a file of raw RGB565.

        Errors   EmulatorError where there is no picture
        """
        from PIL import Image, UnidentifiedImageError

        files = sorted(p for p in path.iterdir() if p.suffix.lower() in PICTURES) if path.is_dir() else [path]
        try:
            self.show(*(_load(file) for file in files))
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise EmulatorError(f"the camera cannot be shown {path}: {error}") from error
        if not files:
            raise EmulatorError(f"the camera cannot be shown {path}: no {', '.join(PICTURES)} is in it.")

    def _take(self) -> bytes:
        if not self._scenes:
            return bytes(2 * self.sensor.size[0] * self.sensor.size[1])  # the lens is covered
        scene = self._scenes[self._next % len(self._scenes)]
        self._next += 1
        return scene if isinstance(scene, bytes) else self.sensor.picture(scene)

    # ---------------------------------------------------------------- SPI
    def select(self) -> None:
        self._command = None

    def exchange(self, byte: int) -> int:
        if self._command is None:
            self._command = byte
            return 0
        register = self._command & ~WRITE
        if self._command & WRITE:
            self._write(register, byte)
            return 0
        return self._read(register)

    def _write(self, register: int, value: int) -> None:
        if register != FIFO_CONTROL:
            self._registers[register] = value
            return
        if value & (CLEAR | RESET_READ):
            self._at = 0
        if value & CLEAR:
            self._done_s = None
        if value & START:
            self._memory, self._at = self._take(), 0
            if self.fault is CameraFault.SHORT:
                self._memory = self._memory[: len(self._memory) // 2]
            self._done_s = self.board.seconds + 2 * FRAME_S

    @property
    def _done(self) -> bool:
        in_time = self._done_s is not None and self.board.seconds >= self._done_s
        return in_time and self.fault is not CameraFault.NEVER_FULL

    def _read(self, register: int) -> int:
        if register == STATUS:
            return DONE if self._done else 0
        if FIFO_SIZE <= register < FIFO_SIZE + 3:
            return len(self._memory) >> 8 * (register - FIFO_SIZE) & 0xFF
        if register in (BURST_READ, SINGLE_READ):
            self._at += 1
            return self._memory[self._at - 1] if self._at <= len(self._memory) else 0
        return self._registers.get(register, 0)

    def burst(self) -> bytes:
        return self._memory[self._at :] if self._command == BURST_READ else b""

    def burst_taken(self, count: int) -> None:
        self._at += count


def _load(path: Path) -> Image.Image | bytes:
    from PIL import Image

    if path.suffix.lower() not in PICTURES:
        return path.read_bytes()
    with Image.open(path) as image:
        return image.convert("RGB")
