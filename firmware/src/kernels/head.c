/* SPDX-License-Identifier: Apache-2.0 */
/* The float32 classifier head, its losses and its plain SGD. Contract: kernels/head.h. */
#include "kernels/head.h"

#include "channel.h"

/* Real value of a stored feature. */
ALWAYS_INLINE float feature(const struct head *p, int8_t x)
{
    return (float)(x - p->x_zero) * p->x_scale;
}

void head_fwd_f32(const struct head *p, const int8_t *x, const float *w, const float *b, float *logits)
{
    uint32_t features = head_features(p);
    for (uint32_t k = 0; k < p->classes; k++) {
        float sum = b[k];
        for (uint32_t i = 0; i < features; i++) {
            sum = sum + *w++ * feature(p, x[i]);
        }
        logits[k] = kept_f32(sum);
    }
}

/* loss = log(sum exp(l - max)) - (l[label] - max): finite however small p[label] is. */
float loss_cross_entropy_f32(uint32_t classes, const float *logits, uint32_t label, float *grad)
{
    float top = logits[0], sum = 0.0f;
    for (uint32_t k = 1; k < classes; k++) {
        top = logits[k] > top ? logits[k] : top;
    }
    float margin = logits[label] - top;
    for (uint32_t k = 0; k < classes; k++) {
        grad[k] = exp_f32(logits[k] - top);
        sum = sum + grad[k];
    }
    for (uint32_t k = 0; k < classes; k++) {
        grad[k] = grad[k] / sum - (k == label ? 1.0f : 0.0f);
    }
    return kept_f32(log_f32(sum) - margin);
}

float loss_mse_f32(uint32_t classes, const float *logits, uint32_t label, float *grad)
{
    float sum = 0.0f, n = (float)classes;
    for (uint32_t k = 0; k < classes; k++) {
        float d = logits[k] - (k == label ? 1.0f : 0.0f);
        sum = sum + d * d;
        grad[k] = 2.0f * d / n;
    }
    return kept_f32(sum / n);
}

uint32_t head_bwd_x_scratch(const struct head *p)
{
    return (uint32_t)p->pixels * (uint32_t)sizeof(float);
}

void head_bwd_x_f32(const struct head *p, const float *grad, const float *w, const struct clamp *clamp,
                    const struct error_s8 *ex, void *scratch)
{
    float *sums = scratch;
    uint32_t features = head_features(p);
    for (uint32_t i = 0; i < p->c; i++) {
        struct channel ch = channel_of(ex, clamp, p->c, i);
        float peak = 0.0f;
        for (uint32_t pixel = 0; pixel < p->pixels; pixel++) {
            float sum = 0.0f;
            for (uint32_t k = 0; k < p->classes; k++) {
                sum = sum + w[k * features + pixel * p->c + i] * grad[k];
            }
            sums[pixel] = sum;
            peak = channel_passes(&ch, pixel) ? larger_magnitude_f32(peak, sum) : peak;
        }
        float gain = channel_gain(peak, channel_unit(clamp, i, p->x_scale), &ex->scale[i]);
        for (uint32_t pixel = 0; pixel < p->pixels; pixel++) {
            channel_put(&ch, pixel, sums[pixel], gain);
        }
    }
}

void head_bwd_w_f32(const struct head *p, const float *grad, const int8_t *x, float *w, float *b, const struct sgd *sgd)
{
    uint32_t features = head_features(p);
    for (uint32_t k = 0; k < p->classes; k++) {
        float step = sgd->lr_head * grad[k];
        for (uint32_t i = 0; i < features; i++, w++) {
            *w = kept_f32(*w - step * feature(p, x[i]));
        }
        b[k] = kept_f32(b[k] - step);
    }
}
