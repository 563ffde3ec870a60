/* SPDX-License-Identifier: Apache-2.0 */
/* Each pixel as a block of pixels, and the errors of a block. Contract: kernels/upsample.h. */
#include "kernels/upsample.h"

#include "channel.h"
#include "chip.h"

#include <string.h>

void upsample_fwd_s8(const struct upsample *p, const int8_t *x, int8_t *y)
{
    const uint32_t h = p->h, w = p->w, c = p->c, down = p->down, across = p->across, row = w * across * c;
    for (uint32_t i = 0; i < h; i++) {
        const int8_t *first = y;
        for (uint32_t j = 0; j < w; j++, x += c) {
            for (uint32_t times = across; times; times--, y += c) {
                memcpy(y, x, c);
            }
        }
        for (uint32_t times = down - 1; times; times--, y += row) {
            memcpy(y, first, row);
        }
    }
}

/* The errors of the block of one pixel. ey: its first, of one channel; row: bytes from a row to the next */
ALWAYS_INLINE int32_t block_sum(const int8_t *ey, uint32_t down, uint32_t across, uint32_t c, uint32_t row)
{
    int32_t sum = 0;
    for (; down; down--, ey += row) {
        for (uint32_t j = 0; j < across; j++) {
            sum += ey[j * c];
        }
    }
    return sum;
}

/* All blocks of one channel, whose errors begin at ey: returns the peak of their sums, and with `write` rounds these by the
 * gain. */
static int32_t pass_blocks(const struct upsample *p, const struct channel *ch, const int8_t *ey, int write, float gain)
{
    const uint32_t c = p->c, down = p->down, across = p->across, row = p->w * across * c;
    int32_t peak = 0;
    for (uint32_t pixel = 0, y = 0; y < p->h; y++, ey += (down - 1) * row) {
        for (uint32_t x = 0; x < p->w; x++, pixel++, ey += across * c) {
            int32_t sum = channel_passes(ch, pixel) ? block_sum(ey, down, across, c, row) : 0;
            peak = larger_magnitude(peak, sum);
            if (write) {
                ch->q[pixel * c] = channel_q(sum, gain);
            }
        }
    }
    return peak;
}

void upsample_bwd_x_s8(const struct upsample *p, const struct error_s8 *ey, const struct clamp *clamp,
                       const struct error_s8 *ex)
{
    for (uint32_t i = 0; i < p->c; i++) {
        const struct channel ch = channel_of(ex, clamp, p->c, i);
        int32_t peak = pass_blocks(p, &ch, ey->q + i, 0, 0.0f);
        float gain = channel_gain((float)peak, channel_unit(clamp, i, ey->scale[i]), &ex->scale[i]);
        pass_blocks(p, &ch, ey->q + i, 1, gain);
    }
}
