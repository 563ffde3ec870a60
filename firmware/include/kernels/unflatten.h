/* SPDX-License-Identifier: Apache-2.0 */
/* The channels of one pixel as a map: what a decoder makes of the vector of a linear layer.
 *
 * Its numbers stay where they are, since conversion has the vector in the map's own order. Only what a channel is differs:
 * h * w * c of them with a pixel each, or c with h * w.
 */
#ifndef KERNELS_UNFLATTEN_H
#define KERNELS_UNFLATTEN_H

#include "kernels/numeric.h"

/* y = x, nothing where they are one memory.
 *
 * x, y  int8  [n]
 */
void unflatten_fwd_s8(uint32_t n, const int8_t *x, int8_t *y);

/* ex = clamp(ey): the same int8, and the scale of its channel for each number. The maximum is not renewed.
 *
 * ey  error [pixels][c]
 * ex  error [1][pixels * c], which may begin where ey does, its scales too
 */
void unflatten_bwd_x_s8(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const struct clamp *clamp,
                        const struct error_s8 *ex);

#endif
