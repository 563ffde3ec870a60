/* SPDX-License-Identifier: Apache-2.0 */
/* Dense convolution: forward. Contract: kernels/conv2d.h. */
#include "kernels/conv2d.h"

#include "dense.h"
#include "fields.h"
#include "narrow.h"
#include "requantize.h"

#if KERNELS_AVX2
#include "requantize_avx2.h"
#endif

static struct part part_of(const struct conv2d *p, const struct split_weights *w, int trained)
{
    uint32_t frozen = (uint32_t)p->c_in - w->c_trained;
    struct part part = {.w = w->frozen, .order = w->order, .count = frozen};
    if (trained) {
        part.w = w->trained;
        part.order = w->order ? w->order + frozen : NULL;
        part.count = w->c_trained;
    }
    part.k = part.count * p->kh * p->kw;
    return part;
}

/* What a span of output pixels needs. */
struct outputs {
    int16_t *tile;  /* frozen part, then trained part */
    int32_t *sums;  /* [BLOCK][lanes]; while a pixel is packed, its bytes [part.k] */
    struct span at; /* output pixels */
};

/* Output channels that are summed before they are requantized: whole bytes of the mask. */
enum { BLOCK = 48 };

/* Those that are summed at once: in pieces fewer, so that a piece can end behind them. */
#ifdef MICROTRAIN_LIBRARY
#define AT_ONCE(usual) (pace ? (uint32_t)BLOCK / 3 : (usual))
#else
#define AT_ONCE(usual) (usual)
#endif

static uint32_t output_pixels(const struct conv2d *p)
{
    return (uint32_t)p->h_out * p->w_out;
}

/* Values of an output pixel's lanes, of both parts. */
static uint32_t lane_values(const struct conv2d *p)
{
    return (uint32_t)p->kh * p->kw * p->c_in;
}

/* Bytes for the sums of a block, and for the inputs of a pixel where they are gathered. */
static uint32_t block_bytes(const struct conv2d *p)
{
    uint32_t k = round_up4(lane_values(p));
    uint32_t sums = 4 * (p->c_out < BLOCK ? p->c_out : (uint32_t)BLOCK) * most_lanes(output_pixels(p), lane_values(p));
    return k > sums ? k : sums;
}

/* Requantizes n sums, `lanes` apart, of channels from o on. Returns their mask bits. */
ALWAYS_INLINE uint32_t put_outputs(const struct conv2d *p, const int32_t *sums, uint32_t lanes, uint32_t o, uint32_t n,
                                   int8_t *y)
{
    uint32_t bits = 0;
    for (uint32_t j = 0, bit = 1; j < n; j++, bit <<= 1) {
        int32_t v = requantize_wide(sums[j * lanes], multiplier_at(p, o + j), p->y_zero), q = saturate8(v);
        y[j] = (int8_t)q;
        bits |= v == q ? bit : 0;
    }
    return bits;
}

uint32_t conv2d_fwd_scratch(const struct conv2d *p)
{
    /* two parts, each rounded up to a group: a group more than the sum at most */
    uint32_t k = lane_values(p);
    return block_bytes(p) + tile_bytes(k + 4, most_lanes(output_pixels(p), k));
}

/* Output channels of a block with Helium, where the scratch allows so many. */
static uint32_t block_channels_mve(const struct conv2d *p)
{
    uint32_t bytes = conv2d_fwd_scratch(p), most = bytes < 256 ? 8 : (bytes / 16) & ~7u;
    return p->c_out < most ? p->c_out : most;
}

uint32_t conv2d_fwd_in_place(const struct conv2d *p)
{
    uint32_t pixels = output_pixels(p), in = p->c_in, out = p->c_out;
    if (!is_pointwise(p) || out > in || block_channels_mve(p) < out || conv2d_fwd_scratch(p) < in + 12 * out) {
        return 0;
    }
    for (uint32_t i = 0; i < pixels;) {
        struct span at = span_at(i, pixels, lane_values(p));
        if (at.first * in < i * out) { /* it reads pixels again, over which outputs were written */
            return 0;
        }
        i = at.first + at.live;
    }
    return 1;
}

/* True where outputs lie over inputs. */
static int is_in_place(const struct conv2d *p, const int8_t *x, const int8_t *y)
{
    return y < x + (uint32_t)p->h_in * p->w_in * p->c_in && x < y + output_pixels(p) * p->c_out;
}

#if KERNELS_MVE

#include "conv2d_mve.h"

#else

#if KERNELS_DSP

/* What an output of a 3x3 kernel over three channels sees, rows `step` bytes apart; the order is that of
 * dense_armv7em.S. */
struct field {
    const int8_t *x;
    uint32_t step;
};

void pack6_fields(int16_t *tile, const struct field *fields, uint32_t minus_zero);

/* True where `n` outputs from the one at the corner on lie in one row and see no padding. */
static int is_inside(const struct conv2d *p, struct corner at, uint32_t n)
{
    int32_t last = at.x + (int32_t)(n - 1) * p->stride_w;
    return at.y >= 0 && at.x >= 0 && at.y + p->kh <= p->h_in && last + p->kw <= p->w_in &&
           last < p->w_out * p->stride_w - p->pad_w;
}

/* Packs six such fields from where they lie in x, and from `bytes` those that see padding. */
NEVER_INLINE void pack_fields(const struct conv2d *p, const int8_t *x, struct corner at, const struct part *part,
                              int8_t *bytes, int16_t *tile)
{
    struct field fields[LANES];
    int32_t step = 3 * p->w_in, inside = is_inside(p, at, LANES);
    const int8_t *from = x + at.y * step + 3 * at.x;
    for (uint32_t lane = 0; inside && lane < LANES; lane++, from += 3 * p->stride_w) {
        fields[lane] = (struct field){from, (uint32_t)step};
    }
    for (uint32_t lane = 0; !inside && lane < LANES; lane++, next_corner(p, &at, 1)) {
        fields[lane] = (struct field){x + at.y * step + 3 * at.x, (uint32_t)step};
        if (!is_inside(p, at, 1)) {
            fetch_field(p, x, at, part, bytes);
            fields[lane] = (struct field){bytes, 9};
            bytes += part->k;
        }
    }
    pack6_fields(tile, fields, halves_of(-p->x_zero));
}

#endif

/* Gathers the inputs of the span's pixels for one weight matrix where the sums will be, if that has room for all
 * lanes, else lane by lane, and packs them. */
NEVER_INLINE void gather_pixels(const struct conv2d *p, const int8_t *x, const struct part *part,
                                const struct outputs *out, int16_t *tile)
{
    const struct span *at = &out->at;
    int8_t *bytes = (int8_t *)out->sums;
    struct corner corner = corner_of(p, at->first);
    if (at->live == at->lanes && part->k * at->lanes <= block_bytes(p)) {
#if KERNELS_DSP
        if (at->lanes == LANES && p->kh == 3 && p->kw == 3 && p->c_in == 3 && part->k == 27 && !part->order) {
            pack_fields(p, x, corner, part, bytes, tile);
            return;
        }
#endif
        fetch_fields(p, x, corner, at->live, part, bytes);
        pack_rows(tile, at->lanes, bytes, part->k, part->k, p->x_zero);
        return;
    }
    clear_lanes(tile, at, part->k);
    for (uint32_t lane = 0; lane < at->live; lane++, next_corner(p, &corner, 1)) {
        fetch_fields(p, x, corner, 1, part, bytes);
        pack_lane(tile, at->lanes, lane, bytes, part->k, p->x_zero);
    }
}

/* Packs the inputs of the span's pixels for one weight matrix. */
static void pack_pixels(const struct conv2d *p, const int8_t *x, const struct part *part, const struct outputs *out,
                        int16_t *tile)
{
    const struct span *at = &out->at;
    if (at->live == at->lanes && !part->order && is_pointwise(p)) {
        pack_rows(tile, at->lanes, x + at->first * p->c_in, p->c_in, part->k, p->x_zero);
    } else {
        gather_pixels(p, x, part, out, tile);
    }
}

/* One lane's outputs of n channels from o on, and their mask unless NULL. */
static void put_lane(const struct conv2d *p, const int32_t *sums, uint32_t lanes, uint32_t o, uint32_t n, int8_t *y,
                     uint8_t *mask)
{
    for (uint32_t i = 0; i < n; i += 8) {
        const int32_t *from = sums + i * lanes;
        uint32_t bits =
            n - i < 8 ? put_outputs(p, from, lanes, o + i, n - i, y + i) : put_outputs(p, from, lanes, o + i, 8, y + i);
        if (mask) {
            mask[i / 8] = (uint8_t)bits;
        }
    }
}

/* put_block() lane by lane. */
NEVER_INLINE void put_lanes(const struct conv2d *p, const struct outputs *out, uint32_t o, uint32_t n, int8_t *y,
                            uint8_t *mask)
{
    const struct span *at = &out->at;
    uint32_t stride = mask_stride(p->c_out);
    uint8_t *bits = mask ? mask + at->first * stride + o / 8 : NULL;
    for (uint32_t lane = 0; lane < at->live; lane++, y += p->c_out) {
        put_lane(p, out->sums + lane, at->lanes, o, n, y, bits);
        bits = bits ? bits + stride : NULL;
    }
}

#if KERNELS_AVX2

/* put_block() of whole eights of channels; returns how many. */
static uint32_t put_eights(const struct conv2d *p, const struct outputs *out, uint32_t o, uint32_t n, int8_t *y,
                           uint8_t *mask)
{
    const struct span *at = &out->at;
    uint32_t stride = mask_stride(p->c_out), i = 0;
    uint8_t *bits = mask ? mask + at->first * stride + o / 8 : NULL;
    for (; i + 8 <= n; i += 8) {
        requantize_eight_channels(out->sums + i * at->lanes, at->lanes, at->live, p->m + o + i, p->y_zero, y + i,
                                  p->c_out, bits, stride);
        bits = bits ? bits + 1 : NULL;
    }
    return i;
}

#endif

/* Requantizes the sums of output channels o .. o + n of the span; o is a multiple of BLOCK. */
static void put_block(const struct conv2d *p, const struct outputs *out, uint32_t o, uint32_t n, int8_t *y,
                      uint8_t *mask)
{
    y += out->at.first * p->c_out + o;
#if KERNELS_AVX2
    uint32_t done = put_eights(p, out, o, n, y, mask);
    struct outputs rest = *out;
    rest.sums += done * out->at.lanes;
    out = &rest;
    o += done;
    y += done;
    n -= done;
#elif !KERNELS_DSP
    if (!mask && out->at.live == out->at.lanes) {
        requantize_lanes(p, out->sums, out->at.lanes, o, n, y);
        return;
    }
#endif
    put_lanes(p, out, o, n, y, mask);
}

/* True where put_rows() can end with this part: whole spans. */
static int is_put_at_once(const struct conv2d *p, const struct outputs *out, const struct part *last)
{
    return can_put(p) && out->at.live == out->at.lanes && last->k >= 4;
}

/* Output channels o .. o + n of the span from the sums of their last part, which are requantized while they are in
 * registers. They are added to the biases or, with two parts, to out->sums. With a mask n is at most BLOCK. */
ALWAYS_INLINE void put_rows(const struct conv2d *p, const struct outputs *out, const struct part part[2], uint32_t o,
                            uint32_t n, const int32_t *b, int8_t *y, uint8_t *mask)
{
#if KERNELS_DSP
    int both = part[0].k && part[1].k, six = out->at.lanes == LANES;
    const struct part *last = part[1].k ? &part[1] : &part[0];
    int16_t *tile = out->tile + (both ? round_up4(part[0].k) * out->at.lanes : 0);
    const int8_t *w = last->w + o * last->k;
    struct dot_put put = {.offset = put_offset(p->y_zero), .c = p->c_out, .m = p->m + o};
    TELL_FINE(put, p);
    put.y = y + out->at.first * p->c_out + o;
    put.y3 = put.y + 3 * p->c_out;
    put.from = both ? out->sums : b + o;
    if (!mask) {
        if (both) {
            six ? dot6_add_put(tile, w, last->k, n, &put) : dot4_add_put(tile, w, last->k, n, &put);
        } else {
            six ? dot6_put(tile, w, last->k, n, &put) : dot4_put(tile, w, last->k, n, &put);
        }
        return;
    }
    uint32_t stride = mask_stride(p->c_out);
    mask += out->at.first * stride + o / 8;
    put.bits = (uint8_t *)out->sums;
    if (both) {
        six ? dot6_add_put_masked(tile, w, last->k, n, &put) : dot4_add_put_masked(tile, w, last->k, n, &put);
    } else {
        six ? dot6_put_masked(tile, w, last->k, n, &put) : dot4_put_masked(tile, w, last->k, n, &put);
    }
    put_masks_of(put.bits, n, out->at.lanes, mask, stride);
#else
    (void)p, (void)out, (void)part, (void)o, (void)n, (void)b, (void)y, (void)mask;
#endif
}

/* All output channels of the span's pixels. */
NEVER_INLINE void put_span(const struct conv2d *p, const struct part part[2], const int32_t *b,
                           const struct outputs *out, int8_t *y, uint8_t *mask PACED)
{
    int both = part[0].k && part[1].k;
    const struct part *first = part[0].k ? &part[0] : &part[1], *last = both ? &part[1] : first;
    const int16_t *tile = out->tile, *second = tile + round_up4(part[0].k) * out->at.lanes;
    int at_once = is_put_at_once(p, out, last);
    uint32_t most = AT_ONCE(at_once && !both && !mask ? p->c_out : (uint32_t)BLOCK);
    for (uint32_t o = PACE_INNER(), n; o < p->c_out; o += n) {
        n = p->c_out - o < most ? p->c_out - o : most;
        if (PACE_STOP(out->at.first, o, n * out->at.live * (part[0].k + part[1].k + WORK_OUTPUT))) {
            return;
        }
        if (both || !at_once) {
            dot_rows(tile, out->at.lanes, first->w + o * first->k, first->k, n, b + o, out->sums);
        }
        if (at_once) {
            put_rows(p, out, part, o, n, b, y, mask);
            continue;
        }
        if (both) {
            dot_rows_add(second, out->at.lanes, last->w + o * last->k, last->k, n, out->sums);
        }
        put_block(p, out, o, n, y, mask);
    }
}

#if KERNELS_DSP

/* Pixels of narrow_put() for which a layer's scratch has room, or 0 where the layer is not for it. */
static uint32_t narrow_pixels(const struct conv2d *p, const struct part *part)
{
    uint32_t room = conv2d_fwd_scratch(p) / NARROW_BYTES & ~3u;
    int fits = is_pointwise(p) && !part->order && part->k == NARROW && output_pixels(p) % 4 == 0;
    return fits && room >= 4 * FEW_LANES ? room : 0;
}

/* conv2d_fwd_s8() of such a layer without a mask, `most` pixels at a time. */
static void put_narrow(const struct conv2d *p, const int8_t *x, const struct part *part, const int32_t *b, int8_t *y,
                       uint32_t most, int16_t *scratch)
{
    struct narrow put = {.w = part->w, .b = b, .m = p->m, .y = y, .channels = p->c_out, .c = p->c_out};
    put.offset = put_offset(p->y_zero);
    TELL_FINE(put, p);
    for (uint32_t left = output_pixels(p), n; left; left -= n, x += n * NARROW, put.y += n * p->c_out) {
        n = left < most ? left : most;
        narrow_pack(scratch, x, n, halves_of(-p->x_zero));
        narrow_put(scratch, n, &put);
    }
}

/* Output channels o .. o + n of all pixels, with one weight matrix and no mask; put: what is the same of all. */
static void put_channels(const struct conv2d *p, const int8_t *x, const struct part *part, struct dot_put *put,
                         struct outputs *out, int8_t *y, uint32_t n)
{
    uint32_t pixels = output_pixels(p), c = p->c_out, groups = put->groups, minus = put->minus_zero;
    for (uint32_t i = 0; i < pixels; i = out->at.first + out->at.live) {
        out->at = span_at(i, pixels, part->k);
        const int8_t *from = x + out->at.first * p->c_in;
        put->y = y + out->at.first * c;
        put->y3 = put->y + 3 * c;
        if (out->at.lanes == LANES) {
            groups ? pack6(out->tile, from, p->c_in, groups, minus) : pack_pixels(p, x, part, out, out->tile);
            uint32_t tiles = groups && pixels - i >= LANES ? (pixels - i) / LANES : 1;
            put->tiles = tiles - 1;
            put->x = from + LANES * p->c_in;
            dot6_put(out->tile, put->w, part->k, n, put);
            out->at.first += (tiles - 1) * LANES;
        } else {
            groups ? pack4(out->tile, from, p->c_in, groups, minus) : pack_pixels(p, x, part, out, out->tile);
            dot4_put(out->tile, put->w, part->k, n, put);
        }
    }
}

/* Weights that stay in a data cache of 4 KB from tile to tile, and the longest rows whose pixels are worth packing once
 * more for each such block. */
enum { CACHED_BYTES = 3072, CACHED_ROW = 64 };

/* Output channels that put_plain() sums for all pixels before it goes on to the next: where channels become more, so
 * that outputs do not lie over inputs. */
static uint32_t channels_at_once(const struct conv2d *p, const struct part *part)
{
    int worth = part->k <= CACHED_ROW && p->c_out > p->c_in && output_pixels(p) >= 2 * LANES;
    uint32_t blocks = worth ? (part->k * p->c_out + CACHED_BYTES - 1) / CACHED_BYTES : 1;
    return (p->c_out + blocks - 1) / blocks;
}

/* conv2d_fwd_s8() of whole spans with one weight matrix and no mask, the usual case. */
static void put_plain(const struct conv2d *p, const int8_t *x, const struct part *part, const int32_t *b,
                      struct outputs *out, int8_t *y)
{
    uint32_t c = p->c_out, most = channels_at_once(p, part);
    struct dot_put put = {.offset = put_offset(p->y_zero), .c = c, .step = p->c_in};
    TELL_FINE(put, p);
    put.groups = is_pointwise(p) && !part->order && (part->k & 3u) == 0 ? part->k / 4 : 0;
    put.minus_zero = halves_of(-p->x_zero);
    for (uint32_t o = 0, n; o < c; o += n) {
        n = c - o < most ? c - o : most;
        put.from = b + o;
        put.m = p->m + o;
        put.w = part->w + o * part->k;
        put_channels(p, x, part, &put, out, y + o, n);
    }
}

#endif

void conv2d_fwd_s8(const struct conv2d *p, const int8_t *x, const struct split_weights *w, const int32_t *b, int8_t *y,
                   uint8_t *mask, void *scratch PACED)
{
    const struct part part[2] = {part_of(p, w, 0), part_of(p, w, 1)};
    struct outputs out = {.sums = scratch};
    out.tile = (int16_t *)(void *)((int8_t *)scratch + block_bytes(p));
    uint32_t pixels = output_pixels(p), values = lane_values(p);
#if KERNELS_DSP
    const struct part *only = part[1].k ? &part[1] : &part[0];
    if (!mask && can_put(p) && only->k >= 4 && (part[0].k == 0 || part[1].k == 0) && pixels >= FEW_LANES &&
        !PACE_IS_ON()) {
        uint32_t narrow = narrow_pixels(p, only);
        if (narrow) {
            put_narrow(p, x, only, b, y, narrow, scratch);
        } else {
            put_plain(p, x, only, b, &out, y);
        }
        return;
    }
#endif
    for (uint32_t i = PACE_OUTER(); i < pixels; i = out.at.first + out.at.live) {
        out.at = span_at(i, pixels, values);
        /* in the middle of a span that is in place the tile has its inputs, and nothing else does */
        int packed = PACE_MIDDLE() && is_in_place(p, x, y);
        if (part[0].k && !packed) {
            pack_pixels(p, x, &part[0], &out, out.tile);
        }
        if (part[1].k && !packed) {
            pack_pixels(p, x, &part[1], &out, out.tile + round_up4(part[0].k) * out.at.lanes);
        }
        put_span(p, part, b, &out, y, mask PACE);
        if (PACE_PAUSED()) {
            return;
        }
    }
}

#endif
