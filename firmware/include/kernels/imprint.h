/* SPDX-License-Identifier: Apache-2.0 */
/* A head from one look at each sample: linear discriminant analysis on the features that the head reads.
 *
 * Statistics are exact integers, so that the order of the samples does not matter. q = x - x_zero, and of all samples
 *
 *     counts[k]        samples of class k                      uint32 [classes]
 *     sums[k][i]       sum of q[i] over those of class k       int32  [classes][features]
 *     products[i][j]   sum of q[i] * q[j] over all, j <= i     int32, i and j in the same group of `group` features,
 *                                                              group after group, row after row
 *
 * one behind the other: imprint_bytes(p, group) bytes, 4-byte aligned. A smaller group takes less memory and forgets the
 * covariance between groups; with 1 only variances are left.
 *
 * The head of them is w[k] = C^-1 (mean[k] - centre), C the covariance within classes, shrunk towards its mean variance
 * t of the group: C = (1 - l) C + l t I, l = d / (d + n) for d features of a group and n samples. Logits are made small,
 * so that the first training steps do not shake the layers below: IMPRINT_MARGIN says how far a class's mean is ahead of
 * the next class, on average. A class without samples has a logit below all others.
 *
 * Float32 with one rounding an operation. Sums run in index order, over classes with samples, features or columns.
 */
#ifndef KERNELS_IMPRINT_H
#define KERNELS_IMPRINT_H

#include "kernels/head.h"

#define IMPRINT_MARGIN 0.7f

enum { IMPRINT_SAMPLES_MAX = 32768 }; /* beyond it a sum of products may overflow */

/* group: 1..features */
uint32_t imprint_bytes(const struct head *p, uint32_t group);
void imprint_clear(const struct head *p, uint32_t group, void *statistics);

/* One sample. x int8 [features], as head_fwd_f32 takes it. label < classes; at most IMPRINT_SAMPLES_MAX. */
void imprint_add_s8(const struct head *p, uint32_t group, void *statistics, const int8_t *x, uint32_t label);

/* w float [classes][features], b float [classes]. The statistics stay. Returns the classes that have samples; where there
 * are none, w and b are zero.
 * scratch: imprint_scratch(p, group) bytes, 4-byte aligned */
uint32_t imprint_solve_f32(const struct head *p, uint32_t group, const void *statistics, float *w, float *b,
                           void *scratch);
uint32_t imprint_scratch(const struct head *p, uint32_t group);

#endif
