/* SPDX-License-Identifier: Apache-2.0 */
/* Residual add and the joints of the error graph. All sums are float32; a - a_zero and b - b_zero take 9 bits. */
#ifndef KERNELS_ELEMENTWISE_H
#define KERNELS_ELEMENTWISE_H

#include "kernels/choices.h"
#include "kernels/numeric.h"
#include "kernels/pace.h"

struct add {
    uint32_t pixels;
    uint16_t c;
    int16_t a_zero, b_zero, y_zero;
    int32_t a, b, y; /* words of the scales, real value per unit: the floats' bits, or, a negative, integers */
#if MICROTRAIN_TFLITE
    uint32_t shifts; /* right, of a, b and y, a byte each, which are multipliers of 31 bits then; 0: as above */
#endif
};

enum { ADD_FRACTION = 22 };

/* y = sat8(rint(((a - a_zero) * a_scale + (b - b_zero) * b_scale) / y_scale) + y_zero), every operation
 * rounded to float32. Where p->a is negative, conversion has proven for all 65,536 pairs that this is
 * y = sat8((-p->a * a + p->b * b + p->y) >> ADD_FRACTION) (tools/convert/reference/proofs.py). b_scale is negative where
 * b is subtracted. With shifts it is what ADD and SUB of TensorFlow Lite make (reference/add.h, reference/sub.h).
 *
 * a, b, y  int8  [pixels][c]; y may be a or b
 * mask     bits  [pixels][mask_stride(c)], written unless NULL
 */
void add_fwd_s8(const struct add *p, const int8_t *a, const int8_t *b, int8_t *y, uint8_t *mask);

/* out = factor * in behind a clamp: q is copied and masked, scale[c] = scale[c] * factor * m[c].
 * in, out  error [pixels][c]; out may be in (q and scale each). The maximum is not renewed. */
void error_pass_s8(uint32_t pixels, uint32_t c, const struct error_s8 *in, float factor, const struct clamp *clamp,
                   const struct error_s8 *out);

/* out = clamp(a_factor * a + b_factor * b), where a tensor has two readers.
 * v = (float)qa * (sa * a_factor) + (float)qb * (sb * b_factor) in float32, masked, then int8 by channel.
 * out may be a or b (q and scale each). */
void error_add_s8(uint32_t pixels, uint32_t c, const struct error_s8 *a, float a_factor, const struct error_s8 *b,
                  float b_factor, const struct clamp *clamp, const struct error_s8 *out PACED);

#endif
