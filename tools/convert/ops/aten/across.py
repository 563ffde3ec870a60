"""Front-end rules of maps that are read across their channels: linear layers over tokens, and turned maps.

The numbers of a map lie in memory as [above][n][below], of which n are read together: below is how many
channels there are where these are tokens, as in MLP-Mixer. Seen as an image of one channel, above * n rows of
below pixels, each of them is a column, which a convolution of n rows reads. What it makes of n numbers lies
as channels, [above][below][m]; with weights of 1 and 0 it only turns the map.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import WINDOW_MOST, Shape, Window
from microtrain.convert.lowering import Lowering

from ..calls import frozen
from ..tokens import numbers, places, settled, vectors, view_of, viewed, whole
from .channels import TAKE, shuffled, take
from .unflatten import of_vector

DENSE, GROUPED = "conv2d", "gconv2d"
TURN = "turned"  # ends the names of layers that only turn a map


@dataclass(frozen=True)
class Spread:
    """How the vectors along the last axis of a view lie in memory.

    first  where each begins, in the shape of the view's other axes
    """

    above: int
    n: int
    below: int
    first: np.ndarray

    @property
    def pixels(self) -> np.ndarray:
        """Which of the vectors, as they follow one another in [above][below], stands at each place."""
        found: np.ndarray = self.first // (self.n * self.below) * self.below + self.first % self.below
        return found


@dataclass(frozen=True)
class Turn:
    """[above][n][below][inner] in memory as [above][below][n][inner]."""

    above: int
    n: int
    below: int
    inner: int = 1


def spread(low: Lowering, x: Act) -> Spread | None:
    """Of a view of a whole map; None where its last axis is no axis of the memory."""
    at = places(low, x)
    n, first = at.shape[-1], at[..., 0]
    below = int(at.reshape(-1, n)[0, 1]) - int(at.flat[0]) if n > 1 else 1
    if below < 1 or at.size % (n * below) or at.size != np.prod(low.shape(x)):
        return None
    straight = np.array_equal(at, first[..., None] + np.arange(n) * below)
    apart = np.unique(first).size == first.size and (first % (n * below) < below).all()
    return Spread(at.size // (n * below), n, below, first) if straight and apart else None


def linear(low: Lowering, call: Call, x: Act, weight: Param) -> Act | None:
    """A linear layer [outputs, n] over the last axis of a view; None where that is no axis of the memory."""
    found = spread(low, x)
    if found is None:
        return None
    outputs, n = weight.value.shape
    turns = _steps(Turn(found.above, n, found.below))
    if len(turns) > 1 and (found.below > 1 or low.shape(x)[2] % n):
        return None  # of a map that is turned first
    if found.below == 1 and low.shape(x)[2] % n == 0:
        rows, window = (found.above, 1, n), Window(1, 1)
    else:
        rows, window = (found.above * n, found.below, 1), Window(n, 1, n, 1)
    shape = (outputs, window.kh, 1, rows[2])
    layer = low.layer(call, weight, weight.value.reshape(shape), call.args.get("bias"), shape)
    seen = relabelled(low, call, x, rows)
    made = low.emit(call, DENSE, (seen,), (found.above, found.below, outputs), layer=layer, window=window)
    return view_of(low, made.tensor, found.pixels[..., None] * outputs + np.arange(outputs))


def featured(low: Lowering, call: Call, value: Act) -> tuple[Act, np.ndarray | None]:
    """A view of a whole map, and the pixel of each vector of its last axis, which are its channels.

    A map that has others is turned first; None where that cannot be.
    """
    x, pixels = vectors(low, call, value)
    if pixels is not None or low.is_stand_in(x):
        return x, pixels
    found = spread(low, x)
    if found is None:
        return _of_patches(low, call, x)
    turn = Turn(found.above, found.n, found.below)
    if not _steps(turn):
        return x, None
    made = _turned(low, call, x, turn)
    return view_of(low, made.tensor, found.pixels[..., None] * found.n + np.arange(found.n)), found.pixels


def _of_patches(low: Lowering, call: Call, x: Act) -> tuple[Act, np.ndarray | None]:
    """Blocks of pixels whose numbers are the vectors of a view, as a map that has each block in one pixel."""
    at, (_, w, c) = places(low, x), low.shape(x)
    n = at.shape[-1]
    first = at.min(axis=-1, keepdims=True)
    within = (at - first).reshape(-1, n)
    rows, columns = (within[0] // c // w).max() + 1, (within[0] // c % w).max() + 1
    block = (np.arange(rows)[:, None, None] * w + np.arange(columns)[:, None]) * c + np.arange(c)
    corner = first[..., 0] // c
    plain = np.array_equal(np.sort(within[0]), block.ravel()) and not (within != within[0]).any()
    apart = not (first % c).any() and not (corner // w % rows).any() and not (corner % w % columns).any()
    if not plain or not apart or at.size != np.prod(low.shape(x)):
        return x, None
    made = _blocks_of(low, call, whole(low, x), int(rows), int(columns))
    pixels = corner // w // rows * (w // columns) + corner % w // columns
    channel = np.argsort(block.transpose(2, 0, 1).ravel())  # of each number of a block, in memory's order
    order = channel[np.searchsorted(block.ravel(), within[0])]
    made = take(low, replace(call, op=TAKE, builtin=False), made, order.tolist())
    return view_of(low, made.tensor, pixels[..., None] * n + np.arange(n)), pixels


def _blocks_of(low: Lowering, call: Call, x: Act, rows: int, columns: int) -> Act:
    """Blocks of pixels as channels, [c][row][column]; by rows, then by columns, which takes fewer weights."""
    apart = replace(call, op="blocks", builtin=False)
    for kh, kw in ((rows, 1), (1, columns)):
        (h, w, c), side = low.shape(x), kh * kw
        if side == 1:
            continue
        weight = np.tile(np.eye(side, dtype=np.float32), (c, 1)).reshape(c * side, kh, kw, 1)
        layer, window = frozen(low, apart.node_name("blocks"), weight), Window(kh, kw, kh, kw)
        shape = (h // kh, w // kw, c * side)
        x = low.emit(apart, GROUPED if c > 1 else DENSE, (x,), shape, layer=layer, window=window)
    return x


def alike(low: Lowering, call: Call, x: Act, wanted: np.ndarray, shape: Shape) -> Act | None:
    """A view of a map of this shape (h, w, c) whose numbers have the wanted places; None where none can be.

    x  of a whole map; wanted: for each place of the view
    """
    at = places(low, x)
    if at.size != np.prod(low.shape(x)) or at.size != np.prod(shape) or wanted.size != at.size:
        return None
    source = np.empty(at.size, np.int64)  # of the number at each place of the new map
    source[wanted.ravel()] = at.ravel()
    if np.array_equal(source, np.arange(at.size)):
        if low.shape(x)[2] % shape[2] == 0:
            return view_of(low, relabelled(low, call, x, shape).tensor, wanted)
        turn: Turn | None = Turn(at.size // shape[2], shape[2], 1)
    else:
        turn = _turn_of(source)
    if turn is None or not _steps(turn) or turn.n * turn.inner % shape[2] or low.shape(x)[2] % turn.inner:
        return None
    return view_of(low, relabelled(low, call, _turned(low, call, x, turn), shape).tensor, wanted)


def as_image(low: Lowering, call: Call, x: Act) -> Act:
    """A view [n, c, h, w] or [n, c, time] as such a map, which is turned for it; any other view as it is."""
    if len(x.dims) not in (3, 4) or x.dims[0] != low.batch or x.factor != 1 or x.pad or low.is_stand_in(x):
        return x
    _, c, h, w = (*x.dims, 1)[:4]
    x = settled(low, call, x) if c * h * w < np.prod(low.shape(x)) else x
    wanted = np.arange(h * w * c).reshape(h, w, c).transpose(2, 0, 1).reshape(x.dims)
    made = alike(low, call, x, wanted, (h, w, c))
    if made is None and len(x.dims) == 4:  # rows that were channels, say: first what its channels are
        moved, pixels = featured(low, call, viewed(low, x, np.moveaxis(numbers(low, x), 1, -1)))
        seen = viewed(low, moved, np.moveaxis(numbers(low, moved), -1, 1))
        made = None if pixels is None else alike(low, call, seen, wanted, (h, w, c))
    return x if made is None else Act(made.tensor, x.dims)


def relabelled(low: Lowering, call: Call, x: Act, shape: Shape) -> Act:
    """The map behind a view as one of another shape, of channels that divide its own."""
    return whole(low, x) if low.shape(x) == shape else of_vector(low, call, x, shape)


def _turn_of(source: np.ndarray) -> Turn | None:
    """What puts numbers at their places, if a turn does. source: of the number at each place"""
    runs = np.flatnonzero(np.diff(source) != 1)
    inner = int(runs[0]) + 1 if runs.size else source.size
    blocks = source[::inner] // inner
    below = int(blocks[1]) if blocks.size > 1 and blocks[0] == 0 else 0
    ends = np.flatnonzero(blocks == 1)
    n = int(ends[0]) if ends.size else 0
    if below < 2 or n < 2 or source.size % (n * below * inner):
        return None
    turned = np.arange(source.size).reshape(-1, n, below, inner).transpose(0, 2, 1, 3)
    fits = np.array_equal(turned.ravel(), source)
    return Turn(source.size // (n * below * inner), n, below, inner) if fits else None


def _turned(low: Lowering, call: Call, x: Act, turn: Turn) -> Act:
    """The map that a turn makes, once for all that read it."""
    made, left, inner = whole(low, x), turn.n, turn.inner
    for n in _steps(turn):
        left //= n
        made = _turned_once(low, call, made, Turn(turn.above * left, n, turn.below, inner))
        inner *= n
    return made


def _steps(turn: Turn) -> tuple[int, ...]:
    """The factors of n by which a turn is made, the last one first: those of the fewest weights.

    A window that is large enough takes all at once; () where none are small enough.
    """
    if turn.n <= WINDOW_MOST:
        return (turn.n,)
    found = [each for count in (2, 3) for each in _factors(turn.n, count)]
    return min(found, key=lambda each: _weights(each, turn.inner), default=())


def _factors(n: int, count: int) -> list[tuple[int, ...]]:
    """All ways to write a number as a product of so many, none of them larger than a window or 1."""
    if count == 1:
        return [(n,)] if 1 < n <= WINDOW_MOST else []
    divisors = (d for d in range(2, min(n, WINDOW_MOST) + 1) if n % d == 0)
    return [(d, *rest) for d in divisors for rest in _factors(n // d, count - 1)]


def _weights(steps: tuple[int, ...], inner: int) -> int:
    total = 0
    for n in steps:
        total, inner = total + inner * n * n, inner * n
    return total


def _turned_once(low: Lowering, call: Call, x: Act, turn: Turn) -> Act:
    """The same, of as many rows as a window has at most."""
    above, n, below, inner = turn.above, turn.n, turn.below, turn.inner
    seen, window = relabelled(low, call, x, (above * n, below, inner)), Window(n, 1, n, 1)
    about, apart = ((low.tensor_of(seen),), window), replace(call, op=TURN, builtin=False)
    made = next(
        (v for v in low.nodes if (v.layer or "").endswith(TURN) and (v.inputs, v.window) == about), None
    )
    if made is None:
        layer, shape = _of_ones(low, apart, n, inner), (above, below, n * inner)
        turned = low.emit(apart, DENSE if inner == 1 else GROUPED, (seen,), shape, layer=layer, window=window)
    else:
        turned = Act(low.as_made(made.outputs[0]), (low.batch, n * inner, above, below))
    return take(low, replace(apart, op=TAKE), turned, shuffled(inner, n))


def _of_ones(low: Lowering, call: Call, n: int, inner: int) -> str:
    """The name of a layer that takes n rows apart, each channel by itself; flash has its weights once."""
    weight = np.tile(np.eye(n, dtype=np.float32), (inner, 1)).reshape(n * inner, n, 1, 1)
    first = next(
        (k for k, v in low.layers.items() if k.endswith(TURN) and v.weight.shape == weight.shape), ""
    )
    name = frozen(low, call.node_name(TURN), weight)
    if first:
        low.layers.update({k: replace(low.layers[k], shares=first) for k in (first, name)})
    return name
