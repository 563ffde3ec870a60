/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of a plane on a host with AVX2: what the simulator runs. Eight windows beside one another, or four, are a
 * vector. The numbers are those of the portable code: exact int32 sums. */
#ifndef KERNELS_PLANES_AVX2_H
#define KERNELS_PLANES_AVX2_H

#include <immintrin.h>

#include "planes.h"

/* sums[0 .. 8] += taps . windows that begin at places 0 .. 8. */
ALWAYS_INLINE void add_eight_windows(const struct view *v, const int16_t *plane, const int32_t *taps, int32_t *sums)
{
    __m256i acc = _mm256_loadu_si256((const __m256i *)(const void *)sums);
    for (uint32_t ky = 0; ky < v->kh; ky++, plane += v->places) {
        for (uint32_t kx = 0; kx < v->kw; kx++, taps++) {
            __m128i places = _mm_loadu_si128((const __m128i *)(const void *)(plane + kx));
            acc = _mm256_add_epi32(acc, _mm256_mullo_epi32(_mm256_cvtepi16_epi32(places), _mm256_set1_epi32(*taps)));
        }
    }
    _mm256_storeu_si256((__m256i *)(void *)sums, acc);
}

ALWAYS_INLINE void add_four_windows(const struct view *v, const int16_t *plane, const int32_t *taps, int32_t *sums)
{
    __m128i acc = _mm_loadu_si128((const __m128i *)(const void *)sums);
    for (uint32_t ky = 0; ky < v->kh; ky++, plane += v->places) {
        for (uint32_t kx = 0; kx < v->kw; kx++, taps++) {
            __m128i places = _mm_loadl_epi64((const __m128i *)(const void *)(plane + kx));
            acc = _mm_add_epi32(acc, _mm_mullo_epi32(_mm_cvtepi16_epi32(places), _mm_set1_epi32(*taps)));
        }
    }
    _mm_storeu_si128((__m128i *)(void *)sums, acc);
}

/* As many of n windows one place apart as make vectors; returns how many. */
ALWAYS_INLINE uint32_t add_windows_avx2(const struct view *v, const int16_t *plane, const int32_t *taps, int32_t *sums,
                                        uint32_t n)
{
    uint32_t x = 0;
    for (; x + 8 <= n; x += 8) {
        add_eight_windows(v, plane + x, taps, sums + x);
    }
    for (; x + 4 <= n; x += 4) {
        add_four_windows(v, plane + x, taps, sums + x);
    }
    return x;
}

#endif
