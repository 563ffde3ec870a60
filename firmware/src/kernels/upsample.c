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

void upsample_bwd_x_s8(const struct upsample *p, const struct error_s8 *ey, const struct clamp *clamp,
                       const struct error_s8 *ex)
{
    const uint32_t h = p->h, w = p->w, c = p->c, down = p->down, across = p->across, row = w * across * c;
    for (uint32_t i = 0; i < c; i++) {
        const struct channel ch = channel_of(ex, clamp, c, i);
        float gain = 0.0f;
        int32_t peak = 0;
        for (uint32_t turn = 0; turn < 2; turn++) { /* the largest sum, and then all of them by its measure */
            const int8_t *block = ey->q + i;
            for (uint32_t pixel = 0, y = 0; y < h; y++, block += (down - 1) * row) {
                for (uint32_t x = 0; x < w; x++, pixel++, block += across * c) {
                    int32_t sum = channel_passes(&ch, pixel) ? block_sum(block, down, across, c, row) : 0;
                    if (turn) {
                        ex->q[pixel * c + i] = channel_q(sum, gain);
                    } else {
                        peak = larger_magnitude(peak, sum);
                    }
                }
            }
            gain = turn ? gain : channel_gain((float)peak, channel_unit(clamp, i, ey->scale[i]), &ex->scale[i]);
        }
    }
}
