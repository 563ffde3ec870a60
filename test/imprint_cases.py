"""Random statistics of features: the C of kernels/imprint.h against its NumPy twin, bit for bit."""

from __future__ import annotations

import numpy as np
from kernel_twins import Guarded, Twin

from microtrain.convert.ops.head import Head
from microtrain.convert.reference import imprint
from microtrain.convert.reference.kernels import Array
from microtrain.convert.reference.numeric import spans

Rng = np.random.Generator


def drawn(rng: Rng, samples: int, features: int) -> Array:
    """Stored features: of any size and independent, or alike and small, or all the same."""
    kind = rng.integers(3)
    if kind == 0:
        return rng.integers(-128, 128, (samples, features), np.int8)
    mixed = rng.normal(0, 1, (samples, features)) @ rng.normal(0, 3, (features, features))
    x = np.clip(np.rint(mixed if kind == 1 else 0 * mixed + 7), -128, 127)
    return x.astype(np.int8)


def gathered(twin: Twin, p: Head, group: int, x: Array, labels: Array) -> Array:
    """What the C makes of samples, in their order; int32 words."""
    guard = Guarded()
    statistics = guard.array((twin.lib.imprint_bytes(p, group),), np.uint8)
    twin.lib.imprint_clear(p, group, statistics)
    for row, label in zip(x, labels, strict=True):
        twin.lib.imprint_add_s8(p, group, statistics, np.ascontiguousarray(row), int(label))
    guard.check()
    return statistics


def solved(twin: Twin, p: Head, group: int, statistics: Array) -> tuple[int, Array, Array]:
    """The classes that are known, and the head."""
    guard = Guarded()
    w = guard.array((p.classes, p.pixels * p.c), np.float32)
    b, before = guard.array((p.classes,), np.float32), statistics.copy()
    scratch = guard.array((twin.lib.imprint_scratch(p, group),), np.uint8)
    known = twin.lib.imprint_solve_f32(p, group, statistics, w, b, scratch)
    guard.check()
    np.testing.assert_array_equal(statistics, before)
    return known, w, b


def same_head(got: tuple[int, Array, Array], want: tuple[Array, Array]) -> None:
    for mine, other in zip(got[1:], want, strict=True):
        np.testing.assert_array_equal(mine.view(np.uint32), other.view(np.uint32))


def check_imprint(twin: Twin, rng: Rng) -> None:
    pixels, c, classes = int(rng.integers(1, 4)), int(rng.integers(1, 24)), int(rng.integers(1, 9))
    zero, scale = int(rng.integers(-128, 128)), float(np.float32(10.0 ** rng.uniform(-3, 0)))
    features = pixels * c
    group, samples = int(rng.integers(1, features + 1)), int(rng.integers(0, 40))
    p = Head(pixels=pixels, c=c, classes=classes, x_zero=zero, x_scale=scale)
    x, labels = drawn(rng, samples, features), rng.integers(0, classes, samples)
    statistics = gathered(twin, p, group, x, labels)
    want = imprint.gathered(x.astype(np.int32) - zero, labels, classes)
    words = [want.counts, want.sums.reshape(-1)]
    words += [
        want.products[part, part][np.tril_indices(part.stop - part.start)] for part in spans(features, group)
    ]
    np.testing.assert_array_equal(statistics.view(np.int32), np.concatenate(words).astype(np.int32))
    got = solved(twin, p, group, statistics)
    assert got[0] == len(want.seen)
    same_head(got, imprint.solve(want, group, scale))
