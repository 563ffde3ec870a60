/* SPDX-License-Identifier: Apache-2.0 */
/* A map made larger by whole factors: each pixel becomes a block of pixels, the nearest neighbour of all of them. */
#ifndef KERNELS_UPSAMPLE_H
#define KERNELS_UPSAMPLE_H

#include "kernels/numeric.h"

struct upsample {
    uint16_t h, w, c;      /* of x */
    uint16_t down, across; /* rows and columns of a block */
};

/* y[i][j] = x[i / down][j / across].
 *
 * x  int8  [h][w][c]
 * y  int8  [h * down][w * across][c], not in x
 */
void upsample_fwd_s8(const struct upsample *p, const int8_t *x, int8_t *y);

/* ex = clamp(sum of ey over a block), int32, then int8 by channel. A unit of a sum is ey->scale[c].
 *
 * ey  error [h * down][w * across][c]
 * ex  error [h][w][c], not in ey
 */
void upsample_bwd_x_s8(const struct upsample *p, const struct error_s8 *ey, const struct clamp *clamp,
                       const struct error_s8 *ex);

#endif
