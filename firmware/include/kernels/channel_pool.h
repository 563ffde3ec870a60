/* SPDX-License-Identifier: Apache-2.0 */
/* Mean and maximum over the channels of each pixel, as spatial attention makes them. y has scale and zero of x. */
#ifndef KERNELS_CHANNEL_POOL_H
#define KERNELS_CHANNEL_POOL_H

#include "kernels/numeric.h"

/* y = rint((float)sum / (float)c), half to even.
 * x  int8  [pixels][c]
 * y  int8  [pixels], not in x */
void channel_mean_fwd_s8(uint32_t pixels, uint32_t c, const int8_t *x, int8_t *y);

/* ex = clamp(ey / c), int8 by channel. A unit of ey is ey->scale[0] / c.
 * ey  error [pixels][1]
 * ex  error [pixels][c], not in ey */
void channel_mean_bwd_x_s8(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const struct clamp *clamp,
                           const struct error_s8 *ex);

/* arg  uint8 [pixels], the channel of the maximum, the first of equals; written unless NULL. c <= 256 */
void channel_max_fwd_s8(uint32_t pixels, uint32_t c, const int8_t *x, int8_t *y, uint8_t *arg);

/* To the channel that was the largest, in units of ey. */
void channel_max_bwd_x_s8(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const uint8_t *arg,
                          const struct clamp *clamp, const struct error_s8 *ex);

#endif
