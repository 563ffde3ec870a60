/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, a channel at a time: the way from exact sums to int8 with one scale per channel.
 *
 *   peak = max over the pixels that pass the mask of |sum|     of those that are numbers
 *   q    = rint(sum * (127 / peak))                            so that the largest |q| is 127
 *   scale = (peak / 127) * unit                                unit: real gradient of 1 in a sum
 *
 * A channel of which nothing passes, or whose scale is too small for a float32, is without gradient: scale 0, q 0.
 */
#ifndef KERNELS_CHANNEL_H
#define KERNELS_CHANNEL_H

#include "chip.h"

/* The int8 error of one channel and the mask in front of it, pixel by pixel. */
struct channel {
    int8_t *q; /* of pixel 0 */
    uint32_t c;
    const uint8_t *mask; /* byte of pixel 0 */
    uint32_t mask_step;
    uint32_t bit;
};

/* Float sums whose peak is below this have no gradient: it keeps 127 / peak finite. */
#define PEAK_MIN 0x1p-100f

ALWAYS_INLINE struct channel channel_of(const struct error_s8 *e, const struct clamp *clamp, uint32_t c, uint32_t ch)
{
    static const uint8_t all[2] = {0xff, 0xff};
    struct channel out = {.q = e->q + ch, .c = c, .mask = all, .mask_step = 0, .bit = ch & 7u};
    if (clamp->mask) {
        out.mask = clamp->mask + (ch >> 3);
        out.mask_step = mask_stride(c);
    }
    return out;
}

/* Real gradient of 1 in a sum of channel ch, behind the clamp. */
ALWAYS_INLINE float channel_unit(const struct clamp *clamp, uint32_t ch, float unit)
{
#if KERNELS_DSP
    return clamp->m ? unit * multiplier_of(clamp->m[ch]) : unit;
#else
    return clamp->m ? unit * multiplier_f32(clamp->m[ch]) : unit;
#endif
}

ALWAYS_INLINE uint32_t channel_passes(const struct channel *ch, uint32_t pixel)
{
    return ((uint32_t)ch->mask[pixel * ch->mask_step] >> ch->bit) & 1u;
}

ALWAYS_INLINE int32_t larger_magnitude(int32_t peak, int32_t sum)
{
    int32_t magnitude = sum < 0 ? -sum : sum;
    return magnitude > peak ? magnitude : peak;
}

ALWAYS_INLINE float larger_magnitude_f32(float peak, float sum)
{
    float magnitude = sum < 0.0f ? -sum : sum;
    return magnitude > peak ? magnitude : peak;
}

/* What turns a sum into q: 127 / peak, or 0 for a channel without gradient. Writes the channel's scale. */
ALWAYS_INLINE float channel_gain(float peak, float unit, float *scale)
{
    *scale = peak >= PEAK_MIN ? peak / 127.0f * unit : 0.0f;
    return *scale > 0.0f ? 127.0f / peak : 0.0f;
}

/* q of a pixel. A sum is at most the peak, or infinite with gain 0, or no number: the result is -127 to 127. */
ALWAYS_INLINE void channel_put(const struct channel *ch, uint32_t pixel, float sum, float gain)
{
#if KERNELS_MVE
    sum = unconditional(sum);
#endif
    ch->q[pixel * ch->c] = (int8_t)round_nearest((channel_passes(ch, pixel) ? sum : 0.0f) * gain);
}

/* q of a whole sum that passes or is 0: at most the peak, so that it fits. */
ALWAYS_INLINE int8_t channel_q(int32_t sum, float gain)
{
#if KERNELS_DSP
    return (int8_t)round_nearest((float)sum * gain);
#elif KERNELS_NO_FPU
    return (int8_t)round_product(sum, gain);
#else
    return (int8_t)rintf((float)sum * gain);
#endif
}

/* A sum where the channel's bit of its pixel's mask is set, else 0. */
ALWAYS_INLINE int32_t masked_sum(uint32_t mask, uint32_t bit, int32_t sum)
{
    return sum & ((int32_t)(mask << (31u - bit)) >> 31);
}

#if KERNELS_MVE
/* depthwise_mve.S: the next two of n sums, `step` bytes apart. gain: bits of a float. */
uint32_t mask_run(int32_t *sums, uint32_t n, const uint8_t *mask, uint32_t stride, uint32_t bit, uint32_t step);
void put_errors_run(const int32_t *sums, uint32_t n, int8_t *q, uint32_t c, uint32_t gain, uint32_t step);

/* The same two of four neighbouring channels, [n][4] sums. bit: the first channel's, 0 or 4; peaks[4] grow. */
void mask_four(int32_t *sums, uint32_t n, const uint8_t *mask, uint32_t stride, uint32_t bit, uint32_t *peaks);

ALWAYS_INLINE void write_four(const int32_t *sums, uint32_t n, float32x4_t gains, int8_t *q, uint32_t c)
{
    for (; n; n--, sums += 4, q += c) {
        vstrbq_s32(q, vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(vldrwq_s32(sums)), gains)));
    }
}
#endif

/* Sums from pixel `first` on, `step` apart, become 0 where the mask stops them. Returns the peak, at least `peak`. */
ALWAYS_INLINE int32_t channel_mask(struct channel ch, uint32_t first, uint32_t pixels, int32_t *sums, uint32_t step,
                                   int32_t peak)
{
    ch.mask += first * ch.mask_step;
#if KERNELS_MVE
    int32_t most = (int32_t)mask_run(sums, pixels, ch.mask, ch.mask_step, ch.bit, 4 * step);
    return most > peak ? most : peak;
#else
    for (; pixels; pixels--, sums += step, ch.mask += ch.mask_step) {
        *sums = masked_sum(*ch.mask, ch.bit, *sums);
        peak = larger_magnitude(peak, *sums);
    }
    return peak;
#endif
}

/* Errors of such sums. */
ALWAYS_INLINE void channel_write(struct channel ch, uint32_t first, uint32_t pixels, const int32_t *sums, uint32_t step,
                                 float gain)
{
    ch.q += first * ch.c;
#if KERNELS_MVE
    put_errors_run(sums, pixels, ch.q, ch.c, bits_of_float(gain), 4 * step);
#else
    for (; pixels; pixels--, sums += step, ch.q += ch.c) {
        *ch.q = channel_q(*sums, gain);
    }
#endif
}

#endif
