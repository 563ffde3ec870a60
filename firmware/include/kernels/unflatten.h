/* SPDX-License-Identifier: Apache-2.0 */
/* A map seen as another one: the vector of a linear layer as what a decoder makes of it, tokens as rows of one channel.
 *
 * Its numbers stay where they are; conversion has them in the order of both maps. Only what a channel is differs, and the
 * channels of the result divide those of x: each channel of x lies in one of the result.
 */
#ifndef KERNELS_UNFLATTEN_H
#define KERNELS_UNFLATTEN_H

#include "kernels/numeric.h"

/* y = x, nothing where they are one memory.
 *
 * x, y  int8  [n]
 */
void unflatten_fwd_s8(uint32_t n, const int8_t *x, int8_t *y);

/* ex = clamp(ey): the same int8, and for each channel the scale of the one that it lies in. The maximum is not renewed.
 *
 * ey  error [pixels * c / made][made], made divides c
 * ex  error [pixels][c], which may begin where ey does, its scales too
 */
void unflatten_bwd_x_s8(uint32_t pixels, uint32_t c, uint32_t made, const struct error_s8 *ey,
                        const struct clamp *clamp, const struct error_s8 *ex);

#endif
