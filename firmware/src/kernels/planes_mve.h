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

/* depthwise_mve.S. stand_taps() returns the sum of the weights. */
int32_t stand_taps(const struct unpack *to, const int8_t *w);
void stand_4(const struct upright *at, const int8_t *from);
void stand_4_inside(const struct upright *at, const int8_t *from);
void stand_8(const struct upright *at, const int8_t *from);
void columns_3x3(const struct sight *at, int32_t bias, int32_t *sums);
void columns_3x3_stride2(const struct sight *at, int32_t bias, int32_t *sums);
void columns_5x5(const struct sight *at, int32_t bias, int32_t *sums);
void columns_7x7(const struct sight *at, int32_t bias, int32_t *sums);

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

/* How the tile's windows are summed. Columns of eight bytes hold two rows of windows with stride 1: the even rows, then the
 * odd ones, whose taps stand one lower. */
static void begin_sight(const struct view *v, const struct tile *tile, const int8_t *columns, struct stand *s)
{
    int both = v->kw != 3 && v->stride_h == 1 && tile->h > 1;
    s->sight.columns = columns;
    s->sight.taps = s->unpack.taps;
    s->sight.fours = tile->row / 4;
    s->sight.rows = both ? (tile->h + 1) / 2 : tile->h;
    s->sight.group = s->at.group;
    s->sight.step = COLUMN_5 * v->stride_w;
    s->sight.skip = both ? 4 * tile->row : 0;
    s->odd = s->sight;
    s->odd.taps += s->unpack.vectors * VECTOR;
    s->odd.rows = both ? tile->h / 2 : 0;
}

/* True where stand_4_inside() makes the columns: no row that is seen is outside, and places of four rows fit 16 bits. */
static int is_all_image(const struct view *v, const struct tile *tile, const struct upright *at)
{
    int32_t rows = (int32_t)((tile->h - 1) * v->stride_h + v->kh);
    return v->kw == 3 && v->space_h == 1 && at->columns >= 8 && tile->rows.at == 0 && tile->rows.n == rows &&
           3 * at->row_bytes + 7 * at->c < 65536;
}

void stand_of(const struct view *v, const struct tile *tile, void *columns, void *taps, struct stand *s)
{
    uint32_t seen = (tile->row - 1) * v->stride_w + v->kw;
    int32_t row_bytes = v->image_w * (int32_t)v->c, first_row = tile->rows.first - tile->rows.at;
    s->height = v->kw == 3 ? COLUMN_3 : COLUMN_5;
    s->kind = v->kw + (v->stride_w == 1 ? 0 : 1);
    s->columns = overlap_of((int32_t)(tile->x * v->stride_w) - v->pad_w, (int32_t)seen, v->image_w, v->space_w);
    s->from = v->image + first_row * row_bytes + s->columns.first * (int32_t)v->c;
    uint32_t written = (uint32_t)s->columns.at + (s->columns.n > 8 ? (uint32_t)s->columns.n : 8u);
    s->at.row_bytes = (uint32_t)row_bytes;
    s->at.c = v->c;
    s->at.columns = (uint32_t)s->columns.n;
    s->at.first = -tile->rows.at;
    s->at.groups = v->stride_h == 1 ? (tile->h + 1) / 2 : tile->h;
    s->at.rows = tile->rows.n;
    s->at.group = (seen + 1 > written ? seen + 1 : written) * s->height;
    s->at.zero = (uint8_t)v->zero;
    s->at.to = (int8_t *)columns + (uint32_t)s->columns.at * s->height;
    s->v = v;
    s->tile = tile;
    s->unpack.places = v->kw == 3 ? taps_of_3 : v->kw == 5 ? taps_of_5 : taps_of_7;
    s->unpack.vectors = v->kw == 3 ? 1 : v->kw == 5 ? 3 : 4;
    s->unpack.taps = taps;
    s->unpack.last = v->flip ? v->kh * v->kw - 1 : 0;
    s->zero = v->zero;
    begin_sight(v, tile, columns, s);
    s->inside = is_all_image(v, tile, &s->at);
    s->seen = tile->rows.n && s->columns.n ? 1 : 0;
    if (s->seen && (v->space_h != 1 || v->space_w != 1)) {
        s->seen = 2;
        s->from = v->image + (tile->rows.first * v->image_w + s->columns.first) * (int32_t)v->c;
    }
}

/* An image between whose pixels there are zeros, byte by byte. */
NEVER_INLINE void stand_spaced(const struct stand *s, const int8_t *from)
{
    const struct view *v = s->v;
    const struct tile *tile = s->tile;
    int32_t height = (int32_t)s->height;
    for (int32_t i = 0; i < tile->rows.n; i++, from += v->image_w * (int32_t)v->c) {
        int32_t row = tile->rows.at + i * v->space_h,
                last = row / 2 < (int32_t)s->at.groups ? row / 2 : (int32_t)s->at.groups - 1;
        for (int32_t g = row < height ? 0 : (row - height + 2) / 2; g <= last; g++) {
            int8_t *column = s->at.to + (uint32_t)g * s->at.group + (row - 2 * g);
            const int8_t *pixel = from;
            for (int32_t n = s->columns.n; n; n--, pixel += v->c, column += v->space_w * height) {
                *column = *pixel;
            }
        }
    }
}

/* All rows of the tile, from columns. */
ALWAYS_INLINE void sum_columns(const struct stand *s, int32_t bias, int32_t *sums)
{
    if (s->kind == 3) {
        columns_3x3(&s->sight, bias, sums);
        return;
    }
    if (s->kind == 4) {
        columns_3x3_stride2(&s->sight, bias, sums);
        return;
    }
    int five = s->kind < 7;
    five ? columns_5x5(&s->sight, bias, sums) : columns_7x7(&s->sight, bias, sums);
    if (s->odd.rows) {
        sums += s->tile->row;
        five ? columns_5x5(&s->odd, bias, sums) : columns_7x7(&s->odd, bias, sums);
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
    fill_bytes(s->at.to - s->columns.at * (int32_t)s->height, (int32_t)s->at.zero, s->at.groups * s->at.group);
}

void sum_channel(const struct stand *s, uint32_t channel, const int8_t *w, int32_t bias, int32_t *sums)
{
    bias -= s->zero * stand_taps(&s->unpack, w);
    const int8_t *from = s->from + channel;
    if (s->inside) {
        stand_4_inside(&s->at, from);
    } else if (s->seen == 1) {
        s->height == COLUMN_3 ? stand_4(&s->at, from) : stand_8(&s->at, from);
    } else if (s->seen) {
        stand_spaced(s, from);
    }
    sum_columns(s, bias, sums);
}

#endif
