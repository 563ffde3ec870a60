/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of labels that hold or not, each for itself: binary cross entropy of sigmoids. */
#ifndef KERNELS_MULTILABEL_H
#define KERNELS_MULTILABEL_H

#include "kernels/numeric.h"

/* With e = exp(-|y[k]|) and p[k] = y[k] >= 0 ? 1 / (1 + e) : e / (1 + e), the probability of label k:
 * loss = (sum_k (max(y[k], 0) - y[k] * target[k] + log(1 + e))) / n, grad[k] = (p[k] - target[k]) / n. The sum runs in index
 * order from 0, one float32 rounding an operation; it is finite however sure y is.
 *
 * n       labels, 1 or more
 * y       float [n], the head's: a label holds where it is above 0
 * target  float [n], 0..1
 * grad    float [n]; may be y
 * Returns the loss */
float loss_labels_f32(uint32_t n, const float *y, const float *target, float *grad);

#endif
