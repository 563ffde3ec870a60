/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of a regression. Contract: kernels/regression.h. */
#include "kernels/regression.h"

#include "chip.h"

ALWAYS_INLINE void put(float gradient, float unit, float *up, float *down)
{
    *up = gradient * unit;
    *down = gradient / unit;
}

float loss_squares_f32(uint32_t n, const float *y, const float *target, const float *unit, float *up, float *down)
{
    float sum = 0.0f, count = (float)n;
    for (uint32_t k = 0; k < n; k++) {
        float d = (y[k] - target[k]) / unit[k];
        sum = sum + d * d;
        put(2.0f * d / count, unit[k], &up[k], &down[k]);
    }
    return kept_f32(sum / count);
}

float loss_huber_f32(uint32_t n, const float *y, const float *target, const float *unit, float *up, float *down)
{
    float sum = 0.0f, count = (float)n;
    for (uint32_t k = 0; k < n; k++) {
        float d = (y[k] - target[k]) / unit[k];
        float size = d < 0.0f ? -d : d;
        sum = sum + (size <= 1.0f ? 0.5f * d * d : size - 0.5f);
        put((size <= 1.0f ? d : d < 0.0f ? -1.0f : 1.0f) / count, unit[k], &up[k], &down[k]);
    }
    return kept_f32(sum / count);
}
