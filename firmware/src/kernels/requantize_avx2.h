/* SPDX-License-Identifier: Apache-2.0 */
/* Eight outputs at a time, on a host with AVX2: the numbers of requantize_wide(), chip.h. */
#ifndef KERNELS_REQUANTIZE_AVX2_H
#define KERNELS_REQUANTIZE_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "chip.h"

/* multiplier_of() of eight words. */
ALWAYS_INLINE __m256 multipliers_of_eight(__m256i words)
{
    __m256 negative = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_setzero_si256(), words));
    __m256 integers = _mm256_mul_ps(negative, _mm256_set1_ps(0x1p-35f)), floats = _mm256_castsi256_ps(words);
    return _mm256_blendv_ps(floats, integers, floats);
}

/* requantize_wide() of eight sums. */
ALWAYS_INLINE __m256i requantize_eight(__m256i sums, __m256 m, __m256i zero)
{
    __m256 limit = _mm256_set1_ps(2047.0f), product = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), m);
    product = _mm256_max_ps(_mm256_min_ps(product, limit), _mm256_sub_ps(_mm256_setzero_ps(), limit));
    return _mm256_add_epi32(_mm256_cvtps_epi32(product), zero);
}

/* saturate8() of eight; the bytes of the first four are word 0, the others word 4. */
ALWAYS_INLINE __m256i saturate_eight(__m256i wide)
{
    __m256i halves = _mm256_packs_epi32(wide, wide);
    return _mm256_packs_epi16(halves, halves);
}

/* Outputs of eight channels, sums [channel][lane] of lanes <= 8; a lane's are neighbours, lanes c bytes apart. */
ALWAYS_INLINE void requantize_eight_channels(const int32_t *sums, uint32_t lanes, const int32_t *words, int32_t zero,
                                             int8_t *y, uint32_t c)
{
    const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i live = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)lanes), numbers);
    /* four channels of four lanes each, to four lanes of four channels */
    const __m128i turn = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    float m[8];
    __m256i wide[8], bytes[2];
    _mm256_storeu_ps(m, multipliers_of_eight(_mm256_loadu_si256((const __m256i *)(const void *)words)));
    for (uint32_t i = 0; i < 8; i++, sums += lanes) {
        __m256i of_channel = _mm256_maskload_epi32(sums, live);
        wide[i] = requantize_eight(of_channel, _mm256_set1_ps(m[i]), _mm256_set1_epi32(zero));
    }
    for (uint32_t i = 0; i < 2; i++) {
        __m256i first = _mm256_packs_epi32(wide[4 * i], wide[4 * i + 1]);
        __m256i four = _mm256_packs_epi16(first, _mm256_packs_epi32(wide[4 * i + 2], wide[4 * i + 3]));
        bytes[i] = _mm256_shuffle_epi8(four, _mm256_broadcastsi128_si256(turn));
    }
    uint64_t outputs[8]; /* lanes 0, 1, 4, 5, then 2, 3, 6, 7 */
    _mm256_storeu_si256((__m256i *)(void *)outputs, _mm256_unpacklo_epi32(bytes[0], bytes[1]));
    _mm256_storeu_si256((__m256i *)(void *)(outputs + 4), _mm256_unpackhi_epi32(bytes[0], bytes[1]));
    for (uint32_t lane = 0; lane < lanes; lane++, y += c) {
        memcpy(y, &outputs[(lane & 1u) + (lane & 2u) * 2 + (lane & 4u) / 2], sizeof *outputs);
    }
}

#endif
