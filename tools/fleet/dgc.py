"""Deep Gradient Compression (Lin et al., 2018, arXiv:1712.01887) of what a board has learned, in integers.

A change joins a velocity (momentum correction), that joins what is held back, and of this the largest values
are sent, each as its sign, with one size for each tensor (Sparse Ternary Compression, Sattler et al., 2019,
arXiv:1903.02891). What is not sent stays, as does what a sign and a size cannot say. A value that was sent
loses its velocity (momentum factor masking).

A sparse body is a row of bits, the highest of each byte first. For each tensor: how many values, and one more
(Elias' gamma code); where there are some, their size, and for each the gap before it (a Rice code, whose
parameter follows from how many there are) and its sign. Zeros fill the last byte.

A board does the same to the bit where it has the component for it (firmware/include/microtrain_fleet.h), so
all of this is whole numbers of 64 bits at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from microtrain.base.parts import NARROW, WIDE

from .errors import FleetError
from .layout import Layout, Part
from .message import checked, dense

MOMENTUM_BITS = 8
MOMENTUM = 192  # of a fleet's, in 1/256
SIZE_BITS, STEP_BITS = 8, 3  # of a size: 2^(its upper bits) * (1 + its lower bits / 2^STEP_BITS)
COUNT_BITS = 32  # more values than these count has no tensor
REACH = 2  # what is held back is at most so many times the limit of its place
ALONG = 8  # a board trains on from what it holds back where the cosine is at least 1 / ALONG
DOT_BITS = 60  # of a sum of products: (ALONG * sum)^2 has twice as many and some more, less than 128
RANK_BITS = 31
MILLION = 1_000_000


@dataclass(frozen=True)
class Sent:
    """The body of an update, what it says (int64 [size]), and what stays for later."""

    body: bytes
    values: np.ndarray
    held: np.ndarray
    velocity: np.ndarray


def budget(layout: Layout, share: int) -> int:
    """Bytes that an update may have. share: in millionths of all values in the widths they are stored in."""
    return full_bytes(layout) * share // MILLION


def full_bytes(layout: Layout) -> int:
    """Bytes of all that is shared, as a board stores it."""
    return sum(p.tensor.bytes + (p.fraction.bytes if p.fraction else 0) for p in layout.parts)


def delta_bytes(layout: Layout, change: np.ndarray) -> int:
    """Bytes of a change that leaves nothing out."""
    return len(dense(layout, change))


def least(layout: Layout) -> int:
    """Bytes of a body that says nothing."""
    return -(-len(layout.parts) // 8)


def within(layout: Layout, values: np.ndarray) -> np.ndarray:
    """What may be held back of these values."""
    return np.asarray(np.clip(values, -REACH * layout.limits, REACH * layout.limits))


def holdable(layout: Layout, values: np.ndarray) -> np.ndarray:
    """What may be held back of these values where updates are compressed: what 16 or 32 bits hold."""
    most = np.minimum(REACH * layout.limits, np.where(layout.limits <= NARROW, NARROW, WIDE))
    return np.asarray(np.clip(values, -most, most))


def goes_along(layout: Layout, held: np.ndarray, move: np.ndarray) -> bool:
    """Whether the fleet moves where a board would: the cosine of the two is at least 1 / ALONG.

    held  what the board has not said
    move  by what the shared values have changed since; where they have not, nothing is compared
    """
    places = np.flatnonzero(move)
    width = (DOT_BITS - layout.size.bit_length()) // 2
    own = fitting(held[places] << layout.shifts[places], width)
    all_ = fitting(np.clip(move[places], -WIDE, WIDE) << layout.shifts[places], width)
    dot, norms = int(own @ all_), (int(own @ own), int(all_ @ all_))
    return dot > 0 and (ALONG * dot) ** 2 >= norms[0] * norms[1]


def fitting(values: np.ndarray, width: int) -> np.ndarray:
    """The values without as many of their lower bits as must go for the largest to have `width`."""
    most = int(np.abs(values).max(initial=0))
    return np.asarray(values >> max(0, most.bit_length() - width))


def compressed(
    layout: Layout, change: np.ndarray, held: np.ndarray, velocity: np.ndarray, room: int, momentum: int
) -> Sent:
    """What to send of a round's change.

    held, velocity  from the rounds before
    room            bytes that the body may have; the few of an update that says nothing it has in any case
    momentum        in 1/256
    """
    velocity = (velocity * momentum + (1 << MOMENTUM_BITS >> 1) >> MOMENTUM_BITS) + change
    velocity = holdable(layout, velocity)
    held = holdable(layout, held + velocity)
    ranks = ranked(layout, held)
    low, high = (
        (1 << place_bits(layout)) - 1,
        (1 << RANK_BITS) - 1,
    )  # above the one no 0 is, above the other none
    while low < high:  # the lowest rank above which the values have room
        middle = (low + high) // 2
        if bits(layout, np.flatnonzero(ranks > middle)) <= 8 * room:
            high = middle
        else:
            low = middle + 1
    body, values = packed(layout, held, np.flatnonzero(ranks > high))
    return Sent(body, values, held - values, np.where(values != 0, 0, velocity))


def ranked(layout: Layout, values: np.ndarray) -> np.ndarray:
    """A number for each value, int64 [size], no two alike: the larger, the more it is worth to the model.

    Among equals those in front come first. Of the worth so many bits count as a rank has room for.
    """
    width = place_bits(layout)
    worth = fitting(np.abs(values) << layout.shifts, RANK_BITS - width)
    return np.asarray(worth << width | np.arange(layout.size)[::-1])


def place_bits(layout: Layout) -> int:
    return (layout.size - 1).bit_length()


def bits(layout: Layout, places: np.ndarray) -> int:
    """Length of a body with the values at these places, which rise."""
    total = 0
    for part in layout.parts:
        own = within_part(places, part)
        total += 2 * (len(own) + 1).bit_length() - 1
        if len(own):
            width = rice(part.size, len(own))
            total += SIZE_BITS + int((gaps(own) >> width).sum()) + len(own) * (width + 2)
    return total


def rice(size: int, count: int) -> int:
    """Bits of a gap that stand as they are: log2 of 0.69 of the mean gap, best for places by chance."""
    return max(0, (11 * size // (16 * count)).bit_length() - 1)


def within_part(places: np.ndarray, part: Part) -> np.ndarray:
    """Those of the places that are a tensor's, counted from its first value."""
    return places[slice(*np.searchsorted(places, (part.start, part.end)))] - part.start


def gaps(places: np.ndarray) -> np.ndarray:
    return np.diff(places, prepend=-1) - 1


def packed(layout: Layout, values: np.ndarray, places: np.ndarray) -> tuple[bytes, np.ndarray]:
    """A body with the values at these places, which rise and hold no 0; and what it says."""
    said, row = np.zeros_like(values), []
    for part in layout.parts:
        inside = within_part(places, part)
        own = inside + part.start
        row.append(_gamma(len(own) + 1))
        if len(own):
            code = size_code(int(np.abs(values[own]).sum()) // len(own))
            row.append(f"{code:0{SIZE_BITS}b}")
            width = rice(part.size, len(own))
            minus = (values[own] < 0).tolist()
            for gap, negative in zip(gaps(inside).tolist(), minus, strict=True):
                row.append("1" * (gap >> width) + "0" + _tail(gap, width) + "01"[negative])
            said[own] = np.sign(values[own]) * size_of(code)
    text = "".join(row)
    text += "0" * (-len(text) % 8)
    return int("1" + text, 2).to_bytes(len(text) // 8 + 1, "big")[1:], said


def size_code(mean: int) -> int:
    """The code of the largest size that is not above a mean of 1 or more."""
    shift = mean.bit_length() - 1
    return shift << STEP_BITS | ((mean << STEP_BITS) >> shift) - (1 << STEP_BITS)


def size_of(code: int) -> int:
    shift, step = code >> STEP_BITS, code & (1 << STEP_BITS) - 1
    return ((1 << STEP_BITS | step) << shift) >> STEP_BITS


def _gamma(number: int) -> str:
    return "0" * (number.bit_length() - 1) + f"{number:b}"


def _tail(number: int, width: int) -> str:
    return f"{number & (1 << width) - 1:0{width}b}" if width else ""


def unpacked(layout: Layout, body: memoryview) -> np.ndarray:
    """The values of a sparse body, int64 [layout.size]. FleetError where it is not one."""
    values, row = np.zeros(layout.size, np.int64), Bits(body)
    for part in layout.parts:
        row.of = part.name
        count = row.gamma() - 1
        if count > part.size:
            raise FleetError(f"a message is refused: {count} values for {part.name}, which has {part.size}.")
        if count:
            size = size_of(row.number(SIZE_BITS))
            for place, sign in row.places(part.size, count):
                values[part.start + place] = sign * size
    row.end()
    return checked(layout, values, REACH)


class Bits:
    """A body that is read from front to back. FleetError where it ends too early, naming the tensor `of`."""

    def __init__(self, body: memoryview) -> None:
        self.text = "".join(f"{byte:08b}" for byte in body)
        self.at = 0
        self.of = ""

    def number(self, width: int) -> int:
        self.at += width
        if self.at > len(self.text):
            self._short()
        return int("0" + self.text[self.at - width : self.at], 2)

    def until(self, bit: str) -> int:
        """How many others come before this bit, which is read too."""
        found = self.text.find(bit, self.at)
        if found < 0:
            self._short()
        before, self.at = found - self.at, found + 1
        return before

    def gamma(self) -> int:
        width = self.until("1")
        if width > COUNT_BITS:
            raise FleetError(f"a message is refused: {self.of} has not so many values.")
        return 1 << width | self.number(width)

    def places(self, size: int, count: int) -> Iterator[tuple[int, int]]:
        """(place, 1 or -1) of each value of a tensor."""
        width, place = rice(size, count), -1
        for _ in range(count):
            place += (self.until("0") << width | self.number(width)) + 1
            if place >= size:
                raise FleetError(f"a message is refused: {self.of} has no place {place}.")
            yield place, -1 if self.number(1) else 1

    def end(self) -> None:
        rest = self.text[self.at :]
        if len(rest) >= 8 or "1" in rest:
            raise FleetError("a message is refused: something follows its last tensor.")

    def _short(self) -> NoReturn:
        raise FleetError(f"a message is refused: it ends within {self.of}.")
