/* SPDX-License-Identifier: Apache-2.0 */
/* Pointwise convolution of eight input channels on Armv7E-M, as first expansions have them: narrow_armv7em.S. A few
 * pixels are packed, and every output channel passes over them. The same sums and outputs as from the tiles of dense.h.
 */
#ifndef KERNELS_NARROW_H
#define KERNELS_NARROW_H

#include "chip.h"

#if KERNELS_DSP && !KERNELS_MVE

enum { NARROW = 8, NARROW_BYTES = 2 * NARROW }; /* input channels, bytes of a packed pixel */

/* All output channels of some pixels; the order is that of narrow_armv7em.S. */
struct narrow {
    const int8_t *w; /* [channels][NARROW] */
    const int32_t *b, *m;
    int8_t *y; /* of the first pixel, channel 0 */
    uint32_t channels;
    int32_t offset; /* put_offset() of the zero point */
    uint32_t c;     /* bytes from pixel to pixel */
#if MICROTRAIN_TFLITE
    int32_t fine; /* as in struct dot_put */
#endif
};

/* to[pixel][NARROW] = x - zero as narrow_put() reads it; an even number of pixels. minus_zero: halves_of(). */
void narrow_pack(int16_t *to, const int8_t *x, uint32_t pixels, uint32_t minus_zero);

/* Outputs of n packed pixels; n a multiple of 4. */
void narrow_put(const int16_t *pixels, uint32_t n, const struct narrow *put);

#endif

#endif
