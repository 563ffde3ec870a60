"""The vectors of the firmware's self-test: sums from PyTorch in float64, which is exact for int8.

PYTHONPATH=. python test/selftest_vectors.py     writes firmware/src/runtime/selftest_vectors.h
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import conv2d

from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.proofs import multiplier_words

HEADER = Path(__file__).parents[1] / "firmware/src/runtime/selftest_vectors.h"
SIZE, CHANNELS, OUT = 5, 4, 6
X_ZERO, Y_ZERO, GUARD = -3, 5, 8
COLUMNS = 110


def convolve(x: np.ndarray, w: np.ndarray, b: np.ndarray, m: np.ndarray, groups: int) -> np.ndarray:
    """int8 [h][w][c_out], as kernels/numeric.h has it. x int8 [h][w][c], w int8 [c_out][c_in][3][3]"""
    real = torch.from_numpy((x.astype(np.float64) - X_ZERO).transpose(2, 0, 1)[None])
    acc = conv2d(real, torch.from_numpy(w.astype(np.float64)), padding=1, groups=groups)[0].numpy()
    total = acc.transpose(1, 2, 0) + b
    scaled = (total.astype(np.float32) * m).astype(np.float32)
    result: np.ndarray = np.clip(np.rint(scaled) + Y_ZERO, -128, 127).astype(np.int8)
    return result


def sums_of_gradients(x: np.ndarray, w: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums for the input [h][w][c] and for the weights [c_out][c_in][3][3]. e [h][w][c_out]"""
    real = torch.from_numpy((x.astype(np.float64) - X_ZERO).transpose(2, 0, 1)[None]).requires_grad_()
    weights = torch.from_numpy(w.astype(np.float64)).requires_grad_()
    conv2d(real, weights, padding=1).backward(torch.from_numpy(e.transpose(2, 0, 1)[None]))
    assert real.grad is not None and weights.grad is not None
    return real.grad[0].numpy().transpose(1, 2, 0), weights.grad.numpy()


def input_gradient(
    x: np.ndarray, w: np.ndarray, e: reference.Error, mask: np.ndarray, m: np.ndarray
) -> bytes:
    """Scales, then errors. mask bool [h][w][c]"""
    factors, unit = reference.align(e.scale, GUARD)
    sums, _ = sums_of_gradients(x, w, e.q.astype(np.float64) * factors)
    found = reference.quantize_error(sums.astype(np.int64), unit, reference.Clamp(mask, m))
    return found.scale.tobytes() + found.q.tobytes()


def update(x: np.ndarray, w: np.ndarray, e: reference.Error, qas: np.ndarray) -> bytes:
    """Weights, then their fractions of 4 bits, two per byte."""
    _, sums = sums_of_gradients(x, w, e.q.astype(np.float64))
    stored = np.ascontiguousarray(w.transpose(0, 2, 3, 1))
    trained = reference.Trained(stored, np.zeros_like(stored), 4, qas, 0)
    factor = (qas * e.scale)[:, None, None, None]
    sgd = reference.Sgd(1.0, 0.0, 0.0, 0, 0)
    found = reference.descend(trained, sums.transpose(0, 2, 3, 1), factor, sgd)
    assert found.frac is not None
    low, high = (found.frac.reshape(-1)[half::2] & 15 for half in (0, 1))
    return found.w.tobytes() + (low | high << 4).astype(np.uint8).tobytes()


def array(declaration: str, values: np.ndarray) -> str:
    """A C definition, wrapped."""
    lines, line = [], "   "
    for text in [f"{v.hex()}f" if isinstance(v, float) else str(v) for v in values.reshape(-1).tolist()]:
        if len(line) + len(text) + 2 > COLUMNS:
            lines.append(line)
            line = "   "
        line += f" {text},"
    return "\n".join([f"static const {declaration}[{values.size}] = {{", *lines, line, "};"])


def struct(name: str, out: str) -> str:
    size = "SELFTEST_SIZE"
    x = f".h_in = {size}, .w_in = {size}, .c_in = SELFTEST_CHANNELS"
    y = f".h_out = {size}, .w_out = {size}, .c_out = {out}"
    rest = ".kh = 3, .kw = 3, .stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1"
    zeros = f".x_zero = {X_ZERO}, .y_zero = {Y_ZERO}, .guard = {GUARD}, .m = selftest_m"
    fields = "".join(f"    {line},\n" for line in (x, y, rest, zeros))
    return f"static const struct conv2d {name} = {{\n{fields}}};"


def text() -> str:
    """The whole header."""
    draws = np.random.default_rng(746)
    x = draws.integers(-128, 128, (SIZE, SIZE, CHANNELS)).astype(np.int8)
    dense = draws.integers(-127, 128, (OUT, CHANNELS, 3, 3)).astype(np.int8)
    depthwise = draws.integers(-127, 128, (CHANNELS, 1, 3, 3)).astype(np.int8)
    b = draws.integers(-9000, 9000, OUT).astype(np.int32)
    m = draws.uniform(0.0008, 0.006, OUT).astype(np.float32)
    e = draws.integers(-127, 128, (SIZE, SIZE, OUT)).astype(np.int8)
    error = reference.Error(e, draws.uniform(1e-4, 1e-3, OUT).astype(np.float32))
    mask = draws.random((SIZE, SIZE, CHANNELS)) < 0.8
    qas = draws.uniform(2000, 9000, OUT).astype(np.float32)
    results = {
        "DENSE": convolve(x, dense, b, m, 1).tobytes(),
        "DEPTHWISE": convolve(x, depthwise, b[:CHANNELS], m[:CHANNELS], CHANNELS).tobytes(),
        "INPUT_GRADIENT": input_gradient(x, dense, error, mask, m[:CHANNELS]),
        "UPDATE": update(x, dense, error, qas),
    }
    parts = [
        "/* SPDX-License-Identifier: Apache-2.0 */",
        "/* Vectors of the self-test, as PyTorch computes them. Written by test/selftest_vectors.py. */",
        "#ifndef SELFTEST_VECTORS_H\n#define SELFTEST_VECTORS_H\n",
        '#include "kernels/conv2d.h"\n\n/* clang-format off */',
        f"enum {{ SELFTEST_SIZE = {SIZE}, SELFTEST_CHANNELS = {CHANNELS}, SELFTEST_OUT = {OUT} }};",
        array("int8_t selftest_x", x),
        array("int32_t selftest_b", b),
        array("int32_t selftest_m", multiplier_words(m, Y_ZERO)),
        array("int8_t selftest_dense_w", dense.transpose(0, 2, 3, 1)),
        array("int8_t selftest_depthwise_w", depthwise),
        array("int8_t selftest_e", e),
        array("float selftest_e_scale", error.scale),
        array("uint8_t selftest_mask", np.packbits(mask, axis=2, bitorder="little")),
        array("float selftest_qas", qas),
        struct("selftest_dense", "SELFTEST_OUT"),
        struct("selftest_depthwise", "SELFTEST_CHANNELS"),
        "/* CRC-32 of the results */",
        *(f"#define SELFTEST_{name}_CRC 0x{zlib.crc32(found):08x}u" for name, found in results.items()),
        "/* clang-format on */\n\n#endif",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    HEADER.write_text(text(), encoding="ascii")
