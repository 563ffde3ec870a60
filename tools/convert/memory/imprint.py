"""The statistics from which the device makes its head after one look at each sample, and where they lie.

They need memory only while nothing is being trained: in the arena, beside what an inference needs, over what
the backward pass needs. A training step destroys them. The kernels are in kernels/imprint.h.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from microtrain.base.plan import IMPRINT
from microtrain.convert.ir import Graph, Node
from microtrain.convert.ops import has_head

NAME, SCRATCH = IMPRINT, f"{IMPRINT}/scratch"  # in a plan
LARGEST = 256  # features of a group that is chosen: more gain little and take much
SOME = 4  # groups for which the default scheme leaves room


@dataclass(frozen=True)
class Request:
    """How many features share a covariance matrix. None: as many as the budget allows; 0: no statistics."""

    group: int | None = None

    def groups(self, features: int) -> tuple[int, ...]:
        """Sizes of the groups to try, the best first; the last is 0, unless a size was asked for."""
        if self.group is not None or not features:
            return (min(self.group or 0, features),)
        return (*(size for size in halves(features) if size <= LARGEST), 0)

    def beside(self, head: object) -> Request:
        """Nothing, unless a size was asked for, where the head starts from rows of the model's own: what that
        learned from many images is not to be replaced by one look at few."""
        return Request(0) if self.group is None and isinstance(head, tuple) else self

    def some(self, features: int) -> int:
        """The size for which the choice of a scheme leaves room."""
        if self.group is not None:
            return self.group
        return min(-(-features // SOME), LARGEST)


def halves(features: int) -> Iterator[int]:
    """All features in one group, in two, in four, and so on down to each on its own."""
    parts = 1
    while -(-features // parts) > 1:
        yield -(-features // parts)
        parts *= 2
    yield 1


def head_of(graph: Graph) -> Node:
    return graph.forward_nodes[-1]


def features_of(graph: Graph) -> int:
    """Features that the head reads; 0 where there is none."""
    if not has_head(graph):
        return 0
    return graph.tensors[head_of(graph).inputs[0]].elements


def imprint_bytes(graph: Graph) -> int:
    """Of the statistics; 0 without them. As imprint_bytes() in kernels/imprint.h."""
    if not graph.imprint:
        return 0
    features, classes = features_of(graph), graph.tensors[graph.output].channels
    whole, rest = divmod(features, graph.imprint)
    return 4 * (classes + classes * features + whole * triangle(graph.imprint) + triangle(rest))


def scratch_bytes(graph: Graph) -> int:
    """Of the memory in which the head is solved; 0 without statistics."""
    if not graph.imprint:
        return 0
    return 4 * (features_of(graph) + graph.tensors[graph.output].channels + triangle(graph.imprint))


def triangle(rows: int) -> int:
    """Entries of a triangular matrix."""
    return rows * (rows + 1) // 2
