/* The micro-kernel: two int16 panels against int8 rows, two at a time. */
#include "dot.h"

/* The four sums of two panels and two rows, in registers. */
struct tile {
    int32_t s00, s01, s10, s11; /* row, panel */
};

#if KERNELS_DSP

/* A group of four values, two multiply-accumulates an instruction. */
ALWAYS_INLINE void tile_group(struct tile *t, const int16_t *a0, const int16_t *a1, const int8_t *b0, const int8_t *b1,
                              int rows)
{
    uint32_t row0 = load_u32(b0), row1 = rows > 1 ? load_u32(b1) : 0;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        int32_t v0 = (int32_t)load_u32(a0 + 2 * half), v1 = (int32_t)load_u32(a1 + 2 * half);
        int32_t pair = half ? widen_13(row0) : widen_02(row0);
        t->s00 = __smlad(v0, pair, t->s00);
        t->s01 = __smlad(v1, pair, t->s01);
        if (rows > 1) {
            pair = half ? widen_13(row1) : widen_02(row1);
            t->s10 = __smlad(v0, pair, t->s10);
            t->s11 = __smlad(v1, pair, t->s11);
        }
    }
}

#endif

ALWAYS_INLINE void tile_one(struct tile *t, const int16_t *a0, const int16_t *a1, const int8_t *b0, const int8_t *b1,
                            int rows)
{
    t->s00 += *a0 * *b0;
    t->s01 += *a1 * *b0;
    if (rows > 1) {
        t->s10 += *a0 * *b1;
        t->s11 += *a1 * *b1;
    }
}

/* One or two rows; `rows` is a literal at the call. */
ALWAYS_INLINE void dot_tile(const int16_t *a0, const int16_t *a1, const int8_t *b0, uint32_t n, int32_t *sums, int rows)
{
    struct tile t = {sums[0], sums[1], rows > 1 ? sums[2] : 0, rows > 1 ? sums[3] : 0};
    const int8_t *b1 = b0 + n, *end = b1;
#if KERNELS_DSP
    for (const int8_t *stop = b0 + (n & ~3u); b0 != stop; a0 += 4, a1 += 4, b0 += 4, b1 += 4) {
        tile_group(&t, a0, a1, b0, b1, rows);
    }
#endif
    for (; b0 != end; a0++, a1++, b0++, b1++) {
        tile_one(&t, a0, a1, b0, b1, rows);
    }
    sums[0] = t.s00;
    sums[1] = t.s01;
    if (rows > 1) {
        sums[2] = t.s10;
        sums[3] = t.s11;
    }
}

void dot_rows(const int16_t *a0, const int16_t *a1, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums)
{
    for (; count >= 2; count -= 2, rows += 2 * n, sums += 4) {
        dot_tile(a0, a1, rows, n, sums, 2);
    }
    if (count) {
        dot_tile(a0, a1, rows, n, sums, 1);
    }
}
