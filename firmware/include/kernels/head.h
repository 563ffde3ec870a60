/* SPDX-License-Identifier: Apache-2.0 */
/* The float32 classifier head, its loss and its plain SGD. Any number of classes.
 *
 * Sums run over the features (or classes) in index order, one float32 rounding an operation. Weights are numbered in
 * 32 bits, classes * features < 2^31. */
#ifndef KERNELS_HEAD_H
#define KERNELS_HEAD_H

#include "kernels/numeric.h"

struct head {
    uint16_t pixels, c; /* features = pixels * c, stored [pixels][c]; 1 pixel after a global pool */
    uint16_t classes;
    int16_t x_zero;
    float x_scale;
};

/* Features of an image. */
static inline uint32_t head_features(const struct head *p)
{
    return (uint32_t)p->pixels * p->c;
}

/* logits[k] = b[k] + sum_i w[k][i] * xf[i], xf = (float)(x - x_zero) * x_scale; the sum starts at b[k].
 * w float [classes][features], b float [classes] */
void head_fwd_f32(const struct head *p, const int8_t *x, const float *w, const float *b, float *logits);

/* Softmax cross entropy. grad[k] = softmax(logits)[k] - (k == label). Returns the loss -log p[label].
 * grad may be logits. */
float loss_cross_entropy_f32(uint32_t classes, const float *logits, uint32_t label, float *grad);

/* Mean squared error against the one-hot label: loss = mean (logits - onehot)^2, grad = 2 (logits - onehot) / classes. */
float loss_mse_f32(uint32_t classes, const float *logits, uint32_t label, float *grad);

/* ex = clamp(x_scale * w' grad): gradient of the stored features, int8 by channel.
 * scratch: head_bwd_x_scratch(p) bytes, 4-byte aligned */
void head_bwd_x_f32(const struct head *p, const float *grad, const float *w, const struct clamp *clamp,
                    const struct error_s8 *ex, void *scratch);
uint32_t head_bwd_x_scratch(const struct head *p);

/* w[k][i] -= (lr_head * grad[k]) * xf[i], b[k] -= lr_head * grad[k] */
void head_bwd_w_f32(const struct head *p, const float *grad, const int8_t *x, float *w, float *b,
                    const struct sgd *sgd);

#endif
