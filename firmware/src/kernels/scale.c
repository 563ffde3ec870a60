/* SPDX-License-Identifier: Apache-2.0 */
/* A map times one factor per channel, one per pixel, or times another map. Contract: kernels/scale.h. */
#include "kernels/scale.h"

#include "channel.h"
#include "chip.h"
#include "requantize.h"

/* From the factor of a channel, or of a pixel, to that of the next. */
struct factor_steps {
    uint32_t channel, pixel;
};

/* The output, before saturation. */
ALWAYS_INLINE int32_t wide(struct scale p, int32_t product)
{
#if MICROTRAIN_TFLITE
    if (p.fine) {
        return round_twice(product, twice_of(p.m, p.fine, p.y_zero));
    }
#endif
    return round_limited((float)product * p.m) + p.y_zero;
}

/* n outputs of a pixel, 8 at most, and their bits of the mask. p is a copy, which no store of an output can change. */
ALWAYS_INLINE uint8_t scaled(struct scale p, const int8_t *x, const int8_t *s, uint32_t step, int8_t *y, uint32_t n)
{
    uint32_t bits = 0;
    for (uint32_t i = 0, bit = 1; i < n; i++, bit <<= 1) {
        int32_t product = (x[i] - p.x_zero) * (s[i * step] - p.s_zero);
        int32_t v = wide(p, product), q = saturate8(v);
        y[i] = (int8_t)q;
        bits |= v == q ? bit : 0;
    }
    return (uint8_t)bits;
}

ALWAYS_INLINE void scale_map(struct scale p, uint32_t pixels, uint32_t c, const int8_t *x, const int8_t *s,
                             struct factor_steps step, int8_t *y, uint8_t *mask)
{
    for (; pixels; pixels--, s += step.pixel) {
        for (uint32_t ch = 0, n; ch < c; ch += n, x += n, y += n) {
            n = c - ch < 8 ? c - ch : 8;
            uint8_t bits = scaled(p, x, s + ch * step.channel, step.channel, y, n);
            if (mask) {
                *mask++ = bits;
            }
        }
    }
}

void scale_channels_fwd_s8(const struct scale *p, uint32_t pixels, uint32_t c, const int8_t *x, const int8_t *s,
                           int8_t *y, uint8_t *mask)
{
    scale_map(*p, pixels, c, x, s, (struct factor_steps){1, 0}, y, mask);
}

void multiply_maps_fwd_s8(const struct scale *p, uint32_t pixels, uint32_t c, const int8_t *x, const int8_t *s,
                          int8_t *y, uint8_t *mask)
{
    scale_map(*p, pixels, c, x, s, (struct factor_steps){1, c}, y, mask);
}

void scale_pixels_fwd_s8(const struct scale *p, uint32_t pixels, uint32_t c, const int8_t *x, const int8_t *s,
                         int8_t *y, uint8_t *mask)
{
    scale_map(*p, pixels, c, x, s, (struct factor_steps){0, 1}, y, mask);
}

/* What errors are multiplied with. */
struct factors {
    const int8_t *s;
    int32_t zero;
    struct factor_steps step;
};

/* m: of struct scale */
ALWAYS_INLINE void scale_errors(float m, uint32_t pixels, uint32_t c, const struct error_s8 *ey, struct factors f,
                                const struct clamp *clamp, const struct error_s8 *ex)
{
    for (uint32_t i = 0; i < c; i++, f.s += f.step.channel) {
        const struct channel ch = channel_of(ex, clamp, c, i);
        const int8_t *factor = f.s;
        int32_t peak = 0;
        for (uint32_t pixel = 0, at = i; pixel < pixels; pixel++, at += c, factor += f.step.pixel) {
            peak = larger_magnitude(peak, channel_passes(&ch, pixel) ? ey->q[at] * (*factor - f.zero) : 0);
        }
        float gain = channel_gain((float)peak, channel_unit(clamp, i, ey->scale[i] * m), &ex->scale[i]);
        factor = f.s;
        for (uint32_t pixel = 0, at = i; pixel < pixels; pixel++, at += c, factor += f.step.pixel) {
            ex->q[at] = channel_q(channel_passes(&ch, pixel) ? ey->q[at] * (*factor - f.zero) : 0, gain);
        }
    }
}

void scale_channels_bwd_x_s8(const struct scale *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                             const int8_t *s, const struct clamp *clamp, const struct error_s8 *ex)
{
    scale_errors(p->m, pixels, c, ey, (struct factors){s, p->s_zero, {1, 0}}, clamp, ex);
}

void multiply_maps_bwd_x_s8(const struct scale *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                            const int8_t *other, uint32_t other_is_x, const struct clamp *clamp,
                            const struct error_s8 *ex)
{
    const struct factors f = {other, other_is_x ? p->x_zero : p->s_zero, {1, c}};
    scale_errors(p->m, pixels, c, ey, f, clamp, ex);
}

void scale_pixels_bwd_x_s8(const struct scale *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                           const int8_t *s, const struct clamp *clamp, const struct error_s8 *ex)
{
    scale_errors(p->m, pixels, c, ey, (struct factors){s, p->s_zero, {0, 1}}, clamp, ex);
}

/* The error of the factor of one pixel, in units of m. */
static float pixel_sum(uint32_t c, const int8_t *q, const float *scale, const int8_t *x, int32_t zero)
{
    float sum = 0.0f;
    for (uint32_t i = 0; i < c; i++) {
        sum += (float)(q[i] * (x[i] - zero)) * scale[i];
    }
    return sum;
}

/* The errors of all factors: returns the peak of their sums, and with `write` rounds these by the gain. */
static float pass_factors(const struct scale *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                          const int8_t *x, const struct channel *ch, int write, float gain)
{
    float peak = 0.0f;
    for (uint32_t pixel = 0, at = 0; pixel < pixels; pixel++, at += c) {
        float sum = pixel_sum(c, ey->q + at, ey->scale, x + at, p->x_zero);
        peak = channel_passes(ch, pixel) ? larger_magnitude_f32(peak, sum) : peak;
        if (write) {
            channel_put(ch, pixel, sum, gain);
        }
    }
    return peak;
}

void scale_pixels_bwd_s_s8(const struct scale *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                           const int8_t *x, const struct clamp *clamp, const struct error_s8 *es)
{
    const struct channel ch = channel_of(es, clamp, 1, 0);
    float peak = pass_factors(p, pixels, c, ey, x, &ch, 0, 0.0f);
    float gain = channel_gain(peak, channel_unit(clamp, 0, p->m), es->scale);
    pass_factors(p, pixels, c, ey, x, &ch, 1, gain);
}

void scale_channels_bwd_s_s8(const struct scale *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                             const int8_t *x, const struct clamp *clamp, const struct error_s8 *es)
{
    for (uint32_t i = 0; i < c; i++) {
        const struct channel ch = channel_of(es, clamp, c, i);
        int32_t sum = 0;
        for (uint32_t pixel = 0, at = i; pixel < pixels; pixel++, at += c) {
            sum += ey->q[at] * (x[at] - p->x_zero);
        }
        sum = channel_passes(&ch, 0) ? sum : 0;
        float unit = channel_unit(clamp, i, ey->scale[i] * p->m);
        float gain = channel_gain((float)larger_magnitude(0, sum), unit, &es->scale[i]);
        es->q[i] = channel_q(sum, gain);
    }
}
