"""The vectors of the firmware's self-test, from PyTorch's float64 convolution, which is exact for int8.

python test/selftest_vectors.py     writes firmware/src/runtime/selftest_vectors.h
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import conv2d

HEADER = Path(__file__).parents[1] / "firmware/src/runtime/selftest_vectors.h"
SIZE, CHANNELS, OUT = 5, 4, 6
X_ZERO, Y_ZERO = -3, 5
COLUMNS = 110


def convolve(x: np.ndarray, w: np.ndarray, b: np.ndarray, m: np.ndarray, groups: int) -> np.ndarray:
    """int8 [h][w][c_out], as kernels/numeric.h has it. x int8 [h][w][c], w int8 [c_out][c_in][3][3]"""
    real = torch.from_numpy((x.astype(np.float64) - X_ZERO).transpose(2, 0, 1)[None])
    acc = conv2d(real, torch.from_numpy(w.astype(np.float64)), padding=1, groups=groups)[0].numpy()
    total = acc.transpose(1, 2, 0) + b
    scaled = (total.astype(np.float32) * m).astype(np.float32)
    return np.clip(np.rint(scaled) + Y_ZERO, -128, 127).astype(np.int8)


def array(declaration: str, values: np.ndarray) -> str:
    """A C definition, wrapped."""
    lines, line = [], "   "
    for text in [f"{v.hex()}f" if isinstance(v, float) else str(v) for v in values.reshape(-1).tolist()]:
        if len(line) + len(text) + 2 > COLUMNS:
            lines.append(line)
            line = "   "
        line += f" {text},"
    return "\n".join([f"static const {declaration}[{values.size}] = {{", *lines, line, "};"])


def struct(name: str, out: int) -> str:
    shape = f".h_in = {SIZE}, .w_in = {SIZE}, .c_in = {CHANNELS}, "
    shape += f".h_out = {SIZE}, .w_out = {SIZE}, .c_out = {out}"
    rest = f".kh = 3, .kw = 3, .stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1, .x_zero = {X_ZERO}"
    return (
        f"static const struct conv2d {name} = {{\n    {shape},\n    {rest},\n"
        f"    .y_zero = {Y_ZERO}, .m = selftest_m,\n}};"
    )


def text() -> str:
    """The whole header."""
    draws = np.random.default_rng(746)
    x = draws.integers(-128, 128, (SIZE, SIZE, CHANNELS)).astype(np.int8)
    dense = draws.integers(-127, 128, (OUT, CHANNELS, 3, 3)).astype(np.int8)
    depthwise = draws.integers(-127, 128, (CHANNELS, 1, 3, 3)).astype(np.int8)
    b = draws.integers(-9000, 9000, OUT).astype(np.int32)
    m = draws.uniform(0.0008, 0.006, OUT).astype(np.float32)
    parts = [
        "/* Vectors of the self-test, as PyTorch computes them. Written by test/selftest_vectors.py. */",
        "#ifndef SELFTEST_VECTORS_H\n#define SELFTEST_VECTORS_H\n",
        '#include "kernels/conv2d.h"\n\n/* clang-format off */',
        array("int8_t selftest_x", x),
        array("int32_t selftest_b", b),
        array("float selftest_m", m),
        array("int8_t selftest_dense_w", dense.transpose(0, 2, 3, 1)),
        array("int8_t selftest_dense_y", convolve(x, dense, b, m, 1)),
        array("int8_t selftest_depthwise_w", depthwise),
        array("int8_t selftest_depthwise_y", convolve(x, depthwise, b[:CHANNELS], m[:CHANNELS], CHANNELS)),
        struct("selftest_dense", OUT),
        struct("selftest_depthwise", CHANNELS),
        "/* clang-format on */\n\n#endif",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    HEADER.write_text(text(), encoding="ascii")
