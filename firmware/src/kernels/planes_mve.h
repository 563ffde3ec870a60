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

int32_t stand_taps(const int8_t *places, uint32_t vectors, const int8_t *w, int8_t *taps, uint32_t last);
void columns_3x3(const int8_t *columns, const int8_t *taps, uint32_t fours, int32_t bias, int32_t *sums, uint32_t rows,
                 uint32_t group);
void columns_3x3_stride2(const int8_t *columns, const int8_t *taps, uint32_t fours, int32_t bias, int32_t *sums,
                         uint32_t rows, uint32_t group);
void columns_5x5(const int8_t *columns, const int8_t *taps, uint32_t fours, int32_t bias, int32_t *sums, uint32_t rows,
                 uint32_t group, uint32_t step, uint32_t skip);
void columns_7x7(const int8_t *columns, const int8_t *taps, uint32_t fours, int32_t bias, int32_t *sums, uint32_t rows,
                 uint32_t group, uint32_t step, uint32_t skip);

void stand_4(const struct upright *at, int8_t *to, const int8_t *from);
void stand_8(const struct upright *at, int8_t *to, const int8_t *from);

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

void stand_of(const struct view *v, const struct tile *tile, void *columns, void *taps, struct stand *s)
{
    uint32_t seen = (tile->row - 1) * v->stride_w + v->kw;
    int32_t row_bytes = v->image_w * (int32_t)v->c, first_row = tile->rows.first - tile->rows.at;
    s->height = v->kw == 3 ? COLUMN_3 : COLUMN_5;
    s->columns = overlap_of((int32_t)(tile->x * v->stride_w) - v->pad_w, (int32_t)seen, v->image_w, v->space_w);
    s->from = first_row * row_bytes + s->columns.first * (int32_t)v->c;
    uint32_t written = (uint32_t)s->columns.at + (s->columns.n > 8 ? (uint32_t)s->columns.n : 8u);
    s->at.row_bytes = (uint32_t)row_bytes;
    s->at.c = v->c;
    s->at.columns = (uint32_t)s->columns.n;
    s->at.first = -tile->rows.at;
    s->at.groups = v->stride_h == 1 ? (tile->h + 1) / 2 : tile->h;
    s->at.rows = tile->rows.n;
    s->at.group = (seen + 1 > written ? seen + 1 : written) * s->height;
    s->at.zero = (uint8_t)v->zero;
    s->v = v;
    s->tile = tile;
    s->places = v->kw == 3 ? taps_of_3 : v->kw == 5 ? taps_of_5 : taps_of_7;
    s->vectors = v->kw == 3 ? 1 : v->kw == 5 ? 3 : 4;
    s->last = v->flip ? v->kh * v->kw - 1 : 0;
    s->whole = columns;
    s->to = s->whole + (uint32_t)s->columns.at * s->height;
    s->taps = taps;
    s->zero = v->zero;
    s->fours = tile->row / 4;
    s->both = v->stride_h == 1 && tile->h > 1;
    s->seen = tile->rows.n && s->columns.n ? 1 : 0;
    if (s->seen && (v->space_h != 1 || v->space_w != 1)) {
        s->seen = 2;
        s->from = (tile->rows.first * v->image_w + s->columns.first) * (int32_t)v->c;
    }
}

/* An image between whose pixels there are zeros, byte by byte. */
NEVER_INLINE void stand_spaced(const struct view *v, const struct tile *tile, const struct stand *s, const int8_t *from,
                               int8_t *to)
{
    int32_t height = (int32_t)s->height;
    for (int32_t i = 0; i < tile->rows.n; i++, from += v->image_w * (int32_t)v->c) {
        int32_t row = tile->rows.at + i * v->space_h,
                last = row / 2 < (int32_t)s->at.groups ? row / 2 : (int32_t)s->at.groups - 1;
        for (int32_t g = row < height ? 0 : (row - height + 2) / 2; g <= last; g++) {
            int8_t *column = to + (uint32_t)g * s->at.group + (row - 2 * g) + s->columns.at * height;
            const int8_t *pixel = from;
            for (int32_t n = s->columns.n; n; n--, pixel += v->c, column += v->space_w * height) {
                *column = *pixel;
            }
        }
    }
}

/* All rows of the tile, from columns. */
ALWAYS_INLINE void sum_columns(const struct view *v, const struct tile *tile, const struct stand *s, int32_t bias,
                               int32_t *sums)
{
    const int8_t *columns = s->whole, *taps = s->taps;
    uint32_t h = tile->h, group = s->at.group;
    if (v->kw == 3) {
        v->stride_w == 1 ? columns_3x3(columns, taps, s->fours, bias, sums, h, group)
                         : columns_3x3_stride2(columns, taps, s->fours, bias, sums, h, group);
        return;
    }
    uint32_t step = COLUMN_5 * v->stride_w, skip = s->both ? 4 * tile->row : 0, even = s->both ? (h + 1) / 2 : h;
    void (*sum)(const int8_t *, const int8_t *, uint32_t, int32_t, int32_t *, uint32_t, uint32_t, uint32_t, uint32_t) =
        v->kw == 5 ? columns_5x5 : columns_7x7;
    sum(columns, taps, s->fours, bias, sums, even, group, step, skip);
    if (s->both) {
        sum(columns, taps + s->vectors * VECTOR, s->fours, bias, sums + tile->row, h / 2, group, step, skip);
    }
}

int is_upright(const struct view *v)
{
    return v->fast && v->c > 1 && v->c < 8192;
}

void widen_tiles(struct view *v, uint32_t bytes)
{
    uint32_t row = round_up4(v->w), height = v->kw == 3 ? COLUMN_3 : COLUMN_5;
    uint32_t columns = ((row - 1) * v->stride_w + v->kw + 9) * height; /* of a group, at most */
    for (uint32_t h = v->h; h >= v->tile_h || row > v->tile_w; h = (h + 1) / 2) {
        uint32_t groups = v->stride_h == 1 ? (h + 1) / 2 : h;
        if (h * row * 4 + taps_bytes(v) + groups * columns <= bytes) {
            v->tile_h = h;
            v->tile_w = row;
            return;
        }
        if (h == 1) {
            return;
        }
    }
}

void clear_columns(const struct stand *s)
{
    fill_bytes(s->whole, (int32_t)s->at.zero, s->at.groups * s->at.group);
}

void sum_channel(const struct stand *s, uint32_t channel, const int8_t *w, int32_t bias, int32_t *sums)
{
    const struct view *v = s->v;
    bias -= s->zero * stand_taps(s->places, s->vectors, w, s->taps, s->last);
    if (s->seen == 1) {
        const int8_t *from = v->image + s->from + channel;
        s->height == COLUMN_3 ? stand_4(&s->at, s->to, from) : stand_8(&s->at, s->to, from);
    } else if (s->seen) {
        stand_spaced(v, s->tile, s, v->image + s->from + channel, s->whole);
    }
    sum_columns(v, s->tile, s, bias, sums);
}

#endif
