/* SPDX-License-Identifier: Apache-2.0 */
/* Dense convolution: gradient to the input. Contract: kernels/conv2d.h. */
#include "kernels/conv2d.h"

#include "channel.h"
#include "dense.h"
#include "requantize.h"

/* Pixels whose sums are kept in scratch between the search for the peak and the rounding. A larger image is
 * computed twice, strip by strip. */
enum { STRIP = 256 };

/* Long columns are summed part by part. */
#if KERNELS_DSP && !KERNELS_MVE && !defined(CODED)
#define IN_PARTS
#endif

/* What bwd_x works on: a span of input channels against all errors. */
struct columns {
#ifdef CODED
    const struct coded_weights *codes; /* in the place of w */
    int8_t *decoded;                   /* room for columns of it */
#endif
    const struct conv2d *p;
    const int8_t *ey;
    const int16_t *r; /* [c_out] */
    const int8_t *w;  /* the span's first column of tap 0 and output channel 0 */
    uint32_t count;   /* columns of the weight matrix */
    int16_t *tile;    /* of one tap: c_out values */
    int32_t *sums;    /* [strip][lanes] */
    struct span at;   /* columns of the weight matrix */
    int alike;        /* every pixel has the same errors */
#ifdef IN_PARTS
    int summed; /* sums are there: of sum_parts() */
#endif
};

static uint32_t input_pixels(const struct conv2d *p)
{
    return (uint32_t)p->h_in * p->w_in;
}

static uint32_t strip_pixels(const struct conv2d *p)
{
    return input_pixels(p) < STRIP ? input_pixels(p) : (uint32_t)STRIP;
}

#ifndef CODED

uint32_t conv2d_bwd_x_scratch(const struct conv2d *p)
{
    uint32_t lanes = most_lanes(p->c_in, p->c_out);
    return 4 * lanes * strip_pixels(p) + tile_bytes(p->c_out, lanes) + round_up4(2u * p->c_out);
}

#endif

/* r[o] = rint(scale[o] / S * 2^guard), 0..256. Returns S / 2^guard. */
static float align_errors(const struct conv2d *p, const float *scale, int16_t *r)
{
    float largest = 0.0f, one = (float)(1 << p->guard);
    for (uint32_t o = 0; o < p->c_out; o++) {
        largest = scale[o] > largest ? scale[o] : largest;
    }
    for (uint32_t o = 0; o < p->c_out; o++) {
        r[o] = (int16_t)(largest > 0.0f ? round_nearest(scale[o] / largest * one) : 0);
    }
    return largest / one;
}

/* True where a pointwise kernel's errors are the same in all pixels, as those behind a global average pool are where
 * nothing saturated: then their sums are, too. Ends with the first that differs. */
NEVER_INLINE int are_alike(const struct conv2d *p, const int8_t *ey)
{
    uint32_t c = p->c_out, i = 0, n = (input_pixels(p) - 1) * c;
    if (!is_pointwise(p) || n == 0) {
        return 0;
    }
    for (; i + 4 <= n; i += 4) {
        if (load_u32(ey + i) != load_u32(ey + i + c)) {
            return 0;
        }
    }
    for (; i < n; i++) {
        if (ey[i] != ey[i + c]) {
            return 0;
        }
    }
    return 1;
}

static uint32_t taps_of(const struct conv2d *p)
{
    return (uint32_t)p->kh * p->kw;
}

#ifndef CODED

/* The tile of one tap: r[o] * w[o][tap][column]; |r * w| <= 2^15. */
static void pack_tap(const struct columns *col, uint32_t tap)
{
    uint32_t step = taps_of(col->p) * col->count;
    pack_columns(col->tile, &col->at, col->w + tap * col->count, step, col->r, col->p->c_out);
}

#else
static void pack_tap(const struct columns *col, uint32_t tap);
#endif

/* Half-open range of outputs along one axis. */
struct range {
    int32_t begin, end;
};

/* Those of `size` outputs that read inputs begin .. end through a tap. offset: from an output's corner to what it reads,
 * less the corner of output 0. */
static struct range outputs_of(int32_t begin, int32_t end, int32_t offset, int32_t stride, int32_t size)
{
    int32_t from = begin - offset, to = end - 1 - offset;
    int32_t first = from > 0 ? (from + stride - 1) / stride : 0, last = to < 0 ? 0 : to / stride + 1;
    return (struct range){first, last < size ? last : size};
}

/* Adds the errors of neighbouring outputs, through the packed tap, to the sums of the pixels that they read: the first
 * one's, then every `stride` pixels. */
static void add_errors(const struct columns *col, const int8_t *errors, uint32_t count, uint32_t stride, int32_t *sums)
{
    uint32_t c = col->p->c_out, lanes = col->at.lanes, at_once = stride == 1 ? count : 1;
    for (; count; count -= at_once, errors += c, sums += stride * lanes) {
        dot_rows_add(col->tile, lanes, errors, c, at_once, sums);
    }
}

/* Adds to the sums of pixels first .. end what reaches them through tap (ky, kx). */
NEVER_INLINE void add_tap(const struct columns *col, int32_t ky, int32_t kx, int32_t first, int32_t end)
{
    const struct conv2d *p = col->p;
    int32_t w = p->w_in, top = ky - p->pad_h, left = kx - p->pad_w, packed = 0;
    struct range rows = outputs_of(first / w, (end - 1) / w + 1, top, p->stride_h, p->h_out);
    for (int32_t oy = rows.begin; oy < rows.end; oy++) {
        int32_t row = (oy * p->stride_h + top) * w; /* its first pixel */
        int32_t begin = row < first ? first - row : 0, stop = row + w > end ? end - row : w;
        struct range at = outputs_of(begin, stop, left, p->stride_w, p->w_out);
        if (at.begin >= at.end) {
            continue;
        }
        if (!packed) {
            pack_tap(col, (uint32_t)(ky * p->kw + kx));
            packed = 1;
        }
        int32_t pixel = row + at.begin * p->stride_w + left;
        add_errors(col, col->ey + (oy * p->w_out + at.begin) * p->c_out, (uint32_t)(at.end - at.begin), p->stride_w,
                   col->sums + (uint32_t)(pixel - first) * col->at.lanes);
    }
}

/* The sums of pixels first .. first + n. */
static void sums_strip(const struct columns *col, uint32_t first, uint32_t n)
{
    const struct conv2d *p = col->p;
#ifdef IN_PARTS
    if (col->summed) {
        return;
    }
#endif
    if (is_pointwise(p)) {
        uint32_t done = col->alike ? 1 : n;
        dot_rows(col->tile, col->at.lanes, col->ey + first * p->c_out, p->c_out, done, NULL, col->sums);
        for (uint32_t more; done < n; done += more) {
            more = n - done < done ? n - done : done;
            copy_apart(col->sums + done * col->at.lanes, col->sums, more * col->at.lanes * sizeof *col->sums);
        }
        return;
    }
    fill_bytes(col->sums, 0, n * col->at.lanes * sizeof *col->sums);
    for (int32_t ky = 0; ky < p->kh; ky++) {
        for (int32_t kx = 0; kx < p->kw; kx++) {
            add_tap(col, ky, kx, (int32_t)first, (int32_t)(first + n));
        }
    }
}

/* Where the errors go. */
struct joint {
    const struct error_s8 *ex;
    const struct clamp *clamp;
    float unit; /* real gradient of 1 in a sum, before the clamp */
};

/* channel_gain() of input channel ch. */
ALWAYS_INLINE float joint_gain(const struct joint *to, uint32_t ch, float peak)
{
    return channel_gain(peak, channel_unit(to->clamp, ch, to->unit), &to->ex->scale[ch]);
}

#if KERNELS_DSP && !KERNELS_MVE
#include "conv2d_bwd_x_armv7em.h"
#endif

#if KERNELS_MVE

/* put_columns() for four neighbouring channels, whose bits are in one byte of the mask. */
NEVER_INLINE void put_four_columns(const struct columns *col, const struct joint *to)
{
    uint32_t pixels = input_pixels(col->p), strip = strip_pixels(col->p), c = col->p->c_in, at = col->at.first;
    const struct channel ch = channel_of(to->ex, to->clamp, c, at);
    uint32_t peaks[4] = {0};
    float gains[4];
    for (uint32_t i = 0, n; i < pixels; i += n) {
        n = pixels - i < strip ? pixels - i : strip;
        sums_strip(col, i, n);
        mask_four(col->sums, n, ch.mask + i * ch.mask_step, ch.mask_step, ch.bit, peaks);
    }
    for (uint32_t j = 0; j < 4; j++) {
        gains[j] = joint_gain(to, at + j, (float)peaks[j]);
    }
    for (uint32_t i = 0, n; i < pixels; i += n) {
        n = pixels - i < strip ? pixels - i : strip;
        if (pixels > strip) {
            sums_strip(col, i, n);
            mask_four(col->sums, n, ch.mask + i * ch.mask_step, ch.mask_step, ch.bit, peaks);
        }
        write_four(col->sums, n, vldrwq_f32(gains), ch.q + i * c, c);
    }
}

#endif

/* Channel of the span's lane j, column i of channel order[i]. */
ALWAYS_INLINE struct channel channel_at(const struct columns *col, const uint16_t *order, const struct joint *to,
                                        uint32_t j)
{
    uint32_t i = col->at.first + j;
    return channel_of(to->ex, to->clamp, col->p->c_in, order ? order[i] : i);
}

/* Sums of pixels first .. first + n of the span, masked; peak[lane] grows to the largest magnitude. */
static void mask_strip(const struct columns *col, const uint16_t *order, const struct joint *to, uint32_t first,
                       uint32_t n, int32_t *peak)
{
    sums_strip(col, first, n);
    for (uint32_t j = 0; j < col->at.live; j++) {
        const struct channel ch = channel_at(col, order, to, j);
        peak[j] = channel_mask(ch, first, n, col->sums + j, col->at.lanes, peak[j]);
    }
}

/* Errors of the span's channels: peak over all pixels, then rounding. */
NEVER_INLINE void put_columns(const struct columns *col, const uint16_t *order, const struct joint *to)
{
    uint32_t pixels = input_pixels(col->p), strip = strip_pixels(col->p);
    int32_t peak[LANES] = {0};
    float gain[LANES];
    for (uint32_t i = 0; i < pixels; i += strip) {
        mask_strip(col, order, to, i, pixels - i < strip ? pixels - i : strip, peak);
    }
    for (uint32_t j = 0, i = col->at.first; j < col->at.live; j++, i++) {
        gain[j] = joint_gain(to, order ? order[i] : i, (float)peak[j]);
    }
    for (uint32_t i = 0; i < pixels; i += strip) {
        uint32_t n = pixels - i < strip ? pixels - i : strip;
        if (pixels > strip) {
            mask_strip(col, order, to, i, n, peak);
        }
        for (uint32_t j = 0; j < col->at.live; j++) {
            const struct channel ch = channel_at(col, order, to, j);
            channel_write(ch, i, n, col->sums + j, col->at.lanes, gain[j]);
        }
    }
}

#ifdef MICROTRAIN_LIBRARY
/* Work of one input channel: its sums, twice where they are not kept, and its errors. */
static uint32_t columns_work(const struct conv2d *p)
{
    uint32_t pixels = input_pixels(p), outputs = (uint32_t)p->h_out * p->w_out;
    uint32_t sums = outputs * p->c_out * taps_of(p);
    return (pixels > strip_pixels(p) ? 2 * sums : sums) + pixels * WORK_OUTPUT;
}
#endif

/* The channels of one of the two weight matrices, which has `count` columns; NULL order: all in natural order. */
static void put_part(struct columns *col, const int8_t *w, uint32_t count, const uint16_t *order,
                     const struct joint *to PACED)
{
    col->count = count;
    int weighed = 0;
#if KERNELS_DSP && !KERNELS_MVE && !defined(CODED)
    if (col->alike && !order && count >= FEW_LANES) { /* all spans are full */
        weigh_errors(col);
        weighed = 1;
    }
#endif
    for (uint32_t i = PACE_OUTER(); i < count; i = col->at.first + col->at.live) {
        col->at = span_at(i, count, col->p->c_out);
#if KERNELS_MVE
        int four = !order && i % 4 == 0 && count - i >= 4;
        if (four) {
            col->at = (struct span){.first = i, .lanes = 4, .live = 4};
        }
#endif
        if (PACE_STOP(i, 0, col->at.live * columns_work(col->p))) {
            return;
        }
        col->w = w + col->at.first;
#ifdef IN_PARTS
        uint32_t parts = order || PACE_IS_ON() ? 0 : spans_in_parts(col, count - i);
        if (parts) {
            put_parts(col, parts, to);
            continue;
        }
#endif
        if (is_pointwise(col->p) && !weighed) {
            pack_tap(col, 0);
        }
#if KERNELS_MVE
        if (four) {
            put_four_columns(col, to);
            continue;
        }
#elif KERNELS_DSP
#ifndef CODED
        if (weighed) {
            uint32_t spans = PACE_IS_ON() ? 1 : spans_at_once(col, count - i);
            weigh(col, spans);
            put_alike(col, to, col->sums);
            for (uint32_t k = 1; k < spans; k++) {
                col->at.first += LANES;
                put_alike(col, to, col->sums + k * LANES);
            }
            continue;
        }
#endif
        if (!order && col->at.live == col->at.lanes) {
            put_neighbours(col, to);
            continue;
        }
#endif
        put_columns(col, order, to);
    }
}

#ifndef CODED

void conv2d_bwd_x_s8(const struct conv2d *p, const struct error_s8 *ey, const struct split_weights *w,
                     const struct clamp *clamp, const struct error_s8 *ex, void *scratch PACED)
{
    uint32_t lanes = most_lanes(p->c_in, p->c_out), frozen = (uint32_t)p->c_in - w->c_trained;
    struct columns col = {.p = p, .ey = ey->q, .sums = scratch, .alike = are_alike(p, ey->q)};
    int16_t *r = (int16_t *)(void *)(col.sums + lanes * strip_pixels(p));
    col.tile = r + round_up4(2u * p->c_out) / 2;
    col.r = r;
    const struct joint to = {ex, clamp, align_errors(p, ey->scale, r)};
    if (PACE_INNER() == 0) {
        put_part(&col, w->frozen, frozen, w->order, &to PACE);
        if (PACE_PAUSED()) {
            return;
        }
    }
    put_part(&col, w->trained, w->c_trained, w->order ? w->order + frozen : NULL, &to PACE);
    if (PACE_PAUSED()) {
        PACE_IS(inner, 1);
    }
}

#endif
