/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a network that makes embeddings, in the place of a head: how far a sample's lies from the prototypes of the
 * classes that are known, and whether it is any of them. Prototypes are running means (Snell et al., Prototypical Networks,
 * 2017), the loss is cross entropy of distances (Yang et al., Convolutional Prototype Learning, 2018).
 *
 * Of `classes` logits the first is that of what is none of the known ones, "unknown"; the others are those of the known
 * classes 1 to classes - 1. A class is known from its first sample on.
 *
 * An embedding is what the network makes of a sample, less the centre of typical samples, scaled to length 1 (Wang et al.,
 * SimpleShot, 2019): of n = pixels * c values e[i] = (float)q[i] * gain, q[i] = 16 * x[i] - centre[i], gain = 1 / sqrt(sum of
 * q[i]^2), or 0 where that is 0 (the root is rounded down to 30 bits, as in normalise.h). centre is int16 [n].
 *
 * Two arrays are learned, none by a gradient:
 *
 *     sums[k][i]       of e[i] over the samples of class k + 1, and    float [classes - 1][n + 1]
 *                      behind them, at i = n, how many those are:
 *                      the count of the class
 *     distances[5]     how many samples of known classes there        float, counts not 0
 *                      were, the sum of their distances to the
 *                      prototype of their class, and of how far
 *                      each was off the mean with it; how many
 *                      distances to the nearest prototype of another
 *                      class there were, and their sum
 *
 * PROTOTYPES_SAMPLES is the most that a count becomes: what is older fades, since embeddings move while the network learns.
 * Sums, not means, so that an average over a fleet's boards is that of all their samples.
 *
 * Float32 with one rounding an operation. Sums run over values, then classes, in index order. */
#ifndef KERNELS_PROTOTYPES_H
#define KERNELS_PROTOTYPES_H

#include "kernels/numeric.h"

#define PROTOTYPES_SAMPLES 32.0f
#define PROTOTYPES_NONE (-1e30f) /* logit of a class without samples */

struct prototypes {
    uint16_t pixels, c;
    uint16_t classes; /* with "unknown": 2 or more */
    float unit;       /* logit of a squared distance of 1, less than 0 */
};

/* logits[1 + k] = unit * (count / (count + 1)) * sum_i (e[i] - sums[k][i] * (1 / count))^2, or
 * PROTOTYPES_NONE where the count is not above 0: a mean of few samples is as much farther from all others as it is unsure itself.
 * logits[0] = -t, t the smallest of m0 + 5 * d, four standard deviations of a normal distribution, m0 + (m1 - m0) * 0.5,
 * and 0.85 * m1: m0 and d the means of own distances and of what they were off, m1 that of distances to others.
 *
 * x int8 [pixels][c] */
void prototypes_fwd_f32(const struct prototypes *p, const int16_t *centre, const int8_t *x, const float *sums,
                        const float *distances, float *logits);

/* Softmax cross entropy of the logits, as loss_cross_entropy_f32; of the first sample of a class, whose logit is
 * PROTOTYPES_NONE, there is no gradient, and the loss is that of guessing, log(classes). The distances of any other sample,
 * -logits, join those of their kind.
 * grad may be logits. */
float loss_prototypes_f32(uint32_t classes, const float *logits, uint32_t label, float *distances, float *grad);

/* ex = clamp(s[i] - e[i] * sum_j e[j] * s[j]), s[i] = sum_k w[k] * sums[k][i] - e[i] * g, w[k] = grad[1 + k] / (count + 1)
 * of classes with samples, else 0; g = sum_k w[k] * count. A unit of it is unit * -32 * gain.
 *
 * grad float [classes]; ex error [pixels][c]; scratch: prototypes_bwd_x_scratch(p) bytes, 4-byte aligned */
void prototypes_bwd_x_f32(const struct prototypes *p, const int16_t *centre, const int8_t *x, const float *grad,
                          const float *sums, const struct clamp *clamp, const struct error_s8 *ex, void *scratch);
uint32_t prototypes_bwd_x_scratch(const struct prototypes *p);

/* The sample joins its class: its sums and its count grow. Where the count would be above PROTOTYPES_SAMPLES, the sums are
 * first multiplied by (PROTOTYPES_SAMPLES - 1) / count. From label 0, "unknown", nothing joins. */
void prototypes_update_f32(const struct prototypes *p, const int16_t *centre, const int8_t *x, uint32_t label,
                           float *sums);

#endif
