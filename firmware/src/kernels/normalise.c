/* SPDX-License-Identifier: Apache-2.0 */
/* Group and layer normalisation. Contract: kernels/normalise.h. */
#include "kernels/normalise.h"

#include "channel.h"
#include "chip.h"
#include "root.h"

/* What the backward pass keeps of a cell. */
struct cell {
    int32_t sum;
    float mean, slope, gain;
};

/* Where a cell lies. first: of x; n: values in it */
struct place {
    uint32_t first, pixels, channels, n;
};

static uint32_t cells(const struct normalise *p)
{
    return p->groups * (p->apart ? p->pixels : 1u);
}

/* Cell `number`: the groups of a pixel follow one another. */
static struct place place_of(const struct normalise *p, uint32_t number)
{
    uint32_t channels = p->c / p->groups, pixels = p->apart ? 1u : p->pixels;
    uint32_t pixel = number / p->groups, group = number % p->groups;
    return (struct place){
        .first = pixel * p->c + group * channels, .pixels = pixels, .channels = channels, .n = pixels * channels};
}

/* Sum of a cell's values; 1 / sqrt(weight). */
static int32_t sums_of(const struct normalise *p, struct place at, const int8_t *x, float *inverse)
{
    int32_t sum = 0, squares = 0;
    for (uint32_t pixel = 0; pixel < at.pixels; pixel++) {
        const int8_t *row = x + at.first + pixel * p->c;
        for (uint32_t i = 0; i < at.channels; i++) {
            sum += row[i];
            squares += row[i] * row[i];
        }
    }
    uint64_t above = (uint64_t)at.n * (uint32_t)squares;
    *inverse = inverse_of(above - (uint64_t)((int64_t)sum * sum) + p->epsilon);
    return sum;
}

void normalise_fwd_s8(const struct normalise *p, const int8_t *x, int8_t *y, uint8_t *mask)
{
    const uint32_t stride = mask_stride(p->c), all = cells(p);
    for (uint32_t i = 0; mask && i < p->pixels * stride; i++) {
        mask[i] = 0;
    }
    for (uint32_t number = 0; number < all; number++) {
        const struct place at = place_of(p, number);
        float inverse;
        int32_t sum = sums_of(p, at, x, &inverse), n = (int32_t)at.n, zero = p->y_zero;
        float m = inverse * p->unit;
        uint32_t channel = at.first % p->c, pixel = at.first / p->c;
        for (uint32_t row = 0; row < at.pixels; row++, pixel++) {
            for (uint32_t ch = channel; ch < channel + at.channels; ch++) {
                uint32_t place = pixel * p->c + ch;
                int32_t v = round_limited((float)(n * x[place] - sum) * m) + zero, q = saturate8(v);
                y[place] = (int8_t)q;
                if (mask) {
                    mask[pixel * stride + (ch >> 3)] |= (uint8_t)((v == q ? 1u : 0u) << (ch & 7u));
                }
            }
        }
    }
}

uint32_t normalise_bwd_x_scratch(const struct normalise *p)
{
    return cells(p) * (uint32_t)sizeof(struct cell);
}

/* What the errors of a cell say of its mean and deviation. */
static struct cell cell_of(const struct normalise *p, struct place at, const struct error_s8 *ey, const int8_t *x)
{
    float inverse, first = 0.0f, second = 0.0f;
    int32_t sum = sums_of(p, at, x, &inverse), n = (int32_t)at.n, whole = sum / n, rest = sum - n * whole;
    for (uint32_t i = 0; i < at.channels; i++) {
        int32_t errors = 0, products = 0;
        for (uint32_t pixel = 0, place = at.first + i; pixel < at.pixels; pixel++, place += p->c) {
            errors += ey->q[place];
            products += ey->q[place] * (x[place] - whole);
        }
        float e = ey->scale[at.first % p->c + i];
        first += e * (float)errors;
        second += e * ((float)products * (float)n - (float)errors * (float)rest);
    }
    return (struct cell){.sum = sum,
                         .mean = first / (float)n,
                         .slope = second * inverse / (float)n * inverse,
                         .gain = inverse * p->unit * (float)n};
}

void normalise_bwd_x_s8(const struct normalise *p, const struct error_s8 *ey, const int8_t *x,
                        const struct clamp *clamp, const struct error_s8 *ex, void *scratch)
{
    struct cell *known = scratch;
    const uint32_t all = cells(p), channels = p->c / p->groups, step = p->apart ? p->groups : 0;
    const int32_t n = (int32_t)place_of(p, 0).n;
    for (uint32_t number = 0; number < all; number++) {
        known[number] = cell_of(p, place_of(p, number), ey, x);
    }
    for (uint32_t i = 0; i < p->c; i++) {
        const struct channel ch = channel_of(ex, clamp, p->c, i);
        const float e = ey->scale[i];
        float peak = 0.0f, gain = 0.0f;
        for (uint32_t pass = 0; pass < 2; pass++) {
            const struct cell *cell = known + i / channels;
            for (uint32_t pixel = 0, at = i; pixel < p->pixels; pixel++, at += p->c, cell += step) {
                int32_t d = n * x[at] - cell->sum;
                float v = ((e * (float)ey->q[at] - cell->mean) - (float)d * cell->slope) * cell->gain;
                if (pass) {
                    channel_put(&ch, pixel, v, gain);
                } else {
                    peak = larger_magnitude_f32(peak, channel_passes(&ch, pixel) ? v : 0.0f);
                }
            }
            if (!pass) {
                gain = channel_gain(peak, channel_unit(clamp, i, 1.0f), &ex->scale[i]);
            }
        }
    }
}
