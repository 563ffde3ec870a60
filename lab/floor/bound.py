"""The fewest instructions in which an Armv7E-M core does a layer's work, in four parts.

products   multiply-accumulates: SMLAD does two, and there is nothing wider for integers
operands   bringing both factors into registers, as pairs of int16
packing    making pairs of what lies in memory as int8, once for each value
outputs    from a sum to a stored int8

Each part is a bound of its own: no way of doing it takes fewer. Together they need not be reached, as the
registers for one part are wanted by another. Loops, calls, addresses and edges of an image count as nothing,
and so do zeros of padding. For the manual's words on the instructions see the Armv7-M Architecture
Reference Manual, A7.7; for which of them issue together, emulator.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass

from microtrain.base.plan import Layer

REGISTERS = 14  # r0 to r12 and lr
POINTERS = 2  # of a loop over products: panels, row; its end is known by one of them
PER_LOAD = 4  # words of an LDM beyond which no tile has the registers
WIDENED = 1.0  # a value of four: LDR, SXTB16 twice, STRD
REQUANTIZED = 3.0  # an output: SMMLAR, SSAT, STRB
MASKED = 1.0  # whether it saturated, one instruction at least
ERROR = 6.0  # VCVT, AND with the mask, VMAXNM; then VMUL, VCVT, STRB
SCALED = 2.0  # a weight times its channel's scale: SMULBB, half a PKHBT, half a SXTB16, parts of LDR and STM
WEIGHED = 0.75  # a weight beside the product with its channel's error: a quarter of LDR, half a SXTB16
ALIKE = 0.75  # an error that is 0 or what others are too, of four: bits that become bytes, AND, STR
ADDED = 0.75  # an error to its channel's sum, of four: LDR, SXTAB16 twice
UPDATED = 10.0  # half a hash, VCVT, VMUL, VCVT, load, shift, add, two to saturate, store


@dataclass(frozen=True)
class Bound:
    """Instructions by part."""

    products: float = 0.0
    operands: float = 0.0
    packing: float = 0.0
    outputs: float = 0.0

    @property
    def total(self) -> float:
        return float(sum(astuple(self)))

    def __add__(self, other: Bound) -> Bound:
        return Bound(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Tile:
    """Sums that are kept in registers: of `rows` int8 rows of weights against `lanes` panels of pairs."""

    rows: int
    lanes: int
    words: int  # of an LDM

    @property
    def operands(self) -> float:
        """Instructions beside each multiply-accumulate: four values of a row are LDR and SXTB16 twice, those
        of the panels two words a lane."""
        return (3 * self.rows + 2 * self.lanes / self.words) / (4 * self.rows * self.lanes)


def tiles() -> Iterator[Tile]:
    """All that the registers have room for: sums, the words of an LDM, four values of each row."""
    for rows in range(1, REGISTERS):
        for lanes in range(1, REGISTERS):
            for words in range(1, PER_LOAD + 1):
                if rows * lanes + words + 2 * rows + POINTERS <= REGISTERS:
                    yield Tile(rows, lanes, words)


def best_tile() -> Tile:
    """The one with the fewest instructions beside its products."""
    return min(tiles(), key=lambda tile: (tile.operands, tile.rows))


def held(row: float) -> float:
    """Instructions beside each multiply-accumulate of a row of weights that stays in registers while pairs of
    panels pass, an LDM of as many as there is room for; infinite where there is none."""
    pairs = math.ceil(row / 2)
    words = min(PER_LOAD, REGISTERS - POINTERS - pairs - 1)
    return math.ceil(pairs / words) / (2 * pairs) if words > 0 else math.inf


def dense(macs: int, row: float) -> Bound:
    """row: values of each of the sums."""
    return Bound(products=macs / 2, operands=macs * min(best_tile().operands, held(row)))


def windows(outputs: int, kernel: tuple[int, int]) -> Bound:
    """Depthwise: a word of a window's row holds two columns, the last of an odd number of them alone; the
    next output has one word in each row that was not there yet."""
    high, wide = kernel
    return Bound(products=outputs * high * -(-wide // 2), operands=float(outputs * high))


def values(image: tuple[int, ...]) -> int:
    high, wide, channels = image
    return high * wide * channels


def forward(layer: Layer, masked: bool) -> Bound:
    """Of an inference. masked: a step keeps which outputs saturated."""
    outputs, inputs = values(layer.output), values(layer.input)
    end = Bound(outputs=outputs * (REQUANTIZED + (MASKED if masked else 0.0)))
    assert layer.kernel is not None
    apart = layer.op == "dwconv2d"
    own = windows(outputs, layer.kernel) if apart else dense(layer.macs, layer.macs / outputs)
    return own + end + Bound(packing=inputs * WIDENED)


def gradient_of_input(layer: Layer, alike: bool = False) -> Bound:
    """The errors of the inputs; what a stride skips takes no product.

    alike   the errors of its outputs are the same in every pixel: one pixel's products
    """
    errors, inputs = values(layer.output), values(layer.input)
    assert layer.kernel is not None and layer.stride is not None
    end = Bound(outputs=inputs * ERROR)
    if layer.op == "dwconv2d":
        return windows(errors, layer.kernel) + end + Bound(packing=errors * WIDENED)
    weights = layer.macs / (errors // layer.output[2])
    if alike:
        return Bound(products=weights, operands=weights * WEIGHED, outputs=inputs * ALIKE)
    return dense(layer.macs, layer.macs / inputs) + end + Bound(packing=weights * SCALED)


def gradient_of_weights(macs: int, layer: Layer, weights: int) -> Bound:
    """weights: those that are trained."""
    saved = macs / layer.output[2]
    packing = saved + values(layer.output) * WIDENED
    return dense(macs, macs / weights) + Bound(packing=packing, outputs=weights * UPDATED)


def gradient_of_bias(layer: Layer) -> Bound:
    return Bound(products=values(layer.output) * ADDED, outputs=layer.output[2] * UPDATED)
