"""Random quantized networks, built without torch, for tests of the compiler."""

from __future__ import annotations

import numpy as np

from lab.networks import Builder as Builder
from microtrain.convert.ir import Graph


def residual_network(seed: int = 0, size: int = 12, classes: int = 5) -> Graph:
    """Stem, a stride-2 block, a residual block, a second reader, windowed pooling: every joint there is."""
    b = Builder(np.random.default_rng(seed), (size, size, 3))
    x = b.conv("x", 8, 3, 2)
    x = b.conv(b.depthwise(b.conv(x, 16), 3, 1), 10, relu=False)
    inner = b.conv(b.depthwise(b.conv(x, 24), 5, 1), 10, relu=False)
    x = b.add(inner, x)
    inner = b.conv(b.depthwise(b.conv(x, 20), 3, 1), 10, relu=False)
    x = b.add(x, inner)
    x = b.pool("maxpool", b.conv(x, 13), 3, 1, 1)
    x = b.pool("avgpool", x, 2, 2)
    return b.finish(b.conv(x, 14, 3, 1), classes)


def random_network(seed: int) -> Graph:
    """A random chain of inverted bottlenecks, residual where the shapes allow, with odd channel counts."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(7, 16))
    b = Builder(rng, (size, size, int(rng.choice([1, 3]))))
    x = b.conv("x", int(rng.integers(3, 10)), 3, int(rng.integers(1, 3)))
    for _ in range(int(rng.integers(1, 4))):
        c_out = b.tensors[x].channels if rng.random() < 0.5 else int(rng.integers(3, 14))
        small = b.tensors[x].shape[0] < 4
        stride = 1 if small or c_out == b.tensors[x].channels else int(rng.integers(1, 3))
        y = b.conv(x, int(rng.integers(5, 20)))
        y = b.depthwise(y, int(rng.choice([3, 5])), stride)
        y = b.conv(y, c_out, relu=bool(rng.random() < 0.3))
        x = b.add(x, y) if b.tensors[y].shape == b.tensors[x].shape else y
    return b.finish(x, int(rng.integers(2, 8)))
