/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of a regression: the outputs of the head against numbers that were measured.
 *
 * Each output has a unit, about as large as its values are apart. A difference is counted in it, d[k] = (y[k] - target[k]) /
 * unit[k], and the head learns as if its rows were in these units too: outputs of any size learn at the same rates.
 *
 * n       outputs, 1 or more; sums run over them in index order from 0, one float32 rounding an operation
 * y       float [n], the head's; target float [n]; unit float [n] > 0
 * up      float [n]: g[k] * unit[k], what the head's rows are updated with; may be y
 * down    float [n]: g[k] / unit[k], the gradient of y, what the layers below see
 * Return  the loss */
#ifndef KERNELS_REGRESSION_H
#define KERNELS_REGRESSION_H

#include "kernels/numeric.h"

/* Mean squared error: loss = (sum_k d[k]^2) / n, g[k] = 2 * d[k] / n. */
float loss_squares_f32(uint32_t n, const float *y, const float *target, const float *unit, float *up, float *down);

/* Huber's loss, with delta = one unit: a wrong sample pulls no harder than one that is a unit off. Where |d[k]| <= 1,
 * h = 0.5 * d[k] * d[k], g[k] = d[k] / n; elsewhere h = |d[k]| - 0.5, g[k] = +-1 / n. loss = (sum_k h) / n. */
float loss_huber_f32(uint32_t n, const float *y, const float *target, const float *unit, float *up, float *down);

#endif
