/* Panels and the one micro-kernel under dense forward, bwd_x and bwd_w.
 *
 * A panel is a row of int16 values, 4-byte aligned, whose full groups of four lie in the order in which the
 * micro-kernel reads them; the n % 4 values behind the last full group lie in natural order. Against a panel stands a
 * plain int8 row, of any alignment. Only the packers differ between the three products:
 *
 *   forward  panel: x - x_zero of a pixel          row: weights of an output channel
 *   bwd_x    panel: r * w of an input channel      row: errors of a pixel
 *   bwd_w    panel: errors of an output channel    row: saved inputs of a channel over the pixels
 *
 * With Armv7E-M's DSP extension, SXTB16 widens bytes 0, 2 and bytes 1, 3 of a word, so a group is stored 0 2 1 3 and
 * SMLAD does two multiply-accumulates an instruction. Sums are int32 either way: the same bits.
 */
#ifndef KERNELS_DOT_H
#define KERNELS_DOT_H

#include <stdint.h>
#include <string.h>

#include "kernels/numeric.h"

#define ALWAYS_INLINE __attribute__((always_inline)) static inline

#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)
#define KERNELS_DSP 1
#include <arm_acle.h>
enum { PANEL_1 = 2, PANEL_2 = 1 }; /* places of the second and third value of a group of four */
#else
#define KERNELS_DSP 0
enum { PANEL_1 = 1, PANEL_2 = 2 };
#endif

ALWAYS_INLINE uint32_t round_up4(uint32_t n)
{
    return (n + 3u) & ~3u;
}

/* int16 places of a panel of n values, such that the next one is 4-byte aligned. */
ALWAYS_INLINE uint32_t panel_size(uint32_t n)
{
    return (n + 1u) & ~1u;
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

/* rint to int32 in one instruction, saturating (FPSCR: round to nearest even). */
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

ALWAYS_INLINE int32_t round_limited(float v)
{
    return (int32_t)rintf(clampf(v, -1024.0f, 1024.0f));
}

ALWAYS_INLINE int32_t saturate8(int32_t v)
{
    return sat8(v);
}

#endif

/* requantize(), as fast as the chip can. */
ALWAYS_INLINE int32_t requantize_wide(int32_t acc, float m)
{
    return round_limited((float)acc * m);
}

/* panel[k] = bytes[k] - zero. The bytes may be the last n of the panel's 2 * n: a value is read before its place is
 * written. */
ALWAYS_INLINE void panel_expand(int16_t *panel, const int8_t *bytes, int32_t zero, uint32_t n)
{
    const int8_t *end = bytes + n;
#if KERNELS_DSP
    const int16x2_t shift = (int16x2_t)(((uint32_t)-zero & 0xffffu) * 0x10001u);
    for (const int8_t *stop = bytes + (n & ~3u); bytes != stop; bytes += 4, panel += 4) {
        uint32_t word = load_u32(bytes);
        store_u32(panel, (uint32_t)__sadd16(shift, widen_02(word)));
        store_u32(panel + 2, (uint32_t)__sadd16(shift, widen_13(word)));
    }
#endif
    for (; bytes != end; bytes++) {
        *panel++ = (int16_t)(*bytes - zero);
    }
}

/* sums[2 * r + i] += panel i . row r, for `count` rows of n bytes, one behind the other. a1 may be a0. */
void dot_rows(const int16_t *a0, const int16_t *a1, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums);

#endif
