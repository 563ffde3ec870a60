/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution, dense and depthwise: forward, gradient to the input, gradient to the weights with
 * the update folded in.
 *
 * Layout   activations and errors [h][w][c] (NHWC, N is always 1)
 *          dense weights [c_out][kh][kw][c_in], depthwise weights [c][kh][kw]
 * Numbers  real = scale * (q - zero); weights have zero 0 and one scale per channel of c_out
 *          padding stands for real zero, that is q = x_zero
 * A linear layer is a 1x1 convolution over a 1x1 image. A depthwise convolution uses the same
 * struct with c_in == c_out.
 */
#ifndef KERNELS_CONV2D_H
#define KERNELS_CONV2D_H

#include "kernels/choices.h"
#include "kernels/numeric.h"
#include "kernels/pace.h"

struct conv2d {
    uint16_t h_in, w_in, c_in;
    uint16_t h_out, w_out, c_out;
    uint8_t kh, kw, stride_h, stride_w, pad_h, pad_w; /* pad at top and left; the rest follows from h_out */
    int16_t x_zero, y_zero;                           /* -128..127 */
    uint8_t guard;                                    /* fraction bits of aligned errors in bwd_x, 0..8, so that
                                                         c_out * taps * 127 * 128 << guard < 2^31, where taps is the
                                                         most outputs that read one input pixel, kh * kw at most */
    const int32_t *m;                                 /* [c_out] words of s_x * s_w[c] / s_y */
#if MICROTRAIN_TFLITE
    const int32_t *fine; /* [c_out] s_x * s_w[c] / s_y in 30 or 31 bits, 2^29..2^31 - 1, of which m, a float, has the
                            first 24 and the exponent; 0, or a table that is NULL: sums are rounded by m */
#endif
};

/* The weights of a layer of which some input channels are trained (depthwise: some channels).
 * Channel order[i] of the input is column i of the frozen matrix for i < c_frozen, else column
 * i - c_frozen of the trained one. */
struct split_weights {
    const int8_t *frozen;  /* dense [c_out][kh][kw][c_frozen], depthwise [c_frozen][kh][kw]; flash; may be NULL */
    const int8_t *trained; /* dense [c_out][kh][kw][c_trained], depthwise [c_trained][kh][kw]; SRAM; may be NULL */
    const uint16_t *order; /* [c_in]; NULL: natural order, all frozen or all trained */
    uint16_t c_trained;    /* 0..c_in */
};

/* Trained weights, their fraction bits and what turns a gradient into a step. */
struct trained_weights {
    int8_t *w;         /* same layout as split_weights.trained, -127..127 */
    uint8_t *frac;     /* fraction bits of w, value w + frac / 2^frac_bits with signed frac in [-2^(f-1), 2^(f-1)):
                          8 bits: int8 per element; 4 bits: two per byte, even index in the low nibble; 0 bits: NULL */
    uint8_t frac_bits; /* 0, 4 or 8 */
    const float *qas;  /* [channels of s_w] 65536 / s_w^2, 0 where the channel is dead */
    uint32_t id;       /* tensor id of the random numbers */
};

/* The saved input of the trained channels. */
struct saved_input {
    const int8_t *x;       /* [h_in][w_in][c_x] */
    const uint16_t *index; /* [c_trained] position of each trained channel in x; NULL: 0, 1, 2, ... */
    uint16_t c_x;
};

/* Integers. Sums are int32 and never wrap: conversion proves for each layer that none of these leaves it, whatever the
 * image, the errors and the training (tools/convert/ops/bounds.py). reach: max |x - x_zero|, 255 at most.
 *
 *   forward       |b| + sum |w| * reach                                 65,793 products per output at most
 *   bwd_x         c_out * taps * 127 * 128 << guard                     taps as for guard; depthwise taps * 127 * 128
 *   bwd_w         h_out * w_out * 127 * max(reach, 128)                 66,311 outputs where x_zero is -128, else more
 *   biases        pixels * 127
 *
 * Products are of an int8 and an int16: |x - x_zero| <= 255 and |r * w| <= 2^15. */

/* y[h_out][w_out][c_out] = sat8(rint((b + sum (x - x_zero) * w) * m) + y_zero)
 *
 * x        int8   [h_in][w_in][c_in]
 * b        int32  [c_out], in units of s_x * s_w; conversion proves that no sum leaves int32
 *                 with a fine multiplier: t = sat32(2 * sum) * fine / 2^32, half up, becomes y = t / 2^shift, half away
 *                 from zero, where shift = 126 - the exponent bits of m, less 1 where fine < 2^30, 1..22: as TensorFlow
 *                 Lite's reference kernels have it (MultiplyByQuantizedMultiplier, internal/common.h)
 * y        int8   may not overlap x; where conv2d_fwd_in_place(p) is 1 it may begin where x begins
 * mask     bits   [h_out * w_out][mask_stride(c_out)], written unless NULL
 * scratch  conv2d_fwd_scratch(p) bytes, 4-byte aligned, contents lost
 */
void conv2d_fwd_s8(const struct conv2d *p, const int8_t *x, const struct split_weights *w, const int32_t *b, int8_t *y,
                   uint8_t *mask, void *scratch PACED);
uint32_t conv2d_fwd_scratch(const struct conv2d *p);
uint32_t conv2d_fwd_in_place(const struct conv2d *p);

/* ex = clamp(sum over the taps of ey * w), requantized to int8 by channel.
 *
 * ey       error  [h_out * w_out][c_out] of the sums of this layer
 * w        the weights as they were BEFORE this step's update
 * clamp    of the op that made x; its mask is [h_in * w_in][mask_stride(c_in)]
 * ex       error  [h_in * w_in][c_in]; may not overlap ey
 * scratch  conv2d_bwd_x_scratch(p) bytes, 4-byte aligned
 *
 * The errors of the output channels are brought to one scale first: S = max scale, r[o] =
 * rint(scale[o] / S * 2^guard); acc = sum (ey * r) * w is exact in int32; one unit is S / 2^guard.
 */
void conv2d_bwd_x_s8(const struct conv2d *p, const struct error_s8 *ey, const struct split_weights *w,
                     const struct clamp *clamp, const struct error_s8 *ex, void *scratch PACED);
uint32_t conv2d_bwd_x_scratch(const struct conv2d *p);

/* w[o] -= lr * qas[o] * scale[o] * sum over pixels of ey * (x - x_zero), row by row: no gradient
 * outlives its row. Stochastic rounding by counter-based random numbers.
 *
 * scratch  conv2d_bwd_w_scratch(p, c_trained) bytes, 4-byte aligned
 */
void conv2d_bwd_w_s8(const struct conv2d *p, const struct error_s8 *ey, const struct saved_input *x, uint16_t c_trained,
                     const struct trained_weights *w, const struct sgd *sgd, void *scratch PACED);
uint32_t conv2d_bwd_w_scratch(const struct conv2d *p, uint16_t c_trained);

/* Depthwise twins. channels[i] is the channel that trained row i belongs to (NULL: i). Channels do not meet, so where a
 * group of them is read whole before it is written (.._in_place(p) is 1), and where windows are of a pixel, the result
 * may begin where the input begins:
 * y at x, ex->q at ey->q and ex->scale at ey->scale. .._ways(p): bits of MICROTRAIN_WINDOWS, of functions that sum
 * windows on Armv7E-M, which p and strips of its rows may use. */
void dwconv2d_fwd_s8(const struct conv2d *p, const int8_t *x, const struct split_weights *w, const int32_t *b,
                     int8_t *y, uint8_t *mask, void *scratch PACED);
uint32_t dwconv2d_fwd_scratch(const struct conv2d *p);
uint32_t dwconv2d_fwd_in_place(const struct conv2d *p);
uint32_t dwconv2d_fwd_ways(const struct conv2d *p);
void dwconv2d_bwd_x_s8(const struct conv2d *p, const struct error_s8 *ey, const struct split_weights *w,
                       const struct clamp *clamp, const struct error_s8 *ex, void *scratch PACED);
uint32_t dwconv2d_bwd_x_scratch(const struct conv2d *p);
uint32_t dwconv2d_bwd_x_in_place(const struct conv2d *p);
uint32_t dwconv2d_bwd_x_ways(const struct conv2d *p);
void dwconv2d_bwd_w_s8(const struct conv2d *p, const struct error_s8 *ey, const struct saved_input *x,
                       const uint16_t *channels, uint16_t c_trained, const struct trained_weights *w,
                       const struct sgd *sgd, void *scratch PACED);
uint32_t dwconv2d_bwd_w_scratch(const struct conv2d *p, uint16_t c_trained);

/* Biases of one layer that are trained: b[c] = base[c] + delta[c] * 2^shift(c). What training added takes 16 bits, in a
 * unit in which they reach at least 64 units of the int8 output to either side: less than 1/256 of one, or a sum's. */
struct trained_bias {
    int16_t *delta;      /* [c] -32767..32767, 0 before any training */
    const int32_t *base; /* [c] as converted, in units of s_x * s_w */
    const int32_t *m;    /* [c] words of the layer; shift(c) = 118 - exponent bits of m[c], within 0..15 */
    const float *qas;    /* [c] 256 / (s_x * s_w)^2 / 2^shift(c), 0 where the channel is dead */
    const int16_t *lean; /* [c] in the place of base and qas, if not NULL: base[c] = lean[c] * 2^(shift(c) + 2) */
    float unit;          /* 256 / s_y^2. With lean, qas[c] = unit / (m * m) / 2^shift(c) in float32, and 0 where m is
                          * 2^-10, as that of dead channels alone is then */
    int32_t limit;       /* |b| stays <= limit, so that no sum of the layer leaves int32 */
    uint32_t id;
};

/* b[c] of all channels. */
void bias_expand_s32(uint32_t c, const struct trained_bias *bias, int32_t *b);

/* delta' = sat(delta - ((q + (r & 0xFF)) >> 8)), q = sat(rint(lr * scale * qas * sum over pixels of ey)) */
void bias_update_s32(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const struct trained_bias *bias,
                     const struct sgd *sgd PACED);

/* y[pixels][c_index] = the listed channels of x[pixels][c]: what a partly trained layer keeps of its input. */
void gather_s8(uint32_t pixels, uint32_t c, const int8_t *x, const uint16_t *index, uint32_t c_index, int8_t *y);

#endif
