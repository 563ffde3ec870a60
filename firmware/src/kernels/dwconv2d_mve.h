/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise windows of small images with Helium, a part of depthwise.h around depthwise_mve.S: vectors of four
 * channels, whose pixels are loaded as they lie.
 *
 * Helium adds products of two vectors to a third in float32 alone. Those of 9 bits and 8 are whole numbers, and 49 of them
 * less than 2^24, so that all sums are exact.
 */
#ifndef KERNELS_DWCONV2D_MVE_H
#define KERNELS_DWCONV2D_MVE_H

#include "channel.h"
#include "planes.h"

/* Rows of windows, four windows at a time; the order is that of depthwise_mve.S. */
struct windows_of_four {
    const float *x;  /* what the first window of a row sees of row 0 of the image */
    uint32_t x_step; /* bytes to the next row */
    const float *taps;
    uint32_t taps_step;
    int32_t rows;   /* of the image */
    uint32_t fours; /* windows of a row, by four */
    int32_t *sums;  /* [h][windows][4] */
    uint32_t h;     /* not 0 */
    int32_t top;    /* the row of the image that the first tap sees; negative above it */
    int32_t kh;     /* rows of taps */
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

/* An image that becomes floats; the order is that of depthwise_mve.S. */
struct spread {
    uint32_t c;             /* bytes to the next pixel */
    uint32_t columns, rows; /* neither is 0 */
    uint32_t row_bytes;     /* to the next row */
    float *to;
    uint32_t step, to_row; /* bytes to the next pixel's place, to that of the next row */
    int32_t zero;
};

/* Pixels of four channels as floats, [4] each; weights of four channels with n taps each, [n][4]. */
void spread_pixels(const struct spread *to, const int8_t *from);
void spread_taps(const int8_t *w, uint32_t n, int flip, float *to);

/* What is the same of all groups. Images have zeros where windows see nothing. */
struct small {
    const struct view *v;
    uint32_t row, places; /* windows of a row, rounded up; places of the image that they see */
    const int8_t *image;  /* from the first column on that they see */
    struct spread spread; /* columns is 0 where they see none */
    float *x;             /* [image_h][places][4] */
    float *taps;          /* [kh][kw][4] */
    int32_t *sums;        /* [row][4]; of all rows [h][row][4], backward and where `all` */
    int all;              /* rows lie one behind the other, without windows between them that are none */
};

enum { SMALL_PIXELS = 64 };

/* True where windows are summed so, which is shorter where an image is small. bytes: of scratch behind the sums. */
ALWAYS_INLINE int is_small(const struct view *v, int32_t bytes)
{
    uint32_t places = round_up4(v->w) - 1 + v->kw, floats = 4 * ((uint32_t)v->image_h * places + v->kh * v->kw);
    int few = v->kw == 3 || v->kw == 5 || (v->kw == 7 && v->space_h > 1);
    return few && v->kh == v->kw && v->stride_h == 1 && v->stride_w == 1 && v->h * v->w <= SMALL_PIXELS &&
           (int32_t)(4 * floats) <= bytes;
}

/* sums: room for its sums; floats: for those behind it. */
void small_of(const struct view *v, int32_t *sums, void *floats, struct small *s);

/* The image and the weights of the group, as floats. */
ALWAYS_INLINE void fill_four(const struct small *s, const struct group *group)
{
    const struct view *v = s->v;
    if (s->spread.columns) {
        spread_pixels(&s->spread, s->image + group->channel[0]);
    }
    spread_taps(group->w[0], v->kh * v->kw, v->flip, s->taps);
}

/* What is the same of all rows of windows. */
ALWAYS_INLINE void begin_windows(const struct small *s, struct windows_of_four *at)
{
    const struct view *v = s->v;
    at->x = s->x;
    at->x_step = 16 * s->places;
    at->taps = s->taps;
    at->taps_step = 16 * v->kw * (uint32_t)v->space_h;
    at->rows = v->image_h;
    at->fours = s->row / 4;
    at->kh = (int32_t)v->kh;
}

ALWAYS_INLINE void sum_windows_of_four(uint32_t taps, const struct windows_of_four *at)
{
    taps == 3 ? windows_of_four_3(at) : taps == 5 ? windows_of_four_5(at) : windows_of_four_7(at);
}

/* sum_four() of an image between whose rows there are zeros: windows see every second row of taps, or fewer. */
void sum_spaced_rows(const struct small *s, struct windows_of_four *at, uint32_t y, uint32_t h);

/* Sums of h rows of windows of the group, from row y on. */
ALWAYS_INLINE void sum_four(const struct small *s, struct windows_of_four *at, uint32_t y, uint32_t h, int32_t *sums)
{
    const struct view *v = s->v;
    at->sums = sums;
    if (v->space_h > 1) {
        sum_spaced_rows(s, at, y, h);
        return;
    }
    at->h = h;
    at->top = (int32_t)y - v->pad_h;
    sum_windows_of_four(v->kw, at);
}

#endif
