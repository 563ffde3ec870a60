"""How an op runs inside a stream, row by row: one of four kinds of answers.

A stage of a stream is a window op and the element ops behind it, which work on its rows in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from microtrain.convert.ir import Graph, Node
from microtrain.convert.names import Names
from microtrain.convert.reference.hostlib import Record


@dataclass(frozen=True)
class WindowStage:
    """Makes rows from a window of input rows, of `node.window`.

    kind      of enum stream_kind, where stream.c makes the rows; None where model.c does
    mixes     each output channel reads all input channels: such a stage ends a block
    geometry  the rows' struct conv2d
    operands  what the stage's entry holds: addresses of geometry, weights and biases. The last argument is
              where in the step's scratch its expanded biases are
    structs   parameter structs that only a stage needs
    biases    bytes of the biases that are expanded before the first row enters
    before    the calls that expand them
    rows      the C call that makes the rows of `p` from x in y
    scratch   bytes that this call needs, where stream.c does not know them
    """

    kind: int | None
    mixes: bool
    geometry: Callable[[Graph, Node], Record]
    operands: Callable[[Names, Node, int], tuple[str, str, str]]
    structs: Callable[[Names, Node], str]
    biases: Callable[[Graph, Node], int]
    before: Callable[[Names, Node, int], list[str]]
    rows: Callable[[Names, Node], str]
    scratch: Callable[[Graph, Node], int]


@dataclass(frozen=True)
class TimeStage(WindowStage):
    """Keeps, in the place of its biases, what all rows before have left: each window begins it anew."""


@dataclass(frozen=True)
class LastStage(TimeStage):
    """Makes one row, of the last: a stream ends with it. Its geometry has a row for each that comes."""


@dataclass(frozen=True)
class ElementStage:
    """Works on the rows of the stage before it, in place.

    whole  positions of inputs that are tensors in memory, whole
    rows   the C call that works on the rows of `p`, from the array of the given name to y
    """

    whole: tuple[int, ...]
    rows: Callable[[Names, Node, str], str]


@dataclass(frozen=True)
class ClosingStage:
    """Ends a stream with its result and its own input, row by row.

    row  the parameters for one row
    """

    row: Callable[[Graph, Node], Record]


@dataclass(frozen=True)
class NoStage:
    """Needs its input whole."""


NOT_A_STAGE = NoStage()
Stage = WindowStage | ElementStage | ClosingStage | NoStage


def no_stage_structs(names: Names, node: Node) -> str:
    return ""


def no_biases(graph: Graph, node: Node) -> int:
    return 0


def nothing_before(names: Names, node: Node, offset: int) -> list[str]:
    return []


def known_scratch(graph: Graph, node: Node) -> int:
    """Of rows that need none, or of which stream.c knows how much they need."""
    return 0
