/* SPDX-License-Identifier: Apache-2.0 */
/* A map times one factor per channel, as squeeze-and-excitation computes it, or times another map, as a gate does.
 * x - x_zero and s - s_zero take 9 bits. */
#ifndef KERNELS_SCALE_H
#define KERNELS_SCALE_H

#include "kernels/choices.h"
#include "kernels/numeric.h"

struct scale {
    int16_t x_zero, s_zero, y_zero;
    float m; /* s_x * s_s / s_y: real value of a unit of the product, in units of y */
#if MICROTRAIN_TFLITE
    int32_t fine; /* the same as in struct conv2d; 0: products are rounded by m */
#endif
};

/* y = sat8(rint((float)((x - x_zero) * (s - s_zero)) * m) + y_zero), the product rounded to float32.
 *
 * x, y  int8  [pixels][c]; y may be x
 * s     int8  [c]
 * mask  bits  [pixels][mask_stride(c)], written unless NULL
 */
void scale_channels_fwd_s8(const struct scale *p, uint32_t pixels, uint32_t c, const int8_t *x, const int8_t *s,
                           int8_t *y, uint8_t *mask);

/* ex = clamp(ey * (s - s_zero)), int8 by channel. A unit of a sum is ey->scale[c] * m, rounded to float32.
 * ey, ex  error [pixels][c]; ex may be ey (q and scale each) */
void scale_channels_bwd_x_s8(const struct scale *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                             const int8_t *s, const struct clamp *clamp, const struct error_s8 *ex);

/* es = clamp(sum over the pixels of ey * (x - x_zero)), int32, then int8 by channel; units as above.
 * es  error [1][c], in neither ey nor x */
void scale_channels_bwd_s_s8(const struct scale *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                             const int8_t *x, const struct clamp *clamp, const struct error_s8 *es);

/* The same of one factor per pixel. Its error is in float32, summed by channel from the first on:
 * (float)(ey.q * (x - x_zero)) * ey->scale[c], each operation rounded; a unit of a sum is m.
 *
 * s   int8  [pixels]
 * es  error [pixels][1] */
void scale_pixels_fwd_s8(const struct scale *p, uint32_t pixels, uint32_t c, const int8_t *x, const int8_t *s,
                         int8_t *y, uint8_t *mask);
void scale_pixels_bwd_x_s8(const struct scale *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                           const int8_t *s, const struct clamp *clamp, const struct error_s8 *ex);
void scale_pixels_bwd_s_s8(const struct scale *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                           const int8_t *x, const struct clamp *clamp, const struct error_s8 *es);

/* The same y of two maps. s  int8  [pixels][c]; y may be x or s */
void multiply_maps_fwd_s8(const struct scale *p, uint32_t pixels, uint32_t c, const int8_t *x, const int8_t *s,
                          int8_t *y, uint8_t *mask);

/* The error of x, ex = clamp(ey * (s - s_zero)); or, where the other map is x, that of s, clamp(ey * (x - x_zero)). int8 by
 * channel, units as above.
 * ey, ex  error [pixels][c]; ex may be ey (q and scale each)
 * other   int8  [pixels][c]: s or x */
void multiply_maps_bwd_x_s8(const struct scale *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                            const int8_t *other, uint32_t other_is_x, const struct clamp *clamp,
                            const struct error_s8 *ex);

#endif
