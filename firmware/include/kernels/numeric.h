/* SPDX-License-Identifier: Apache-2.0 */
/* The numeric contract: every rounding, saturation and random number of the engine.
 *
 * One contract, three implementations that agree bit for bit: tools/convert/reference/kernels.py (NumPy),
 * this portable C, and whatever faster path a chip gets. All float arithmetic is IEEE single
 * precision, one rounding an operation, in the order written here (-ffp-contract=off).
 *
 *   forward    y = sat8((int)rint((float)acc * m[c]) + zero)     product rounded to float before rint
 *   error      real gradient of a stored unit = scale[c] * q     int8 q, one float scale per channel
 *   update     w' = sat(w - ((q + (r & 0xFFFF)) >> 16)), q = sat(rint(step * 2^16))
 *
 * Training may overflow float32; the bits are the same on every machine even then. A float becomes an integer as Arm's
 * VCVTR makes it one: rint, saturating, 0 for what is no number (round_s32). Comparisons never choose what is no number:
 * a peak or a largest scale is that of the numbers. What is no number is kept in trainables, logits and losses as
 * 0x7fc00000, whatever made it (kept_f32).
 */
#ifndef KERNELS_NUMERIC_H
#define KERNELS_NUMERIC_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* Back-propagated gradient of a tensor [pixels][c] with respect to its stored integers.
 * gradient[p][ch] = scale[ch] * q[p][ch]; a channel without gradient has scale 0 and all q 0.
 * The scale comes from the values themselves (max |q| of a live channel is 127), never from the
 * schedule, so fused, tiled and in-place plans give the same bytes. */
struct error_s8 {
    int8_t *q;    /* [pixels][c] */
    float *scale; /* [c], real gradient per unit of q, >= 0 */
};

/* What stands between a gradient of a stored tensor and the gradient of the sum it was made from.
 * Multiplies by the clamp mask and by d(stored)/d(sum). */
struct clamp {
    const uint8_t *mask; /* [pixels][(c + 7) / 8] bits, bit ch % 8 of byte ch / 8, 1 = not saturated;
                            NULL: nothing saturates */
    const int32_t *m;    /* [c] multiplier words of the op that made the tensor; NULL: 1 */
};

/* Rate and randomness of one training step. */
struct sgd {
    float lr_weight; /* learning rate of int8 weights, real-valued units (QAS is in qas_w) */
    float lr_bias;   /* of int32 biases */
    float lr_head;   /* of the float head */
    uint32_t seed;
    uint32_t step; /* index of this step, from 0 */
};

/* Bytes of mask per pixel of c channels. */
static inline uint32_t mask_stride(uint32_t c)
{
    return (c + 7u) / 8u;
}

static inline int32_t sat8(int32_t v)
{
    return v > 127 ? 127 : v < -128 ? -128 : v;
}

static inline float clampf(float v, float low, float high)
{
    return v < low ? low : v > high ? high : v;
}

/* rint(v) as an int32, saturating; 0 for what is no number. */
static inline int32_t round_s32(float v)
{
    if (v >= 2147483648.0f) {
        return INT32_MAX;
    }
    return v >= -2147483648.0f ? (int32_t)rintf(v) : v < 0.0f ? INT32_MIN : 0;
}

/* v, and what is no number in the one form in which it is kept. A Cortex-M makes no other: its FPU is in default NaN mode
 * (board_init). */
static inline float kept_f32(float v)
{
#if defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M' && !defined(MICROTRAIN_LIBRARY)
    return v;
#else
    return v == v ? v : NAN;
#endif
}

/* Requantization multipliers m[c], finite and > 0, stand in tables of words: the float's bits, or, negative, an integer
 * -M that does the same. Conversion writes it where it has proven for every int32 sum (tools/convert/reference/proofs.py)
 *
 *   rint((float)acc * m) + zero = (acc * M + ((int64_t)multiplier_offset(zero) << 32)) >> 35
 *
 * behind saturation to int8, and by what saturates. M is m * 2^35 but for less than float32 resolves. */
enum { MULTIPLIER_FRACTION = 3 };

/* m. */
float multiplier_f32(int32_t word);

/* A zero point and a half, in units of 1 / 8. */
static inline int32_t multiplier_offset(int32_t zero)
{
    return zero * (1 << MULTIPLIER_FRACTION) + (1 << MULTIPLIER_FRACTION) / 2;
}

/* A counter-based hash (the "lowbias32" finaliser of C. Wellons): a pure function of its input. */
static inline uint32_t hash32(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

/* Key of all random numbers of one tensor in one step. */
static inline uint32_t random_key(uint32_t seed, uint32_t step, uint32_t tensor_id)
{
    return hash32(hash32(hash32(seed) + step) + tensor_id);
}

/* 16 random bits of element `index` of the stored tensor; two neighbours share one hash. */
static inline uint32_t random16(uint32_t key, uint32_t index)
{
    uint32_t word = hash32(key + (index >> 1) * 0x9e3779b9u);
    return (index & 1u) ? word >> 16 : word & 0xffffu;
}

/* sat(rint(v)) to the range that leaves room for the 16 random bits: +-(2^31 - 2^16). 0 for what is no number. */
static inline int32_t round_step(float v)
{
    return (int32_t)rintf(clampf(v == v ? v : 0.0f, -2147418112.0f, 2147418112.0f));
}

/* exp(x) in float32, own polynomial: the same bits on every machine. x <= 0 expected; below -87
 * returns 0. */
float exp_f32(float x);

/* Natural logarithm of a positive, normal float32, own polynomial. */
float log_f32(float x);

#endif
