/* SPDX-License-Identifier: Apache-2.0 */
/* Values in fewer bytes: product quantization (Jegou, Douze and Schmid 2011, "Product quantization for nearest neighbor
 * search"). A row of values is cut into parts; each part is kept as one byte, the number of the vector in the part's own
 * book that is nearest to it. What comes back is that vector.
 */
#ifndef KERNELS_PRODUCT_CODE_H
#define KERNELS_PRODUCT_CODE_H

#include "kernels/numeric.h"

enum { PRODUCT_CODE_VECTORS = 256, PRODUCT_CODE_PART_MAX = 64 };

struct product_code {
    const int8_t *book; /* of each part of a row, [PRODUCT_CODE_VECTORS][values of the part], one behind the other */
    uint16_t rows, row; /* rows, and values of each; the product is below 2^24 */
    uint16_t part;      /* values of a part, 1..PRODUCT_CODE_PART_MAX; the last of a row may have fewer */
};

/* rows * ceil(row / part) */
uint32_t product_code_bytes(const struct product_code *p);

/* The nearest vectors by the sum of squared differences, the first of equals.
 *
 * x     int8  [rows][row]
 * code  uint8 [product_code_bytes(p)]
 */
void product_code_encode_s8(const struct product_code *p, const int8_t *x, uint8_t *code);

/* The vectors of a code. */
void product_code_decode_s8(const struct product_code *p, const uint8_t *code, int8_t *x);

#endif
