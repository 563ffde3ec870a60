"""What a reader makes of a model file, before anything is folded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .ir import ConvertError, Graph, Weights


@dataclass(frozen=True)
class Result:
    """What a model returns: the tensor, its shape in the model, and the layer that makes it."""

    tensor: str
    dims: tuple[int, ...]
    name: str


@dataclass(frozen=True, eq=False)
class Raw:
    """What a reader makes of a file.

    graph   takes pixels 0..255 as they are, but for what forward() does to them
    shape   (c, h, w) of the input
    found   all that is not supported; where there is something, the graph has a stand-in for each
    weights  of the file's parameters
    results  of the model, in their order; the graph ends in the first
    stood    tensor of a stand-in -> why it is one
    """

    graph: Graph
    shape: tuple[int, int, int]
    found: tuple[ConvertError, ...]
    weights: Weights
    results: tuple[Result, ...] = ()
    stood: Mapping[str, ConvertError] = field(default_factory=dict)


def weights_of(parameters: Iterable[Sequence[int]]) -> Weights:
    """What a file's parameters will be as layers; the last, if it is a matrix, is the head's."""
    shapes = [shape for shape in parameters if len(shape) > 1]
    head = (shapes[-1][0], shapes[-1][1]) if shapes and len(shapes[-1]) == 2 else None
    layers = shapes[:-1] if head else shapes
    count = sum(math.prod(shape) for shape in layers)
    return Weights(count, count + sum(4 * shape[0] for shape in layers), head)
