/* SPDX-License-Identifier: Apache-2.0 */
/* Dense convolution: gradient to the weights with the update folded in; bias update; gather.
 * Contract: kernels/conv2d.h. */
#include "kernels/conv2d.h"

#include "dense.h"
#include "update.h"

/* Pixels whose errors make up a tile at once, and saved input channels that are transposed at once: many where the
 * image is small, for speed, few where it is large, for memory. */
enum { CHUNK = 256, BLOCK = 32, ROW_BYTES = 2048 };

static uint32_t output_pixels(const struct conv2d *p)
{
    return (uint32_t)p->h_out * p->w_out;
}

static uint32_t chunk_pixels(const struct conv2d *p)
{
    return output_pixels(p) < CHUNK ? output_pixels(p) : (uint32_t)CHUNK;
}

/* The row of ones behind the block's rows takes part in ROW_BYTES. */
static uint32_t block_channels(const struct conv2d *p, uint32_t c_trained)
{
    uint32_t rows = ROW_BYTES / output_pixels(p), block = rows < 3 ? 2 : rows - 1 < BLOCK ? rows - 1 : (uint32_t)BLOCK;
    return block < c_trained ? block : c_trained;
}

uint32_t conv2d_bwd_w_scratch(const struct conv2d *p, uint16_t c_trained)
{
    uint32_t rows = block_channels(p, c_trained) + 1, lanes = most_lanes(p->c_out, 0);
    uint32_t sums = 4 * rows * lanes, tile = tile_bytes(chunk_pixels(p), lanes);
    return sums + tile + round_up4(rows * output_pixels(p));
}

/* One tap and a block of trained channels. */
struct block {
    uint32_t ky, kx;
    uint32_t first, count; /* trained channels */
    int32_t *sums;         /* [count + 1][lanes] */
    int16_t *tile;         /* errors of a chunk of pixels */
    int8_t *rows;          /* by chunk: [count + 1][pixels of it], saved inputs under the tap, then ones */
};

/* row[i] = what output first + i sees of one saved channel through the block's tap, padding as x_zero. */
static void pack_saved_row(const struct conv2d *p, const struct saved_input *x, const struct block *at,
                           uint32_t channel, uint32_t first, uint32_t n, int8_t *row)
{
    const int8_t *from = x->x + (x->index ? x->index[channel] : channel);
    if (is_pointwise(p)) {
        uint32_t step = x->c_x;
        from += first * step;
#if KERNELS_MVE
        gather_step(row, from, step, n);
        return;
#endif
        for (const int8_t *end = row + n; row != end; from += step) {
            *row++ = *from;
        }
        return;
    }
    int32_t left = (int32_t)at->kx - p->pad_w, ox = (int32_t)(first % p->w_out);
    int32_t iy = (int32_t)(first / p->w_out) * p->stride_h + (int32_t)at->ky - p->pad_h;
    for (const int8_t *end = row + n; row != end; row++) {
        int32_t ix = ox * p->stride_w + left;
        int32_t seen = iy >= 0 && iy < p->h_in && ix >= 0 && ix < p->w_in;
        *row = seen ? from[(iy * p->w_in + ix) * x->c_x] : (int8_t)p->x_zero;
        if (++ox == p->w_out) {
            ox = 0;
            iy += p->stride_h;
        }
    }
}

/* All rows of the block. */
static void pack_saved(const struct conv2d *p, const struct saved_input *x, const struct block *at)
{
    int8_t *row = at->rows;
    for (uint32_t i = 0, pixels = output_pixels(p), n; i < pixels; i += n) {
        n = pixels - i < CHUNK ? pixels - i : (uint32_t)CHUNK;
        for (uint32_t t = 0; t < at->count; t++, row += n) {
            pack_saved_row(p, x, at, at->first + t, i, n, row);
        }
        fill_bytes(row, 1, n);
        row += n;
    }
}

/* sums[t][lane] = sum over the pixels of errors of output channel span->first + lane and saved channel t; behind the
 * last of these the sum of the errors alone. */
static void correlate(const struct conv2d *p, const int8_t *e, const struct block *at, const struct span *span)
{
    uint32_t pixels = output_pixels(p), rows = at->count + 1;
    for (uint32_t i = 0, n; i < pixels; i += n) {
        n = pixels - i < CHUNK ? pixels - i : (uint32_t)CHUNK;
#if KERNELS_MVE
        pack_bytes(at->tile, span, e + i * p->c_out + span->first, p->c_out, n);
        dot_bytes(at->tile, span->lanes, at->rows + i * rows, n, rows, at->sums, i != 0);
#else
        pack_columns(at->tile, span, e + i * p->c_out + span->first, p->c_out, NULL, n);
        if (i) {
            dot_rows_add(at->tile, span->lanes, at->rows + i * rows, n, rows, at->sums);
        } else {
            dot_rows(at->tile, span->lanes, at->rows, n, rows, NULL, at->sums);
        }
#endif
    }
}

/* Everything the update of one layer needs beside the block. */
struct descent {
    const struct trained_weights *w;
    uint32_t key;
    uint32_t taps, c_trained, kw;
    int32_t x_zero;
    float lr;
};

#ifdef MICROTRAIN_LIBRARY
/* Blocks are counted by tap and first channel. */
static uint32_t block_number(const struct descent *d, const struct block *at)
{
    return (at->ky * d->kw + at->kx) * d->c_trained + at->first;
}
#endif

/* All weights of one tap and a block of trained channels.
 * sum e * (x - zero) = sum e * x - zero * sum e, exact in int32. */
static void descend_block(const struct conv2d *p, const struct error_s8 *ey, const struct descent *d,
                          const struct block *at, uint32_t from PACED)
{
    uint32_t tap = at->ky * p->kw + at->kx;
    for (uint32_t o = from; o < p->c_out;) {
        struct span span = span_at(o, p->c_out, 0);
        if (PACE_STOP(block_number(d, at), o, span.live * at->count * ((uint32_t)p->h_out * p->w_out + WORK_OUTPUT))) {
            return;
        }
        correlate(p, ey->q, at, &span);
        for (; o < span.first + span.live; o++) {
            const int32_t *sums = at->sums + (o - span.first);
            struct steps steps = {.sums = sums, .stride = span.lanes};
            steps.shift = d->x_zero * sums[at->count * span.lanes];
            steps.factor = d->lr * d->w->qas[o] * ey->scale[o];
            update_weights(d->w, (o * d->taps + tap) * d->c_trained + at->first, at->count, &steps, d->key);
        }
    }
}

void conv2d_bwd_w_s8(const struct conv2d *p, const struct error_s8 *ey, const struct saved_input *x, uint16_t c_trained,
                     const struct trained_weights *w, const struct sgd *sgd, void *scratch PACED)
{
    uint32_t begin = PACE_OUTER(), inner = PACE_INNER();
    uint32_t most = block_channels(p, c_trained), lanes = most_lanes(p->c_out, 0);
    struct descent d = {.w = w, .key = random_key(sgd->seed, sgd->step, w->id), .lr = sgd->lr_weight};
    d.taps = (uint32_t)p->kh * p->kw;
    d.c_trained = c_trained;
    d.kw = p->kw;
    d.x_zero = p->x_zero;
    struct block at = {.sums = scratch};
    at.tile = (int16_t *)(void *)(at.sums + (most + 1) * lanes);
    at.rows = (int8_t *)at.tile + tile_bytes(chunk_pixels(p), lanes);
    for (at.ky = 0; at.ky < p->kh; at.ky++) {
        for (at.kx = 0; at.kx < p->kw; at.kx++) {
            for (at.first = 0; at.first < c_trained; at.first += most) {
                at.count = c_trained - at.first < most ? c_trained - at.first : most;
                if (PACE_SKIP(block_number(&d, &at), begin)) {
                    continue;
                }
                if (inner == 0) {
                    pack_saved(p, x, &at);
                }
                descend_block(p, ey, &d, &at, inner PACE);
                inner = 0;
                if (PACE_PAUSED()) {
                    return;
                }
            }
        }
    }
}

/* Exponent bits of a float whose unit is taken as it is; each one less doubles the unit. */
enum { UNIT_EXPONENT = 118, SHIFT_MAX = 15, DELTA_MAX = 32767 };

/* How many bits fewer than deltas lean bases have behind the point; what marks a dead channel beside them. */
enum { LEAN_SHIFT = 2 };
#define DEAD_MULTIPLIER 0x1p-10f

/* shift(c) of a channel with this multiplier. */
static uint32_t bias_shift_of(float m)
{
    uint32_t bits, exponent;
    memcpy(&bits, &m, sizeof bits);
    exponent = bits >> 23;
    uint32_t shift = exponent < UNIT_EXPONENT ? UNIT_EXPONENT - exponent : 0;
    return shift < SHIFT_MAX ? shift : (uint32_t)SHIFT_MAX;
}

ALWAYS_INLINE float qas_of(const struct trained_bias *bias, uint32_t ch)
{
    if (!bias->lean) {
        return bias->qas[ch];
    }
    float m = multiplier_of(bias->m[ch]);
    return m == DEAD_MULTIPLIER ? 0.0f : bias->unit / (m * m) * float_of((127 - bias_shift_of(m)) << 23);
}

#if KERNELS_MVE

#include "bias_mve.h"

#else

#if KERNELS_DSP

/* What update_armv7em.S, whose order this is, needs of the channels that it goes on with. */
struct four_biases {
    const int8_t *q; /* of pixel 0 */
    uint32_t c, pixels;
    const float *scale, *qas;
    const int32_t *base, *m;
    int16_t *delta;
    int32_t limit;
    float lr;
    uint32_t hashed; /* what hash32() makes the noise of their first two */
};

/* Updates fours of channels, at least one, and moves `at` behind them. */
void descend_biases(struct four_biases *at, uint32_t fours);

/* b[] of so many fours of the first channels. */
void expand_biases(const struct trained_bias *bias, int32_t *b, uint32_t fours);

#endif

/* sums[ch] += the errors of all pixels, for n channels. */
static void sum_errors(const int8_t *q, uint32_t pixels, uint32_t c, uint32_t n, int32_t *sums)
{
    for (; pixels; pixels--, q += c) {
        for (uint32_t ch = 0; ch < n; ch++) {
            sums[ch] += q[ch];
        }
    }
}

static uint32_t bias_shift(int32_t word)
{
    return bias_shift_of(multiplier_of(word));
}

ALWAYS_INLINE int32_t base_of(const struct trained_bias *bias, uint32_t ch, uint32_t shift)
{
    return bias->lean ? bias->lean[ch] * (1 << (shift + LEAN_SHIFT)) : bias->base[ch];
}

void bias_expand_s32(uint32_t c, const struct trained_bias *bias, int32_t *b)
{
    uint32_t ch = 0;
#if KERNELS_DSP
    if (c >= 4 && !bias->lean) {
        ch = c & ~3u;
        expand_biases(bias, b, c / 4);
    }
#endif
    for (; ch < c; ch++) {
        uint32_t shift = bias_shift(bias->m[ch]);
        b[ch] = base_of(bias, ch, shift) + bias->delta[ch] * (1 << shift);
    }
}

/* How far a bias may be from its base on one side, in units of its delta. room: limit -+ base, not negative. */
ALWAYS_INLINE int32_t most_delta(uint32_t room, uint32_t shift)
{
    uint32_t most = room >> shift;
    return most < DELTA_MAX ? (int32_t)most : DELTA_MAX;
}

/* Step of bias ch with this sum of errors. noise: 8 random bits. */
ALWAYS_INLINE void descend_bias(const struct error_s8 *ey, const struct trained_bias *bias, float lr, uint32_t ch,
                                int32_t sum, uint32_t noise)
{
    uint32_t shift = bias_shift(bias->m[ch]);
    uint32_t limit = (uint32_t)bias->limit, base = (uint32_t)base_of(bias, ch, shift);
    float step = lr * ey->scale[ch] * qas_of(bias, ch) * (float)sum;
    int32_t delta = bias->delta[ch] - stochastic_shift(step, noise, 8);
    int32_t most = most_delta(limit - base, shift), least = -most_delta(limit + base, shift);
    bias->delta[ch] = (int16_t)(delta > most ? most : delta < least ? least : delta);
}

#if KERNELS_DSP

static struct four_biases four_biases_at(uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                                         const struct trained_bias *bias, float lr, uint32_t key, uint32_t ch)
{
    struct four_biases at = {.q = ey->q + ch, .c = c, .pixels = pixels, .limit = bias->limit, .lr = lr};
    at.scale = ey->scale + ch;
    at.qas = bias->qas + ch;
    at.base = bias->base + ch;
    at.m = bias->m + ch;
    at.delta = bias->delta + ch;
    at.hashed = key + (ch >> 1) * 0x9e3779b9u;
    return at;
}

#endif

void bias_update_s32(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const struct trained_bias *bias,
                     const struct sgd *sgd PACED)
{
    uint32_t ch = PACE_OUTER(), key = random_key(sgd->seed, sgd->step, bias->id);
#if KERNELS_DSP
    if (!bias->lean) {
        struct four_biases at = four_biases_at(pixels, c, ey, bias, sgd->lr_bias, key, ch);
        for (uint32_t n; c - ch >= 4; ch += n) {
            n = PACE_IS_ON() ? 4 : (c - ch) & ~3u;
            if (PACE_STOP(ch, 0, n * (pixels + WORK_OUTPUT))) {
                return;
            }
            descend_biases(&at, n / 4);
        }
    }
#endif
    for (; ch < c; ch += 4) {
        if (PACE_STOP(ch, 0, 4 * (pixels + WORK_OUTPUT))) {
            return;
        }
        int32_t sums[4] = {0};
        uint32_t n = c - ch < 4 ? c - ch : 4;
        sum_errors(ey->q + ch, pixels, c, n, sums);
        for (uint32_t i = 0; i < n; i += 2) {
            uint32_t noise = random_pair(key, ch + i);
            descend_bias(ey, bias, sgd->lr_bias, ch + i, sums[i], noise & 0xffu);
            if (i + 1 < n) {
                descend_bias(ey, bias, sgd->lr_bias, ch + i + 1, sums[i + 1], noise >> 16 & 0xffu);
            }
        }
    }
}

#endif

void gather_s8(uint32_t pixels, uint32_t c, const int8_t *x, const uint16_t *index, uint32_t c_index, int8_t *y)
{
    for (; pixels; pixels--, x += c) {
        for (uint32_t i = 0; i < c_index; i++) {
            *y++ = x[index[i]];
        }
    }
}
