/* SPDX-License-Identifier: Apache-2.0 */
/* Dense forward with Helium, a part of conv2d.c around conv2d_mve.S. Inputs are read as they lie where a kernel is pointwise, else as the bytes
 * that outputs see, [pixels][k]. Their zero point is taken out of the biases: b - x_zero * (sum of the row). */
#ifndef KERNELS_CONV2D_MVE_H
#define KERNELS_CONV2D_MVE_H

#include "dense.h"

/* Rows of weights against pixels; the order is that of conv2d_mve.S. */
struct pixels_mve {
    const int8_t *x;
    uint32_t x_step; /* bytes to the next pixel */
    uint32_t pixels;
    const int8_t *w;
    uint32_t k;          /* values of a row; not 0 */
    const int32_t *from; /* [n] what the products of a pixel are added to */
    uint32_t from_step;  /* bytes to those of the next pixel */
    const float *m;      /* [n] multipliers */
    uint32_t n;          /* rows: a multiple of 4, with a mask of 8; not 0 */
    int32_t zero;
    void *y; /* [n] int8, or sums */
    uint32_t y_step;
    uint8_t *mask;
    uint32_t mask_step;
};

void pixels_sums(const struct pixels_mve *at);
void pixels_put(const struct pixels_mve *at);
void pixels_put_masked(const struct pixels_mve *at);

/* The same of an even number of pixels, two at a time. Long rows, pairs_mve.S; masked: bits are set, and must be 0 before. */
void pairs_sums(const struct pixels_mve *at);
void pairs_put(const struct pixels_mve *at);
void pairs_masked(const struct pixels_mve *at);

/* Rows of 17 to 32 values; of up to 16, with the same `from` for all pixels: short_mve.S. */
void pixels_stay_sums(const struct pixels_mve *at);
void pixels_stay_put(const struct pixels_mve *at);
void pixels_stay_masked(const struct pixels_mve *at);
void rows_stay(const struct pixels_mve *at);

/* Below this y_step the places of two pixels' outputs fit 16 bits. */
enum { STAY_STEP = 65532 };

/* to[i] = b[i] + minus_zero * (sum of row i); k and n not 0. */
void rows_biases(const int8_t *w, uint32_t k, uint32_t n, int32_t minus_zero, const int32_t *b, int32_t *to);

/* to[i] = x[order[i]]: depthwise_mve.S. */
void gather_bytes(const int8_t *x, const uint16_t *order, uint32_t n, int8_t *to);

/* In pieces, so that a piece can end behind so many. */
enum { PACED_CHANNELS = 16, PACED_PIXELS = 6 };

/* A block of output channels of some pixels; what they see lies in scratch, but that of a pointwise kernel. */
struct block {
    uint32_t o, n;          /* channels */
    uint32_t first, pixels; /* outputs */
    const int8_t *x[2];     /* what they see, of each part: [pixels][k] */
    uint32_t x_step[2];     /* bytes to the next pixel */
    int32_t *b, *sums;      /* [n] biases without zero point; [pixels][n] */
    float *m;               /* [n] */
    int8_t *bytes;
};

/* Outputs of the channels behind the last four (with a mask: eight), one by one. */
static void put_last(const struct conv2d *p, const struct part part[2], const struct block *at, uint32_t from,
                     int8_t *y, uint8_t *mask)
{
    for (uint32_t i = 0; i < at->pixels; i++) {
        int32_t sums[8];
        for (uint32_t ch = from; ch < at->n; ch++) {
            int32_t sum = at->b[ch];
            for (uint32_t j = part[0].k ? 0 : 1; j < 2 && part[j].k; j++) {
                const int8_t *w = part[j].w + (at->o + ch) * part[j].k, *x = at->x[j] + i * at->x_step[j];
                for (uint32_t k = 0; k < part[j].k; k++) {
                    sum += x[k] * w[k];
                }
            }
            sums[ch - from] = sum;
        }
        uint32_t pixel = at->first + i, o = at->o + from;
        uint32_t bits = put_outputs(p, sums, 1, o, at->n - from, y + pixel * p->c_out + o);
        if (mask) {
            mask[pixel * mask_stride(p->c_out) + o / 8] = (uint8_t)bits;
        }
    }
}

/* No bits of the rows. */
static void clear_mask(const struct pixels_mve *at)
{
    uint8_t *mask = at->mask;
    for (uint32_t i = at->pixels, n = at->n / 8; i; i--, mask += at->mask_step) {
        fill_bytes(mask, 0, n);
    }
}

typedef void put_rows_mve(const struct pixels_mve *at);

/* Two pixels at a time; a last one makes a pair with itself. */
static void put_by_two(struct pixels_mve *at, put_rows_mve *put)
{
    uint32_t pixels = at->pixels, even = pixels & ~1u;
    if (even) {
        at->pixels = even;
        put(at);
        at->pixels = pixels;
    }
    if (even < pixels) {
        struct pixels_mve last = *at;
        last.pixels = 2;
        last.x += even * at->x_step;
        last.from = (const int32_t *)(const void *)((const int8_t *)at->from + even * at->from_step);
        last.y = (int8_t *)at->y + even * at->y_step;
        last.mask = at->mask ? at->mask + even * at->mask_step : NULL;
        last.x_step = last.from_step = last.y_step = last.mask_step = 0;
        put(&last);
    }
}

/* Sums of the rows. */
static void sum_pixels(struct pixels_mve *at)
{
    if (at->k > 64) {
        put_by_two(at, pairs_sums);
    } else if (at->k > 16 && at->k <= 32) {
        put_by_two(at, pixels_stay_sums);
    } else {
        pixels_sums(at);
    }
}

/* Outputs of the rows. */
static void put_pixels(struct pixels_mve *at)
{
    if (at->k > 64) {
        if (at->mask) {
            clear_mask(at);
        }
        put_by_two(at, at->mask ? pairs_masked : pairs_put);
    } else if (at->k > 16 && at->k <= 32) {
        put_by_two(at, at->mask ? pixels_stay_masked : pixels_stay_put);
    } else if (at->mask) {
        pixels_put_masked(at);
    } else if (at->k <= 16 && at->from_step == 0 && at->y_step < STAY_STEP) {
        put_by_two(at, rows_stay);
    } else {
        pixels_put(at);
    }
}

/* All outputs of the block. */
static void put_block(const struct conv2d *p, const struct part part[2], const struct block *at, int8_t *y,
                      uint8_t *mask)
{
    uint32_t n = at->n & (mask ? ~7u : ~3u), last = part[1].k ? 1 : 0, stride = mask_stride(p->c_out);
    struct pixels_mve to; /* not cleared first: that takes longer than a few pixels */
    to.pixels = at->pixels;
    to.from = at->b;
    to.from_step = 0;
    to.m = at->m;
    to.n = n;
    to.zero = p->y_zero;
    to.mask = NULL;
    to.mask_step = 0;
    if (n && part[0].k && last) {
        to.x = at->x[0];
        to.x_step = at->x_step[0];
        to.k = part[0].k;
        to.w = part[0].w + at->o * to.k;
        to.y = at->sums;
        to.y_step = 4 * n;
        sum_pixels(&to);
        to.from = at->sums;
        to.from_step = 4 * n;
    }
    if (n) {
        to.x = at->x[last];
        to.x_step = at->x_step[last];
        to.k = part[last].k;
        to.w = part[last].w + at->o * to.k;
        to.y = y + at->first * p->c_out + at->o;
        to.y_step = p->c_out;
        to.mask = mask ? mask + at->first * stride + at->o / 8 : NULL;
        to.mask_step = mask ? stride : 0;
        put_pixels(&to);
    }
    if (n < at->n) {
        put_last(p, part, at, n, y, mask);
    }
}

/* m[i] = multiplier_of() of n words. */
static void multipliers_of(const int32_t *words, uint32_t n, float *m)
{
    for (uint32_t left = n; left; left = left < 4 ? 0 : left - 4, words += 4, m += 4) {
        mve_pred16_t live = vctp32q(left);
        vstrwq_p_f32(m, multipliers_of_four(vldrwq_z_s32(words, live)), live);
    }
}

/* Biases and multipliers of the block. */
static void begin_block(const struct conv2d *p, const struct part part[2], const int32_t *b, const struct block *at)
{
    const int32_t *from = b + at->o;
    for (uint32_t i = 0; i < 2; i++) {
        if (part[i].k) {
            rows_biases(part[i].w + at->o * part[i].k, part[i].k, at->n, -p->x_zero, from, at->b);
            from = at->b;
        }
    }
    multipliers_of(p->m + at->o, at->n, at->m);
}

/* What the block's pixels see. */
static void see(const struct conv2d *p, const int8_t *x, const struct part part[2], int in_place, struct block *at)
{
    int8_t *bytes = at->bytes;
    for (uint32_t i = 0; i < 2; i++) {
        if (part[i].k == 0) {
            continue;
        }
        at->x_step[i] = part[i].k;
        at->x[i] = bytes;
        if (!part[i].order && is_pointwise(p) && !in_place) {
            at->x[i] = x + at->first * p->c_in;
            continue;
        }
        if (is_pointwise(p) && part[i].order) {
            const int8_t *from = x + at->first * p->c_in;
            for (uint32_t pixel = 0; pixel < at->pixels; pixel++, from += p->c_in) {
                gather_bytes(from, part[i].order, part[i].k, bytes + pixel * part[i].k);
            }
        } else {
            fetch_fields(p, x, corner_of(p, at->first), at->pixels, &part[i], bytes);
        }
        bytes += at->pixels * part[i].k;
    }
}

/* Divides the scratch: tables of a block of channels, and with them what so many pixels see and their sums. Returns the
 * most pixels. */
static uint32_t lay_out(const struct conv2d *p, const struct part part[2], int in_place, void *scratch,
                        struct block *at PACED)
{
    uint32_t bytes = conv2d_fwd_scratch(p), n = block_channels_mve(p);
    int direct = !part[0].order && !part[1].order && is_pointwise(p) && !in_place, both = part[0].k && part[1].k;
    uint32_t pixels = output_pixels(p);
    if (PACE_IS_ON()) {
        uint32_t some = in_place ? (PACED_CHANNELS * PACED_PIXELS / n + 4) & ~3u : (uint32_t)PACED_PIXELS;
        n = in_place || n < PACED_CHANNELS ? n : (uint32_t)PACED_CHANNELS;
        pixels = pixels < some ? pixels : some;
    }
    uint32_t each = (direct ? 0 : part[0].k + part[1].k) + (both ? 4 * n : 0);
    at->n = n;
    at->b = scratch;
    at->m = (float *)(void *)(at->b + n);
    at->sums = at->b + 2 * n;
    uint32_t fit = each ? (bytes - 8 * n) / each : pixels;
    fit = fit < pixels ? fit : pixels;
    at->bytes = (int8_t *)(at->sums + (both ? fit * n : 0));
    return fit;
}

void conv2d_fwd_s8(const struct conv2d *p, const int8_t *x, const struct split_weights *w, const int32_t *b, int8_t *y,
                   uint8_t *mask, void *scratch PACED)
{
    const struct part part[2] = {part_of(p, w, 0), part_of(p, w, 1)};
    struct block at; /* not cleared first */
    at.o = PACE_OUTER();
    int in_place = is_in_place(p, x, y);
    uint32_t first = PACE_INNER(), pixels = output_pixels(p), most = lay_out(p, part, in_place, scratch, &at PACE);
    for (uint32_t n = at.n; at.o < p->c_out; at.o += n, first = 0) {
        at.n = p->c_out - at.o < n ? p->c_out - at.o : n;
        begin_block(p, part, b, &at);
        for (at.first = first; at.first < pixels; at.first += at.pixels) {
            at.pixels = pixels - at.first < most ? pixels - at.first : most;
            if (PACE_STOP(at.o, at.first, at.n * at.pixels * (part[0].k + part[1].k + WORK_OUTPUT))) {
                return;
            }
            see(p, x, part, in_place, &at);
            put_block(p, part, &at, y, mask);
        }
    }
}

#endif
