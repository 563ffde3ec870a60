/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise windows of small images with Helium, a part of dwconv2d.c around depthwise_mve.S: vectors of four channels,
 * whose pixels are loaded as they lie.
 *
 * Helium adds products of two vectors to a third in float32 alone. Those of 9 bits and 8 are whole numbers, and 49 of them
 * less than 2^24, so that all sums are exact.
 */
#ifndef KERNELS_DWCONV2D_MVE_H
#define KERNELS_DWCONV2D_MVE_H

#include "channel.h"
#include "planes.h"

/* A row of windows, four at a time; the order is that of depthwise_mve.S. */
struct windows_of_four {
    const float *x;  /* what the first window sees of the first row */
    uint32_t x_step; /* bytes to the next row */
    const float *taps;
    uint32_t taps_step;
    uint32_t rows;  /* of the image; not 0 */
    uint32_t fours; /* windows, by four */
    int32_t *sums;  /* [windows][4] */
};

void windows_of_four_3(const struct windows_of_four *at);
void windows_of_four_5(const struct windows_of_four *at);
void windows_of_four_7(const struct windows_of_four *at);

/* Outputs of four channels; the order is that of depthwise_mve.S. */
struct outputs_of_four {
    int32_t b[4];
    float m[4];
    uint32_t powers[4]; /* their bits of the mask */
    int32_t zero;
    uint32_t c;
    int8_t *y;
    uint8_t *mask; /* whose other bits are kept, or NULL */
    uint32_t stride;
};

/* The next n, a pixel after the other; y and mask go on. */
void put_four(const int32_t *sums, uint32_t n, struct outputs_of_four *to);
void put_four_masked(const int32_t *sums, uint32_t n, struct outputs_of_four *to);

/* What is the same of all groups. Images have zeros where windows see nothing. */
struct small {
    const struct view *v;
    struct overlap columns;
    uint32_t row, places; /* windows of a row, rounded up; places of the image that they see */
    float *x;             /* [image_h][places][4] */
    float *taps;          /* [kh][kw][4] */
    int32_t *sums;        /* [row][4]; of all rows [h][row][4], backward and where `all` */
    int all;              /* rows lie one behind the other, without windows between them that are none */
};

enum { SMALL_PIXELS = 64 };

/* True where windows are summed so, which is shorter where an image is small. bytes: of scratch behind the sums. */
static int is_small(const struct view *v, int32_t bytes)
{
    uint32_t places = round_up4(v->w) - 1 + v->kw, floats = 4 * ((uint32_t)v->image_h * places + v->kh * v->kw);
    int few = v->kw == 3 || v->kw == 5 || (v->kw == 7 && v->space_h > 1);
    return few && v->kh == v->kw && v->stride_h == 1 && v->stride_w == 1 && v->h * v->w <= SMALL_PIXELS &&
           (int32_t)(4 * floats) <= bytes;
}

/* sums: room for its sums; floats: for those behind it. */
static void small_of(const struct view *v, int32_t *sums, void *floats, struct small *s)
{
    s->v = v;
    s->row = round_up4(v->w);
    s->places = s->row - 1 + v->kw;
    s->columns = overlap_of(-v->pad_w, (int32_t)s->places, v->image_w, v->space_w);
    s->sums = sums;
    s->all = s->row == v->w;
    s->taps = floats;
    s->x = s->taps + 4 * v->kh * v->kw;
    fill_bytes(s->x, 0, 16 * (uint32_t)v->image_h * s->places);
}

/* Pixels of four channels, `c` bytes apart, as floats `step` apart, a literal. */
ALWAYS_INLINE void spread_floats(const int8_t *from, uint32_t c, uint32_t n, int32_t zero, float *to, uint32_t step)
{
    for (; n; n--, from += c, to += step) {
        vstrwq_f32(to, vcvtq_f32_s32(vsubq_n_s32(vldrbq_s32(from), zero)));
    }
}

/* Weights of four channels with n taps each. step: a literal. */
ALWAYS_INLINE void taps_of_four(const int8_t *w, uint32_t n, float *to, int32_t step)
{
    uint32x4_t lanes = vmulq_n_u32(vidupq_n_u32(0, 1), n);
    for (; n; n--, w++, to += step) {
        vstrwq_f32(to, vcvtq_f32_s32(vldrbq_gather_offset_s32(w, lanes)));
    }
}

/* The image and the weights of the group, as floats. */
static void fill_four(const struct small *s, const struct group *group)
{
    const struct view *v = s->v;
    const int8_t *row = v->image + (uint32_t)s->columns.first * v->c + group->channel[0];
    float *place = s->x + 4 * s->columns.at;
    uint32_t c = v->c, step = 4 * (uint32_t)v->space_w, columns = (uint32_t)s->columns.n;
    int32_t zero = v->zero;
    for (int32_t y = columns ? v->image_h : 0; y; y--, row += (uint32_t)v->image_w * c, place += 4 * s->places) {
        if (step == 4) {
            spread_floats(row, c, columns, zero, place, 4);
        } else {
            spread_floats(row, c, columns, zero, place, step);
        }
    }
    uint32_t n = v->kh * v->kw;
    if (v->flip) {
        taps_of_four(group->w[0], n, s->taps + 4 * n - 4, -4);
    } else {
        taps_of_four(group->w[0], n, s->taps, 4);
    }
}

ALWAYS_INLINE void begin_windows(const struct small *s, struct windows_of_four *at)
{
    at->x_step = 16 * s->places;
    at->taps_step = 16 * s->v->kw * (uint32_t)s->v->space_h;
    at->fours = s->row / 4;
}

/* Which rows of the image row y of windows sees. */
ALWAYS_INLINE struct overlap rows_of(const struct view *v, uint32_t y)
{
    int32_t top = (int32_t)y - v->pad_h, taps = (int32_t)v->kh;
    if (v->space_h > 1) {
        return overlap_of(top, taps, v->image_h, v->space_h);
    }
    struct overlap rows = {.first = top > 0 ? top : 0};
    rows.at = rows.first - top;
    int32_t seen = taps - rows.at, left = v->image_h - rows.first;
    rows.n = seen < left ? seen : left;
    rows.n = rows.n < 0 ? 0 : rows.n;
    return rows;
}

/* Sums of a row of windows of the group. */
ALWAYS_INLINE void sum_four(const struct small *s, struct windows_of_four *at, uint32_t y, int32_t *sums)
{
    const struct view *v = s->v;
    const struct overlap rows = rows_of(v, y);
    if (rows.n == 0) {
        fill_bytes(sums, 0, 16 * s->row);
        return;
    }
    at->x = s->x + 4 * s->places * (uint32_t)rows.first;
    at->taps = s->taps + 4 * v->kw * (uint32_t)rows.at;
    at->rows = (uint32_t)rows.n;
    at->sums = sums;
    v->kw == 3 ? windows_of_four_3(at) : v->kw == 5 ? windows_of_four_5(at) : windows_of_four_7(at);
}

/* All outputs of the group. */
static void put_small(const struct small *s, const struct conv2d *p, const struct group *group, const int32_t *b,
                      int8_t *y, uint8_t *mask)
{
    uint32_t ch = group->channel[0];
    struct windows_of_four at;
    struct outputs_of_four to;
    vstrwq_s32(to.b, vldrwq_s32(b + ch));
    vstrwq_f32(to.m, multipliers_of_four(vldrwq_s32(p->m + ch)));
    vstrwq_u32(to.powers, vshlq_u32(vdupq_n_u32(1u << (ch & 7u)), vreinterpretq_s32_u32(vidupq_n_u32(0, 1))));
    to.zero = p->y_zero;
    to.c = p->c_out;
    to.y = y + ch;
    to.mask = mask ? mask + ch / 8 : NULL;
    to.stride = mask_stride(p->c_out);
    fill_four(s, group);
    begin_windows(s, &at);
    uint32_t w = s->v->w, h = s->v->h, step = s->all ? 4 * w : 0;
    for (uint32_t oy = 0; oy < h; oy++) {
        sum_four(s, &at, oy, s->sums + oy * step);
        if (!s->all) {
            mask ? put_four_masked(s->sums, w, &to) : put_four(s->sums, w, &to);
        }
    }
    if (s->all) {
        mask ? put_four_masked(s->sums, w * h, &to) : put_four(s->sums, w * h, &to);
    }
}

/* All errors of the group. */
static void put_errors_of_four(const struct small *s, const struct group *group, const struct error_s8 *ey,
                               const struct clamp *clamp, const struct error_s8 *ex)
{
    uint32_t ch = group->channel[0], c = s->v->c, peaks[4] = {0};
    uint32_t rows = s->all ? 1 : s->v->h, n = s->all ? s->v->w * s->v->h : s->v->w; /* of pixels that lie on end */
    const struct channel first = channel_of(ex, clamp, c, ch);
    struct windows_of_four at;
    float gains[4];
    fill_four(s, group);
    begin_windows(s, &at);
    for (uint32_t y = 0; y < s->v->h; y++) {
        sum_four(s, &at, y, s->sums + 4 * s->row * y);
    }
    for (uint32_t y = 0; y < rows; y++) {
        mask_four(s->sums + 4 * s->row * y, n, first.mask + y * n * first.mask_step, first.mask_step, first.bit, peaks);
    }
    for (uint32_t i = 0; i < 4; i++) {
        float unit = channel_unit(clamp, ch + i, ey->scale[ch + i]);
        gains[i] = channel_gain((float)peaks[i], unit, &ex->scale[ch + i]);
    }
    for (uint32_t y = 0; y < rows; y++) {
        write_four(s->sums + 4 * s->row * y, n, vldrwq_f32(gains), first.q + y * n * c, c);
    }
}

#endif
