/* SPDX-License-Identifier: Apache-2.0 */
/* Sound to cepstral coefficients. Contract: kernels/mfcc.h. */
#include "kernels/mfcc.h"

#include "chip.h"

enum { DCT_SHIFT = 15, GAIN_SHIFT = 18 };

static int16_t *levels_of(const struct log_mel *front, void *memory)
{
    return (int16_t *)(void *)((uint8_t *)memory + log_mel_bytes(front));
}

uint32_t mfcc_bytes(const struct log_mel *front)
{
    return log_mel_bytes(front) + ((2u * front->bands + 7u) & ~7u);
}

#if KERNELS_DSP
/* Two products more. */
ALWAYS_INLINE int64_t two(const int16_t *a, const int16_t *b, int64_t sum)
{
    return __smlald((int16x2_t)load_u32(a), (int16x2_t)load_u32(b), sum);
}
#endif

/* Sum of n products. */
ALWAYS_INLINE int64_t dot(const int16_t *a, const int16_t *b, uint32_t n)
{
    int64_t sum = 0;
#if KERNELS_DSP
    for (; n >= 8; n -= 8, a += 8, b += 8) {
        sum = two(a, b, two(a + 2, b + 2, two(a + 4, b + 4, two(a + 6, b + 6, sum))));
    }
    for (; n >= 2; n -= 2, a += 2, b += 2) {
        sum = two(a, b, sum);
    }
#endif
    for (; n; n--) {
        sum += *a++ * *b++;
    }
    return sum;
}

uint32_t mfcc_row_u8(const struct log_mel *front, const struct mfcc *p, void *memory, uint8_t *row)
{
    int16_t *levels = levels_of(front, memory);
    uint32_t bands = front->bands;
    if (!log_mel_levels_s16(front, memory, p->mid, levels)) {
        return 0;
    }
    const int16_t *dct = p->dct;
    for (uint32_t c = 0; c < p->coefficients; c++, dct += bands) {
        int64_t found = (dot(levels, dct, bands) >> DCT_SHIFT) * front->gain;
        int64_t value = ((found + (1 << (GAIN_SHIFT - 1))) >> GAIN_SHIFT) + p->zero;
        row[c] = value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
    }
    return 1;
}
