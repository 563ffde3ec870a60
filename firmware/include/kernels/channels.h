/* SPDX-License-Identifier: Apache-2.0 */
/* Maps side by side, and the errors of some of a map's channels. */
#ifndef KERNELS_CHANNELS_H
#define KERNELS_CHANNELS_H

#include "kernels/numeric.h"

enum { NO_CHANNEL = 0xFFFF };

/* One of the maps of a concatenation. */
struct concat {
    uint16_t c, from, total; /* its channels, the first of them in y, and all of y */
    int16_t x_zero, y_zero;
    float m; /* s_x / s_y */
};

/* y[from + i] = sat8(rint((float)(x[i] - x_zero) * m) + y_zero), rounded to float32; the rest of y stays.
 *
 * x     int8  [pixels][c]
 * y     int8  [pixels][total]
 * mask  bits  [pixels][mask_stride(total)], those of these channels, written unless NULL
 */
void concat_fwd_s8(const struct concat *p, uint32_t pixels, const int8_t *x, int8_t *y, uint8_t *mask);

/* ex[i] = clamp(factor * ey[channels[i]]), and without a gradient where that is NO_CHANNEL. No maximum is renewed.
 *
 * ey  error [pixels][c]
 * ex  error [pixels][n], not in ey
 */
void error_take_s8(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const uint16_t *channels, uint32_t n,
                   float factor, const struct clamp *clamp, const struct error_s8 *ex);

#endif
