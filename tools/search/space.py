"""What a search chooses from: how many biases, which weights and modules, how many fraction bits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from microtrain.base.plan import LITE
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.lite import LiteResiduals
from microtrain.convert.passes.blocks import blocks
from microtrain.convert.passes.lite_residuals import sizes_of
from microtrain.convert.scheme import Scheme, convolutions

FRACTIONS = (0.125, 0.25, 0.5, 1.0)  # of a layer's input channels; level i of a layer is FRACTIONS[i - 1]
WHOLE = len(FRACTIONS)  # the level of a module that is there


@dataclass(frozen=True)
class Candidate:
    """A scheme as a search sees it.

    biases  of the last so many convolutions
    levels  of every part of the space: 0 frozen, i: FRACTIONS[i - 1] of its weights
    bits    fraction bits of all trained weights
    """

    biases: int
    levels: tuple[int, ...]
    bits: int


@dataclass(frozen=True)
class Space:
    """What candidates are made of. Its parts are the convolutions in forward order, then the modules.

    layers  the convolutions; usable: the levels that each part can have
    bits    numbers of fraction bits; rate: learning rate of weights, biases and head
    blocks  name and first convolution's number of each block that can have a lite residual module
    lite    what such modules are like; None: there are none
    """

    layers: tuple[str, ...]
    usable: tuple[tuple[int, ...], ...]
    bits: tuple[int, ...]
    rate: float
    blocks: tuple[tuple[str, int], ...] = ()
    lite: LiteResiduals | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts."""
        return (*self.layers, *(f"{name}{LITE}".removesuffix(".") for name, _ in self.blocks))

    def behind(self, part: int) -> int:
        """How many convolutions there are from a part on."""
        count = len(self.layers)
        return count - (part if part < count else self.blocks[part - count][1])

    def reached(self, biases: int) -> list[int]:
        """The parts that no candidate with so many biases has in front of these."""
        return [part for part in range(len(self.usable)) if self.behind(part) <= biases]

    def normal(self, candidate: Candidate) -> Candidate:
        """The same without what stands in front of the biases, which no candidate has."""
        reached = set(self.reached(candidate.biases))
        levels = tuple(level if part in reached else 0 for part, level in enumerate(candidate.levels))
        return replace(candidate, levels=levels)

    def scheme(self, candidate: Candidate, name: str = "found") -> Scheme:
        weights: dict[str | int, float | tuple[int, ...]] = {
            layer: FRACTIONS[level - 1]
            for layer, level in zip(self.layers, candidate.levels, strict=False)
            if level
        }
        return Scheme(
            name,
            candidate.biases,
            weights,
            fraction_bits=candidate.bits,
            rates=self.rates,
            lite=self.modules(candidate),
        )

    def modules(self, candidate: Candidate) -> LiteResiduals | None:
        """Those of a candidate."""
        levels = candidate.levels[len(self.layers) :]
        names = tuple(name for (name, _), level in zip(self.blocks, levels, strict=True) if level)
        return replace(self.lite, blocks=names) if self.lite and names else None

    @property
    def rates(self) -> tuple[float, float, float]:
        return self.rate, self.rate, self.rate


def space_of(graph: Graph, bits: tuple[int, ...], rate: float, lite: LiteResiduals | None = None) -> Space:
    """Every convolution at every fraction that is a channel at least, no two fractions the same channels.

    lite  what the modules are like beside every block that can have one; None: there are none
    """
    names = tuple(convolutions(graph))
    usable = []
    for name in names:
        counts = [int(graph.layers[name].columns * fraction + 0.5) for fraction in FRACTIONS]
        usable.append(tuple(i + 1 for i, n in enumerate(counts) if n and n not in counts[i + 1 :]))
    if lite is None:
        return Space(names, tuple(usable), bits, rate)
    beside = places_for(graph, lite)[0]
    return Space(names, (*usable, *((WHOLE,) for _ in beside)), bits, rate, beside, lite)


def places_for(graph: Graph, lite: LiteResiduals) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
    """Name and first convolution's number of each block that can have a module; why the others cannot."""
    numbers = {name: number for number, name in enumerate(convolutions(graph))}
    found, reasons = [], []
    for block in blocks(graph):
        learning = [numbers[name] for name in block.layers if name in numbers]
        try:
            sizes_of(graph, block, lite)
        except ConvertError as error:
            reasons.append(str(error))
        else:
            found += [(block.name, learning[0])] if len(learning) == len(block.layers) else []
    return tuple(found), tuple(reasons)
