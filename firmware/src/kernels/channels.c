/* SPDX-License-Identifier: Apache-2.0 */
/* Maps side by side, and the errors of some of a map's channels. Contract: kernels/channels.h. */
#include "kernels/channels.h"

#include "channel.h"
#include "chip.h"

/* Bit i of the mask of a pixel. */
ALWAYS_INLINE void put_bit(uint8_t *mask, uint32_t i, uint32_t bit)
{
    uint32_t at = i & 7u;
    mask[i >> 3] = (uint8_t)((mask[i >> 3] & ~(1u << at)) | bit << at);
}

void concat_fwd_s8(const struct concat *p, uint32_t pixels, const int8_t *x, int8_t *y, uint8_t *mask)
{
    const struct concat copy = *p;
    for (; pixels; pixels--, x += copy.c, y += copy.total) {
        for (uint32_t i = 0; i < copy.c; i++) {
            int32_t v = round_limited((float)(x[i] - copy.x_zero) * copy.m) + copy.y_zero, q = saturate8(v);
            y[copy.from + i] = (int8_t)q;
            if (mask) {
                put_bit(mask, copy.from + i, v == q);
            }
        }
        mask = mask ? mask + mask_stride(copy.total) : mask;
    }
}

void error_take_s8(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const uint16_t *channels, uint32_t n,
                   float factor, const struct clamp *clamp, const struct error_s8 *ex)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct channel ch = channel_of(ex, clamp, n, i);
        uint32_t from = channels[i], there = from != NO_CHANNEL;
        ex->scale[i] = there ? channel_unit(clamp, i, ey->scale[from] * factor) : 0.0f;
        for (uint32_t pixel = 0, at = i; pixel < pixels; pixel++, at += n) {
            ex->q[at] = there && channel_passes(&ch, pixel) ? ey->q[pixel * c + from] : 0;
        }
    }
}
