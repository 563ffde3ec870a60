/* SPDX-License-Identifier: Apache-2.0 */
/* Average and maximum pooling, windowed and global (kernel = image). Input and output share scale and zero.
 * Sums are int32: kh * kw * 128 at most forward, 127 for each window over a pixel backward. Conversion keeps
 * kh * kw * 255 within 2^24, so that a sum is exact in float32. */
#ifndef KERNELS_POOL_H
#define KERNELS_POOL_H

#include "kernels/numeric.h"

struct pool {
    uint16_t h_in, w_in, c;
    uint16_t h_out, w_out;
    uint16_t kh, kw, stride_h, stride_w; /* of a series: as long as it is */
    uint8_t pad_h, pad_w;
    int16_t x_zero;
};

/* y = rint((float)sum / (float)(kh * kw)), half to even, or with MICROTRAIN_TFLITE away from zero; padding counts as
 * x_zero (torch's count_include_pad). y may not overlap x. */
void avgpool_fwd_s8(const struct pool *p, const int8_t *x, int8_t *y);
/* ex = clamp(sum of the windows' ey / (kh * kw)); ex may not overlap ey. scratch: avgpool_bwd_x_scratch(p) bytes */
void avgpool_bwd_x_s8(const struct pool *p, const struct error_s8 *ey, const struct clamp *clamp,
                      const struct error_s8 *ex, void *scratch);
uint32_t avgpool_bwd_x_scratch(const struct pool *p);

/* arg: uint8 [h_out][w_out][c], position ky * kw + kx of the maximum in its window, the first of equals;
 * written unless NULL. Padding never wins. kh * kw <= 256. */
void maxpool_fwd_s8(const struct pool *p, const int8_t *x, int8_t *y, uint8_t *arg);
void maxpool_bwd_x_s8(const struct pool *p, const struct error_s8 *ey, const uint8_t *arg, const struct clamp *clamp,
                      const struct error_s8 *ex, void *scratch);
uint32_t maxpool_bwd_x_scratch(const struct pool *p);

#endif
