"""What a reader makes of a model file, before anything is folded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .compression import Weights
from .ir import ConvertError, Graph, Shape


@dataclass(frozen=True)
class Result:
    """What a model returns: the tensor, its shape in the model, and the layer that makes it.

    order  of a vector that is seen as a map of the input's shape: which number stands where, [c, h, w]
    """

    tensor: str
    dims: tuple[int, ...]
    name: str
    order: np.ndarray | None = field(default=None, compare=False)


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


def as_map(order: np.ndarray | None, dims: tuple[int, ...], shape: Shape, last: bool) -> np.ndarray | None:
    """Which number of a vector stands where in a map, [c, h, w]; None: it is seen as something else.

    order  of the vector's numbers in the view; None: as they come
    dims   of the view, batch first
    shape  of the map, (h, w, c)
    last   the model has the channels behind
    """
    h, w, c = shape
    numbers = np.arange(h * w * c) if order is None else order.ravel()
    if not np.array_equal(np.sort(numbers), np.arange(h * w * c)):
        return None
    if last:
        return numbers.reshape(h, w, c).transpose(2, 0, 1) if dims[1:] == (h, c) and w == 1 else None
    return numbers.reshape(c, h, w) if (*dims[1:], 1)[:3] == (c, h, w) and len(dims) > 2 else None


def weights_of(parameters: Iterable[Sequence[int]]) -> Weights:
    """What a file's parameters will be as layers; the last, if it is a matrix, is the head's."""
    shapes = [shape for shape in parameters if len(shape) > 1]
    head = (shapes[-1][0], shapes[-1][1]) if shapes and len(shapes[-1]) == 2 else None
    layers = shapes[:-1] if head else shapes
    count = sum(math.prod(shape) for shape in layers)
    return Weights(count, count + sum(4 * shape[0] for shape in layers), head)
