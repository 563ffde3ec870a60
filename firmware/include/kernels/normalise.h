/* SPDX-License-Identifier: Apache-2.0 */
/* Group and layer normalisation (Wu and He 2018; Ba et al. 2016), without scale and shift: a depthwise layer has those.
 *
 * A cell is what has a mean and a variance of its own: the channels of a group, over all pixels or at each pixel apart.
 * Of its n stored values q, in integers, exact:
 *
 *   sum = sum of q        weight = n * (sum of q * q) - sum * sum + epsilon = n * n * (variance + that of eps)
 *   d   = n * q - sum     so that (q - mean) / deviation = d / sqrt(weight)
 *
 * The root is that of weight * 4^k with the largest k that leaves it below 2^62, rounded down: 31 bits of it.
 * inverse = (1 / (float)root) * (float)2^k, each rounded to float32.
 */
#ifndef KERNELS_NORMALISE_H
#define KERNELS_NORMALISE_H

#include "kernels/numeric.h"

struct normalise {
    uint32_t pixels;
    uint16_t c, groups; /* a group: c / groups channels that follow one another */
    uint16_t apart;     /* not 0: each pixel by itself */
    int16_t y_zero;
    float unit;       /* 1 / s_y */
    uint64_t epsilon; /* rint(n * n * eps / (s_x * s_x)), 1 to 2^61 */
};

/* y = sat8(rint((float)d * (inverse * unit)) + y_zero), each product rounded to float32.
 *
 * x, y  int8  [pixels][c]; y may be x. n * 2^14 fits int32
 * mask  bits  [pixels][mask_stride(c)], written unless NULL
 */
void normalise_fwd_s8(const struct normalise *p, const int8_t *x, int8_t *y, uint8_t *mask);

/* Bytes of scratch of normalise_bwd_x_s8, 4-byte aligned. */
uint32_t normalise_bwd_x_scratch(const struct normalise *p);

/* Of a cell, over its channels in their order, every sum in float32; e = scale[ch] of ey:
 *
 *   first  += e * (float)(sum of ey.q over the cell's pixels)
 *   second += e * ((float)(sum of ey.q * (x - whole)) * (float)n - (float)(sum of ey.q) * (float)rest)
 *   whole = sum / n towards 0, rest = sum - n * whole
 *   mean = first / (float)n, slope = second * inverse / (float)n * inverse, gain = inverse * unit * (float)n
 *
 * ex = clamp(((e * (float)ey.q - mean) - (float)d * slope) * gain), float32, then int8 by channel.
 * ey, ex  error [pixels][c]; ex may be ey (q and scale each)
 */
void normalise_bwd_x_s8(const struct normalise *p, const struct error_s8 *ey, const int8_t *x,
                        const struct clamp *clamp, const struct error_s8 *ex, void *scratch);

#endif
