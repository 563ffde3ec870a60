/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an autoencoder. Contract: kernels/reconstruct.h. */
#include "kernels/reconstruct.h"

#include "channel.h"

#define DEVIATIONS 3.75f
#define REMEMBERED 32.0f

/* What value i is off by. */
ALWAYS_INLINE float apart(const struct reconstruct *p, const int8_t *y, const int8_t *x, uint32_t i)
{
    return (float)(y[i] - p->y_zero) * p->y_scale - (float)(x[i] - p->x_zero) * p->x_scale;
}

void reconstruct_fwd_f32(const struct reconstruct *p, const int8_t *y, const int8_t *x, const float *normal,
                         float *logits)
{
    float sum = 0.0f;
    for (uint32_t i = 0; i < p->n; i++) {
        float d = apart(p, y, x, i);
        sum = sum + d * d;
    }
    logits[0] = normal[0] + DEVIATIONS * normal[1];
    logits[1] = kept_f32(sum * p->per);
}

void reconstruct_bwd_x_s8(const struct reconstruct *p, const float *grad, const int8_t *y, const int8_t *x,
                          const struct clamp *clamp, const struct error_s8 *ex)
{
    float unit = grad[1] * (2.0f * p->per * p->y_scale);
    for (uint32_t i = 0; i < p->n; i++) {
        struct channel ch = channel_of(ex, clamp, p->n, i);
        float sum = apart(p, y, x, i), peak = channel_passes(&ch, 0) ? larger_magnitude_f32(0.0f, sum) : 0.0f;
        channel_put(&ch, 0, sum, channel_gain(peak, channel_unit(clamp, i, unit), &ex->scale[i]));
    }
}

void reconstruct_map_bwd_x_s8(const struct reconstruct *p, uint32_t c, const float *grad, const int8_t *y,
                              const int8_t *x, const struct clamp *clamp, const struct error_s8 *ex)
{
    float unit = grad[1] * (2.0f * p->per * p->y_scale);
    for (uint32_t i = 0; i < c; i++) {
        const struct channel ch = channel_of(ex, clamp, c, i);
        float peak = 0.0f;
        for (uint32_t at = i, pixel = 0; at < p->n; at += c, pixel++) {
            peak = channel_passes(&ch, pixel) ? larger_magnitude_f32(peak, apart(p, y, x, at)) : peak;
        }
        float gain = channel_gain(peak, channel_unit(clamp, i, unit), &ex->scale[i]);
        for (uint32_t at = i, pixel = 0; at < p->n; at += c, pixel++) {
            channel_put(&ch, pixel, apart(p, y, x, at), gain);
        }
    }
}

float loss_score_f32(uint32_t classes, const float *logits, uint32_t label, float *normal, float *grad)
{
    float score = logits[1], off = score - normal[0];
    if (label == 0) {
        normal[0] = normal[0] + off / REMEMBERED;
        normal[1] = normal[1] + ((off < 0.0f ? -off : off) - normal[1]) / REMEMBERED;
    }
    for (uint32_t k = 0; k < classes; k++) {
        grad[k] = k == 1 && label == 0 ? 1.0f : 0.0f;
    }
    return kept_f32(score);
}
