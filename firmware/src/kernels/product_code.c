/* SPDX-License-Identifier: Apache-2.0 */
/* Values in fewer bytes. Contract: kernels/product_code.h. */
#include "kernels/product_code.h"

#include <string.h>

uint32_t product_code_bytes(const struct product_code *p)
{
    return p->rows * (((uint32_t)p->row + p->part - 1u) / p->part);
}

/* Values of the part that begins at `start` of a row. */
static uint32_t width_at(const struct product_code *p, uint32_t start)
{
    uint32_t left = p->row - start;
    return left < p->part ? left : p->part;
}

static int32_t distance(const int8_t *x, const int8_t *vector, uint32_t width)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < width; i++) {
        int32_t d = x[i] - vector[i];
        sum += d * d;
    }
    return sum;
}

static uint8_t nearest(const int8_t *x, const int8_t *book, uint32_t width)
{
    uint32_t best = 0;
    int32_t least = distance(x, book, width);
    for (uint32_t v = 1; v < PRODUCT_CODE_VECTORS; v++) {
        int32_t d = distance(x, book + v * width, width);
        if (d < least) {
            least = d;
            best = v;
        }
    }
    return (uint8_t)best;
}

void product_code_encode_s8(const struct product_code *p, const int8_t *x, uint8_t *code)
{
    for (uint32_t r = 0; r < p->rows; r++) {
        const int8_t *book = p->book;
        for (uint32_t start = 0; start < p->row; start += p->part) {
            uint32_t width = width_at(p, start);
            *code++ = nearest(x + start, book, width);
            book += PRODUCT_CODE_VECTORS * width;
        }
        x += p->row;
    }
}

void product_code_decode_s8(const struct product_code *p, const uint8_t *code, int8_t *x)
{
    for (uint32_t r = 0; r < p->rows; r++) {
        const int8_t *book = p->book;
        for (uint32_t start = 0; start < p->row; start += p->part) {
            uint32_t width = width_at(p, start);
            memcpy(x + start, book + *code++ * width, width);
            book += PRODUCT_CODE_VECTORS * width;
        }
        x += p->row;
    }
}
