/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens and a constant for each. Contract: kernels/position.h. */
#include "kernels/position.h"

#include <string.h>

void position_fwd_s8(const struct position *p, const int8_t *x, int8_t *y, uint8_t *mask)
{
    const uint32_t c = p->add.c, front = p->lead * c;
    if (p->lead) {
        struct add before = p->add;
        before.pixels = p->lead;
        memset(y, p->add.a_zero, front);
        add_fwd_s8(&before, y, p->table, y, mask);
    }
    add_fwd_s8(&p->add, x, p->table + front, y + front, mask ? mask + p->lead * mask_stride(c) : NULL);
}

void position_bwd_x_s8(const struct position *p, const struct error_s8 *ey, float factor, const struct clamp *clamp,
                       const struct error_s8 *ex)
{
    const struct error_s8 behind = {.q = ey->q + p->lead * p->add.c, .scale = ey->scale};
    error_pass_s8(p->add.pixels, p->add.c, &behind, factor, clamp, ex);
}
