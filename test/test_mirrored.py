"""Numbers that Python and the firmware's C both have to know: they are the same."""

from __future__ import annotations

import re

import pytest

from microtrain.base.paths import FIRMWARE
from microtrain.convert import ir, obstacles, options
from microtrain.convert.ops import stream, unit, work
from microtrain.device import answers, link, protocol, votes
from microtrain.emulator import port
from microtrain.simulate import guard, machine

MIRRORED = (
    ("include/board.h", "BOARD_BAUD_DEFAULT", link.DEFAULT_BAUD),
    ("include/board.h", "BOARD_BAUD_DEFAULT", port.DEFAULT_BAUD),
    ("include/kernels/pace.h", "WORK_OUTPUT", unit.OUTPUT),
    ("include/kernels/product_code.h", "PRODUCT_CODE_PART_MAX", options.PART_MAX),
    ("include/kernels/stream.h", "STREAM_STAGES_MAX", stream.STAGES_MAX),
    ("include/microtrain_votes.h", "MICROTRAIN_VOTES_MOST", votes.MOST),
    ("include/receiver.h", "FRAME_ROW", protocol.ROW),
    ("include/receiver.h", "FRAME_WEIGHTS", protocol.WEIGHTS),
    ("include/receiver.h", "FRAME_DATA", protocol.DATA),
    ("include/receiver.h", "FRAME_SOUND", protocol.SOUND),
    ("src/kernels/conv2d_bwd_x.c", "STRIP", work.STRIP),
    ("src/kernels/dwconv2d_bwd_x.c", "KEPT_PIXELS", work.STRIP),
    ("src/kernels/conv2d_update.c", "CHUNK", unit.CHUNK),
    ("src/kernels/grouped.c", "STRIP", work.STRIP),
    ("src/kernels/grouped.c", "CHUNK", unit.CHUNK),
    ("src/runtime/guard.h", "GUARD_LIMIT", guard.LOSS_MOST),
    ("src/runtime/guard.h", "GUARD_STEPS", guard.STEPS),
    ("src/runtime/replay.h", "REPLAY_DEFAULT", answers.REPLAY_DEFAULT),
    ("src/runtime/session.c", "SEED_DEFAULT", machine.SEED),
    ("src/runtime/session.h", "IMAGE_ROWS", ir.SIDE_MOST),
    ("src/runtime/session.h", "IMAGE_ROW_BYTES", obstacles.MOST_ROW_BYTES),
    ("src/serial/handlers.h", "REPLAY_MAX", answers.REPLAY_MAX),
)


def numbers(text: str, name: str) -> list[int]:
    """What C says of a name, `NAME = 4` or `NAME <= 4`; the library's first, then the firmware's."""
    return [int(digits) for digits in re.findall(rf"\b{name} <?= (\d+)\b", text)]


@pytest.mark.parametrize(("file", "name", "value"), MIRRORED)
def test_python_and_c_know_the_same_number(file: str, name: str, value: float) -> None:
    assert numbers((FIRMWARE / file).read_text(encoding="utf-8"), name)[-1] == value


def test_another_number_is_noticed() -> None:
    assert numbers("enum { MOST = 12, LEAST = 3 };", "MOST") == [12]
    assert numbers("enum { MOST = 13, OTHER_MOST = 12 };", "MOST") == [13]
