/* SPDX-License-Identifier: Apache-2.0 */
/* The channels of one pixel as a map. Contract: kernels/unflatten.h. */
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

void unflatten_bwd_x_s8(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const struct clamp *clamp,
                        const struct error_s8 *ex)
{
    for (uint32_t pixel = pixels; pixel--;) { /* the first one last: its scales may lie where those of ey do */
        for (uint32_t i = 0, at = pixel * c; i < c; i++, at++) {
            const struct channel ch = channel_of(ex, clamp, pixels * c, at);
            *ch.q = channel_passes(&ch, 0) ? ey->q[at] : 0;
            ex->scale[at] = channel_unit(clamp, at, ey->scale[i]);
        }
    }
}
