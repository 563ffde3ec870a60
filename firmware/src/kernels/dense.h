/* SPDX-License-Identifier: Apache-2.0 */
/* Panels and the micro-kernels under dense forward, bwd_x and bwd_w.
 *
 * A tile is a few panels side by side, its lanes: rows of n int16 values. Against a tile stand plain int8 rows of n
 * bytes, of any alignment, one behind the other. Only the packers differ between the three products:
 *
 *   forward  lane: x - x_zero of a pixel           row: weights of an output channel
 *   bwd_x    lane: r * w of an input channel       row: errors of a pixel
 *   bwd_w    lane: errors of an output channel     row: saved inputs of a channel over the pixels
 *
 * Sums are int32 [count][lanes]. The order of the values in memory is panel_place()'s. On Armv7E-M values lie in groups
 * of four as dense_armv7em.S reads them; a row of n values that fill no group begins with the group that is not full,
 * so that the groups behind it are whole and no byte outside the row is read. With Helium a lane follows the other.
 */
#ifndef KERNELS_DENSE_H
#define KERNELS_DENSE_H

#include "chip.h"
#include "kernels/conv2d.h"

/* Lanes of a tile: FEW_LANES where a lane has more than MANY values, as then it is the tile that makes the peak of SRAM,
 * and a fifteenth more instructions save a third of it. */
enum { LANES = 6, FEW_LANES = 4, MANY = 512 };

/* A 1x1 kernel that reads pixel i for output i. */
ALWAYS_INLINE int is_pointwise(const struct conv2d *p)
{
    return p->kh == 1 && p->kw == 1 && p->stride_h == 1 && p->stride_w == 1 && p->pad_h == 0 && p->pad_w == 0 &&
           p->h_in == p->h_out && p->w_in == p->w_out;
}

/* A part of `count` things that fills a tile. The last part of several overlaps the one before it. */
struct span {
    uint32_t first;
    uint32_t lanes; /* LANES or FEW_LANES */
    uint32_t live;  /* lanes in use; fewer than `lanes` only where count < FEW_LANES */
};

/* Lanes of the largest span of `count` things of n values. */
ALWAYS_INLINE uint32_t most_lanes(uint32_t count, uint32_t n)
{
    return count >= LANES && n <= MANY ? LANES : FEW_LANES;
}

/* The span that holds thing `at` of those, and as many behind it as there are. */
ALWAYS_INLINE struct span span_at(uint32_t at, uint32_t count, uint32_t n)
{
    uint32_t left = count - at;
    struct span span = {.first = at, .lanes = left > FEW_LANES ? most_lanes(count, n) : FEW_LANES};
    span.live = count < span.lanes ? count : span.lanes;
    span.first = left < span.live ? count - span.live : at;
    return span;
}

/* Bytes of a tile: a multiple of 4. */
ALWAYS_INLINE uint32_t tile_bytes(uint32_t n, uint32_t lanes)
{
    return round_up4(n) * lanes * (uint32_t)sizeof(int16_t);
}

/* Index of value k of a lane in its tile. */
ALWAYS_INLINE uint32_t panel_place(uint32_t n, uint32_t lanes, uint32_t lane, uint32_t k)
{
#if KERNELS_MVE
    (void)lanes;
    return lane * round_up4(n) + k;
#elif KERNELS_DSP
    uint32_t pad = round_up4(n) - n, at = k + pad < 4 ? k : k + pad;
    return ((at >> 2) * 2 + (at & 1u)) * 2 * lanes + 2 * lane + ((at >> 1) & 1u);
#else
    (void)n;
    return (k >> 1) * 2 * lanes + 2 * lane + (k & 1u);
#endif
}

#if KERNELS_MVE
#define copy_bytes copy_apart
#else
/* Copies a few bytes: too few for a call. The last word overlaps the one before it. Three pixels of three channels are
 * the usual case. */
ALWAYS_INLINE void copy_bytes(int8_t *to, const int8_t *from, uint32_t n)
{
    if (n - 8 <= 4) {
        uint32_t first = load_u32(from), second = load_u32(from + 4), last = load_u32(from + n - 4);
        store_u32(to, first);
        store_u32(to + 4, second);
        store_u32(to + n - 4, last);
        return;
    }
    if (n >= 4) {
        for (uint32_t i = 0; i < n - 4; i += 4) {
            store_u32(to + i, load_u32(from + i));
        }
        store_u32(to + n - 4, load_u32(from + n - 4));
        return;
    }
    for (; n; n--) {
        *to++ = *from++;
    }
}
#endif

/* Zeros in a tile of which not all lanes are live: C sums all of them, and what scratch held before could overflow. The
 * chip's sums wrap, and nobody reads them. */
ALWAYS_INLINE void clear_lanes(int16_t *tile, const struct span *span, uint32_t n)
{
    if (!KERNELS_DSP && span->live < span->lanes) {
        memset(tile, 0, tile_bytes(n, span->lanes));
    }
}

/* One lane of a tile = row - zero; all of it is written, also what no value lies in. */
void pack_lane(int16_t *tile, uint32_t lanes, uint32_t lane, const int8_t *row, uint32_t n, int32_t zero);

/* All lanes: lane i from rows + i * step. */
void pack_rows(int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t step, uint32_t n, int32_t zero);

/* All live lanes of a span: value k of lane i is r[k] * rows[k * step + i]; r NULL: 1. */
void pack_columns(int16_t *tile, const struct span *span, const int8_t *rows, uint32_t step, const int16_t *r,
                  uint32_t n);

/* sums[row][lane] = bias[row] + panel . row; bias NULL: 0. */
void dot_rows(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t n, uint32_t count, const int32_t *bias,
              int32_t *sums);

/* sums[row][lane] += panel . row */
void dot_rows_add(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums);

#if KERNELS_MVE

/* to[i] = from[i * step], n not 0. */
void gather_step(int8_t *to, const int8_t *from, uint32_t step, uint32_t n);

/* A tile of bytes: pack_columns() without r, and dot_rows() of it, or with `add` dot_rows_add(). */
void pack_bytes(int16_t *tile, const struct span *span, const int8_t *rows, uint32_t step, uint32_t n);
void dot_bytes(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums,
               int add);

#endif

/* Where the outputs of rows go, one row a channel; the order is that of dense_armv7em.S. */
struct dot_put {
    int8_t *y; /* of lane 0; all are live */
    union {
        int8_t *y3;    /* of lane 3 */
        uint8_t *bits; /* [rows] of the masked ones: bit `lane` is 1 where its output saturated */
    };
    const int32_t *from; /* bias of each row, or sums [count][lanes] to add to */
    const int32_t *m;    /* word of each row */
    int32_t offset;      /* put_offset() of their zero point */
    uint32_t c;
    uint32_t tiles; /* dot6_put(): tiles of six pixels behind this one, which follow one another; 0 by the others */
    const int8_t *w, *x;               /* of such tiles: the first row, and their first pixel */
    uint32_t step, groups, minus_zero; /* as given to pack6() */
#if MICROTRAIN_TFLITE
    int32_t fine; /* bytes from a word to the fine multiplier, which is there */
#endif
};

#if KERNELS_DSP && !KERNELS_MVE

/* y[lane * c + i] = output of from[i] + panel . row i, or of from[i][lane] + panel . row i; n >= 4. dot6_put() goes on
 * with put->tiles more tiles, which it packs over the first one; then tiles, x, y and y3 are lost. */
void dot6_put(int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, struct dot_put *put);
void dot4_put(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, const struct dot_put *put);
void dot6_add_put(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, const struct dot_put *put);
void dot4_add_put(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, const struct dot_put *put);

/* The same, and which of them saturated. put->bits may lie where the sums of put->from do. */
void dot6_put_masked(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, const struct dot_put *put);
void dot4_put_masked(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count, const struct dot_put *put);
void dot6_add_put_masked(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count,
                         const struct dot_put *put);
void dot4_add_put_masked(const int16_t *tile, const int8_t *rows, uint32_t n, uint32_t count,
                         const struct dot_put *put);

/* sums[lane] += sum over n rows of factors[k] * rows[k * step + lane]: of 6 or 4 lanes. factors: 4-byte aligned. */
void weighted_columns6(const int8_t *rows, uint32_t step, const int16_t *factors, uint32_t n, int32_t *sums);
void weighted_columns4(const int8_t *rows, uint32_t step, const int16_t *factors, uint32_t n, int32_t *sums);

/* pack_rows() of groups of four values; minus_zero: halves_of() minus the zero point. */
void pack6(int16_t *tile, const int8_t *rows, uint32_t step, uint32_t groups, uint32_t minus_zero);
void pack4(int16_t *tile, const int8_t *rows, uint32_t step, uint32_t groups, uint32_t minus_zero);

#elif !KERNELS_DSP

/* y[lane * c_out + i] = output of sums[i][lane], for `count` channels from o on; all lanes are live. */
void requantize_lanes(const struct conv2d *p, const int32_t *sums, uint32_t lanes, uint32_t o, uint32_t count,
                      int8_t *y);

#endif

#endif
