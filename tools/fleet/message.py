"""What a server and its boards send each other. Both read the other's bytes as those of an enemy.

    MTF2 | kind, 1 byte | model id, 32 bytes | round, 4 | length of the settings, 4 | settings | body

A task's settings are JSON. Those of an update are the numbers of REPORT and the board's name: every byte of
it counts. All numbers are little-endian. A dense body has for each tensor a byte that says how wide its
values are (1, 2, 4 or 8) and then its values. A sparse one is of dgc.py, a masked one of masks.py.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import numpy as np

from microtrain.base.errors import short
from microtrain.base.schema import AtLeast, Matches, OneOf, SchemaError, decode, encode
from microtrain.device.session import CONSTANT, SCHEDULES

from .errors import FleetError
from .layout import Layout

MAGIC = b"MTF2"
HEADER = struct.Struct("<4sB32sII")
REPORT = struct.Struct("<8sIIHfB")  # federation, samples, steps, again, loss, body
TASK, UPDATE = 1, 2
BODIES = ("dense", "sparse", "masked")
AGAIN_MOST = 65535
SETTINGS_MOST = 4096
ROUND_MOST = SAMPLES_MOST = 1 << 24
WIDTHS: dict[int, np.dtype[Any]] = {
    1: np.dtype("<i1"),
    2: np.dtype("<i2"),
    4: np.dtype("<i4"),
    8: np.dtype("<i8"),
}
Name = Annotated[str, Matches(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")]
Count = Annotated[int, AtLeast(0)]
Federation = Annotated[str, Matches("[0-9a-f]{16}")]  # which one it is: drawn when it begins
T = TypeVar("T")


@dataclass(frozen=True)
class Work:
    """What a board is asked to do in a round.

    seed      of the federation: the board's own for this round comes of it
    got       the last round of which the server has an update, by board
    epochs    passes over the board's samples
    limit     most samples in a pass, 0: all
    rate      factor on the scheme's learning rates
    schedule  of the rate over the round
    mu        weight of FedProx's proximal term, 0: none
    share     bytes of an update in millionths of those of all values, by dgc.py; 0: a whole update
    momentum  of that compression, in 1/256
    """

    federation: Federation
    seed: Count = 0
    got: dict[str, Count] = field(default_factory=dict)
    epochs: Annotated[int, AtLeast(1)] = 1
    limit: Count = 0
    rate: float = 1.0
    schedule: Annotated[str, OneOf(SCHEDULES)] = CONSTANT
    mu: float = 0.0
    share: Count = 0
    momentum: Count = 0

    def wrong(self) -> str | None:
        """What the annotations cannot say."""
        most: dict[str, float] = {"seed": 2**32 - 1, "epochs": 1000, "limit": SAMPLES_MOST}
        most |= {"rate": 1000, "mu": 1e6, "share": 10**6, "momentum": 255}
        return next(
            (f"{k} is {getattr(self, k)!r}" for k, v in most.items() if not 0 <= getattr(self, k) <= v), None
        )


@dataclass(frozen=True)
class Report:
    """What a board says of its round.

    samples  that it learned from: the weight of its update
    again    times that the round was begun again after trouble
    """

    board: Name
    federation: Federation
    samples: Annotated[int, AtLeast(1)]
    steps: Count
    again: Count = 0
    loss: float = 0.0
    body: Annotated[str, OneOf(BODIES)] = field(default="dense")

    def wrong(self) -> str | None:
        return None if self.samples <= SAMPLES_MOST else f"samples is {self.samples}"


@dataclass(frozen=True)
class Message:
    """kind: TASK or UPDATE; model_id: of the sender's plan; body: not looked at yet."""

    kind: int
    model_id: str
    round: int
    settings: dict[str, Any]
    body: memoryview


def written(kind: int, model_id: str, number: int, settings: Work | Report, body: bytes) -> bytes:
    text = _reported(settings) if isinstance(settings, Report) else _asked(settings)
    return HEADER.pack(MAGIC, kind, bytes.fromhex(model_id), number, len(text)) + text + body


def _asked(work: Work) -> bytes:
    return json.dumps(encode(work), separators=(",", ":"), allow_nan=False).encode()


def _reported(report: Report) -> bytes:
    numbers = report.samples, report.steps, min(report.again, AGAIN_MOST), report.loss
    body = BODIES.index(report.body)
    return REPORT.pack(bytes.fromhex(report.federation), *numbers, body) + report.board.encode()


def overhead(board: str) -> int:
    """Bytes of a board's update without its body."""
    return HEADER.size + REPORT.size + len(board)


def parsed(data: bytes, kind: int, most: int) -> Message:
    """A message of a kind, its settings still unchecked.

    most    bytes that any may have
    Errors  FleetError
    """
    if len(data) > most:
        raise FleetError(f"a message of {len(data):,} bytes is refused: none here has more than {most:,}.")
    if len(data) < HEADER.size:
        raise FleetError(f"a message of {len(data)} bytes is refused: it has no whole header.")
    magic, said, model_id, number, length = HEADER.unpack_from(data)
    if magic != MAGIC or said != kind:
        raise FleetError("a message is refused: it is not of this protocol, or not of the expected kind.")
    if not 1 <= number <= ROUND_MOST:
        raise FleetError(f"a message is refused: there is no round {number}.")
    if length > min(SETTINGS_MOST, len(data) - HEADER.size):
        raise FleetError("a message is refused: its settings are longer than it is.")
    text = data[HEADER.size : HEADER.size + length]
    settings = _document(text) if kind == TASK else _said(text)
    return Message(kind, model_id.hex(), number, settings, memoryview(data)[HEADER.size + length :])


def settled(kind: type[T], message: Message) -> T:
    """The settings of a message. FleetError where they are not as they must be."""
    try:
        value = decode(kind, message.settings)
    except SchemaError as error:
        raise FleetError(f"a message is refused: {error}.") from error
    wrong = value.wrong()  # type: ignore[attr-defined]
    if wrong:
        raise FleetError(f"a message is refused: {wrong}.")
    return value


def _said(text: bytes) -> dict[str, Any]:
    """The settings of an update, as a Report has them."""
    if len(text) < REPORT.size:
        raise FleetError("a message is refused: its settings are shorter than those of an update.")
    federation, samples, steps, again, loss, body = REPORT.unpack_from(text)
    if not math.isfinite(loss) or body >= len(BODIES):
        raise FleetError("a message is refused: its loss is no number, or its body of no known kind.")
    name = text[REPORT.size :].decode("ascii", "replace")
    known = {"board": name, "federation": federation.hex(), "samples": samples, "steps": steps}
    return known | {"again": again, "loss": loss, "body": BODIES[body]}


def _document(text: bytes) -> dict[str, Any]:
    def no_number(word: str) -> float:
        raise ValueError(f"{word} is no number")

    try:
        document = json.loads(text.decode("ascii"), parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise FleetError(f"a message is refused: its settings are no JSON ({short(str(error))}).") from error
    if not isinstance(document, dict):
        raise FleetError("a message is refused: its settings are no object.")
    return document


# ---------------------------------------------------------------- dense bodies


def longest(layout: Layout) -> int:
    """Bytes that no message of a layout exceeds: all of it in the widest values."""
    return HEADER.size + SETTINGS_MOST + len(layout.parts) + 8 * layout.size


def dense(layout: Layout, values: np.ndarray) -> bytes:
    """Each tensor in the narrowest width that holds it."""
    pieces: list[bytes] = []
    for part in layout.parts:
        own = values[part.start : part.end]
        low, high = int(own.min(initial=0)), int(own.max(initial=0))
        width = next(w for w, d in WIDTHS.items() if np.iinfo(d).min <= low and high <= np.iinfo(d).max)
        pieces += [bytes([width]), own.astype(WIDTHS[width]).tobytes()]
    return b"".join(pieces)


def undense(layout: Layout, body: memoryview, reach: int) -> np.ndarray:
    """The values of a dense body, int64 [layout.size].

    reach   how many times the limit of its place a value may be: 1 for states, 2 for differences
    Errors  FleetError where sizes are wrong or a value is out of its range
    """
    values, at = np.zeros(layout.size, np.int64), 0
    for part in layout.parts:
        dtype = WIDTHS.get(body[at]) if at < len(body) else None
        end = at + 1 + part.size * dtype.itemsize if dtype else 0
        if dtype is None or end > len(body):
            raise FleetError(f"a message is refused: {part.name} is missing, cut off or of no known width.")
        values[part.start : part.end] = np.frombuffer(body[at + 1 : end], dtype)
        at = end
    if at != len(body):
        raise FleetError(f"a message is refused: {len(body) - at} bytes follow its last tensor.")
    return checked(layout, values, reach)


def checked(layout: Layout, values: np.ndarray, reach: int) -> np.ndarray:
    """The values. FleetError where one is out of its range."""
    bad = (values > reach * layout.limits) | (values < -reach * layout.limits)
    if bad.any():
        part = next(p for p in layout.parts if bad[p.start : p.end].any())
        raise FleetError(f"a message is refused: a value of {part.name} is out of its range.")
    return values
