/* SPDX-License-Identifier: Apache-2.0 */
/* Packing and the micro-kernels of dense tiles: portable C, and the way to dense_armv7em.S. */
#include "dense.h"
#include "requantize.h"

#if defined(__AVX2__)
#include "dense_avx2.h"
#endif

#if KERNELS_MVE
#include "dense_mve.h"
#else

#if KERNELS_DSP

/* dense_armv7em.S; n >= 4, count >= 1, groups >= 1. */
void dot6_bias(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums, const int32_t *bias);
void dot4_bias(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums, const int32_t *bias);
void dot6_zero(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums);
void dot4_zero(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums);
void dot6_add(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums);
void dot4_add(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums);
void columns6(int16_t *tile, const int8_t *rows, uint32_t step, uint32_t groups, const int16_t *r);
void columns4(int16_t *tile, const int8_t *rows, uint32_t step, uint32_t groups, const int16_t *r);
void columns6_scaled(int16_t *tile, const int8_t *rows, uint32_t step, uint32_t groups, const int16_t *r);
void columns4_scaled(int16_t *tile, const int8_t *rows, uint32_t step, uint32_t groups, const int16_t *r);

#endif

/* Two int16 places of a lane that hold zeros. */
ALWAYS_INLINE void clear_group(int16_t *tile, uint32_t lanes, uint32_t lane)
{
    for (uint32_t i = 0; i < 2; i++) {
        tile[2 * (lanes * i + lane)] = 0;
        tile[2 * (lanes * i + lane) + 1] = 0;
    }
}

void pack_lane(int16_t *tile, uint32_t lanes, uint32_t lane, const int8_t *row, uint32_t n, int32_t zero)
{
    if (KERNELS_DSP && (n & 3u)) {
        clear_group(tile, lanes, lane);
    } else if (n & 1u) {
        tile[panel_place(n, lanes, lane, n)] = 0; /* makes up the last pair */
    }
    uint32_t k = 0;
#if defined(__AVX2__)
    k = pack_sixteens(tile + 2 * lane, lanes, row, n, zero);
#endif
    for (; k < n; k++) {
        tile[panel_place(n, lanes, lane, k)] = (int16_t)(row[k] - zero);
    }
}

#if KERNELS_DSP

/* The leading group of rows of n values, n >= 4 no multiple of 4: packed whole, what is of the next group cut off. */
static void pack_leading(int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t step, uint32_t n, uint32_t minus)
{
    uint32_t even = (n & 3u) > 2 ? 0xffffffffu : 0xffffu, odd = (n & 3u) > 1 ? 0xffffu : 0;
    lanes == LANES ? pack6(tile, rows, step, 1, minus) : pack4(tile, rows, step, 1, minus);
    for (uint32_t lane = 0; lane < lanes; lane++, tile += 2) {
        store_u32(tile, load_u32(tile) & even);
        store_u32(tile + 2 * lanes, load_u32(tile + 2 * lanes) & odd);
    }
}

#endif

void pack_rows(int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t step, uint32_t n, int32_t zero)
{
#if KERNELS_DSP
    if (n >= 4) {
        uint32_t minus = halves_of(-zero);
        if (n & 3u) {
            pack_leading(tile, lanes, rows, step, n, minus);
            tile += 4 * lanes;
            rows += n & 3u;
        }
        lanes == LANES ? pack6(tile, rows, step, n / 4, minus) : pack4(tile, rows, step, n / 4, minus);
        return;
    }
#endif
    for (uint32_t lane = 0; lane < lanes; lane++, rows += step) {
        pack_lane(tile, lanes, lane, rows, n, zero);
    }
}

/* Values from..to of all live lanes, one by one. */
static void columns_scalar(int16_t *tile, const struct span *span, const int8_t *rows, uint32_t step, const int16_t *r,
                           uint32_t n, uint32_t last)
{
    for (uint32_t lane = 0; KERNELS_DSP && (n & 3u) && lane < span->lanes; lane++) {
        clear_group(tile, span->lanes, lane);
    }
    for (uint32_t lane = 0; !KERNELS_DSP && (n & 1u) && lane < span->lanes; lane++) {
        tile[panel_place(n, span->lanes, lane, n)] = 0; /* makes up the last pair */
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
    clear_lanes(tile, span, n);
#if defined(__AVX2__)
    if (span->live == LANES) {
        columns_avx2(tile, rows, step, r, n);
        return;
    }
#endif
#if KERNELS_DSP
    scalar = span->live < span->lanes ? n : n & 3u;
#endif
    if (scalar) {
        columns_scalar(tile, span, rows, step, r, n, scalar);
    }
#if KERNELS_DSP
    tile += scalar ? 4 * span->lanes : 0;
    rows += scalar * step;
    uint32_t groups = (n - scalar) / 4;
    if (groups && r) {
        r += scalar;
        span->lanes == LANES ? columns6_scaled(tile, rows, step, groups, r)
                             : columns4_scaled(tile, rows, step, groups, r);
    } else if (groups) {
        span->lanes == LANES ? columns6(tile, rows, step, groups, NULL) : columns4(tile, rows, step, groups, NULL);
    }
#endif
}

#if defined(__AVX2__)

static void dot_portable(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t n, uint32_t count,
                         int32_t *sums)
{
    lanes == LANES ? dot_avx2(tile, LANES, rows, n, count, sums) : dot_avx2(tile, FEW_LANES, rows, n, count, sums);
}

#elif KERNELS_DSP

/* One lane against one row of less than four values. */
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

#else

/* One row against all lanes, whose sums are in registers; lanes is a literal. */
ALWAYS_INLINE void dot_row(const int16_t *tile, uint32_t lanes, const int8_t *row, uint32_t n, int32_t *sums)
{
    int32_t local[LANES];
#pragma GCC unroll 6
    for (uint32_t lane = 0; lane < lanes; lane++) {
        local[lane] = sums[lane];
    }
    for (const int8_t *end = row + (n & ~1u); row != end; row += 2, tile += 2 * lanes) {
        int32_t even = row[0], odd = row[1];
#pragma GCC unroll 6
        for (uint32_t lane = 0; lane < lanes; lane++) {
            local[lane] += tile[2 * lane] * even;
            local[lane] += tile[2 * lane + 1] * odd;
        }
    }
    int32_t left = n & 1u ? row[0] : 0;
#pragma GCC unroll 6
    for (uint32_t lane = 0; lane < lanes; lane++) {
        sums[lane] = local[lane] + (n & 1u ? tile[2 * lane] * left : 0);
    }
}

static void dot_portable(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t n, uint32_t count,
                         int32_t *sums)
{
    for (; count; count--, rows += n, sums += lanes) {
        if (lanes == LANES) {
            dot_row(tile, LANES, rows, n, sums);
        } else {
            dot_row(tile, FEW_LANES, rows, n, sums);
        }
    }
}

#endif

static void fill_bias(int32_t *sums, uint32_t lanes, const int32_t *bias, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t lane = 0; lane < lanes; lane++) {
            *sums++ = bias ? bias[i] : 0;
        }
    }
}

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

#if !KERNELS_DSP

void requantize_lanes(const struct conv2d *p, const int32_t *sums, uint32_t lanes, uint32_t o, uint32_t count,
                      int8_t *y)
{
    uint32_t c = p->c_out;
    int32_t zero = p->y_zero;
    for (uint32_t i = o; i < o + count; i++, y++) {
        struct multiplier m = multiplier_at(p, i);
        for (uint32_t lane = 0; lane < lanes; lane++) {
            y[lane * c] = (int8_t)saturate8(requantize_wide(*sums++, m, zero));
        }
    }
}

#endif

#endif
