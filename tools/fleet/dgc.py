"""Deep Gradient Compression (Lin et al., 2018, arXiv:1712.01887) of what a board has learned, in integers.

A change joins a velocity (momentum correction), that joins a residual, and of the residual the largest values
are sent. What is not sent stays, as does what the 8 bits of a sent value cannot say. A value that was sent
loses its velocity (momentum factor masking).

A sparse body has for each tensor: how many values, and where there are some, a shift, the gaps between their
places, and the values, int8, in units of 2^shift. Numbers are LEB128.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .errors import FleetError
from .layout import Layout
from .message import checked, dense

MOMENTUM_BITS = 8
SCORE_BITS = 16
VALUE_BITS = 7
SHIFT_MOST = 48
REACH = 2  # a residual is at most so many times the limit of its place
MILLION = 1_000_000


@dataclass(frozen=True)
class Sent:
    """The body of an update, what it says (int64 [size]), and what stays for later."""

    body: bytes
    values: np.ndarray
    residual: np.ndarray
    velocity: np.ndarray


def budget(layout: Layout, share: int) -> int:
    """Bytes that a body may have. share: in millionths of all values in the widths they are stored in."""
    return max(len(layout.parts) + 4, full_bytes(layout) * share // MILLION)


def full_bytes(layout: Layout) -> int:
    """Bytes of all that is shared, as a board stores it."""
    return sum(p.tensor.bytes + (p.fraction.bytes if p.fraction else 0) for p in layout.parts)


def delta_bytes(layout: Layout, change: np.ndarray) -> int:
    """Bytes of a change that leaves nothing out."""
    return len(dense(layout, change))


def compressed(
    layout: Layout,
    change: np.ndarray,
    kept: tuple[np.ndarray | None, np.ndarray | None],
    lost: np.ndarray | None,
    share: int,
    momentum: int,
) -> Sent:
    """What to send of a round's change.

    kept      residual and velocity from the rounds before; None: zeros
    lost      an update that did not arrive: it joins the residual as it is
    momentum  in 1/256
    """
    residual, velocity = (np.zeros(layout.size, np.int64) if x is None else x for x in kept)
    velocity = (velocity * momentum + (1 << MOMENTUM_BITS >> 1) >> MOMENTUM_BITS) + change
    most = REACH * layout.limits
    velocity = np.clip(velocity, -most, most)
    residual = np.clip(residual + velocity + (0 if lost is None else lost), -most, most)
    order = np.argsort(-scores(layout, residual), kind="stable")
    order = order[: np.count_nonzero(residual)]
    room, low, high = budget(layout, share), 0, len(order)
    while low < high:  # the most values whose body has room
        middle = (low + high + 1) // 2
        if len(packed(layout, _only(residual, order[:middle]))[0]) <= room:
            low = middle
        else:
            high = middle - 1
    body, values = packed(layout, _only(residual, order[:low]))
    return Sent(body, values, residual - values, np.where(values != 0, 0, velocity))


def scores(layout: Layout, residual: np.ndarray) -> np.ndarray:
    """How large each value is beside the mean of its tensor, int64: tensors have units of their own."""
    result = np.zeros(layout.size, np.int64)
    for part in layout.parts:
        own = np.abs(residual[part.start : part.end])
        mean = max(1, (int(own.sum()) << VALUE_BITS) // part.size)
        result[part.start : part.end] = (own << SCORE_BITS) // mean
    return result


def _only(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    result = np.zeros_like(values)
    result[places] = values[places]
    return result


def packed(layout: Layout, values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """A sparse body, and what it says: each value towards zero, in the 7 bits of its tensor's largest."""
    body, said = bytearray(), np.zeros_like(values)
    for part in layout.parts:
        own = values[part.start : part.end]
        shift = max(0, int(np.abs(own).max(initial=0)).bit_length() - VALUE_BITS)
        small = np.sign(own) * (np.abs(own) >> shift)
        places = np.flatnonzero(small)
        _put(body, len(places))
        if len(places):
            body.append(shift)
            for gap in np.diff(places, prepend=-1) - 1:
                _put(body, int(gap))
            body += small[places].astype(np.int8).tobytes()
        said[part.start : part.end] = small << shift
    return bytes(body), said


def unpacked(layout: Layout, body: memoryview) -> np.ndarray:
    """The values of a sparse body, int64 [layout.size]. FleetError where it is not one."""
    values, at = np.zeros(layout.size, np.int64), 0
    for part in layout.parts:
        count, at = _take(body, at)
        if count > part.size:
            raise FleetError(f"a message is refused: {count} values for {part.name}, which has {part.size}.")
        if count:
            at = _unpack_part(part.name, values[part.start : part.end], body, at, count)
    if at != len(body):
        raise FleetError(f"a message is refused: {len(body) - at} bytes follow its last tensor.")
    return checked(layout, values, REACH)


def _unpack_part(name: str, into: np.ndarray, body: memoryview, at: int, count: int) -> int:
    """Fill in a tensor's values; returns where the next one begins."""
    if at >= len(body) or body[at] > SHIFT_MOST:
        raise FleetError(f"a message is refused: {name} has no shift, or one that no value has.")
    shift, at, place = body[at], at + 1, -1
    places = []
    for _ in range(count):
        gap, at = _take(body, at)
        place += gap + 1
        places.append(place)
    if place >= len(into):
        raise FleetError(f"a message is refused: {name} has no place {place}.")
    if at + count > len(body):
        raise FleetError(f"a message is refused: values of {name} are missing.")
    into[places] = np.frombuffer(body[at : at + count], np.int8).astype(np.int64) << shift
    return at + count


def _put(body: bytearray, number: int) -> None:
    while number > 0x7F:
        body.append(number & 0x7F | 0x80)
        number >>= 7
    body.append(number)


def _take(body: memoryview, at: int) -> tuple[int, int]:
    """A number of at most 28 bits, and where the next thing begins."""
    number = 0
    for shift in range(0, 28, 7):
        if at >= len(body):
            break
        byte, at = body[at], at + 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise FleetError("a message is refused: a number in it is cut off or too long.")
