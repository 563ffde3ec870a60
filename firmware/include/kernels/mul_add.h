/* SPDX-License-Identifier: Apache-2.0 */
/* A map times one constant a channel, and plus another one, as the operators MUL and ADD of an int8 file of TensorFlow Lite
 * make it: what stands in between is an int8 too. So is a batch norm that follows no convolution. Sources:
 * tensorflow/lite/kernels/internal: common.h, reference/integer_ops/mul.h, reference/add.h. */
#ifndef KERNELS_MUL_ADD_H
#define KERNELS_MUL_ADD_H

#include "kernels/numeric.h"

struct mul_add {
    const int8_t *w;                     /* [c] */
    const int32_t *b;                    /* [c], in units of what `sum` multiplies; NULL: the product alone, t is y */
    int32_t product, term, sum;          /* 31 bits of each multiplier, in front of */
    uint8_t product_by, term_by, sum_by; /* a shift to the right, 1 to 23; term: 0 where it is 1/2 */
    int16_t x_zero, w_zero, t_zero, y_zero;
    float m; /* s_x * s_w / s_y: real value of a unit of the product, in units of y */
};

/* t = sat8(product((x - x_zero) * (w - w_zero)) + t_zero)
 * y = sat8(sum(term((t - t_zero) * 2^20) + b) + y_zero)
 *
 * Each multiplier rounds a doubled product's upper half, half up, and what is left of the shift half away from zero.
 *
 * x, y  int8  [pixels][c]; y may be x
 * mask  bits  [pixels][mask_stride(c)], of values where neither t nor y saturates; written unless NULL
 */
void mul_add_fwd_s8(const struct mul_add *p, uint32_t pixels, uint32_t c, const int8_t *x, int8_t *y, uint8_t *mask);

/* ex = clamp(ey * (w - w_zero)), int8 by channel. A unit of a sum is ey->scale[c] * m, rounded to float32.
 * ey, ex  error [pixels][c]; ex may be ey (q and scale each) */
void mul_add_bwd_x_s8(const struct mul_add *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                      const struct clamp *clamp, const struct error_s8 *ex);

#endif
