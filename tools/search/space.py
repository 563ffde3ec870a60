"""What a search chooses from: how many biases, which weights, how many fraction bits."""

from __future__ import annotations

from dataclasses import dataclass

from microtrain.convert.ir import Graph
from microtrain.convert.scheme import Scheme, convolutions

FRACTIONS = (0.125, 0.25, 0.5, 1.0)  # of a layer's input channels; level i of a layer is FRACTIONS[i - 1]


@dataclass(frozen=True)
class Candidate:
    """A scheme as a search sees it.

    biases  of the last so many convolutions
    levels  of every convolution in forward order: 0 frozen, i: FRACTIONS[i - 1] of its weights
    bits    fraction bits of all trained weights
    """

    biases: int
    levels: tuple[int, ...]
    bits: int

    def normal(self) -> Candidate:
        """The same without weights in front of the biases, which no candidate has."""
        first = len(self.levels) - self.biases
        return Candidate(self.biases, (0,) * first + self.levels[first:], self.bits)


@dataclass(frozen=True)
class Space:
    """What candidates are made of.

    layers  the convolutions in forward order; usable: the levels that each of them can have
    bits    numbers of fraction bits; rate: learning rate of weights, biases and head
    """

    layers: tuple[str, ...]
    usable: tuple[tuple[int, ...], ...]
    bits: tuple[int, ...]
    rate: float

    def scheme(self, candidate: Candidate, name: str = "found") -> Scheme:
        chosen = zip(self.layers, candidate.levels, strict=True)
        weights: dict[str | int, float | tuple[int, ...]] = {
            layer: FRACTIONS[level - 1] for layer, level in chosen if level
        }
        return Scheme(name, candidate.biases, weights, fraction_bits=candidate.bits, rates=self.rates)

    @property
    def rates(self) -> tuple[float, float, float]:
        return self.rate, self.rate, self.rate


def space_of(graph: Graph, bits: tuple[int, ...], rate: float) -> Space:
    """Every convolution at every fraction that is a channel at least, no two fractions the same channels."""
    names = tuple(convolutions(graph))
    usable = []
    for name in names:
        counts = [int(graph.layers[name].columns * fraction + 0.5) for fraction in FRACTIONS]
        usable.append(tuple(i + 1 for i, n in enumerate(counts) if n and n not in counts[i + 1 :]))
    return Space(names, tuple(usable), bits, rate)
