/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in codes: as plain int8, and the dense convolution forward. Contract: kernels/coded.h.
 *
 * Here rows of weights are decoded into scratch, where the dense micro-kernels read them, once for as many tiles of pixels as
 * there is room for. */
#include "kernels/coded.h"

#include "dense.h"
#include "fields.h"
#include "requantize.h"

/* Bytes of decoded rows and of tiles, one of each at least; tiles; output channels whose sums are kept: a byte of the
 * mask. */
enum { ROWS_BYTES = 768, TILES_BYTES = 9216, TILES = 6, BLOCK = 8 };

/* What does not change during a call, and where things lie in scratch. */
struct coding {
    const struct conv2d *p;
    const struct coded_weights *w;
    uint32_t k, pixels; /* weights of a row; outputs */
    uint32_t lanes;     /* of the largest span */
    uint32_t tiles;     /* that are packed at once */
    uint32_t rows;      /* that are decoded at once */
    int at_once;        /* outputs are made while their sums are in registers, which are kept nowhere */
    int16_t *tile;      /* [tiles], each tile_bytes(k, lanes) */
    int32_t *sums;      /* [tiles][BLOCK][lanes] */
    int8_t *bytes;      /* decoded rows; while a tile is packed, what its pixels see */
};

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t rows_bytes(const struct coding *c)
{
    uint32_t row = c->k + 1; /* the last pair of an odd row is written whole */
    return round_up4(row > ROWS_BYTES ? row : (uint32_t)ROWS_BYTES);
}

/* Without places in scratch. */
static struct coding coding_of(const struct conv2d *p, const struct coded_weights *w)
{
    struct coding c = {.p = p, .w = w, .k = (uint32_t)p->kh * p->kw * p->c_in};
    c.pixels = (uint32_t)p->h_out * p->w_out;
    c.at_once = can_put(p) && !KERNELS_MVE && c.pixels >= FEW_LANES && c.k >= 4;
    c.lanes = most_lanes(c.pixels, c.k);
    uint32_t fit = TILES_BYTES / tile_bytes(c.k, c.lanes), spans = (c.pixels + c.lanes - 1) / c.lanes;
    c.tiles = least(least(fit ? fit : 1, spans), TILES);
    c.rows = (rows_bytes(&c) - 1) / c.k;
    return c;
}

uint32_t cconv2d_fwd_scratch(const struct conv2d *p)
{
    const struct coding c = coding_of(p, NULL);
    return c.tiles * (tile_bytes(c.k, c.lanes) + 4 * BLOCK * c.lanes) + rows_bytes(&c);
}

/* n rows of k weights from their first code on, one behind the other. */
ALWAYS_INLINE void decode(const uint16_t *pairs, const uint8_t *code, uint32_t n, uint32_t k, int8_t *row)
{
    for (; n; n--, row += k) {
        int8_t *to = row;
        uint32_t left = (k + 1) / 2, state = 0;
        for (; left >= 4; left -= 4, code += 4, to += 8) {
            uint32_t word = load_u32(code); /* a code and the state behind the one before it are ten bits of it */
            store_u32(to, pairs[(word & 255u) << 2 | state] | (uint32_t)pairs[(word >> 6) & 1023u] << 16);
            store_u32(to + 4, pairs[(word >> 14) & 1023u] | (uint32_t)pairs[word >> 22] << 16);
            state = word >> 30;
        }
        for (; left; left--, to += 2) {
            memcpy(to, &pairs[(uint32_t)*code << 2 | state], 2);
            state = (uint32_t)*code++ >> 6;
        }
    }
}

void codes_expand_s8(uint32_t rows, uint32_t length, const struct coded_weights *codes, int8_t *w)
{
    decode(codes->pairs, codes->codes, rows, length, w);
}

/* Rows o .. o + n as plain int8. */
static void decode_rows(const struct coding *c, uint32_t o, uint32_t n)
{
    decode(c->w->pairs, c->w->codes + o * ((c->k + 1) / 2), n, c->k, c->bytes);
}

/* Packs what the span's pixels see. */
static void pack_span(const struct coding *c, const int8_t *x, const struct span *at, int16_t *tile)
{
    const struct conv2d *p = c->p;
    const struct part all = {.count = p->c_in, .k = c->k};
    struct corner corner = corner_of(p, at->first);
#if !KERNELS_MVE
    if (at->live == at->lanes && is_pointwise(p)) {
        pack_rows(tile, at->lanes, x + at->first * p->c_in, p->c_in, c->k, p->x_zero);
        return;
    }
    if (at->live == at->lanes && at->lanes * c->k <= rows_bytes(c)) {
        int8_t *bytes = c->bytes;
        for (uint32_t lane = 0; lane < at->lanes; lane++, bytes += c->k, next_corner(p, &corner, 1)) {
            fetch_field(p, x, corner, &all, bytes);
        }
        pack_rows(tile, at->lanes, c->bytes, c->k, c->k, p->x_zero);
        return;
    }
#endif
    clear_lanes(tile, at, c->k);
    for (uint32_t lane = 0; lane < at->live; lane++, next_corner(p, &corner, 1)) {
        fetch_field(p, x, corner, &all, c->bytes);
        pack_lane(tile, at->lanes, lane, c->bytes, c->k, p->x_zero);
    }
}

/* sums[row][lane] = b[row] + panel . row, of n decoded rows. */
static void sum_rows(const struct coding *c, const struct span *at, const int16_t *tile, uint32_t n, const int32_t *b,
                     int32_t *sums)
{
    for (uint32_t i = 0, at_sum = 0; i < n; i++) {
        for (uint32_t lane = 0; lane < at->lanes; lane++) {
            sums[at_sum++] = b[i];
        }
    }
    dot_rows_add(tile, at->lanes, c->bytes, c->k, n, sums);
}

/* Outputs o .. o + n of the span from their sums, and their byte of the mask. */
static void put_sums(const struct coding *c, const struct span *at, const int32_t *sums, uint32_t o, uint32_t n,
                     int8_t *y, uint8_t *mask)
{
    const struct conv2d *p = c->p;
    for (uint32_t lane = 0; lane < at->live; lane++) {
        uint32_t pixel = at->first + lane, bits = 0;
        int8_t *to = y + pixel * p->c_out + o;
        uint8_t *byte = mask ? mask + pixel * mask_stride(p->c_out) + o / 8 : NULL;
        for (uint32_t i = 0; i < n; i++) {
            int32_t v = requantize_wide(sums[i * at->lanes + lane], multiplier_at(p, o + i), p->y_zero),
                    q = saturate8(v);
            to[i] = (int8_t)q;
            bits |= v == q ? 1u << i : 0;
        }
        if (byte) {
            *byte = (uint8_t)bits;
        }
    }
}

/* Outputs o .. o + n of the span from decoded rows, where that is at_once. bits: of the rows' masks, or NULL. */
static void put_rows(const struct coding *c, const struct span *at, int16_t *tile, uint32_t o, uint32_t n,
                     const int32_t *b, int8_t *y, uint8_t *bits)
{
#if KERNELS_DSP && !KERNELS_MVE
    const struct conv2d *p = c->p;
    struct dot_put put = {.offset = put_offset(p->y_zero), .c = p->c_out, .m = p->m + o, .from = b + o};
    TELL_FINE(put, p);
    put.y = y + at->first * p->c_out + o;
    if (bits) {
        put.bits = bits;
        at->lanes == LANES ? dot6_put_masked(tile, c->bytes, c->k, n, &put)
                           : dot4_put_masked(tile, c->bytes, c->k, n, &put);
        return;
    }
    put.y3 = put.y + 3 * p->c_out;
    at->lanes == LANES ? dot6_put(tile, c->bytes, c->k, n, &put) : dot4_put(tile, c->bytes, c->k, n, &put);
#else
    (void)c, (void)at, (void)tile, (void)o, (void)n, (void)b, (void)y, (void)bits;
#endif
}

/* Masks of outputs o .. o + n, BLOCK at most, of such a span. */
static void put_bits(const struct coding *c, const struct span *at, uint32_t o, uint32_t n, uint8_t *bits,
                     uint8_t *mask)
{
#if KERNELS_DSP && !KERNELS_MVE
    uint32_t stride = mask_stride(c->p->c_out);
    put_masks_of(bits, n, at->lanes, mask + at->first * stride + o / 8, stride);
#else
    (void)c, (void)at, (void)o, (void)n, (void)bits, (void)mask;
#endif
}

/* Output channels o .. o + n of the packed spans, the first of which holds pixel `first`. */
static void put_block(const struct coding *c, uint32_t first, uint32_t o, uint32_t n, const int32_t *b, int8_t *y,
                      uint8_t *mask)
{
    uint32_t tile = tile_bytes(c->k, c->lanes) / 2, block = BLOCK * c->lanes;
    for (uint32_t row = 0, count; row < n; row += count) {
        count = least(n - row, c->rows);
        decode_rows(c, o + row, count);
        struct span at;
        for (uint32_t i = 0, pixel = first; i < c->tiles && pixel < c->pixels; i++, pixel = at.first + at.live) {
            at = span_at(pixel, c->pixels, c->k);
            int32_t *sums = c->sums + i * block;
            if (c->at_once) {
                uint8_t *bits = mask ? (uint8_t *)sums : NULL;
                put_rows(c, &at, c->tile + i * tile, o + row, count, b, y, bits ? bits + row : NULL);
                if (bits && row + count == n) {
                    put_bits(c, &at, o, n, bits, mask);
                }
                continue;
            }
            sum_rows(c, &at, c->tile + i * tile, count, b + o + row, sums + row * at.lanes);
            if (row + count == n) {
                put_sums(c, &at, sums, o, n, y, mask);
            }
        }
    }
}

/* Packs spans from pixel `first` on, as many as there are tiles for; returns the first pixel behind them. */
static uint32_t pack_spans(const struct coding *c, const int8_t *x, uint32_t first)
{
    uint32_t tile = tile_bytes(c->k, c->lanes) / 2;
    struct span at;
    for (uint32_t i = 0; i < c->tiles && first < c->pixels; i++, first = at.first + at.live) {
        at = span_at(first, c->pixels, c->k);
        pack_span(c, x, &at, c->tile + i * tile);
    }
    return first;
}

void cconv2d_fwd_s8(const struct conv2d *p, const struct coded_weights *w, const int8_t *x, const int32_t *b, int8_t *y,
                    uint8_t *mask, void *scratch PACED)
{
    struct coding c = coding_of(p, w);
    c.tile = scratch;
    c.sums = (int32_t *)(void *)((int8_t *)scratch + c.tiles * tile_bytes(c.k, c.lanes));
    c.bytes = (int8_t *)(c.sums + c.tiles * BLOCK * c.lanes);
    uint32_t o = PACE_INNER();
    for (uint32_t i = PACE_OUTER(), end; i < c.pixels; i = end, o = 0) {
        end = pack_spans(&c, x, i);
        for (uint32_t n; o < p->c_out; o += n) {
            n = least(p->c_out - o, c.at_once && !mask ? c.rows : (uint32_t)BLOCK);
            if (PACE_STOP(i, o, n * c.tiles * c.lanes * (c.k + WORK_OUTPUT))) {
                return;
            }
            put_block(&c, i, o, n, b, y, mask);
        }
    }
}
