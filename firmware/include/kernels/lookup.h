/* SPDX-License-Identifier: Apache-2.0 */
/* Activations by table: y depends on x alone, so 256 values say it all. */
#ifndef KERNELS_LOOKUP_H
#define KERNELS_LOOKUP_H

#include "kernels/numeric.h"

struct lookup {
    const int8_t *y;      /* [256] of x = -128..127 */
    const int16_t *slope; /* [256] dy/dx in real units, times 2^14, 0 where y is saturated; NULL: no backward pass */
    float unit;           /* 2^-14 * s_x / s_y */
};

/* y = p->y[x + 128].
 *
 * x, y  int8  [n]; y may be x
 */
void lookup_fwd_s8(const struct lookup *p, uint32_t n, const int8_t *x, int8_t *y);

/* ex = clamp(ey * slope[x + 128]): exact sums of less than 2^23, then int8 by channel. A unit of a sum is
 * ey->scale[c] * p->unit, rounded to float32.
 *
 * ey, ex  error [pixels][c]; ex may be ey (q and scale each)
 * x       int8  [pixels][c], as the forward pass read it
 */
void lookup_bwd_x_s8(const struct lookup *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey, const int8_t *x,
                     const struct clamp *clamp, const struct error_s8 *ex);

#endif
