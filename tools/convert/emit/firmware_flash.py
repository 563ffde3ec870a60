"""Flash of the firmware itself, from sizes that `make sizes` measured: the estimate is within 1 % of the ELF.

What every firmware has, the kernels that a model calls with whatever only they need, and the code and the
parameters in model.c, so many bytes a step of each op. The model's tables are not in it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from microtrain.base.parts import parts
from microtrain.base.plan import TFLITE
from microtrain.convert import boards
from microtrain.convert.ir import Graph
from microtrain.convert.ops import TABLE
from microtrain.convert.trainables import layout

from .windows import all_nodes, names, windows

FILE = Path(__file__).with_name("firmware_flash.json")
ROWS, ARRIVING, REST = "of rows", "of arriving rows", "in every model"
MOVING = "of rows that move on"
LINE = 20  # bytes of struct microtrain_shared_part


@dataclass(frozen=True)
class Sizes:
    """Bytes of one board's firmware.

    base      what every firmware has
    sections  of code and constants that only some have
    calls     what is called -> the sections that it needs
    replay    what a replay buffer adds, coded: one with codes; imprint: what statistics of features add;
              sound: what the front end adds; hop: what windows that overlap add
    external  what the driver of flash beside the chip adds
    fleet     what updates of a fleet add that the board makes, but for a line of their table a tensor
    tflite    what sums add that are rounded as TensorFlow Lite does it
    steps     op -> bytes of model.c a step of it; REST: in every model
    """

    base: int
    sections: dict[str, int]
    calls: dict[str, list[str]]
    replay: int
    coded: int
    imprint: int
    sound: int
    hop: int
    external: int
    fleet: int
    tflite: int
    steps: dict[str, float]


@cache
def sizes(board: str) -> Sizes:
    return Sizes(**json.loads(FILE.read_text(encoding="utf-8"))[board])


def called(graph: Graph) -> set[str]:
    """What model.c calls of the firmware: kernels, the driver of streams, and windows that its layers use."""
    kernels = {kernel for node in all_nodes(graph) for kernel in TABLE[node.op].kernels}
    streams = [node for node in graph.nodes if node.parts]
    first = {ARRIVING} if graph.arriving else set()
    moving = {MOVING} if graph.arriving and graph.hop else set()
    return (
        kernels
        | first
        | moving
        | set(names(windows(graph)))
        | ({ROWS} if len(streams) > len(first) else set())
    )


def steps_of(graph: Graph) -> Counter[str]:
    """How many steps of each op model.c has."""
    return Counter({REST: 1}) + Counter(node.op for node in all_nodes(graph))


def firmware_flash(graph: Graph, board: str = boards.DEFAULT) -> int:
    """Bytes of the firmware for a model on a board."""
    known = sizes(board)
    needed = {name for call in called(graph) for name in known.calls.get(call, [])}
    return _with(graph, known, sum(known.sections[name] for name in needed))


def most_firmware_flash(graph: Graph) -> int:
    """The same on the default board, with all kernels there are, so that a layer's bytes do not depend on the
    other layers."""
    known = sizes(boards.DEFAULT)
    return _with(graph, known, sum(known.sections.values()))


def _with(graph: Graph, known: Sizes, kernels: int) -> int:
    model = sum(count * known.steps.get(op, 0.0) for op, count in steps_of(graph).items())
    buffer = known.coded if graph.codes else known.replay if graph.record else 0
    statistics, front = known.imprint if graph.imprint else 0, known.sound if graph.sound else 0
    windows = known.hop if graph.hop else 0
    driver = known.external if graph.outside else 0
    updates = known.fleet + LINE * len(parts(layout(graph))) if graph.fleet else 0
    rounding = known.tflite if graph.requantize == TFLITE else 0
    own = known.base + kernels + round(model)
    return own + buffer + statistics + front + windows + driver + updates + rounding
