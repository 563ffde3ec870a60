/* SPDX-License-Identifier: Apache-2.0 */
/* From sums to int8 on Armv7E-M: requantize_armv7em.S. Portable C has the same in channel.h and in the kernels. */
#ifndef KERNELS_REQUANTIZE_H
#define KERNELS_REQUANTIZE_H

#include "chip.h"

struct runs; /* planes.h */

#if KERNELS_DSP

/* Bits of a mask as the assembly walks through them, pixel by pixel. */
struct mask_view {
    const uint8_t *bytes; /* of the first pixel */
    uint32_t stride;      /* to the next pixel's */
    uint32_t shift;       /* lanes: of the first lane's bit; one channel: left, until its bit is the sign */
    uint32_t second;      /* lanes: where their last bits are, 0 or 1 */
};

/* Masks of pixels, lanes, from bits [8 * eights] of channels: mask[lane * stride + i] is of channels 8 i to 8 i + 7, whose
 * bits are 1 where bit `lane` is 0. lanes: 6 or 4; bits: 4-byte aligned. */
void put_masks(const uint8_t *bits, uint32_t eights, uint32_t lanes, uint8_t *mask, uint32_t stride);

/* The same of n channels, with room for whole eights. */
ALWAYS_INLINE void put_masks_of(uint8_t *bits, uint32_t n, uint32_t lanes, uint8_t *mask, uint32_t stride)
{
    for (; n & 7u; n++) {
        bits[n] = 0xff;
    }
    put_masks(bits, n / 8, lanes, mask, stride);
}

/* y[i * c] = output of sums[i] of one channel. */
void requantize_channel(const int32_t *sums, const struct runs *runs, int32_t zero, int8_t *y, uint32_t c, float m);

/* A run of a channel's outputs with a mask; the order is that of requantize_armv7em.S. */
struct masked_run {
    uint32_t n;
    int32_t zero; /* where the word is an integer multiplier_offset() of it */
    uint32_t c, stride;
    uint32_t bit; /* 1 << bit of the channel */
    int32_t word; /* of its multiplier */
};

/* y[i * c] = output of sums[i], and its bit, until then 0, in mask[i * stride]. Of a word that is a float, and of an integer's. */
void float_channel_masked(const int32_t *sums, int8_t *y, uint8_t *mask, const struct masked_run *run);
void integer_channel_masked(const int32_t *sums, int8_t *y, uint8_t *mask, const struct masked_run *run);

/* Sums [pixels][lanes] become floats, 0 where the mask stops them; peaks[lane] grows to the largest magnitude. */
void mask_errors6(int32_t *sums, uint32_t pixels, const struct mask_view *mask, float *peaks);
void mask_errors4(int32_t *sums, uint32_t pixels, const struct mask_view *mask, float *peaks);

/* q[pixel * c + lane] = rint(sum * gain[lane]) of such floats. */
void put_errors6(const int32_t *sums, uint32_t pixels, const float *gains, int8_t *q, uint32_t c);
void put_errors4(const int32_t *sums, uint32_t pixels, const float *gains, int8_t *q, uint32_t c);

/* The same two of one channel: [n] sums. Returns the peak, at least `peak`. */
float mask_channel(int32_t *sums, uint32_t n, const struct mask_view *mask, float peak);
void put_channel_errors(const int32_t *sums, uint32_t n, int8_t *q, uint32_t c, float gain);

#if KERNELS_MVE

/* A run of a channel's outputs; the order is that of depthwise_mve.S. */
struct channel_run {
    uint32_t n, c; /* pixels, bytes from one to the next */
    uint32_t m;    /* bits of a float */
    int32_t zero;
};

void put_run(const int32_t *sums, int8_t *y, const struct channel_run *run);

/* The same with a mask, whose bit, as a number, is set where nothing saturates. */
void put_run_masked(const int32_t *sums, uint32_t n, int8_t *y, uint32_t c, uint32_t m, int32_t zero, uint8_t *mask,
                    uint32_t stride, uint32_t bit);

#endif

#endif
#endif
