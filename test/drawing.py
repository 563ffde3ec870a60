"""What the tests of drawn files share: how many there are, and how far two runs of one are apart."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from microtrain.convert.execute.batched import run_float
from microtrain.convert.ir import Graph

TIMES = int(os.environ.get("MICROTRAIN_DRAWN", "1"))  # as many files as usual
ORDERS = ((0, 3, 1, 2), (0, 1, 2, 3))  # channels first, as of images; last, as of sequences


def apart(graph: Graph, dims: Sequence[int], logits: Callable[[np.ndarray], np.ndarray]) -> float | None:
    """The largest difference of a graph's logits to others, beside the largest; None: these say nothing.

    An input that no layer has read yet may lie in either order, of which one makes these logits.

    dims    of a sample, in the model's own order
    logits  of samples [3, *dims], 0 to 1
    """
    pixels = np.random.default_rng(1).integers(0, 256, (3, *graph.tensors[graph.input.tensor].shape))
    found, differs = run_float(graph, pixels.astype(np.uint8)).reshape(3, -1), []
    for order in ORDERS:
        wanted = logits((pixels / 255.0).transpose(order).reshape(3, *dims)).reshape(3, -1)
        if not np.isfinite(wanted).all():
            return None
        differs.append(float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-3)))
    return min(differs)
