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

/* Bytes of eight channels, values [channel][lane] that are saturated: of lanes 0, 1, 4, 5, then of 2, 3, 6, 7. */
ALWAYS_INLINE void turn_eight(const __m256i wide[8], __m256i by_lane[2])
{
    /* four channels of four lanes each, to four lanes of four channels */
    const __m128i turn = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m256i bytes[2];
    for (uint32_t i = 0; i < 2; i++) {
        __m256i first = _mm256_packs_epi32(wide[4 * i], wide[4 * i + 1]);
        __m256i four = _mm256_packs_epi16(first, _mm256_packs_epi32(wide[4 * i + 2], wide[4 * i + 3]));
        bytes[i] = _mm256_shuffle_epi8(four, _mm256_broadcastsi128_si256(turn));
    }
    by_lane[0] = _mm256_unpacklo_epi32(bytes[0], bytes[1]);
    by_lane[1] = _mm256_unpackhi_epi32(bytes[0], bytes[1]);
}

/* -1 for numbers that saturate8() leaves as they are, else 0. */
ALWAYS_INLINE __m256i is_same(__m256i wide)
{
    __m256i least = _mm256_set1_epi32(-128), most = _mm256_set1_epi32(127);
    return _mm256_cmpeq_epi32(wide, _mm256_max_epi32(_mm256_min_epi32(wide, most), least));
}

/* Outputs of eight channels of the first `live` of lanes <= 8, sums [channel][lane]; a lane's are neighbours, lanes c
 * bytes apart. Unless NULL, the masks' bytes, `stride` apart, get a bit for each channel: 1 where it is not saturated. */
ALWAYS_INLINE void requantize_eight_channels(const int32_t *sums, uint32_t lanes, uint32_t live, const int32_t *words,
                                             int32_t zero, int8_t *y, uint32_t c, uint8_t *mask, uint32_t stride)
{
    const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)lanes), numbers);
    float m[8];
    __m256i wide[8], turned[2];
    _mm256_storeu_ps(m, multipliers_of_eight(_mm256_loadu_si256((const __m256i *)(const void *)words)));
    for (uint32_t i = 0; i < 8; i++, sums += lanes) {
        __m256i of_channel = _mm256_maskload_epi32(sums, there);
        wide[i] = requantize_eight(of_channel, _mm256_set1_ps(m[i]), _mm256_set1_epi32(zero));
    }
    uint64_t outputs[8];
    uint32_t bits[2] = {0, 0};
    turn_eight(wide, turned);
    _mm256_storeu_si256((__m256i *)(void *)outputs, turned[0]);
    _mm256_storeu_si256((__m256i *)(void *)(outputs + 4), turned[1]);
    if (mask) {
        for (uint32_t i = 0; i < 8; i++) {
            wide[i] = is_same(wide[i]);
        }
        turn_eight(wide, turned);
        bits[0] = (uint32_t)_mm256_movemask_epi8(turned[0]);
        bits[1] = (uint32_t)_mm256_movemask_epi8(turned[1]);
    }
    for (uint32_t lane = 0; lane < live; lane++, y += c) {
        uint32_t at = (lane & 1u) + (lane & 4u) / 2, high = (lane & 2u) / 2;
        memcpy(y, &outputs[at + 4 * high], sizeof *outputs);
        if (mask) {
            mask[lane * stride] = (uint8_t)(bits[high] >> 8 * at);
        }
    }
}

#endif
