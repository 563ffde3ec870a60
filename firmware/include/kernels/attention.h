/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of every token of a sequence to every other (Vaswani et al. 2017), in integers but for the last rounding.
 *
 * A token is a pixel of x. Those that lie step_h and step_w apart are a sequence: 1 and 1, all of them. A pixel of x holds
 * the queries of all heads, then their keys, then their values: [3][heads][size], c = heads * size. Of a head and a query i,
 * over its sequence's tokens j in their order:
 *
 *   score[j] = sum over d of (q[i][d] - x_zero) * k[j][d]         the zero of keys adds the same to all
 *   octaves  = (largest score - score[j]) * sharpness >> 24       in 1/256, 64-bit product
 *   e[j]     = POWER[octaves % 256] >> octaves / 256              0 from 15 octaves on
 *   total    = sum of e,  POWER[f] = rint(2^14 * 2^(-f / 256))
 */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H

#include "kernels/numeric.h"
#include "kernels/pace.h"

struct attention {
    uint16_t h, w, heads, size;
    uint16_t step_h, step_w; /* divide h and w */
    int16_t x_zero, y_zero;
    uint32_t sharpness; /* rint(score's unit as a real number * log2(e) * 2^32), saturated */
    float unit;         /* s_x / s_y */
    float slope;        /* real value of a unit of a score, for the gradient */
};

/* Bytes of scratch of attention_fwd_s8, 4-byte aligned. */
uint32_t attention_fwd_scratch(const struct attention *p);

/* a[d] = sum over j of e[j] * (v[j][d] - x_zero), y = sat8(rint((float)a[d] * (unit / (float)total)) + y_zero).
 *
 * x     int8  [h * w][3 * c]
 * y     int8  [h * w][c], apart from x
 * mask  bits  [h * w][mask_stride(c)], written unless NULL
 * tokens of a sequence: 512 at most
 */
void attention_fwd_s8(const struct attention *p, const int8_t *x, int8_t *y, uint8_t *mask, void *scratch PACED);

/* Bytes of scratch of attention_bwd_x_s8, 4-byte aligned. */
uint32_t attention_bwd_x_scratch(const struct attention *p);

/* The gradient to queries, keys and values, all sums exact. Of a head, S the largest of its channels' scales:
 *
 *   r[d]     = rint(scale[d] / S * 256)
 *   p[i][j]  = (2^15 * e + total / 2) / total                                    rounded down
 *   f[i][j]  = sum over d of ey.q[i][d] * r[d] * v[j][d]
 *   mean[i]  = (sum over j of p * f + 2^14) >> 15
 *   g[i][j]  = (p * (f - mean) + 2^14) >> 15
 *   w[i][j]  = (g + 2^shift / 2) >> shift      shift: the least that leaves the head's largest |g| >> shift below 2^14
 *
 *   values   sum over i of p * ey.q[i][d]                  unit: scale[d] * (unit / 2^15)
 *   queries  sum over j of w * (k[j][d] - x_zero)          unit: S / 256 * (unit * slope) * 2^shift
 *   keys     sum over i of w * (q[i][d] - x_zero)          likewise
 *
 * each behind the clamp, then int8 by channel.
 *
 * ey  error [h * w][c]
 * ex  error [h * w][3 * c], apart from ey
 */
void attention_bwd_x_s8(const struct attention *p, const struct error_s8 *ey, const int8_t *x,
                        const struct clamp *clamp, const struct error_s8 *ex, void *scratch PACED);

#endif
