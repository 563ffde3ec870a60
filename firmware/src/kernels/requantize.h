/* SPDX-License-Identifier: Apache-2.0 */
/* From sums to int8: of one output, and what requantize_armv7em.S has for many. */
#ifndef KERNELS_REQUANTIZE_H
#define KERNELS_REQUANTIZE_H

#include "chip.h"
#include "kernels/conv2d.h"

struct runs; /* planes.h */

/* What a convolution's sums of one channel are multiplied with. */
struct multiplier {
    int32_t word;
#if MICROTRAIN_TFLITE
    int32_t fine; /* 0: none */
#endif
};

ALWAYS_INLINE struct multiplier multiplier_at(const struct conv2d *p, uint32_t ch)
{
    struct multiplier m = {.word = p->m[ch]};
#if MICROTRAIN_TFLITE
    m.fine = p->fine ? p->fine[ch] : 0;
#endif
    return m;
}

/* a * b / 2^32, half up. */
ALWAYS_INLINE int32_t upper_half(int32_t a, int32_t b)
{
#if KERNELS_DSP
    int32_t r;
    __asm__("smmulr %0, %1, %2" : "=r"(r) : "r"(a), "r"(b));
    return r;
#else
    return (int32_t)(((int64_t)a * b + ((int64_t)1 << 31)) >> 32);
#endif
}

/* Both roundings of a multiplier with a fine one: half up, then half away from zero, and what is added in between. */
struct twice {
    int32_t fine;
    uint32_t shift;
    int32_t offset; /* half a unit, and the zero point */
};

/* The second rounding. */
ALWAYS_INLINE int32_t shift_away(int32_t t, struct twice m)
{
    return (t + (t >> 31) + m.offset) >> m.shift;
}

#if MICROTRAIN_TFLITE

/* acc * fine / 2^31, half up; acc is limited to what 31 bits hold. */
ALWAYS_INLINE int32_t doubling_high(int32_t acc, int32_t fine)
{
#if KERNELS_DSP
    int32_t r;
    __asm__("qadd %0, %1, %1\n\tsmmulr %0, %0, %2" : "=&r"(r) : "r"(acc), "r"(fine));
    return r;
#else
    int64_t twice = 2 * (int64_t)acc;
    twice = twice > INT32_MAX ? INT32_MAX : twice < INT32_MIN ? INT32_MIN : twice;
    return upper_half((int32_t)twice, fine);
#endif
}

ALWAYS_INLINE struct twice twice_of(float m, int32_t fine, int32_t zero)
{
    uint32_t bits, shift;
    memcpy(&bits, &m, sizeof bits);
    shift = 126u - (bits >> 23) - (fine < 1 << 30);
    return (struct twice){fine, shift, (2 * zero + 1) * (1 << (shift - 1))};
}

/* The output, before saturation. */
ALWAYS_INLINE int32_t round_twice(int32_t acc, struct twice m)
{
    return shift_away(doubling_high(acc, m.fine), m);
}

#endif

/* The requantized sum, zero point added, before saturation; limited far beyond +-255, where every output is saturated
 * whatever the zero point. m is finite, so the product is a number. */
ALWAYS_INLINE int32_t requantize_wide(int32_t acc, struct multiplier m, int32_t zero)
{
#if MICROTRAIN_TFLITE
    if (m.fine) {
        return round_twice(acc, twice_of(float_of((uint32_t)m.word), m.fine, zero));
    }
#endif
#if KERNELS_NO_FPU || MICROTRAIN_FIXED
    if (m.word < 0) {
        int64_t offset = (int64_t)((uint64_t)(int64_t)multiplier_offset(zero) << 32);
        return (int32_t)((offset - (int64_t)acc * m.word) >> (32 + MULTIPLIER_FRACTION));
    }
#endif
    return round_product(acc, multiplier_of(m.word)) + zero;
}

/* True where Armv7E-M's assembly makes outputs while their sums are in registers. */
ALWAYS_INLINE int can_put(const struct conv2d *p)
{
#if MICROTRAIN_TFLITE
    return KERNELS_DSP && p->fine;
#else
    (void)p;
    return KERNELS_DSP;
#endif
}

#if MICROTRAIN_TFLITE
#define TELL_FINE(put, p) ((put).fine = (int32_t)((intptr_t)(p)->fine - (intptr_t)(p)->m))
#else
#define TELL_FINE(put, p) ((void)0)
#endif

/* What it wants to know of a zero point. */
ALWAYS_INLINE int32_t put_offset(int32_t zero)
{
    return MICROTRAIN_TFLITE ? 2 * zero + 1 : multiplier_offset(zero);
}

#if KERNELS_DSP && MICROTRAIN_TFLITE

/* Outputs of one channel; the order is that of twice_armv7em.S. */
struct run_twice {
    struct twice m;
    uint32_t c;
    uint8_t *mask; /* of the masked one, and from a pixel to the next */
    uint32_t stride, bit;
};

/* y[i * c] = output of sums[i], n not 0, and with a mask, whose bit is set where nothing saturates. */
void put_run_twice(const int32_t *sums, uint32_t n, int8_t *y, const struct run_twice *at);
void put_run_twice_masked(const int32_t *sums, uint32_t n, int8_t *y, const struct run_twice *at);

#endif

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
