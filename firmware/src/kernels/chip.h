/* SPDX-License-Identifier: Apache-2.0 */
/* What the chip does in one instruction and portable C in several. */
#ifndef KERNELS_CHIP_H
#define KERNELS_CHIP_H

#include <stdint.h>
#include <string.h>

#include "kernels/choices.h"
#include "kernels/numeric.h"

#undef ALWAYS_INLINE /* Zephyr's headers have one */
#define ALWAYS_INLINE __attribute__((always_inline)) static inline

/* A seldom way whose registers would burden the usual one. */
#define NEVER_INLINE __attribute__((noinline)) static

#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)
#define KERNELS_DSP 1
#include <arm_acle.h>
#else
#define KERNELS_DSP 0
#endif

/* Helium, with floats. */
#if KERNELS_DSP && defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
#define KERNELS_MVE 1
#include <arm_mve.h>
#else
#define KERNELS_MVE 0
#endif

/* A core without FPU: a float product in integers takes a fifth of what the compiler's functions take. */
#ifndef KERNELS_NO_FPU
#if (defined(__arm__) && !defined(__ARM_FP)) || (defined(__riscv) && !defined(__riscv_flen))
#define KERNELS_NO_FPU 1
#else
#define KERNELS_NO_FPU 0
#endif
#endif

/* A host with AVX2 whose outputs are rounded in float32. */
#if defined(__AVX2__) && !KERNELS_NO_FPU && !MICROTRAIN_FIXED && !MICROTRAIN_TFLITE
#define KERNELS_AVX2 1
#else
#define KERNELS_AVX2 0
#endif

#if (MICROTRAIN_FIXED || MICROTRAIN_TFLITE) && KERNELS_MVE
#error "Kernels for Helium requantize in float32: convert with --requantize float."
#endif

ALWAYS_INLINE uint32_t round_up4(uint32_t n)
{
    return (n + 3u) & ~3u;
}

ALWAYS_INLINE uint32_t load_u32(const void *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

ALWAYS_INLINE void store_u32(void *p, uint32_t word)
{
    memcpy(p, &word, sizeof word);
}

#if KERNELS_MVE

ALWAYS_INLINE void fill_bytes(void *to, int32_t byte, uint32_t n)
{
    __asm__ volatile("vdup.8 q0, %2\n\twlstp.8 lr, %1, 2f\n1:\n\tvstrb.8 q0, [%0], #16\n\tletp lr, 1b\n2:"
                     : "+r"(to)
                     : "r"(n), "r"(byte)
                     : "s0", "s1", "s2", "s3", "lr", "memory");
}

/* To a place that does not lie in front of `from` within the bytes. */
ALWAYS_INLINE void move_down(void *to, const void *from, uint32_t n)
{
    __asm__ volatile("wlstp.8 lr, %2, 2f\n1:\n\tvldrb.8 q0, [%1], #16\n\tvstrb.8 q0, [%0], #16\n\tletp lr, 1b\n2:"
                     : "+r"(to), "+r"(from)
                     : "r"(n)
                     : "s0", "s1", "s2", "s3", "lr", "memory");
}

#define copy_apart move_down

#else
#define fill_bytes memset
#define move_down memmove
#define copy_apart memcpy
#endif

/* sum / count, half away from zero. */
ALWAYS_INLINE int32_t mean_away(int32_t sum, int32_t count)
{
    return (sum + (sum < 0 ? -(count / 2) : count / 2)) / count;
}

/* Four bits, each as a byte of ones or zeros, the first in the lowest byte: in memory the first of four. */
ALWAYS_INLINE uint32_t bytes_of(uint32_t bits)
{
    return ((bits * 0x00204081u) & 0x01010101u) * 0xffu;
}

/* Two int16 as a word, the first below. gcc 12 takes two instructions for it where the chip has one. */
ALWAYS_INLINE uint32_t pack_halves(int32_t low, int32_t high)
{
#if KERNELS_DSP
    uint32_t word;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(word) : "r"(low), "r"(high));
    return word;
#else
    return ((uint32_t)low & 0xffffu) | (uint32_t)high << 16;
#endif
}

/* The same int16 twice. */
ALWAYS_INLINE uint32_t halves_of(int32_t half)
{
    return ((uint32_t)half & 0xffffu) * 0x10001u;
}

#if KERNELS_DSP

ALWAYS_INLINE int32_t widen_02(uint32_t word)
{
    return (int32_t)__sxtb16((int8x4_t)word);
}

/* gcc 12 does not fold a rotation into SXTB16. */
ALWAYS_INLINE int32_t widen_13(uint32_t word)
{
    int32_t pair;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(word));
    return pair;
}

ALWAYS_INLINE int32_t widen_13_add(int16x2_t shift, uint32_t word)
{
    int32_t pair;
    __asm__("sxtab16 %0, %1, %2, ror #8" : "=r"(pair) : "r"(shift), "r"(word));
    return pair;
}

/* round_s32() in one instruction (FPSCR: round to nearest even). */
ALWAYS_INLINE int32_t round_nearest(float v)
{
    int32_t r;
    __asm__("vcvtr.s32.f32 %0, %1" : "=t"(r) : "t"(v));
    return r;
}

/* rint(v), limited to +-2048: beyond +-255 every output saturates, so this is as good as +-1024. gcc 12 does not
 * find SSAT by itself. */
ALWAYS_INLINE int32_t round_limited(float v)
{
    int32_t r;
    __asm__("ssat %0, #12, %1" : "=r"(r) : "r"(round_nearest(v)));
    return r;
}

ALWAYS_INLINE int32_t saturate8(int32_t v)
{
    int32_t r;
    __asm__("ssat %0, #8, %1" : "=r"(r) : "r"(v));
    return r;
}

#else

ALWAYS_INLINE int32_t round_nearest(float v)
{
    return round_s32(v);
}

ALWAYS_INLINE int32_t round_limited(float v)
{
    return (int32_t)rintf(clampf(v, -1024.0f, 1024.0f));
}

ALWAYS_INLINE int32_t saturate8(int32_t v)
{
    return sat8(v);
}

#endif

#if KERNELS_NO_FPU

/* v / 2^shift, half to even. shift < 32; what is above 32 bits is cut off. */
ALWAYS_INLINE uint32_t shift_even(uint64_t v, uint32_t shift)
{
    uint32_t q = (uint32_t)(v >> shift), low = (uint32_t)v & ((1u << shift) - 1u), half = (1u << shift) >> 1;
    return q + (low > half || (low == half && half && (q & 1u)));
}

/* rint((float)acc * m), limited to +-2047, for a finite m: both roundings of IEEE single precision, in integers. */
static inline int32_t round_product(int32_t acc, float m)
{
    uint32_t bits, a = acc < 0 ? 0u - (uint32_t)acc : (uint32_t)acc;
    memcpy(&bits, &m, sizeof bits);
    int32_t exponent = (int32_t)(bits >> 23 & 255u) - 150;
    if (a == 0 || exponent == -150) {
        return 0; /* less than a half, where m is subnormal */
    }
    uint32_t length = 32u - (uint32_t)__builtin_clz(a);
    if (length > 24) { /* (float)acc */
        a = shift_even(a, length - 24);
        exponent += (int32_t)length - 24;
        length = 24 + (a >> 24);
    }
    uint64_t product = (uint64_t)a * ((bits & 0x7fffffu) | 0x800000u); /* of length + 23 bits, or one more */
    uint32_t excess = length - 1 + ((uint32_t)(product >> (length + 23)) & 1u);
    uint32_t q = shift_even(product, excess); /* 24 bits, or 2^24 */
    exponent += (int32_t)excess;
    if (exponent < -24) {
        return 0;
    }
    uint32_t r = exponent >= 0 ? 2047u : shift_even(q, (uint32_t)-exponent);
    r = r < 2047 ? r : 2047;
    return (acc < 0) != (int)(bits >> 31) ? -(int32_t)r : (int32_t)r;
}

#else

ALWAYS_INLINE int32_t round_product(int32_t acc, float m)
{
    return round_limited((float)acc * m);
}

#endif

/* The float whose bits these are. */
ALWAYS_INLINE float float_of(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

#if KERNELS_MVE
/* v, converted from an integer whatever comes of it: binutils 2.40 cannot assemble a conditional VCVT beside Helium. */
ALWAYS_INLINE float unconditional(float v)
{
    __asm__("" : "+t"(v));
    return v;
}

ALWAYS_INLINE uint32_t bits_of_float(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
#endif

/* multiplier_f32(), without a call. */
ALWAYS_INLINE float multiplier_of(int32_t word)
{
#if KERNELS_MVE
    float m = unconditional((float)-word) * 0x1p-35f;
    return word < 0 ? m : float_of((uint32_t)word);
#else
    return word < 0 ? (float)-word * 0x1p-35f : float_of((uint32_t)word);
#endif
}

#if KERNELS_MVE
/* The same of four. */
ALWAYS_INLINE float32x4_t multipliers_of_four(int32x4_t words)
{
    float32x4_t m = vmulq_n_f32(vcvtq_f32_s32(vnegq_s32(words)), 0x1p-35f);
    return vreinterpretq_f32_s32(vpselq_s32(vreinterpretq_s32_f32(m), words, vcmpltq_n_s32(words, 0)));
}
#endif

#endif
