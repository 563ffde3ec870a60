"""Numbers of the demo that only the emulator can give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from microtrain.device.client import Device
from microtrain.emulator import Board, EmulatedPort, measure_sram

# What a model does, by firmware/include/model_api.h.
ENTRIES = ("model_take_row", "model_forward", "model_backward")


def all_in_sram(elf: Path, images: np.ndarray, labels: np.ndarray) -> int:
    """Bytes of SRAM that boot, serial images, inference, evaluation, training, pull and push really touch.

    images  uint8 [n][h][w][c]
    """

    def scenario(board: Board) -> None:
        device = Device(EmulatedPort(board))
        device.infer(images[0])
        for image, label in zip(images, labels, strict=True):
            device.train(image, int(label))
        device.evaluate(images[0], int(labels[0]))
        device.push(device.pull())
        device.stats()
        device.sha()

    return measure_sram(Board(elf), scenario).total


def step_instructions(elf: Path, image: np.ndarray, label: int) -> dict[str, int]:
    """Instructions of one inference and one training step, without the serial line and interrupts.

    image  uint8 [h][w][c]
    """
    port = EmulatedPort(elf)
    device = Device(port)

    def cost(run: Callable[[], object]) -> int:
        port.board.watch_calls(ENTRIES)
        run()
        return sum(call.instructions for call in port.board.calls().values())

    return {"inference": cost(lambda: device.infer(image)), "step": cost(lambda: device.train(image, label))}
