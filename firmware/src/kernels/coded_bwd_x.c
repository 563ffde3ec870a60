/* SPDX-License-Identifier: Apache-2.0 */
/* Dense convolution with weights in codes: gradient to the input. Contract: kernels/coded.h. It is conv2d_bwd_x.c but for
 * where a tile of weights comes from. */
#include "kernels/coded.h"

#define CODED
#include "conv2d_bwd_x.c"

/* Output channels whose weights are decoded at once: whole groups of a tile. */
enum { CHUNK = 128 };

uint32_t cconv2d_bwd_x_scratch(const struct conv2d *p)
{
    uint32_t lanes = most_lanes(p->c_in, p->c_out), chunk = p->c_out < CHUNK ? p->c_out : (uint32_t)CHUNK;
    uint32_t tables = tile_bytes(p->c_out, lanes) + round_up4(2u * p->c_out);
    return 4 * lanes * strip_pixels(p) + tables + round_up4(lanes * chunk);
}

/* Pair i of a row. */
ALWAYS_INLINE const uint16_t *pair_of(const uint16_t *pairs, const uint8_t *row, uint32_t i)
{
    return &pairs[(uint32_t)row[i] << 2 | (i ? (uint32_t)row[i - 1] >> 6 : 0)];
}

/* to[lane] = weight first + lane of a row. */
ALWAYS_INLINE void decode_columns(const uint16_t *pairs, const uint8_t *row, uint32_t first, uint32_t lanes, int8_t *to)
{
    uint32_t i = first / 2;
    if (first & 1u) {
        *to++ = (int8_t)(*pair_of(pairs, row, i++) >> 8);
        lanes--;
    }
    for (; lanes >= 2; lanes -= 2, to += 2) {
        memcpy(to, pair_of(pairs, row, i++), 2);
    }
    if (lanes) {
        *to = (int8_t)(*pair_of(pairs, row, i) & 0xffu);
    }
}

/* Columns of output channels o .. o + n, [n][live], of a tap. */
static void decode_chunk(const struct columns *col, uint32_t tap, uint32_t o, uint32_t n)
{
    uint32_t length = (taps_of(col->p) * col->count + 1) / 2, first = tap * col->count + col->at.first;
    const uint16_t *pairs = col->codes->pairs;
    const uint8_t *row = col->codes->codes + o * length;
    int8_t *to = col->decoded;
    if (col->at.live == LANES && first && !(first & 1u)) { /* the usual case */
        for (row += first / 2 - 1; n; n--, row += length, to += LANES) {
            uint32_t word = load_u32(row); /* a code and the state in front of it are ten bits of it */
            memcpy(to, &pairs[(word >> 6) & 1023u], 2);
            memcpy(to + 2, &pairs[(word >> 14) & 1023u], 2);
            memcpy(to + 4, &pairs[word >> 22], 2);
        }
    }
    for (; n; n--, row += length, to += col->at.live) {
        decode_columns(pairs, row, first, col->at.live, to);
    }
}

/* The tile of one tap, chunk by chunk. A row of a tile begins with the group that is not full (Armv7E-M), or ends with
 * it: so that chunk comes first or last. With Helium lanes follow one another. */
static void pack_tap(const struct columns *col, uint32_t tap)
{
    uint32_t c = col->p->c_out, lanes = col->at.lanes;
#if KERNELS_MVE
    for (uint32_t o = 0; o < c; o++) {
        decode_chunk(col, tap, o, 1);
        for (uint32_t lane = 0; lane < col->at.live; lane++) {
            col->tile[panel_place(c, lanes, lane, o)] = (int16_t)(col->r[o] * col->decoded[lane]);
        }
    }
#else
    int16_t *tile = col->tile;
    for (uint32_t o = 0, n; o < c; o += n) {
        n = KERNELS_DSP && o == 0 && (c & 3u) ? c & 3u : c - o < CHUNK ? c - o : (uint32_t)CHUNK;
        decode_chunk(col, tap, o, n);
        pack_columns(tile, &col->at, col->decoded, col->at.live, col->r + o, n);
        tile += round_up4(n) * lanes;
    }
#endif
}

void cconv2d_bwd_x_s8(const struct conv2d *p, const struct coded_weights *w, const struct error_s8 *ey,
                      const struct clamp *clamp, const struct error_s8 *ex, void *scratch PACED)
{
    uint32_t lanes = most_lanes(p->c_in, p->c_out);
    struct columns col = {.p = p, .codes = w, .ey = ey->q, .sums = scratch, .alike = are_alike(p, ey->q)};
    int16_t *r = (int16_t *)(void *)(col.sums + lanes * strip_pixels(p));
    col.tile = r + round_up4(2u * p->c_out) / 2;
    col.decoded = (int8_t *)(col.tile + tile_bytes(p->c_out, lanes) / 2);
    col.r = r;
    const struct joint to = {ex, clamp, align_errors(p, ey->scale, r)};
    put_part(&col, (const int8_t *)w->codes, p->c_in, NULL, &to PACE);
}
