/* SPDX-License-Identifier: Apache-2.0 */
/* Activations by table. Contract: kernels/lookup.h. */
#include "kernels/lookup.h"

#include "channel.h"
#include "chip.h"

void lookup_fwd_s8(const struct lookup *p, uint32_t n, const int8_t *x, int8_t *y)
{
    const int8_t *table = p->y + 128;
    for (; n >= 4; n -= 4, x += 4, y += 4) {
        int8_t a = table[x[0]], b = table[x[1]], c = table[x[2]], d = table[x[3]];
        y[0] = a, y[1] = b, y[2] = c, y[3] = d;
    }
    for (; n; n--) {
        *y++ = table[*x++];
    }
}

/* The sum of element i where its channel's mask lets it pass, else 0. */
ALWAYS_INLINE int32_t sum_of(const struct lookup *p, const int8_t *q, const int8_t *x, const struct channel *ch,
                             uint32_t pixel)
{
    return channel_passes(ch, pixel) ? *q * p->slope[*x + 128] : 0;
}

void lookup_bwd_x_s8(const struct lookup *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey, const int8_t *x,
                     const struct clamp *clamp, const struct error_s8 *ex)
{
    for (uint32_t i = 0; i < c; i++) {
        const struct channel ch = channel_of(ex, clamp, c, i);
        int32_t peak = 0;
        for (uint32_t pixel = 0, at = i; pixel < pixels; pixel++, at += c) {
            peak = larger_magnitude(peak, sum_of(p, ey->q + at, x + at, &ch, pixel));
        }
        float unit = channel_unit(clamp, i, ey->scale[i] * p->unit);
        float gain = channel_gain((float)peak, unit, &ex->scale[i]);
        for (uint32_t pixel = 0, at = i; pixel < pixels; pixel++, at += c) {
            ex->q[at] = channel_q(sum_of(p, ey->q + at, x + at, &ch, pixel), gain);
        }
    }
}
