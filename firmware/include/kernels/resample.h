/* SPDX-License-Identifier: Apache-2.0 */
/* A map as weighted sums of another's rows and columns: averages of windows of different sizes, lines between pixels
 * (bilinear interpolation), pixels that are repeated around a map.
 *
 * Terms along one axis, uint16: for each place of the result in turn how many, and each as a place and a weight,
 *
 *   n, place, weight, place, weight, ...
 *
 * Weights are whole numbers. Those of a place are together at most what the axis' sums are divided by; what is missing
 * are zeros.
 */
#ifndef KERNELS_RESAMPLE_H
#define KERNELS_RESAMPLE_H

#include "kernels/choices.h"
#include "kernels/numeric.h"

struct resample {
    uint16_t h_in, w_in, h_out, w_out, c;
    int16_t zero; /* of x and of y */
    float unit;   /* 1 in a sum: 1 / what both axes are divided by */
#if MICROTRAIN_TFLITE
    int32_t divisor; /* what both axes are divided by */
#endif
};

/* y = rint((float)sum * unit) + zero, the sum of weight of the row * weight of the column * (x - zero) in int32. Where the
 * unit is 1, y is a pixel of x or zero. With MICROTRAIN_TFLITE y is (sum + zero * divisor) / divisor, half away from zero.
 *
 * rows, columns  terms of h_out and of w_out places, over the rows and columns of x
 * x  int8  [h_in][w_in][c]
 * y  int8  [h_out][w_out][c], not in x
 */
void resample_fwd_s8(const struct resample *p, const uint16_t *rows, const uint16_t *columns, const int8_t *x,
                     int8_t *y);

/* ex = clamp(sum of ey by the same weights), int32, then int8 by channel. A unit of a sum is ey->scale[c] * unit.
 *
 * rows, columns  terms of h_in and of w_in places, over the rows and columns of y
 * ey  error [h_out][w_out][c]
 * ex  error [h_in][w_in][c], not in ey
 */
void resample_bwd_x_s8(const struct resample *p, const uint16_t *rows, const uint16_t *columns,
                       const struct error_s8 *ey, const struct clamp *clamp, const struct error_s8 *ex);

#endif
