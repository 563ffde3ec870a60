/* SPDX-License-Identifier: Apache-2.0 */
/* A map seen as another one. Contract: kernels/unflatten.h. */
#include "kernels/unflatten.h"

#include "channel.h"
#include "chip.h"

#include <string.h>

void unflatten_fwd_s8(uint32_t n, const int8_t *x, int8_t *y)
{
    if (x != y) {
        memcpy(y, x, n);
    }
}

void unflatten_bwd_x_s8(uint32_t pixels, uint32_t c, uint32_t made, const struct error_s8 *ey,
                        const struct clamp *clamp, const struct error_s8 *ex)
{
    for (uint32_t from = c; from;) { /* the first scales last: they may lie where those of ey do */
        from -= made;
        for (uint32_t i = 0, ch = from; i < made; i++, ch++) {
            const struct channel to = channel_of(ex, clamp, c, ch);
            for (uint32_t pixel = 0, at = ch; pixel < pixels; pixel++, at += c) {
                ex->q[at] = channel_passes(&to, pixel) ? ey->q[at] : 0;
            }
            ex->scale[ch] = channel_unit(clamp, ch, ey->scale[i]);
        }
    }
}
