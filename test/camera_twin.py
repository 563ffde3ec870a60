"""examples/camera/scaler.h in NumPy: from a camera's RGB565 picture to the network's input."""

from __future__ import annotations

import numpy as np

CAMERA_HEIGHT, CAMERA_WIDTH = 240, 320


def colours(picture: bytes) -> np.ndarray:
    """RGB565, high byte first, to int64 [240, 320, 3] of 0..255."""
    words = np.frombuffer(picture, ">u2").reshape(CAMERA_HEIGHT, CAMERA_WIDTH).astype(np.int64)
    red, green, blue = words >> 11, words >> 5 & 63, words & 31
    return np.stack([red << 3 | red >> 2, green << 2 | green >> 4, blue << 3 | blue >> 2], axis=-1)


def crop(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """The largest part in the middle with the shape of height x width."""
    if CAMERA_WIDTH * height <= CAMERA_HEIGHT * width:
        rows, columns = CAMERA_WIDTH * height // width, CAMERA_WIDTH
    else:
        rows, columns = CAMERA_HEIGHT, CAMERA_HEIGHT * width // height
    top, left = (CAMERA_HEIGHT - rows) // 2, (CAMERA_WIDTH - columns) // 2
    return picture[top : top + rows, left : left + columns]


def scale(picture: bytes, height: int, width: int, channels: int) -> np.ndarray:
    """uint8 [height, width, channels]."""
    pixels = crop(colours(picture), height, width)
    if channels == 1:
        pixels = (pixels @ np.array([77, 150, 29])[:, None] + 128) >> 8
    rows = [y * pixels.shape[0] // height for y in range(height + 1)]
    columns = [x * pixels.shape[1] // width for x in range(width + 1)]
    out = np.empty((height, width, channels), np.uint8)
    for y in range(height):
        for x in range(width):
            part = pixels[rows[y] : rows[y + 1], columns[x] : columns[x + 1]].reshape(-1, channels)
            out[y, x] = (part.sum(axis=0) + len(part) // 2) // len(part)
    return out
