/* SPDX-License-Identifier: Apache-2.0 */
/* A map times one factor per channel, or times another map. Contract: kernels/scale.h. */
#include "kernels/scale.h"

#include "channel.h"
#include "chip.h"

/* n outputs of a pixel, 8 at most, and their bits of the mask. p is a copy, which no store of an output can change. */
ALWAYS_INLINE uint8_t scaled(struct scale p, const int8_t *x, const int8_t *s, int8_t *y, uint32_t n)
{
    uint32_t bits = 0;
    for (uint32_t i = 0, bit = 1; i < n; i++, bit <<= 1) {
        int32_t product = (x[i] - p.x_zero) * (s[i] - p.s_zero);
        int32_t v = round_limited((float)product * p.m) + p.y_zero, q = saturate8(v);
        y[i] = (int8_t)q;
        bits |= v == q ? bit : 0;
    }
    return (uint8_t)bits;
}

/* step: from the factors of a pixel to those of the next, 0 or c */
ALWAYS_INLINE void scale_pixels(struct scale p, uint32_t pixels, uint32_t c, const int8_t *x, const int8_t *s,
                                uint32_t step, int8_t *y, uint8_t *mask)
{
    for (; pixels; pixels--, s += step) {
        for (uint32_t ch = 0, n; ch < c; ch += n, x += n, y += n) {
            n = c - ch < 8 ? c - ch : 8;
            uint8_t bits = scaled(p, x, s + ch, y, n);
            if (mask) {
                *mask++ = bits;
            }
        }
    }
}

void scale_channels_fwd_s8(const struct scale *p, uint32_t pixels, uint32_t c, const int8_t *x, const int8_t *s,
                           int8_t *y, uint8_t *mask)
{
    scale_pixels(*p, pixels, c, x, s, 0, y, mask);
}

void multiply_maps_fwd_s8(const struct scale *p, uint32_t pixels, uint32_t c, const int8_t *x, const int8_t *s,
                          int8_t *y, uint8_t *mask)
{
    scale_pixels(*p, pixels, c, x, s, c, y, mask);
}

/* What errors are multiplied with. step: as in scale_pixels */
struct factors {
    const int8_t *s;
    int32_t zero;
    uint32_t step;
};

/* m: of struct scale */
ALWAYS_INLINE void scale_errors(float m, uint32_t pixels, uint32_t c, const struct error_s8 *ey, struct factors f,
                                const struct clamp *clamp, const struct error_s8 *ex)
{
    for (uint32_t i = 0; i < c; i++, f.s++) {
        const struct channel ch = channel_of(ex, clamp, c, i);
        const int8_t *factor = f.s;
        int32_t peak = 0;
        for (uint32_t pixel = 0, at = i; pixel < pixels; pixel++, at += c, factor += f.step) {
            peak = larger_magnitude(peak, channel_passes(&ch, pixel) ? ey->q[at] * (*factor - f.zero) : 0);
        }
        float gain = channel_gain((float)peak, channel_unit(clamp, i, ey->scale[i] * m), &ex->scale[i]);
        factor = f.s;
        for (uint32_t pixel = 0, at = i; pixel < pixels; pixel++, at += c, factor += f.step) {
            ex->q[at] = channel_q(channel_passes(&ch, pixel) ? ey->q[at] * (*factor - f.zero) : 0, gain);
        }
    }
}

void scale_channels_bwd_x_s8(const struct scale *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                             const int8_t *s, const struct clamp *clamp, const struct error_s8 *ex)
{
    scale_errors(p->m, pixels, c, ey, (struct factors){s, p->s_zero, 0}, clamp, ex);
}

void multiply_maps_bwd_x_s8(const struct scale *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                            const int8_t *other, uint32_t other_is_x, const struct clamp *clamp,
                            const struct error_s8 *ex)
{
    const struct factors f = {other, other_is_x ? p->x_zero : p->s_zero, c};
    scale_errors(p->m, pixels, c, ey, f, clamp, ex);
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
