"""Random rows and books: the C of kernels/product_code.h against its NumPy twin."""

from __future__ import annotations

import numpy as np
from kernel_twins import Guarded, Twin

from microtrain.convert.ops.product_code import ProductCode
from microtrain.convert.reference import product_code
from microtrain.convert.reference.numeric import spans


def check_product_code(twin: Twin, rng: np.random.Generator) -> None:
    rows, row = int(rng.integers(1, 5)), int(rng.integers(1, 24))
    part = int(rng.integers(1, min(row + 2, 10)))
    high = int(rng.choice([2, 128]))  # with few values many vectors are as near as the nearest
    x = rng.integers(-high, high, (rows, row)).astype(np.int8)
    books = [
        rng.integers(-high, high, (product_code.VECTORS, len(range(row)[s]))).astype(np.int8)
        for s in spans(row, part)
    ]
    p = ProductCode(book=np.concatenate([book.reshape(-1) for book in books]), rows=rows, row=row, part=part)
    want = product_code.encoded(x, books, part)
    assert twin.lib.product_code_bytes(p) == want.size
    guard = Guarded()
    code = guard.array(want.shape, np.uint8)
    twin.lib.product_code_encode_s8(p, x, code)
    np.testing.assert_array_equal(code, want)
    back = guard.array(x.shape, np.int8)
    twin.lib.product_code_decode_s8(p, code, back)
    np.testing.assert_array_equal(back, product_code.decoded(want, books))
    guard.check()
