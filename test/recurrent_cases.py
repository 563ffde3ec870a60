"""Random cases of recurrent cells: windows as a whole, and by rows as they come."""

from __future__ import annotations

import numpy as np
from kernel_twins import Guarded, Twin

from microtrain.convert.ir import Tensor
from microtrain.convert.ops import integer_cell, recurrent
from microtrain.convert.ops.integer_cell import Coded
from microtrain.convert.ops.recurrent import GATES, INTEGER_LSTM, Recurrent, Stored

Rng = np.random.Generator


def draw_stored(rng: Rng, cell: str, inputs: int, units: int) -> Stored:
    """Weights, and multipliers that take gates from almost nothing to far beyond where they saturate."""
    gates = GATES[cell]
    if cell == INTEGER_LSTM:
        return draw_whole(rng, inputs, units)
    shapes = (units, gates, inputs), (units, gates, units), (units, 4), (units, 2, gates)
    x, h = (rng.integers(-127, 128, shape).astype(np.int8) for shape in shapes[:2])
    b = rng.integers(-(1 << 15), 1 << 15, shapes[2]).astype(np.int32)
    m = rng.integers(1, int(2.0 ** rng.uniform(4, 24)), shapes[3]).astype(np.int32)
    m[:, 1] >>= int(rng.integers(4, 10))
    return Stored(x, h, b, m)


def draw_whole(rng: Rng, inputs: int, units: int) -> Stored:
    """A cell of any range, cut off or not; multipliers beyond 1 too."""
    x, h = (rng.integers(-127, 128, (units, 4, n)).astype(np.int8) for n in (inputs, units))
    x_scale, h_scale = (2.0 ** rng.uniform(-14, -5, 4) for _ in range(2))
    b, most = rng.normal(0, 2, (units, 4)), int(rng.choice([0, 9000, 32767]))
    left, read = ((2.0 ** rng.uniform(-9, -6), int(rng.integers(-128, 128))) for _ in range(2))
    own = Coded(x, h, x_scale, h_scale, b, int(rng.integers(0, 7)), most, left, read)
    made, tensor = Tensor("y", (1, 1, units)), Tensor("x", (1, 1, inputs), scale=2.0 ** rng.uniform(-10, -4))
    return integer_cell.stored(own, tensor, made)


def check_recurrent(twin: Twin, rng: Rng) -> None:
    cell = str(rng.choice(list(GATES)))
    rows, inputs, units = (int(rng.integers(1, most)) for most in (8, 14, 11))
    stored = draw_stored(rng, cell, inputs, units)
    zeros = {f"{name}_zero": int(rng.choice([-128, 127, 0, -7])) for name in "xy"}
    tables = {f"w_{name}": getattr(stored, name) for name in "xh"}
    about = {"last": int(rng.integers(2)), "y_unit": float(np.float32(2.0 ** rng.uniform(-10, -6)))}
    sizes = {"rows": rows, "inputs": inputs, "units": units}
    p = Recurrent(**sizes, **zeros, **about, **tables, b=stored.b, m=stored.m)
    x = rng.integers(-128, 128, (rows, inputs)).astype(np.int8)
    want = recurrent.recurrent_fwd(p, cell, stored, x)
    guard = Guarded()
    y = guard.array(want.shape, np.int8)
    getattr(twin.lib, f"{cell}_fwd_s8")(p, x, y, twin.scratch(guard, f"{cell}_fwd", p))
    guard.check()
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(_by_rows(twin, rng, p, cell, x, want.shape), want)


def _by_rows(
    twin: Twin, rng: Rng, p: Recurrent, cell: str, x: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """As a stage of a stream calls it; all at once where only the result of the last is kept."""
    guard, row = Guarded(), 0
    state = guard.array((getattr(twin.lib, f"{cell}_state")(p),), np.uint8)
    twin.lib.recurrent_begin(state, state.size)
    y = guard.array(shape, np.int8)
    while row < p.rows:
        count = int(p.rows if p.last else rng.integers(1, p.rows - row + 1))
        scratch = guard.array((twin.lib.recurrent_rows_scratch(p),), np.uint8)
        getattr(twin.lib, f"{cell}_rows_s8")(p, count, x[row : row + count], y[row:], state, scratch)
        row += count
    guard.check()
    return y
