/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a network that makes embeddings. Contract: kernels/prototypes.h. */
#include "kernels/prototypes.h"

#include "channel.h"
#include "kernels/head.h"
#include "root.h"

#define DEVIATIONS 5.0f
#define NEAR 0.85f

enum { OWN, OWN_SUM, OWN_OFF, OTHERS, OTHERS_SUM }; /* distances */

/* What the network makes of a sample, and what scales it to length 1. */
struct embedding {
    const int16_t *centre;
    const int8_t *x;
    uint32_t n;
    float gain;
};

ALWAYS_INLINE int32_t from_centre(const struct embedding *e, uint32_t i)
{
    return e->x[i] * 16 - e->centre[i];
}

ALWAYS_INLINE float value(const struct embedding *e, uint32_t i)
{
    return (float)from_centre(e, i) * e->gain;
}

static struct embedding embedding_of(const struct prototypes *p, const int16_t *centre, const int8_t *x)
{
    struct embedding e = {.centre = centre, .x = x, .n = (uint32_t)p->pixels * p->c};
    uint64_t squares = 0;
    for (uint32_t i = 0; i < e.n; i++) {
        int32_t q = from_centre(&e, i);
        squares += (uint32_t)(q * q);
    }
    e.gain = squares ? inverse_of(squares) : 0.0f;
    return e;
}

/* Distance from which on a sample is of no class. */
static float threshold(const float *of)
{
    float mean = of[OWN_SUM] / of[OWN], off = of[OWN_OFF] / of[OWN], far = of[OTHERS_SUM] / of[OTHERS];
    float most = mean + DEVIATIONS * off, half = mean + (far - mean) * 0.5f, near = NEAR * far;
    half = half < near ? half : near;
    return half < most ? half : most;
}

/* Squared distance from a prototype, less the more unsure that is. */
static float distance(const struct embedding *e, const float *sums)
{
    float count = sums[e->n], share = 1.0f / count, sum = 0.0f;
    for (uint32_t i = 0; i < e->n; i++) {
        float d = value(e, i) - sums[i] * share;
        sum = sum + d * d;
    }
    return count / (count + 1.0f) * sum;
}

void prototypes_fwd_f32(const struct prototypes *p, const int16_t *centre, const int8_t *x, const float *sums,
                        const float *distances, float *logits)
{
    const struct embedding e = embedding_of(p, centre, x);
    logits[0] = kept_f32(-threshold(distances));
    for (uint32_t k = 1; k < p->classes; k++, sums += e.n + 1) {
        logits[k] = sums[e.n] > 0.0f ? kept_f32(p->unit * distance(&e, sums)) : PROTOTYPES_NONE;
    }
}

/* What is left of older samples where one more joins so many. */
ALWAYS_INLINE float kept_of(float count)
{
    const float older = PROTOTYPES_SAMPLES - 1.0f;
    return count > older ? older / count : 1.0f;
}

/* A distance joins a count and the sum behind it. Returns what is kept of older ones. */
static float follow(float *count, float distance)
{
    float keep = kept_of(count[0]);
    count[0] = kept_f32(count[0] * keep + 1.0f);
    count[1] = kept_f32(count[1] * keep + distance);
    return keep;
}

static void follow_own(float *of, float distance)
{
    float keep = follow(of + OWN, distance), off = distance - of[OWN_SUM] / of[OWN];
    of[OWN_OFF] = kept_f32(of[OWN_OFF] * keep + (off < 0.0f ? -off : off));
}

float loss_prototypes_f32(uint32_t classes, const float *logits, uint32_t label, float *distances, float *grad)
{
    if (!(logits[label] > PROTOTYPES_NONE)) {
        for (uint32_t k = 0; k < classes; k++) {
            grad[k] = 0.0f;
        }
        return log_f32((float)classes);
    }
    float nearest = PROTOTYPES_NONE;
    for (uint32_t k = 1; k < classes; k++) {
        nearest = k != label && logits[k] > nearest ? logits[k] : nearest;
    }
    if (label) {
        follow_own(distances, -logits[label]);
    }
    if (nearest > PROTOTYPES_NONE) {
        follow(distances + OTHERS, -nearest);
    }
    return loss_cross_entropy_f32(classes, logits, label, grad);
}

uint32_t prototypes_bwd_x_scratch(const struct prototypes *p)
{
    return ((uint32_t)p->pixels * p->c + p->classes - 1u) * (uint32_t)sizeof(float);
}

/* s = sum_k w[k] * sums[k] - e * g; w: of the classes, scratch. */
static void pulls(const struct prototypes *p, const struct embedding *e, const float *grad, const float *sums, float *w,
                  float *s)
{
    uint32_t known = p->classes - 1u, row = e->n + 1;
    float g = 0.0f;
    for (uint32_t k = 0; k < known; k++) {
        float count = sums[k * row + e->n];
        w[k] = count > 0.0f ? grad[k + 1] / (count + 1.0f) : 0.0f;
        g = g + w[k] * count;
    }
    for (uint32_t i = 0; i < e->n; i++) {
        float sum = 0.0f;
        for (uint32_t k = 0; k < known; k++) {
            sum = sum + w[k] * sums[k * row + i];
        }
        s[i] = sum - value(e, i) * g;
    }
}

/* What of s changes an embedding's direction. */
static void across(const struct embedding *e, float *s)
{
    float along = 0.0f;
    for (uint32_t i = 0; i < e->n; i++) {
        along = along + value(e, i) * s[i];
    }
    for (uint32_t i = 0; i < e->n; i++) {
        s[i] = s[i] - value(e, i) * along;
    }
}

void prototypes_bwd_x_f32(const struct prototypes *p, const int16_t *centre, const int8_t *x, const float *grad,
                          const float *sums, const struct clamp *clamp, const struct error_s8 *ex, void *scratch)
{
    const struct embedding e = embedding_of(p, centre, x);
    float *s = scratch, unit = p->unit * -32.0f * e.gain;
    pulls(p, &e, grad, sums, s + e.n, s);
    across(&e, s);
    for (uint32_t i = 0; i < p->c; i++) {
        const struct channel ch = channel_of(ex, clamp, p->c, i);
        float peak = 0.0f;
        for (uint32_t at = i, pixel = 0; at < e.n; at += p->c, pixel++) {
            peak = channel_passes(&ch, pixel) ? larger_magnitude_f32(peak, s[at]) : peak;
        }
        float gain = channel_gain(peak, channel_unit(clamp, i, unit), &ex->scale[i]);
        for (uint32_t at = i, pixel = 0; at < e.n; at += p->c, pixel++) {
            channel_put(&ch, pixel, s[at], gain);
        }
    }
}

void prototypes_update_f32(const struct prototypes *p, const int16_t *centre, const int8_t *x, uint32_t label,
                           float *sums)
{
    if (!label) {
        return;
    }
    const struct embedding e = embedding_of(p, centre, x);
    float *own = sums + (label - 1) * (e.n + 1), keep = kept_of(own[e.n]);
    own[e.n] = kept_f32(own[e.n] * keep + 1.0f);
    for (uint32_t i = 0; i < e.n; i++) {
        own[i] = kept_f32(own[i] * keep + value(&e, i));
    }
}
