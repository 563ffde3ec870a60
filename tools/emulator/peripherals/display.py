"""What the LCD shows: the LTDC's registers (RM0385, 18) and the memory that they name, no timing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from microtrain.emulator.errors import EmulatorError

if TYPE_CHECKING:
    from PIL import Image

    from microtrain.emulator.board import Board

BPCR, AWCR, GCR = 0x0C, 0x10, 0x18
LAYER_CR, LAYER_PFCR, LAYER_CFBAR, LAYER_CFBLR, LAYER_CFBLNR = 0x84, 0x94, 0xAC, 0xB0, 0xB4
RGB565 = 2
PANEL = (480, 272)
DISP, BACKLIGHT = ("I", 12), ("K", 3)


def picture(board: Board) -> Image.Image | None:
    """The picture on the panel, None while it is dark.

    Errors   EmulatorError where there is none, or it is set up for another panel or another format
    """
    from PIL import Image

    if not board.chip.has_camera:
        raise EmulatorError(f"{board.chip.board} has no display.")
    get = board.ltdc.registers.get
    lit = all(board.gpio[port].is_high(pin) for port, pin in (DISP, BACKLIGHT))
    if not (lit and get(GCR, 0) & 1 and get(LAYER_CR, 0) & 1):
        return None
    first, last = get(BPCR, 0), get(AWCR, 0)
    size = (last >> 16) - (first >> 16), (last & 0xFFFF) - (first & 0xFFFF)
    pitch, line = get(LAYER_CFBLR, 0) >> 16, (get(LAYER_CFBLR, 0) & 0xFFFF) - 3
    if (
        size != PANEL
        or get(LAYER_PFCR, 0) != RGB565
        or get(LAYER_CFBLNR, 0) != size[1]
        or line != 2 * size[0]
    ):
        raise EmulatorError(
            f"the LTDC is set to {size} pixels, lines of {line} bytes: the panel has {PANEL}."
        )
    start = get(LAYER_CFBAR, 0)
    lines = (board.read_memory(start + y * pitch, line) for y in range(size[1]))
    return Image.frombytes("RGB", size, _colours(b"".join(lines)))


def _colours(pixels: bytes) -> bytes:
    """RGB565, little-endian, to three bytes per pixel."""
    out = bytearray()
    for low, high in zip(pixels[0::2], pixels[1::2], strict=True):
        word = high << 8 | low
        out += bytes(((word >> 11) * 255 // 31, (word >> 5 & 63) * 255 // 63, (word & 31) * 255 // 31))
    return bytes(out)
