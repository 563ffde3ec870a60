/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of int16 numbers with a fixed point, bit for bit those that TensorFlow Lite's integer kernels have from gemmlowp
 * (fixedpoint/fixedpoint.h). A number with `bits` bits in front of its point is in units of 2^(bits - 15). */
#ifndef KERNELS_FIXED_POINT_H
#define KERNELS_FIXED_POINT_H

#include "kernels/numeric.h"

ALWAYS_INLINE int32_t saturate16(int32_t v)
{
    return v > INT16_MAX ? INT16_MAX : v < INT16_MIN ? INT16_MIN : v;
}

/* a * b / 2^15, half up. */
ALWAYS_INLINE int32_t product16(int32_t a, int32_t b)
{
    return (a * b + (1 << 14)) >> 15;
}

/* v / 2^shift, half away from zero. */
ALWAYS_INLINE int32_t divide_away(int32_t v, uint32_t shift)
{
    return shift ? (v + (v >> 31) + (1 << (shift - 1))) >> shift : v;
}

/* e^a of a <= 0 with `bits` bits in front of its point, 0 to 7, in units of 2^-15: a quarter's part by a series around
 * -1/8, times e^(-2^i) of each bit of the rest. */
static inline int32_t exponential16(int32_t a, uint32_t bits)
{
    static const uint16_t BY[] = {25520, 19875, 12055, 4435, 600, 11, 0}; /* of 2^-2 to 2^4 */
    const int32_t at_eighth = 28918, third = 10923;
    const uint32_t quarter = 13 - bits;
    if (a == 0) {
        return INT16_MAX;
    }
    if (bits > 5 && a < -(1 << (20 - bits))) {
        return 0;
    }
    const int32_t part = (a & ((1 << quarter) - 1)) - (1 << quarter), rest = part - a;
    const int32_t x = part * (1 << bits) + (1 << 12), x2 = product16(x, x);
    const int32_t cubes = divide_away(product16(x2, x2), 2) + product16(x2, x);
    const int32_t series = x + divide_away(product16(cubes, third) + x2, 1);
    int32_t r = saturate16(at_eighth + product16(at_eighth, series));
    for (uint32_t i = 0; i < 7 && i < bits + 2; i++) {
        if (rest >> (quarter + i) & 1) {
            r = product16(r, BY[i]);
        }
    }
    return r;
}

/* 2 / (1 + a) of a from 0 to 1, in units of 2^-13; a in units of 2^-15. By Newton and Raphson. */
static inline int32_t reciprocal16(int32_t a)
{
    const int32_t half = (a + (1 << 15)) >> 1;
    int32_t x = 23130 + product16(half, -15420);
    for (uint32_t i = 0; i < 3; i++) {
        x += 4 * product16(x, (1 << 13) - product16(half, x));
    }
    return x;
}

/* 1 / (1 + e^-a) of a with three bits in front of its point, in units of 2^-15. */
static inline int32_t logistic16(int32_t a)
{
    const int32_t of_size = saturate16(2 * reciprocal16(exponential16(a < 0 ? a : -a, 3)));
    return a == 0 ? 1 << 14 : a > 0 ? of_size : INT16_MAX - of_size;
}

/* The hyperbolic tangent of a with `bits` bits in front of its point, 0 to 6, in units of 2^-15. */
static inline int32_t tangent16(int32_t a, uint32_t bits)
{
    const int32_t of_size = saturate16(4 * (reciprocal16(exponential16(a < 0 ? a : -a, bits + 1)) - (1 << 13)));
    return a == 0 ? 0 : a > 0 ? of_size : -of_size;
}

#endif
