/* Packing and the micro-kernels of dense tiles: portable C, and the way to dense_armv7em.S. */
#include "dense.h"

/* Two int16 places of a lane that hold zeros. */
ALWAYS_INLINE void clear_group(int16_t *tile, uint32_t lanes, uint32_t lane)
{
    for (uint32_t i = 0; i < 2; i++) {
        tile[2 * (lanes * i + lane)] = 0;
        tile[2 * (lanes * i + lane) + 1] = 0;
    }
}

/* lanes: a literal. */
ALWAYS_INLINE void pack_body(int16_t *tile, uint32_t lanes, uint32_t lane, const int8_t *bytes, uint32_t n,
                             int32_t zero)
{
    uint32_t k = 0;
#if KERNELS_DSP
    if (n & 3u) {
        clear_group(tile, lanes, lane);
    }
    for (; k < (n & 3u); k++) {
        tile[panel_place(n, lanes, lane, k)] = (int16_t)(bytes[k] - zero);
    }
    const int16x2_t shift = (int16x2_t)(((uint32_t)-zero & 0xffffu) * 0x10001u);
    int16_t *to = tile + 2 * lane + (k ? 4 * lanes : 0);
    for (; k < n; k += 4, to += 4 * lanes) {
        uint32_t word = load_u32(bytes + k);
        store_u32(to, (uint32_t)__sxtab16(shift, (int8x4_t)word));
        store_u32(to + 2 * lanes, (uint32_t)widen_13_add(shift, word));
    }
#else
    for (; k < n; k++) {
        tile[panel_place(n, lanes, lane, k)] = (int16_t)(bytes[k] - zero);
    }
#endif
}

void pack_bytes(int16_t *tile, uint32_t lanes, uint32_t lane, const int8_t *bytes, uint32_t n, int32_t zero)
{
    if (lanes == LANES) {
        pack_body(tile, LANES, lane, bytes, n, zero);
    } else {
        pack_body(tile, FEW_LANES, lane, bytes, n, zero);
    }
}

#if KERNELS_DSP

/* Values k, k + 2 of four lanes, from row k, which has `r0` as factor, and row k + 2. scaled: a literal. */
ALWAYS_INLINE void columns_half(int16_t *to, const int8_t *rows, uint32_t step, int16_t r0, int16_t r2, int scaled)
{
    uint32_t low = load_u32(rows), high = load_u32(rows + 2 * step);
    int32_t a = widen_02(low), b = widen_02(high), c = widen_13(low), d = widen_13(high);
    if (scaled) {
        store_u32(to, pack_halves((int16_t)a * r0, (int16_t)b * r2));
        store_u32(to + 2, pack_halves((int16_t)c * r0, (int16_t)d * r2));
        store_u32(to + 4, pack_halves((a >> 16) * r0, (b >> 16) * r2));
        store_u32(to + 6, pack_halves((c >> 16) * r0, (d >> 16) * r2));
    } else {
        store_u32(to, pack_halves(a, b));
        store_u32(to + 2, pack_halves(c, d));
        store_u32(to + 4, pack_halves(a >> 16, b >> 16));
        store_u32(to + 6, pack_halves(c >> 16, d >> 16));
    }
}

/* The same of two lanes. */
ALWAYS_INLINE void columns_pair(int16_t *to, const int8_t *rows, uint32_t step, int16_t r0, int16_t r2)
{
    store_u32(to, pack_halves(r0 * rows[0], r2 * rows[2 * step]));
    store_u32(to + 2, pack_halves(r0 * rows[1], r2 * rows[2 * step + 1]));
}

/* Whole groups of n values; lanes, scaled: literals. */
ALWAYS_INLINE void columns_groups(int16_t *to, uint32_t lanes, const int8_t *rows, uint32_t step, const int16_t *r,
                                  uint32_t n, int scaled)
{
    for (uint32_t k = 0; k < n; k += 4, rows += 2 * step) {
#pragma GCC unroll 2
        for (uint32_t half = 0; half < 2; half++, to += 2 * lanes, rows += step) {
            int16_t r0 = scaled ? r[k + half] : 1, r2 = scaled ? r[k + half + 2] : 1;
            columns_half(to, rows, step, r0, r2, scaled);
            if (lanes == LANES) {
                columns_pair(to + 8, rows + 4, step, r0, r2);
            }
        }
    }
}

#endif

/* Values from..to of all live lanes, one by one. */
static void columns_scalar(int16_t *tile, const struct span *span, const int8_t *rows, uint32_t step, const int16_t *r,
                           uint32_t n, uint32_t last)
{
    for (uint32_t lane = 0; (n & 3u) && lane < span->lanes; lane++) {
        clear_group(tile, span->lanes, lane);
    }
    for (uint32_t k = 0; k < last; k++, rows += step) {
        for (uint32_t lane = 0; lane < span->live; lane++) {
            tile[panel_place(n, span->lanes, lane, k)] = (int16_t)((r ? r[k] : 1) * rows[lane]);
        }
    }
}

void pack_columns(int16_t *tile, const struct span *span, const int8_t *rows, uint32_t step, const int16_t *r,
                  uint32_t n)
{
    uint32_t scalar = n;
#if KERNELS_DSP
    scalar = span->live < span->lanes ? n : n & 3u;
#endif
    if (scalar) {
        columns_scalar(tile, span, rows, step, r, n, scalar);
    }
#if KERNELS_DSP
    int16_t *to = tile + (scalar ? 4 * span->lanes : 0);
    rows += scalar * step;
    uint32_t rest = n - scalar;
    if (r && span->lanes == LANES) {
        columns_groups(to, LANES, rows, step, r + scalar, rest, 1);
    } else if (r) {
        columns_groups(to, FEW_LANES, rows, step, r + scalar, rest, 1);
    } else if (span->lanes == LANES) {
        columns_groups(to, LANES, rows, step, NULL, rest, 0);
    } else {
        columns_groups(to, FEW_LANES, rows, step, NULL, rest, 0);
    }
#endif
}

/* One lane against one row, value by value. */
static int32_t dot_lane(const int16_t *tile, uint32_t lanes, uint32_t lane, const int8_t *row, uint32_t n)
{
    int32_t sum = 0;
    for (uint32_t k = 0; k < n; k++) {
        sum += tile[panel_place(n, lanes, lane, k)] * row[k];
    }
    return sum;
}

static void dot_portable(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t n, uint32_t count,
                         int32_t *sums)
{
    for (; count; count--, rows += n, sums += lanes) {
        for (uint32_t lane = 0; lane < lanes; lane++) {
            sums[lane] += dot_lane(tile, lanes, lane, rows, n);
        }
    }
}

static void fill_bias(int32_t *sums, uint32_t lanes, const int32_t *bias, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t lane = 0; lane < lanes; lane++) {
            *sums++ = bias ? bias[i] : 0;
        }
    }
}

#if KERNELS_DSP

/* dense_armv7em.S; n >= 4, count >= 1. */
void dot6_bias(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums, const int32_t *bias);
void dot4_bias(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums, const int32_t *bias);
void dot6_zero(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums);
void dot4_zero(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums);
void dot6_add(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums);
void dot4_add(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums);
void requantize6(const int32_t *sums, const float *m, uint32_t count, int32_t zero, int8_t *y, uint32_t c);
void requantize4(const int32_t *sums, const float *m, uint32_t count, int32_t zero, int8_t *y, uint32_t c);

#endif

void dot_rows(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t n, uint32_t count, const int32_t *bias,
              int32_t *sums)
{
#if KERNELS_DSP
    if (n >= 4) {
        if (bias) {
            lanes == LANES ? dot6_bias(tile, rows, n, count, sums, bias) : dot4_bias(tile, rows, n, count, sums, bias);
        } else {
            lanes == LANES ? dot6_zero(tile, rows, n, count, sums) : dot4_zero(tile, rows, n, count, sums);
        }
        return;
    }
#endif
    fill_bias(sums, lanes, bias, count);
    dot_portable(tile, lanes, rows, n, count, sums);
}

void dot_rows_add(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums)
{
#if KERNELS_DSP
    if (n >= 4) {
        lanes == LANES ? dot6_add(tile, rows, n, count, sums) : dot4_add(tile, rows, n, count, sums);
        return;
    }
#endif
    dot_portable(tile, lanes, rows, n, count, sums);
}

void requantize_lanes(const int32_t *sums, uint32_t lanes, const float *m, uint32_t count, int32_t zero, int8_t *y,
                      uint32_t c)
{
#if KERNELS_DSP
    lanes == LANES ? requantize6(sums, m, count, zero, y, c) : requantize4(sums, m, count, zero, y, c);
#else
    for (uint32_t i = 0; i < count; i++, y++) {
        for (uint32_t lane = 0; lane < lanes; lane++) {
            y[lane * c] = (int8_t)saturate8(requantize_wide(*sums++, m[i]) + zero);
        }
    }
#endif
}
