/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens and a constant for each: learned positions, and tokens that stand before the others. A token is a pixel. */
#ifndef KERNELS_POSITION_H
#define KERNELS_POSITION_H

#include "kernels/elementwise.h"

struct position {
    uint32_t lead;       /* tokens of y that stand before those of x */
    const int8_t *table; /* [lead + add.pixels][c] */
    struct add add;      /* x and the table as a and b; pixels: of x */
};

/* y = the sum of x and the table, as add_fwd_s8() makes it; x is real 0 in the tokens that stand before it.
 *
 * x     int8  [pixels][c]
 * y     int8  [lead + pixels][c]; may be x where lead is 0
 * mask  bits  [lead + pixels][mask_stride(c)], written unless NULL
 */
void position_fwd_s8(const struct position *p, const int8_t *x, int8_t *y, uint8_t *mask);

/* ex = factor * ey behind the clamp, of the tokens behind the first `lead`, as error_pass_s8() passes it.
 * ey  error [lead + pixels][c]; ex  error [pixels][c], apart from ey */
void position_bwd_x_s8(const struct position *p, const struct error_s8 *ey, float factor, const struct clamp *clamp,
                       const struct error_s8 *ex);

#endif
