/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an autoencoder, in the place of a head: how far what it makes lies from what it was given.
 *
 * Its two logits are those of the classes 0, normal, and 1, anomaly: the threshold, and the score beside it. Both are in
 * one unit, of which the threshold as converted is a quarter. The loss of a normal sample is its score; from an anomaly
 * nothing is learned.
 *
 * normal[2]: the mean of the scores of normal samples, and the mean of what they are off from it. A step on a normal
 * sample moves both a 32nd of the way to what they are of that sample, so they are of the last 32, about. */
#ifndef KERNELS_RECONSTRUCT_H
#define KERNELS_RECONSTRUCT_H

#include "kernels/numeric.h"

struct reconstruct {
    uint32_t n; /* values */
    int16_t y_zero, x_zero;
    float y_scale, x_scale;
    float per; /* 1 / (n * unit) */
};

/* logits[0] = normal[0] + 3.75 * normal[1], three standard deviations of a normal distribution; logits[1] = per * sum_i
 * d_i^2, d_i = (float)(y_i - y_zero) * y_scale - (float)(x_i - x_zero) * x_scale. The sum starts at 0 and runs in index order, one float32 rounding an operation.
 *
 * y  int8  [n], what the network made; x  int8  [n], the stored sample */
void reconstruct_fwd_f32(const struct reconstruct *p, const int8_t *y, const int8_t *x, const float *normal,
                         float *logits);

/* ex[i] = clamp(d_i), a channel each: a unit of it is grad[1] * (2 * per * y_scale).
 *
 * grad  float [2]; ex  error [1][n], q and scale */
void reconstruct_bwd_x_s8(const struct reconstruct *p, const float *grad, const int8_t *y, const int8_t *x,
                          const struct clamp *clamp, const struct error_s8 *ex);

/* The same of a map, whose pixels share a channel: the largest |d_i| of a channel is 127.
 *
 * c  channels, of which n is a multiple; ex  error [n / c][c] */
void reconstruct_map_bwd_x_s8(const struct reconstruct *p, uint32_t c, const float *grad, const int8_t *y,
                              const int8_t *x, const struct clamp *clamp, const struct error_s8 *ex);

/* grad[1] = label ? 0 : 1, grad of any other logit 0; normal follows the score logits[1] where label is 0. Returns the
 * score. classes is 2; grad may be logits. */
float loss_score_f32(uint32_t classes, const float *logits, uint32_t label, float *normal, float *grad);

#endif
