/* SPDX-License-Identifier: Apache-2.0 */
/* A head from statistics of features. Contract: kernels/imprint.h. */
#include "kernels/imprint.h"

#include <string.h>

/* Entries of the lower triangle of a matrix with n rows. */
static uint32_t triangle(uint32_t n)
{
    return n * (n + 1) / 2;
}

/* Entries of the triangles of all groups. */
static uint32_t products_of(uint32_t features, uint32_t group)
{
    return features / group * triangle(group) + triangle(features % group);
}

uint32_t imprint_bytes(const struct head *p, uint32_t group)
{
    uint32_t features = head_features(p);
    return 4 * (p->classes + p->classes * features + products_of(features, group));
}

uint32_t imprint_scratch(const struct head *p, uint32_t group)
{
    return 4 * (head_features(p) + p->classes + triangle(group));
}

void imprint_clear(const struct head *p, uint32_t group, void *statistics)
{
    memset(statistics, 0, imprint_bytes(p, group));
}

void imprint_add_s8(const struct head *p, uint32_t group, void *statistics, const int8_t *x, uint32_t label)
{
    uint32_t features = head_features(p), *counts = statistics;
    int32_t *sums = (int32_t *)(counts + p->classes);
    int32_t *product = sums + p->classes * features;
    counts[label]++;
    sums += label * features;
    for (uint32_t start = 0; start < features; start += group) {
        uint32_t end = start + group < features ? start + group : features;
        for (uint32_t i = start; i < end; i++) {
            int32_t q = x[i] - p->x_zero;
            sums[i] += q;
            for (uint32_t j = start; j <= i; j++) {
                *product++ += q * (x[j] - p->x_zero);
            }
        }
    }
}

struct solver {
    uint32_t features, classes, samples, seen; /* seen: classes that have samples */
    const uint32_t *counts;
    const int32_t *sums;
    float *centre; /* [features] mean of the classes' means */
    float *half;   /* [classes] half the squared distance of a class from the centre, in C's metric */
    float *c;      /* triangle of a group */
};

static float mean_of(const struct solver *s, uint32_t k, uint32_t i)
{
    return (float)s->sums[k * s->features + i] / (float)s->counts[k];
}

/* How far a class's mean is from the centre. */
static float from_centre(const struct solver *s, uint32_t k, uint32_t i)
{
    return mean_of(s, k, i) - s->centre[i];
}

static void find_centre(struct solver *s)
{
    for (uint32_t i = 0; i < s->features; i++) {
        float sum = 0.0f;
        for (uint32_t k = 0; k < s->classes; k++) {
            sum = s->counts[k] ? sum + mean_of(s, k, i) : sum;
        }
        s->centre[i] = sum / (float)s->seen;
    }
}

/* The shrunk covariance of d features from `start` on. Returns its smallest possible pivot. */
static float covariance(const struct solver *s, uint32_t start, uint32_t d, const int32_t *products)
{
    float freedom = s->samples > s->seen ? (float)(s->samples - s->seen) : 1.0f;
    float *c = s->c, trace = 0.0f;
    for (uint32_t i = 0; i < d; i++) {
        for (uint32_t j = 0; j <= i; j++) {
            float sum = (float)*products++;
            for (uint32_t k = 0; k < s->classes; k++) {
                const int32_t *sums = s->sums + k * s->features;
                sum = s->counts[k] ? sum - mean_of(s, k, start + i) * (float)sums[start + j] : sum;
            }
            *c++ = sum / freedom;
        }
        trace = trace + c[-1];
    }
    float variance = trace / (float)d, all = (float)(d + s->samples);
    float keep = (float)s->samples / all;
    float ridge = (float)d / all * (variance > 0.0f ? variance : 1.0f);
    c = s->c;
    for (uint32_t i = 0; i < d; i++) {
        for (uint32_t j = 0; j <= i; j++, c++) {
            *c = *c * keep;
        }
        c[-1] = c[-1] + ridge;
    }
    return ridge;
}

/* C = L D L', in place: what is left below the diagonal is L D. A pivot is never below `least`. */
static void factor(float *c, uint32_t d, float least)
{
    for (uint32_t j = 0; j < d; j++) {
        float *pivot = c + triangle(j) + j;
        *pivot = *pivot > least ? *pivot : least;
        for (uint32_t i = j + 1; i < d; i++) {
            float *row = c + triangle(i), share = row[j] / *pivot;
            for (uint32_t k = j + 1; k <= i; k++) {
                row[k] = row[k] - share * c[triangle(k) + j];
            }
        }
    }
}

/* v = C^-1 v, C as factor() left it. */
static void divide(const float *c, uint32_t d, float *v)
{
    for (uint32_t i = 0; i < d; i++) {
        const float *row = c + triangle(i);
        float sum = v[i];
        for (uint32_t j = 0; j < i; j++) {
            sum = sum - row[j] * v[j];
        }
        v[i] = sum / row[i];
    }
    for (uint32_t i = d; i-- > 0;) {
        float sum = 0.0f;
        for (uint32_t j = i + 1; j < d; j++) {
            sum = sum + c[triangle(j) + i] * v[j];
        }
        v[i] = v[i] - sum / c[triangle(i) + i];
    }
}

static void solve_groups(const struct solver *s, uint32_t group, float *w)
{
    const int32_t *products = s->sums + s->classes * s->features;
    for (uint32_t start = 0; start < s->features; start += group) {
        uint32_t d = s->features - start < group ? s->features - start : group;
        factor(s->c, d, covariance(s, start, d, products));
        products += triangle(d);
        for (uint32_t k = 0; k < s->classes; k++) {
            float *v = w + k * s->features + start;
            for (uint32_t i = 0; i < d; i++) {
                v[i] = s->counts[k] ? from_centre(s, k, start + i) : 0.0f;
            }
            divide(s->c, d, v);
        }
    }
}

/* w[k] times the mean of class m, from the centre. */
static float meets(const struct solver *s, const float *w, uint32_t k, uint32_t m)
{
    float sum = 0.0f;
    for (uint32_t i = 0; i < s->features; i++) {
        sum = sum + w[k * s->features + i] * from_centre(s, m, i);
    }
    return sum;
}

/* How far ahead of the next class a class is at its own mean, on average. */
static float margin(const struct solver *s, const float *w)
{
    float sum = 0.0f;
    for (uint32_t k = 0; k < s->classes; k++) {
        float next = -INFINITY;
        for (uint32_t other = 0; s->counts[k] && other < s->classes; other++) {
            if (other != k && s->counts[other]) {
                float logit = meets(s, w, other, k) - s->half[other];
                next = logit > next ? logit : next;
            }
        }
        sum = s->counts[k] ? sum + (s->half[k] - next) : sum;
    }
    return sum / (float)s->seen;
}

/* From stored units to real ones, with the logits as small as they shall be. */
static void write_head(const struct solver *s, const struct head *p, float *w, float *b)
{
    float ahead = s->seen > 1 ? margin(s, w) : 0.0f, farthest = 0.0f;
    float gain = ahead > IMPRINT_MARGIN ? IMPRINT_MARGIN / ahead : 1.0f;
    for (uint32_t k = 0; k < s->classes; k++) {
        farthest = s->counts[k] && s->half[k] > farthest ? s->half[k] : farthest;
    }
    float real = gain / p->x_scale;
    for (uint32_t k = 0; k < s->classes; k++) {
        float at_centre = 0.0f;
        for (uint32_t i = 0; i < s->features; i++, w++) {
            at_centre = at_centre + *w * s->centre[i];
            *w = *w * real;
        }
        float shift = at_centre + s->half[k];
        b[k] = s->counts[k] ? -(shift * gain) : -(farthest * gain) - IMPRINT_MARGIN;
    }
}

uint32_t imprint_solve_f32(const struct head *p, uint32_t group, const void *statistics, float *w, float *b,
                           void *scratch)
{
    struct solver s = {.features = head_features(p), .classes = p->classes, .counts = statistics, .centre = scratch};
    s.sums = (const int32_t *)(s.counts + s.classes);
    s.half = s.centre + s.features;
    s.c = s.half + s.classes;
    for (uint32_t k = 0; k < s.classes; k++) {
        s.samples += s.counts[k];
        s.seen += s.counts[k] > 0;
    }
    if (s.seen == 0) {
        memset(w, 0, 4 * s.classes * s.features);
        memset(b, 0, 4 * s.classes);
        return 0;
    }
    find_centre(&s);
    solve_groups(&s, group, w);
    for (uint32_t k = 0; k < s.classes; k++) {
        s.half[k] = s.counts[k] ? 0.5f * meets(&s, w, k, k) : 0.0f;
    }
    write_head(&s, p, w, b);
    return s.seen;
}
