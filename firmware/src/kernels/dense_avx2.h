/* SPDX-License-Identifier: Apache-2.0 */
/* Dense micro-kernels of a host with AVX2: what the simulator runs. A pair of values of all lanes is one vector, and a
 * multiply-add of pairs takes one instruction. The numbers are those of the portable code: exact int32 sums. */
#ifndef KERNELS_DENSE_AVX2_H
#define KERNELS_DENSE_AVX2_H

#include <immintrin.h>

#include "dense.h"

enum {
    ROWS = 8,   /* that share the loads of a tile */
    WIDE = 256, /* values of a row that are widened at once; even */
};

typedef uint32_t __attribute__((may_alias)) pair_bits;

/* `lanes` words, 4 or 6, and zeros behind them. A literal; no masks, which take AMD's cores long to store by. */
ALWAYS_INLINE __m256i load_lanes(const void *from, uint32_t lanes)
{
    const int32_t *words = from;
    __m128i first = _mm_loadu_si128((const __m128i *)(const void *)words), rest = _mm_setzero_si128();
    if (lanes > FEW_LANES) {
        rest = _mm_loadl_epi64((const __m128i *)(const void *)(words + FEW_LANES));
    }
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first), rest, 1);
}

ALWAYS_INLINE void store_lanes(int32_t *to, __m256i words, uint32_t lanes)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(words));
    if (lanes > FEW_LANES) {
        _mm_storel_epi64((__m128i *)(void *)(to + FEW_LANES), _mm256_extracti128_si256(words, 1));
    }
}

/* *acc += pairs . pair, which all lanes have. gcc 12 moves the intrinsic's sums about, and loads the pair apart. */
ALWAYS_INLINE void add_pairs(__m256i *acc, __m256i pairs, const int16_t *pair)
{
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    const pair_bits *bits = (const pair_bits *)(const void *)pair;
    __asm__("vpdpwssd %2%{1to8%}, %1, %0" : "+v"(*acc) : "v"(pairs), "m"(*bits));
#else
    __m256i all = _mm256_set1_epi32((int)load_u32(pair));
    *acc = _mm256_add_epi32(*acc, _mm256_madd_epi16(pairs, all));
#endif
}

/* Pairs of a row in place k / 2, a zero behind an odd one. */
ALWAYS_INLINE void widen_row(const int8_t *row, uint32_t n, int16_t *wide)
{
    uint32_t k = 0;
    for (; k + 16 <= n; k += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(row + k));
        _mm256_storeu_si256((__m256i *)(void *)(wide + k), _mm256_cvtepi8_epi16(bytes));
    }
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    if (k < n) {
        __m128i bytes = _mm_maskz_loadu_epi8((__mmask16)((1u << (n - k)) - 1u), row + k);
        _mm256_storeu_si256((__m256i *)(void *)(wide + k), _mm256_cvtepi8_epi16(bytes));
    }
#else
    for (; k < n; k++) {
        wide[k] = row[k];
    }
    wide[n] = 0;
#endif
}

/* sums[row][lane] += tile . row, of n <= WIDE values of `count` rows `step` apart; lanes and count are literals. */
ALWAYS_INLINE void dot_block(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t step, uint32_t n,
                             int32_t *sums, uint32_t count)
{
    int16_t wide[ROWS][WIDE + 2];
    __m256i acc[ROWS];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < count; i++) {
        widen_row(rows + i * step, n, wide[i]);
        acc[i] = load_lanes(sums + i * lanes, lanes);
    }
    for (uint32_t k = 0; k < n; k += 2) {
        __m256i pairs = load_lanes(tile + k * lanes, lanes);
#pragma GCC unroll 8
        for (uint32_t i = 0; i < count; i++) {
            add_pairs(&acc[i], pairs, &wide[i][k]);
        }
    }
#pragma GCC unroll 8
    for (uint32_t i = 0; i < count; i++) {
        store_lanes(sums + i * lanes, acc[i], lanes);
    }
}

/* sums[row][lane] += tile . row; lanes is a literal. */
ALWAYS_INLINE void dot_avx2(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t n, uint32_t count,
                            int32_t *sums)
{
    for (uint32_t k = 0, part; k < n; k += part, tile += part * lanes) {
        part = n - k < WIDE ? n - k : (uint32_t)WIDE;
        uint32_t row = 0;
        for (; row + ROWS <= count; row += ROWS) {
            dot_block(tile, lanes, rows + row * n + k, n, part, sums + row * lanes, ROWS);
        }
        for (; row < count; row++) {
            dot_block(tile, lanes, rows + row * n + k, n, part, sums + row * lanes, 1);
        }
    }
}

/* Whole sixteens of a row of n values, less zero, as pairs that lie `lanes` pairs apart; returns how many values. */
ALWAYS_INLINE uint32_t pack_sixteens(int16_t *tile, uint32_t lanes, const int8_t *row, uint32_t n, int32_t zero)
{
    __m256i minus = _mm256_set1_epi16((int16_t)zero);
    uint32_t k = 0;
    for (; k + 16 <= n; k += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(row + k));
        uint32_t pairs[8];
        _mm256_storeu_si256((__m256i *)(void *)pairs, _mm256_sub_epi16(_mm256_cvtepi8_epi16(bytes), minus));
        for (uint32_t i = 0; i < 8; i++, tile += 2 * lanes) {
            store_u32(tile, pairs[i]);
        }
    }
    return k;
}

/* LANES neighbouring bytes times r, as int16. */
ALWAYS_INLINE __m128i six_times(const int8_t *row, int16_t r)
{
    uint16_t last;
    memcpy(&last, row + 4, sizeof last);
    __m128i bytes = _mm_insert_epi32(_mm_cvtsi32_si128((int)load_u32(row)), last, 1);
    return _mm_mullo_epi16(_mm_cvtepi8_epi16(bytes), _mm_set1_epi16(r));
}

/* Values 0 .. n of LANES neighbouring columns: value k of lane i is r[k] * rows[k * step + i]; r NULL: 1. */
ALWAYS_INLINE void columns_avx2(int16_t *tile, const int8_t *rows, uint32_t step, const int16_t *r, uint32_t n)
{
    for (uint32_t k = 0; k < n; k += 2, rows += 2 * step, tile += 2 * LANES) {
        __m128i even = six_times(rows, r ? r[k] : 1), odd = _mm_setzero_si128();
        if (k + 1 < n) {
            odd = six_times(rows + step, r ? r[k + 1] : 1);
        }
        _mm_storeu_si128((__m128i *)(void *)tile, _mm_unpacklo_epi16(even, odd));
        _mm_storel_epi64((__m128i *)(void *)(tile + 8), _mm_unpackhi_epi16(even, odd));
    }
}

#endif
