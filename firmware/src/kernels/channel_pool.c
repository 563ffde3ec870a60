/* SPDX-License-Identifier: Apache-2.0 */
/* Mean and maximum over channels. Contract: kernels/channel_pool.h. */
#include "kernels/channel_pool.h"

#include "channel.h"

void channel_mean_fwd_s8(uint32_t pixels, uint32_t c, const int8_t *x, int8_t *y)
{
    for (; pixels; pixels--) {
        int32_t sum = 0;
        for (uint32_t i = 0; i < c; i++) {
            sum += *x++;
        }
        *y++ = (int8_t)rintf((float)sum / (float)c);
    }
}

void channel_max_fwd_s8(uint32_t pixels, uint32_t c, const int8_t *x, int8_t *y, uint8_t *arg)
{
    for (; pixels; pixels--, x += c) {
        uint32_t at = 0;
        for (uint32_t i = 1; i < c; i++) {
            at = x[i] > x[at] ? i : at;
        }
        *y++ = x[at];
        if (arg) {
            *arg++ = (uint8_t)at;
        }
    }
}

/* Channel i of ex, where it takes part. arg NULL: everywhere; unit: real gradient of 1 in ey */
static void spread(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const uint8_t *arg,
                   const struct clamp *clamp, const struct error_s8 *ex, uint32_t i, float unit)
{
    const struct channel ch = channel_of(ex, clamp, c, i);
    int32_t peak = 0;
    for (uint32_t pixel = 0; pixel < pixels; pixel++) {
        if (channel_passes(&ch, pixel) && (!arg || arg[pixel] == i)) {
            peak = larger_magnitude(peak, ey->q[pixel]);
        }
    }
    float gain = channel_gain((float)peak, channel_unit(clamp, i, unit), &ex->scale[i]);
    for (uint32_t pixel = 0; pixel < pixels; pixel++) {
        ch.q[pixel * c] = channel_passes(&ch, pixel) && (!arg || arg[pixel] == i) ? channel_q(ey->q[pixel], gain) : 0;
    }
}

void channel_mean_bwd_x_s8(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const struct clamp *clamp,
                           const struct error_s8 *ex)
{
    for (uint32_t i = 0; i < c; i++) {
        spread(pixels, c, ey, NULL, clamp, ex, i, ey->scale[0] / (float)c);
    }
}

void channel_max_bwd_x_s8(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const uint8_t *arg,
                          const struct clamp *clamp, const struct error_s8 *ex)
{
    for (uint32_t i = 0; i < c; i++) {
        spread(pixels, c, ey, arg, clamp, ex, i, ey->scale[0]);
    }
}
