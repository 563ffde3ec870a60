/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise windows of a host with AVX2: what the simulator runs. The values of four neighbouring channels at a place,
 * paired with those at the next one, are half a vector: one multiply-add of pairs makes two taps of two outputs of
 * each channel. The numbers are those of the portable code: exact int32 sums. */
#ifndef KERNELS_DWCONV2D_AVX2_H
#define KERNELS_DWCONV2D_AVX2_H

#include "requantize_avx2.h"

enum {
    PAIR_PLACES = 640, /* of a plane that is paired up; those of 7x7 windows have 400 at most */
    PAIR_TAPS = 64,    /* pairs of taps of a window that is summed so */
};

/* Four channels of a tile as vectors, [places] and [taps]. */
struct paired {
    const struct view *v;
    const struct tile *tile;
    __m128i places[PAIR_PLACES], taps[PAIR_TAPS];
};

static uint32_t tap_pairs(const struct view *v)
{
    return (v->kw + 1) / 2;
}

/* True where put_paired() makes the group's outputs. */
static int is_paired(const struct view *v, const struct group *group)
{
    int four = group->neighbours && group->channel[0] % PLANES == 0;
    return four && v->plane <= PAIR_PLACES && v->kh * tap_pairs(v) <= PAIR_TAPS;
}

/* Four bytes as int16, in the lower half. */
ALWAYS_INLINE __m128i widen_four(uint32_t bytes)
{
    return _mm_cvtepi8_epi16(_mm_cvtsi32_si128((int)bytes));
}

/* What the tile sees of the group's channels, zero point taken out. */
static void pair_places(struct paired *at, const struct group *group)
{
    const struct view *v = at->v;
    struct overlap rows = at->tile->rows, columns = at->tile->columns;
    __m128i zero = _mm_set1_epi16((int16_t)v->zero);
    memset(at->places, 0, v->plane * sizeof *at->places);
    for (int32_t i = 0; columns.n && i < rows.n; i++) {
        const int8_t *from = v->image + (uint32_t)((rows.first + i) * v->image_w + columns.first) * v->c;
        __m128i *to = at->places + (rows.at + i) * (int32_t)v->places + columns.at, last = _mm_setzero_si128();
        from += group->channel[0];
        for (int32_t j = 0; j < columns.n; j++, from += v->c, to++) {
            __m128i value = _mm_sub_epi16(widen_four(load_u32(from)), zero);
            if (j || columns.at) {
                to[-1] = _mm_unpacklo_epi16(last, value);
            }
            last = value;
        }
        to[-1] = _mm_unpacklo_epi16(last, _mm_setzero_si128());
    }
}

/* The weights of the group's channels; beside the last tap of an odd row stands a zero. */
static void pair_taps(struct paired *at, const struct group *group)
{
    __m128i *to = at->taps;
    for (uint32_t y = 0; y < at->v->kh; y++) {
        for (uint32_t x = 0; x < at->v->kw; x += 2) {
            int16_t pairs[2 * PLANES];
            for (uint32_t lane = 0; lane < PLANES; lane++) {
                const int8_t *w = group->w[lane] + y * at->v->kw + x;
                pairs[2 * lane] = w[0];
                pairs[2 * lane + 1] = x + 1 < at->v->kw ? w[1] : 0;
            }
            *to++ = _mm_loadu_si128((const __m128i *)(const void *)pairs);
        }
    }
}

/* sums[0], sums[1] += two windows each, the first of which begins at `place`, `stride` places apart. */
ALWAYS_INLINE void add_windows(const struct view *v, const __m128i *place, const __m128i *tap, uint32_t stride,
                               __m256i sums[2])
{
    for (uint32_t y = 0; y < v->kh; y++, place += v->places) {
        const __m128i *from = place;
        for (uint32_t pair = 0; pair < tap_pairs(v); pair++, from += 2, tap++) {
            __m256i taps = _mm256_broadcastsi128_si256(*tap);
            for (uint32_t i = 0; i < 2; i++) {
                const __m128i *first = from + 2 * i * stride;
                __m256i values = _mm256_set_m128i(first[stride], first[0]);
                sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(values, taps));
            }
        }
    }
}

/* A bit for each of eight numbers that saturate_eight(), whose result q is, leaves as they are. */
ALWAYS_INLINE uint32_t same_bits(__m256i wide, __m256i q)
{
    __m256i bytes = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0));
    __m256i same = _mm256_cmpeq_epi32(wide, _mm256_cvtepi8_epi32(_mm256_castsi256_si128(bytes)));
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(same));
}

/* The group's outputs in the tile, and their bits, until then 0, in the mask. */
static void put_paired(const struct front *front, const struct group *group, const int32_t *b)
{
    const struct conv2d *p = front->p;
    const struct view *v = front->v;
    const struct tile *tile = front->tile;
    struct paired at; /* not cleared first */
    at.v = v;
    at.tile = tile;
    pair_places(&at, group);
    pair_taps(&at, group);
    uint32_t ch = group->channel[0], c = p->c_out, stride = mask_stride(c), low = ch & 7u;
    __m256i bias = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(b + ch)));
    __m256i words = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(p->m + ch)));
    __m256 m = multipliers_of_eight(words);
    __m256i zero = _mm256_set1_epi32(p->y_zero);
    for (uint32_t y = 0; y < tile->h; y++) {
        const __m128i *place = at.places + y * v->stride_h * v->places + v->shift;
        int8_t *out = front->out.y + y * p->w_out * c + ch;
        uint8_t *mask = front->out.mask ? front->out.mask + y * p->w_out * stride + ch / 8 : NULL;
        for (uint32_t x = 0; x < tile->w; x += 4, place += 4 * v->stride_w) {
            __m256i sums[2] = {bias, bias};
            if (v->stride_w == 1) {
                add_windows(v, place, at.taps, 1, sums);
            } else {
                add_windows(v, place, at.taps, v->stride_w, sums);
            }
            for (uint32_t i = 0; i < 2; i++) {
                __m256i wide = requantize_eight(sums[i], m, zero), q = saturate_eight(wide);
                uint32_t bits = same_bits(wide, q), left = tile->w - x;
                for (uint32_t k = 0; k < 2 && 2 * i + k < left; k++, out += c) {
                    uint32_t bytes = (uint32_t)(k ? _mm256_extract_epi32(q, 4) : _mm256_extract_epi32(q, 0));
                    memcpy(out, &bytes, sizeof bytes);
                    if (mask) {
                        *mask = (uint8_t)(*mask | (bits >> 4 * k & 15u) << low);
                        mask += stride;
                    }
                }
            }
        }
    }
}

#endif
