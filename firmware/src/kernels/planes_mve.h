/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise windows with Helium, a part of planes.c around depthwise_mve.S.
 *
 * A plane of bytes whose columns stand upright: COLUMN_3 or COLUMN_5 rows of the image are a column, and columns follow
 * one another, so that a window is a few vectors on end. What two rows of windows see is a group, and there is one for
 * each two rows of the image: rows are kept twice or more. Places without image hold the zero point, which comes out of
 * the bias.
 */
#ifndef KERNELS_PLANES_MVE_H
#define KERNELS_PLANES_MVE_H

#include "planes.h"

enum { COLUMN_3 = 4, COLUMN_5 = 8, VECTOR = 16 };

void columns_3x3(const int8_t *columns, const int8_t *taps, uint32_t fours, int32_t bias, int32_t *sums,
                 int32_t *below);
void columns_3x3_stride2(const int8_t *columns, const int8_t *taps, uint32_t fours, int32_t bias, int32_t *sums);
void columns_5x5(const int8_t *columns, const int8_t *taps, uint32_t fours, int32_t bias, int32_t *sums, uint32_t step);
void columns_7x7(const int8_t *columns, const int8_t *taps, uint32_t fours, int32_t bias, int32_t *sums, uint32_t step);

/* Eight columns of all groups; the order is that of depthwise_mve.S. */
struct eight {
    int8_t *to;
    const int8_t *from; /* of the first row, which may lie outside the image */
    uint32_t row_bytes, c;
    uint32_t lanes;  /* columns of the image among them; more than 8: all */
    int32_t first;   /* which row of those that are seen comes first */
    uint32_t groups;
    int32_t rows;    /* of the image that are seen; not 0 */
    uint32_t group;  /* bytes */
    uint32_t zero;   /* byte */
};

void stand_4(const struct eight *at);
void stand_8(const struct eight *at);

static struct stand stand_of(const struct view *v, const struct tile *tile)
{
    uint32_t seen = (tile->row - 1) * v->stride_w + v->kw;
    struct stand s = {.height = v->kw == 3 ? COLUMN_3 : COLUMN_5};
    s.groups = v->stride_h == 1 ? (tile->h + 1) / 2 : tile->h;
    s.columns = overlap_of((int32_t)(tile->x * v->stride_w) - v->pad_w, (int32_t)seen, v->image_w, v->space_w);
    uint32_t written = (uint32_t)s.columns.at + (s.columns.n > 8 ? (uint32_t)s.columns.n : 8u);
    s.group = (seen + 1 > written ? seen + 1 : written) * s.height;
    return s;
}

/* An image between whose pixels there are zeros, byte by byte. */
NEVER_INLINE void stand_spaced(const struct view *v, const struct tile *tile, const struct stand *s, const int8_t *from,
                               int8_t *to)
{
    int32_t height = (int32_t)s->height;
    for (int32_t i = 0; i < tile->rows.n; i++, from += v->image_w * (int32_t)v->c) {
        int32_t row = tile->rows.at + i * v->space_h, last = row / 2 < (int32_t)s->groups ? row / 2 : (int32_t)s->groups - 1;
        for (int32_t g = row < height ? 0 : (row - height + 2) / 2; g <= last; g++) {
            int8_t *column = to + (uint32_t)g * s->group + (row - 2 * g) + s->columns.at * height;
            const int8_t *pixel = from;
            for (int32_t n = s->columns.n; n; n--, pixel += v->c, column += v->space_w * height) {
                *column = *pixel;
            }
        }
    }
}

/* What the tile sees of one channel. */
static void fill_columns(const struct view *v, const struct tile *tile, const struct stand *s, uint32_t channel,
                         int8_t *to)
{
    if (tile->rows.n == 0 || s->columns.n == 0) {
        return;
    }
    const int8_t *from = v->image + (uint32_t)(tile->rows.first * v->image_w + s->columns.first) * v->c + channel;
    if (v->space_h != 1 || v->space_w != 1) {
        stand_spaced(v, tile, s, from, to);
        return;
    }
    int32_t n = s->columns.n, row_bytes = v->image_w * (int32_t)v->c;
    struct eight at = {.row_bytes = (uint32_t)row_bytes, .c = v->c, .lanes = (uint32_t)n, .first = -tile->rows.at};
    at.groups = s->groups;
    at.rows = tile->rows.n;
    at.group = s->group;
    at.zero = (uint8_t)v->zero;
    from -= tile->rows.at * row_bytes;
    to += (uint32_t)s->columns.at * s->height;
    for (int32_t i = 0; i < n; i += 8) {
        int32_t x = i + 8 <= n || n < 8 ? i : n - 8; /* the last eight overlap those before them */
        at.from = from + x * (int32_t)v->c;
        at.to = to + (uint32_t)x * s->height;
        s->height == COLUMN_3 ? stand_4(&at) : stand_8(&at);
    }
}

/* Where the weights of a vector of taps are, a column after the other; -1: none. Row 1 is that of a window that begins
 * one lower. */
#define NO -1
#define THREE(a, b, c) a, b, c, NO
#define FIVE(a) a, a + 5, a + 10, a + 15, a + 20, NO, NO, NO
#define SEVEN(a) a, a + 7, a + 14, a + 21, a + 28, a + 35, a + 42, NO
#define NONE_4 NO, NO, NO, NO
#define NONE_8 NONE_4, NONE_4

static const int8_t taps_of_3[] = {THREE(0, 3, 6), THREE(1, 4, 7), THREE(2, 5, 8), NONE_4};
static const int8_t taps_of_5[] = {FIVE(0), FIVE(1), FIVE(2), FIVE(3), FIVE(4), NONE_8};
static const int8_t taps_of_7[] = {SEVEN(0), SEVEN(1), SEVEN(2), SEVEN(3), SEVEN(4), SEVEN(5), SEVEN(6), NONE_8};

/* Bytes of the taps of a row of windows. */
ALWAYS_INLINE uint32_t taps_vectors(const struct view *v)
{
    return v->kw == 3 ? VECTOR : v->kw == 5 ? 3 * VECTOR : 4 * VECTOR;
}

/* Taps of a row of windows and of the one below it. Returns their sum. */
static int32_t stand_taps(const struct view *v, const int8_t *w, int8_t *taps)
{
    const int8_t *from = v->kw == 3 ? taps_of_3 : v->kw == 5 ? taps_of_5 : taps_of_7;
    uint32_t bytes = taps_vectors(v);
    uint8x16_t last = vdupq_n_u8((uint8_t)(v->kh * v->kw - 1));
    uint32_t carry = 0;
    int32_t sum = 0;
    for (uint32_t i = 0; i < bytes; i += VECTOR) {
        int8x16_t at = vldrbq_s8(from + i);
        mve_pred16_t some = vcmpgeq_n_s8(at, 0);
        uint8x16_t place = v->flip ? vsubq_u8(last, vreinterpretq_u8_s8(at)) : vreinterpretq_u8_s8(at);
        int8x16_t tap = vldrbq_gather_offset_z_s8(w, place, some);
        sum = vaddvaq_s8(sum, tap);
        vstrbq_s8(taps + i, tap);
        int32x4_t lower = vshlcq_s32(vreinterpretq_s32_s8(tap), &carry, 8);
        vstrbq_s8(taps + bytes + i, vreinterpretq_s8_s32(lower));
    }
    return sum;
}

/* All rows of the tile, from columns. */
static void sum_columns(const struct view *v, const struct tile *tile, const struct stand *s, const int8_t *columns,
                        const int8_t *taps, int32_t bias, int32_t *sums)
{
    uint32_t fours = tile->row / 4, step = s->height * v->stride_w, both = v->stride_h == 1;
    const int8_t *lower = taps + taps_vectors(v);
    for (uint32_t y = 0; y < tile->h; columns += s->group) {
        int32_t *below = sums + tile->row;
        if (v->kw == 3 && v->stride_w == 1) {
            columns_3x3(columns, taps, fours, bias, sums, both && y + 1 < tile->h ? below : sums);
        } else if (v->kw == 3) {
            columns_3x3_stride2(columns, taps, fours, bias, sums);
        } else {
            for (uint32_t row = 0; row <= both && y + row < tile->h; row++) {
                int32_t *to = row ? below : sums;
                v->kw == 5 ? columns_5x5(columns, row ? lower : taps, fours, bias, to, step)
                           : columns_7x7(columns, row ? lower : taps, fours, bias, to, step);
            }
        }
        y += 1 + both;
        sums += (1 + both) * tile->row;
    }
}

int is_upright(const struct view *v)
{
    return v->fast && v->c > 1 && v->c < 8192;
}

void clear_columns(const struct view *v, const struct tile *tile, void *columns)
{
    fill_bytes(columns, v->zero, tile->stand.groups * tile->stand.group);
}

void sum_channel(const struct view *v, const struct tile *tile, uint32_t channel, const int8_t *w, void *columns,
                 void *taps, int32_t bias, int32_t *sums)
{
    const struct stand *s = &tile->stand;
    bias -= v->zero * stand_taps(v, w, taps);
    fill_columns(v, tile, s, channel, columns);
    sum_columns(v, tile, s, columns, taps, bias, sums);
}

#endif
