/* SPDX-License-Identifier: Apache-2.0 */
/* Labels that hold or not, each for itself. Contract: kernels/multilabel.h. */
#include "kernels/multilabel.h"

float loss_labels_f32(uint32_t n, const float *y, const float *target, float *grad)
{
    float sum = 0.0f, count = (float)n;
    for (uint32_t k = 0; k < n; k++) {
        float at = y[k], high = at >= 0.0f ? at : 0.0f;
        float e = exp_f32(at >= 0.0f ? -at : at);
        float p = (at >= 0.0f ? 1.0f : e) / (1.0f + e);
        sum = sum + (high - at * target[k] + log_f32(1.0f + e));
        grad[k] = (p - target[k]) / count;
    }
    return kept_f32(sum / count);
}
