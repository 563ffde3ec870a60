/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution whose weights lie in flash as codes, four bits a weight: dense ones forward and gradient to the input, and
 * what depthwise ones need before they run as always.
 *
 * Two neighbouring weights of an output channel are one byte. What pair it stands for depends on the two upper bits of
 * the byte before it too, which are 0 in front of a row: a trellis of four states. What the codes stand for is int8 like
 * any other weight, so all numbers are those of kernels/conv2d.h. All weights of such a layer are frozen; its biases need
 * not be.
 */
#ifndef KERNELS_CODED_H
#define KERNELS_CODED_H

#include "kernels/conv2d.h"

struct coded_weights {
    const uint8_t *codes;  /* [c_out][(kh * kw * c_in + 1) / 2]; of an odd row's last pair the first weight counts */
    const uint16_t *pairs; /* [256][4] by code and state: two int8, the first in the low byte */
};

/* w[rows][length], plain int8, and a byte behind it that is written where the length is odd. */
void codes_expand_s8(uint32_t rows, uint32_t length, const struct coded_weights *codes, int8_t *w);

/* conv2d_fwd_s8() and conv2d_bwd_x_s8() of these weights. scratch: cconv2d_fwd_scratch(p), cconv2d_bwd_x_scratch(p). */
void cconv2d_fwd_s8(const struct conv2d *p, const struct coded_weights *w, const int8_t *x, const int32_t *b, int8_t *y,
                    uint8_t *mask, void *scratch PACED);
uint32_t cconv2d_fwd_scratch(const struct conv2d *p);
void cconv2d_bwd_x_s8(const struct conv2d *p, const struct coded_weights *w, const struct error_s8 *ey,
                      const struct clamp *clamp, const struct error_s8 *ex, void *scratch PACED);
uint32_t cconv2d_bwd_x_scratch(const struct conv2d *p);

#endif
