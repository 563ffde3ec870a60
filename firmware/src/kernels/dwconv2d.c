/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise convolution: forward. Contract: kernels/conv2d.h. */
#include "depthwise.h"
#include "requantize.h"

/* Bytes of scratch. */
static uint32_t forward_bytes(const struct conv2d *p, const struct view *v)
{
    return tile_sums_bytes(v) + taps_bytes(v) + planes_bytes(v, planes_of(p->c_in));
}

uint32_t dwconv2d_fwd_scratch(const struct conv2d *p)
{
    struct view v;
    view_of_input(p, NULL, p->c_in, &v);
    return forward_bytes(p, &v);
}

/* True where an output is made of the pixel in its place alone, so that tiles do not meet. */
static int is_of_pixels(const struct conv2d *p)
{
    int small = p->kh == 1 && p->kw == 1 && p->stride_h == 1 && p->stride_w == 1;
    return small && p->pad_h == 0 && p->pad_w == 0 && p->h_out == p->h_in && p->w_out == p->w_in;
}

uint32_t dwconv2d_fwd_in_place(const struct conv2d *p)
{
    if (is_of_pixels(p)) {
        return 1;
    }
    struct view v;
    view_of_input(p, NULL, p->c_in, &v);
    struct tile tile;
    first_tile(&v, &tile);
    return tile.h == v.h && tile.w == v.w;
}

uint32_t dwconv2d_fwd_ways(const struct conv2d *p)
{
    struct view v;
    view_of_input(p, NULL, p->c_in, &v);
    return ways_of(&v);
}

/* A channel's outputs in a tile; y: of the tile's first. */
static void put_tile(const struct conv2d *p, const struct tile *tile, const int32_t *sums, uint32_t ch, int8_t *y)
{
    uint32_t c = p->c_out;
#if KERNELS_MVE
    const struct channel_run run = {tile->runs.length, c, bits_of_float(multiplier_of(p->m[ch])), p->y_zero};
    for (uint32_t i = 0; i < tile->runs.count; i++, sums += tile->row, y += p->w_out * c) {
        put_run(sums, y, &run);
    }
#elif KERNELS_DSP && !MICROTRAIN_FIXED && !MICROTRAIN_TFLITE
    requantize_channel(sums, &tile->runs, p->y_zero, y, c, multiplier_f32(p->m[ch]));
#else
    const struct multiplier m = multiplier_at(p, ch);
#if KERNELS_DSP && MICROTRAIN_TFLITE
    if (m.fine) {
        const struct run_twice run = {.m = twice_of(float_of((uint32_t)m.word), m.fine, p->y_zero), .c = c};
        for (uint32_t i = 0; i < tile->runs.count; i++, sums += tile->row, y += p->w_out * c) {
            put_run_twice(sums, tile->runs.length, y, &run);
        }
        return;
    }
#endif
    for (uint32_t i = 0; i < tile->runs.count; i++, sums += tile->row, y += p->w_out * c) {
        for (uint32_t j = 0; j < tile->runs.length; j++) {
            y[j * c] = (int8_t)saturate8(requantize_wide(sums[j], m, p->y_zero));
        }
    }
#endif
}

#if KERNELS_DSP && !MICROTRAIN_TFLITE && !KERNELS_MVE

/* The same with a mask of which the channel's bit is still 0: it is set where nothing saturates. */
NEVER_INLINE void put_tile_masked(const struct conv2d *p, const struct tile *tile, const int32_t *sums, uint32_t ch,
                                  int8_t *y, uint8_t *mask)
{
    int integer = p->m[ch] < 0;
    struct masked_run run; /* not cleared first */
    run.n = tile->runs.length;
    run.zero = integer ? multiplier_offset(p->y_zero) : p->y_zero;
    run.c = p->c_out;
    run.stride = mask_stride(run.c);
    run.bit = 1u << (ch & 7u);
    run.word = p->m[ch];
    for (uint32_t i = tile->runs.count;;) {
        integer ? integer_channel_masked(sums, y, mask, &run) : float_channel_masked(sums, y, mask, &run);
        if (--i == 0) {
            return;
        }
        sums += tile->row;
        y += p->w_out * run.c;
        mask += p->w_out * run.stride;
    }
}

#else

/* Outputs of n sums, with a mask of which the channel's bit is still 0: it is set where nothing saturates. */
static void put_row_masked(const int32_t *sums, uint32_t n, const struct conv2d *p, uint32_t ch, int8_t *y,
                           uint8_t *mask)
{
    uint32_t c = p->c_out, stride = mask_stride(c), bit = 1u << (ch & 7u);
    int32_t zero = p->y_zero;
    const struct multiplier m = multiplier_at(p, ch);
#if KERNELS_MVE
    put_run_masked(sums, n, y, c, bits_of_float(multiplier_of(m.word)), zero, mask, stride, bit);
#else
#if KERNELS_DSP && MICROTRAIN_TFLITE
    if (m.fine) {
        const struct run_twice run = {twice_of(float_of((uint32_t)m.word), m.fine, zero), c, mask, stride, bit};
        put_run_twice_masked(sums, n, y, &run);
        return;
    }
#endif
    for (const int32_t *end = sums + n; sums != end; sums++, y += c, mask += stride) {
        int32_t v = requantize_wide(*sums, m, zero), q = saturate8(v);
        *y = (int8_t)q;
        *mask = (uint8_t)(*mask | (v == q ? bit : 0u));
    }
#endif
}

/* The same with a mask. */
NEVER_INLINE void put_tile_masked(const struct conv2d *p, const struct tile *tile, const int32_t *sums, uint32_t ch,
                                  int8_t *y, uint8_t *mask)
{
    for (uint32_t i = 0; i < tile->runs.count; i++, sums += tile->row, y += p->w_out * p->c_out) {
        put_row_masked(sums, tile->runs.length, p, ch, y, mask);
        mask += p->w_out * mask_stride(p->c_out);
    }
}

#endif

/* What forward writes. */
struct outputs {
    int8_t *y;
    uint8_t *mask; /* or NULL */
};

/* What is the same of all groups of a tile. */
struct front {
    const struct conv2d *p;
    const struct view *v;
    const struct tile *tile;
    struct buffers *at;
    struct outputs out; /* of the tile's first pixel */
#if KERNELS_DSP && !KERNELS_MVE
    int at_once; /* outputs are made while their sums are in registers, where there is an integer */
#endif
};

static void begin_front(struct front *front, const struct conv2d *p, int8_t *y, uint8_t *mask)
{
    const struct tile *tile = front->tile;
    uint32_t pixel = tile->y * p->w_out + tile->x, c = p->c_out;
    front->out.y = y + pixel * c;
    front->out.mask = mask ? mask + pixel * mask_stride(c) : NULL;
#if KERNELS_DSP && !KERNELS_MVE
    front->at_once = front->v->fast && !mask && tile->w == tile->row;
    struct windows *windows = &front->at->windows;
    windows->offset = multiplier_offset(p->y_zero);
    windows->c = c;
    windows->three_c = 3 * c;
    windows->y_skip = (p->w_out - tile->w) * c;
#endif
}

#if KERNELS_MVE

/* The same from columns, without a mask. */
static void put_upright(const struct front *front, const struct group *group, const int32_t *b)
{
    const struct conv2d *p = front->p;
    const struct tile *tile = front->tile;
    const struct stand *stand = front->at->stand;
    int32_t *sums = front->at->sums;
    struct channel_run run = {tile->runs.length, p->c_out, 0, p->y_zero};
    for (uint32_t lane = 0; lane < group->lanes; lane++) {
        uint32_t ch = group->channel[lane];
        int8_t *y = front->out.y + ch;
        run.m = bits_of_float(multiplier_of(p->m[ch]));
        sum_channel(stand, ch, group->w[lane], b[ch], sums);
        put_run(sums, y, &run);
        const int32_t *from = sums;
        for (uint32_t i = tile->runs.count; --i;) {
            from += tile->row;
            y += p->w_out * run.c;
            put_run(from, y, &run);
        }
    }
}

#endif

#if KERNELS_DSP && !KERNELS_MVE

/* The same of a tile that is put at once: by the assembly where there is an integer, else from sums. */
static void put_windows(const struct front *front, const struct group *group, const int32_t *b)
{
    const struct conv2d *p = front->p;
    struct buffers *at = front->at;
    const int16_t *plane = at->planes;
    for (uint32_t lane = 0; lane < group->lanes; lane++, plane += front->v->plane) {
        uint32_t ch = group->channel[lane];
        int8_t *y = front->out.y + ch;
        at->windows.bias = b[ch];
        at->windows.word = p->m[ch];
        if (!MICROTRAIN_TFLITE && p->m[ch] < 0) {
            run_windows(plane, group->w[lane], y, &at->windows);
            continue;
        }
        at->windows.word = 0;
        run_windows(plane, group->w[lane], at->sums, &at->windows);
        put_tile(p, front->tile, at->sums, ch, y);
    }
}

#endif

#if KERNELS_AVX2
#include "dwconv2d_avx2.h"
#endif

/* The group's outputs in a tile, from its planes. */
static void put_group(struct front *front, const struct group *group, const int32_t *b)
{
#if KERNELS_MVE
    if (front->at->stand && !front->out.mask) {
        put_upright(front, group, b);
        return;
    }
#endif
#if KERNELS_DSP && !KERNELS_MVE
    if (front->at_once) {
        put_windows(front, group, b);
        return;
    }
#endif
    const struct conv2d *p = front->p;
    const struct view *v = front->v;
    struct buffers *at = front->at;
    for (uint32_t lane = 0; lane < group->lanes; lane++) {
        uint32_t ch = group->channel[lane];
        int8_t *y = front->out.y + ch;
        sum_lane(v, front->tile, group, lane, at, b[ch], at->sums);
        if (front->out.mask) {
            put_tile_masked(p, front->tile, at->sums, ch, y, front->out.mask + (ch >> 3));
        } else {
            put_tile(p, front->tile, at->sums, ch, y);
        }
    }
}

#if KERNELS_MVE

/* All outputs of the group. */
static void put_small(const struct small *s, const struct conv2d *p, const struct group *group, const int32_t *b,
                      int8_t *y, uint8_t *mask)
{
    uint32_t ch = group->channel[0];
    struct windows_of_four at;
    struct outputs_of_four to;
    vstrwq_s32(to.b, vldrwq_s32(b + ch));
    vstrwq_f32(to.m, multipliers_of_four(vldrwq_s32(p->m + ch)));
    vstrwq_u32(to.powers, vshlq_u32(vdupq_n_u32(1u << (ch & 7u)), vreinterpretq_s32_u32(vidupq_n_u32(0, 1))));
    to.zero = p->y_zero;
    to.c = p->c_out;
    to.y = y + ch;
    to.mask = mask ? mask + ch / 8 : NULL;
    to.stride = mask_stride(p->c_out);
    fill_four(s, group);
    begin_windows(s, &at);
    uint32_t h = s->v->h, at_once = s->all ? h : 1, n = at_once * s->v->w;
    for (uint32_t oy = 0; oy < h; oy += at_once) {
        sum_four(s, &at, oy, at_once, s->sums);
        mask ? put_four_masked(s->sums, n, &to) : put_four(s->sums, n, &to);
    }
}

/* True where put_groups() makes the outputs. */
NEVER_INLINE int has_small_input(const struct conv2d *p, const struct split_weights *w)
{
    struct view v;
    view_of_input(p, NULL, p->c_in, &v);
    return is_plain(p, w) && is_small(&v, (int32_t)(forward_bytes(p, &v) - 16 * round_up4(v.w)));
}

/* dwconv2d_fwd_s8() of a small image, of whole groups. */
NEVER_INLINE void put_groups(const struct conv2d *p, const int8_t *x, const struct split_weights *w, const int32_t *b,
                             int8_t *y, uint8_t *mask, void *scratch PACED)
{
    struct view v;
    view_of_input(p, x, p->c_in, &v);
    uint32_t begin = PACE_INNER(), row = 4 * round_up4(v.w);
    int all = is_small(&v, (int32_t)(forward_bytes(p, &v) - 4 * row * v.h));
    struct small small;
    struct group group;
    small_of(&v, scratch, (int32_t *)scratch + (all ? row * v.h : row), &small);
    small.all = small.all && all;
    if (mask && begin == 0) {
        fill_bytes(mask, 0, v.h * v.w * mask_stride(p->c_out));
    }
    for (uint32_t i = begin; i < p->c_in; i += PLANES) {
        if (PACE_STOP(0, i, PLANES * v.h * v.w * (v.kh * v.kw + WORK_OUTPUT))) {
            return;
        }
        to_group(p, w, i, i > begin, &group);
        put_small(&small, p, &group, b, y, mask);
    }
}

#endif

/* dwconv2d_fwd_s8() of all other images. */
APART void put_tiles(const struct conv2d *p, const int8_t *x, const struct split_weights *w, const int32_t *b,
                     int8_t *y, uint8_t *mask, void *scratch PACED)
{
    uint32_t begin = PACE_OUTER(), from = PACE_INNER(), number = 0;
    struct view v;
    view_of_input(p, x, p->c_in, &v);
#if KERNELS_MVE
    int upright = is_upright(&v);
    if (upright && !PACE_IS_ON()) {
        widen_tiles(&v, forward_bytes(p, &v));
    }
#endif
    struct buffers at = buffers_of(&v, tile_sums_bytes(&v), scratch);
#if KERNELS_MVE
    at.stand = upright ? &at.upright : NULL;
#endif
    struct group group;
    int plain = is_plain(p, w);
    if (mask && begin == 0 && from == 0) {
        fill_bytes(mask, 0, (uint32_t)p->h_out * p->w_out * mask_stride(p->c_out));
    }
    struct tile tile;
    for (first_tile(&v, &tile); tile.h; next_tile(&v, &tile), number++) {
        if (PACE_SKIP(number, begin)) {
            continue;
        }
        begin_tile(&v, &tile, &at, planes_of(p->c_in), from == 0);
        struct front front;
        front.p = p;
        front.v = &v;
        front.tile = &tile;
        front.at = &at;
        begin_front(&front, p, y, mask);
        for (uint32_t i = from; i < p->c_in; i += PLANES) {
            if (PACE_STOP(number, i, PLANES * tile.h * tile.w * ((uint32_t)p->kh * p->kw + WORK_OUTPUT))) {
                return;
            }
            to_group(p, w, i, plain && i > from, &group);
#if KERNELS_AVX2
            if (is_paired(&v, &group)) {
                put_paired(&front, &group, b);
                continue;
            }
#endif
            fill_group(&v, &tile, &group, &at);
            put_group(&front, &group, b);
        }
        from = 0;
    }
}

void dwconv2d_fwd_s8(const struct conv2d *p, const int8_t *x, const struct split_weights *w, const int32_t *b,
                     int8_t *y, uint8_t *mask, void *scratch PACED)
{
#if KERNELS_MVE
    if (has_small_input(p, w)) {
        put_groups(p, x, w, b, y, mask, scratch PACE);
        return;
    }
#endif
    put_tiles(p, x, w, b, y, mask, scratch PACE);
}
