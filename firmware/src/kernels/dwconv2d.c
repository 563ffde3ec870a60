/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise convolution: forward, and gradient to the input. Contract: kernels/conv2d.h; how images are read: planes.h. */
#include "channel.h"
#include "planes.h"
#include "requantize.h"

/* Up to PLANES rows of the split weights. */
struct group {
    uint32_t lanes;
    int neighbours; /* four channels, one beside the other */
    uint16_t channel[PLANES];
    const int8_t *w[PLANES];
};

static void group_at(const struct conv2d *p, const struct split_weights *w, uint32_t first, struct group *group)
{
    uint32_t left = p->c_in - first, frozen = (uint32_t)p->c_in - w->c_trained, taps = (uint32_t)p->kh * p->kw;
    const int8_t *row = first < frozen ? w->frozen + first * taps : w->trained + (first - frozen) * taps;
    group->lanes = left < PLANES ? left : (uint32_t)PLANES;
    group->neighbours = group->lanes == PLANES;
    for (uint32_t i = 0; i < group->lanes; i++, row += taps) {
        row = first + i == frozen ? w->trained : row;
        group->w[i] = row;
        group->channel[i] = w->order ? w->order[first + i] : (uint16_t)(first + i);
        group->neighbours = group->neighbours && group->channel[i] == group->channel[0] + i;
    }
}

/* True where all groups are neighbours with rows of one matrix. */
static int is_plain(const struct conv2d *p, const struct split_weights *w)
{
    return !w->order && p->c_in % PLANES == 0 && (w->c_trained == 0 || w->c_trained == p->c_in);
}

/* The group of channel i; next: the one behind *group, of a plain layer. */
ALWAYS_INLINE void to_group(const struct conv2d *p, const struct split_weights *w, uint32_t i, int next,
                            struct group *group)
{
    if (!next) {
        group_at(p, w, i, group);
        return;
    }
    uint32_t step = PLANES * (uint32_t)p->kh * p->kw;
#pragma GCC unroll 4
    for (uint32_t lane = 0; lane < PLANES; lane++) {
        group->channel[lane] = (uint16_t)(group->channel[lane] + PLANES);
        group->w[lane] += step;
    }
}

/* Scratch: sums, then taps, then planes. */
struct buffers {
    int32_t *sums;
    void *taps;
    int16_t *planes;
#if KERNELS_DSP
#if KERNELS_MVE
    struct stand *stand; /* of the tile; NULL: windows are not summed from columns */
    union {
        struct stand upright;
        struct {
#endif
            struct windows windows; /* of the tile, as is what follows */
            struct strip strip;
            const int8_t *corner; /* its x of channel 0 */
#if KERNELS_MVE
        };
    };
#endif
#endif
};

static struct buffers buffers_of(const struct view *v, uint32_t sums_bytes, void *scratch)
{
    uint8_t *taps = (uint8_t *)scratch + sums_bytes;
#if KERNELS_MVE
    struct buffers at; /* what is of a tile is not cleared first */
    at.sums = scratch;
    at.taps = taps;
    at.planes = (int16_t *)(void *)(taps + taps_bytes(v));
    return at;
#endif
    return (struct buffers){.sums = scratch, .taps = taps, .planes = (int16_t *)(void *)(taps + taps_bytes(v))};
}

static uint32_t planes_of(uint32_t channels)
{
    return channels < PLANES ? channels : (uint32_t)PLANES;
}

#if KERNELS_MVE
#include "dwconv2d_mve.h"
#endif

/* ---- forward ---------------------------------------------------------------------------------------------------- */

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

uint32_t dwconv2d_fwd_in_place(const struct conv2d *p)
{
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
#elif KERNELS_DSP && !MICROTRAIN_FIXED
    requantize_channel(sums, &tile->runs, p->y_zero, y, c, multiplier_f32(p->m[ch]));
#else
    for (uint32_t i = 0; i < tile->runs.count; i++, sums += tile->row, y += p->w_out * c) {
        for (uint32_t j = 0; j < tile->runs.length; j++) {
            y[j * c] = (int8_t)saturate8(requantize_wide(sums[j], p->m[ch], p->y_zero));
        }
    }
#endif
}

#if KERNELS_DSP && !KERNELS_MVE

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
    int32_t m = p->m[ch];
#if KERNELS_MVE
    put_run_masked(sums, n, y, c, bits_of_float(multiplier_of(m)), zero, mask, stride, bit);
#else
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

/* Unpacks what the tile sees of the group's channels, but for columns, which are unpacked one by one. */
ALWAYS_INLINE void fill_group(const struct view *v, const struct tile *tile, const struct group *group,
                              struct buffers *at)
{
#if KERNELS_MVE
    if (at->stand) {
        return;
    }
#endif
#if KERNELS_DSP
    if (group->neighbours && at->strip.rows) {
        at->strip.x = at->corner + group->channel[0];
        planes_of_four(&at->strip);
        return;
    }
#endif
    fill_planes(v, tile, group->channel, group->lanes, at->planes);
}

/* What is the same of all channels of a tile: zeros where it may see no image; `fresh`: they are not there yet. */
ALWAYS_INLINE void begin_tile(const struct view *v, const struct tile *tile, struct buffers *at, uint32_t lanes,
                              int fresh)
{
#if KERNELS_MVE
    if (at->stand) {
        stand_of(v, tile, at->planes, at->taps, at->stand);
        if (fresh) {
            clear_columns(at->stand);
        }
        return;
    }
#endif
#if KERNELS_DSP
    windows_of(v, tile, at->taps, &at->windows);
    strip_of(v, tile, at->planes, &at->strip);
    at->corner = at->strip.x;
#endif
    (void)tile;
    if (fresh) {
        clear_planes(v, at->planes, lanes);
    }
}

/* Sums of the windows of one of the group's channels. */
ALWAYS_INLINE void sum_lane(const struct view *v, const struct tile *tile, const struct group *group, uint32_t lane,
                            struct buffers *at, int32_t bias, int32_t *sums)
{
#if KERNELS_MVE
    if (at->stand) {
        sum_channel(at->stand, group->channel[lane], group->w[lane], bias, sums);
        return;
    }
#endif
    const int16_t *plane = at->planes + lane * v->plane;
#if KERNELS_DSP
    if (v->fast) {
        at->windows.word = 0;
        at->windows.bias = bias;
        run_windows(plane, group->w[lane], sums, &at->windows);
        return;
    }
#endif
    sum_windows(v, tile, plane, group->w[lane], at->taps, bias, sums);
}

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
        if (p->m[ch] < 0) {
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

#define APART NEVER_INLINE /* so that the stack holds what the one or the other needs */

#else
#define APART ALWAYS_INLINE
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

/* ---- gradient to the input -------------------------------------------------------------------------------------- */

/* Pixels of which the sums of a group of channels are kept between the search for the peak and the rounding; a larger
 * image is computed twice, tile by tile. */
enum { KEPT_PIXELS = 256 };

/* Bytes of sums of a channel of an image whose sums are all kept. */
NEVER_INLINE uint32_t image_sums_bytes(const struct view *v)
{
    uint32_t bytes = 0;
    struct tile tile;
    for (first_tile(v, &tile); tile.h; next_tile(v, &tile)) {
        bytes += tile.h * tile.row * (uint32_t)sizeof(int32_t);
    }
    return bytes;
}

static int is_kept(const struct view *v)
{
    return v->h * v->w <= KEPT_PIXELS;
}

static uint32_t group_sums_bytes(const struct view *v, uint32_t channels)
{
    return planes_of(channels) * (is_kept(v) ? image_sums_bytes(v) : tile_sums_bytes(v));
}

uint32_t dwconv2d_bwd_x_scratch(const struct conv2d *p)
{
    struct view v;
    view_of_errors(p, NULL, &v);
    uint32_t planes = planes_bytes(&v, planes_of(p->c_in));
    return group_sums_bytes(&v, p->c_in) + taps_bytes(&v) + planes;
}

uint32_t dwconv2d_bwd_x_in_place(const struct conv2d *p)
{
    struct view v;
    view_of_errors(p, NULL, &v);
    return is_kept(&v) != 0;
}

uint32_t dwconv2d_bwd_x_ways(const struct conv2d *p)
{
    struct view v;
    view_of_errors(p, NULL, &v);
    return ways_of(&v);
}

/* What bwd_x works on: a group of channels, a tile at a time. */
struct errors {
    const struct conv2d *p;
    const struct error_s8 *ey, *ex;
    const struct clamp *clamp;
    struct view v;
    struct buffers at; /* sums by lane */
    struct group group;
    struct tile tile;          /* between passes the first one */
    uint32_t tiles, lane_sums; /* of a channel */
    float level[PLANES];       /* the peak; behind the first pass the gain */
#if KERNELS_DSP && !KERNELS_MVE
    int whole, phased; /* a channel's sums are made at once; by phases */
    struct phases phases;
#endif
};

/* Counts the tiles of the image and begins the first. */
NEVER_INLINE void begin_tiles(struct errors *e)
{
    for (first_tile(&e->v, &e->tile); e->tile.h; next_tile(&e->v, &e->tile)) {
        e->tiles++;
    }
    first_tile(&e->v, &e->tile);
    begin_tile(&e->v, &e->tile, &e->at, planes_of(e->p->c_in), 1);
}

/* Sums of the tile of all lanes, from sums[lane * e->lane_sums] on. */
static void sum_tile(struct errors *e, int32_t *sums)
{
    const struct view *v = &e->v;
    const struct tile *tile = &e->tile;
    fill_group(v, tile, &e->group, &e->at);
    for (uint32_t lane = 0; lane < e->group.lanes; lane++) {
        sum_lane(v, tile, &e->group, lane, &e->at, 0, sums + lane * e->lane_sums);
    }
}

/* n sums of one lane from `pixel` on: looks for the peak, or with `write` rounds them. With `fresh` they are ints as
 * they were summed; on Armv7E-M the first pass leaves floats. */
ALWAYS_INLINE void put_errors_of(struct errors *e, const struct channel *ch, uint32_t lane, uint32_t pixel, uint32_t n,
                                 int32_t *sums, int write, int fresh)
{
#if KERNELS_DSP && !KERNELS_MVE
    if (fresh) {
        struct mask_view mask = {ch->mask + pixel * ch->mask_step, ch->mask_step, 31u - ch->bit, 0};
        float peak = mask_channel(sums, n, &mask, write ? 0.0f : e->level[lane]);
        e->level[lane] = write ? e->level[lane] : peak;
    }
    if (write) {
        put_channel_errors(sums, n, ch->q + pixel * ch->c, ch->c, e->level[lane]);
    }
#else
    if (fresh) {
        float peak = (float)channel_mask(*ch, pixel, n, sums, 1, 0);
        e->level[lane] = !write && peak > e->level[lane] ? peak : e->level[lane];
    }
    if (write) {
        channel_write(*ch, pixel, n, sums, 1, e->level[lane]);
    }
#endif
}

/* put_errors_of() one lane's tile. */
ALWAYS_INLINE void put_errors(struct errors *e, const struct tile *tile, int32_t *sums, uint32_t lane, int write,
                              int fresh)
{
    const struct channel ch = channel_of(e->ex, e->clamp, e->p->c_in, e->group.channel[lane]);
    uint32_t pixel = tile->y * e->v.w + tile->x;
    for (uint32_t i = 0; i < tile->runs.count; i++, sums += tile->row, pixel += e->v.w) {
        put_errors_of(e, &ch, lane, pixel, tile->runs.length, sums, write, fresh);
    }
}

/* channel_gain() of a channel. */
ALWAYS_INLINE float errors_gain(struct errors *e, uint32_t channel, float peak)
{
    float unit = channel_unit(e->clamp, channel, e->ey->scale[channel]);
    return channel_gain(peak, unit, &e->ex->scale[channel]);
}

/* All tiles of the group; without `write`, a literal, up to the peak, with it the rounding. */
ALWAYS_INLINE void pass_group(struct errors *e, int write)
{
    int kept = is_kept(&e->v);
    uint32_t lane_sums = e->lane_sums;
    int32_t *sums = e->at.sums;
    struct tile *tile = &e->tile;
    for (uint32_t left = e->tiles; left; left--) {
        int fresh = !kept || !write;
        if (fresh) {
            if (e->tiles > 1) {
                begin_tile(&e->v, tile, &e->at, e->group.lanes, 1);
            }
            sum_tile(e, sums);
        }
        for (uint32_t lane = 0; lane < e->group.lanes; lane++) {
            put_errors(e, tile, sums + lane * lane_sums, lane, write, fresh);
        }
        sums += kept ? tile->h * tile->row : 0;
        if (left > 1) {
            next_tile(&e->v, tile);
        } else if (e->tiles > 1) {
            first_tile(&e->v, tile);
        }
    }
}

#if KERNELS_DSP && !KERNELS_MVE
#include "dwconv2d_armv7em.h"
#endif

#if KERNELS_MVE

/* True where put_groups_of_errors() makes the errors. */
NEVER_INLINE int has_small_errors(const struct conv2d *p, const struct split_weights *w)
{
    struct view v;
    view_of_errors(p, NULL, &v);
    return is_plain(p, w) && is_small(&v, (int32_t)(taps_bytes(&v) + planes_bytes(&v, PLANES)));
}

/* dwconv2d_bwd_x_s8() of a small image, of whole groups. */
NEVER_INLINE void put_groups_of_errors(const struct conv2d *p, const struct error_s8 *ey, const struct split_weights *w,
                                       const struct clamp *clamp, const struct error_s8 *ex, void *scratch PACED)
{
    uint32_t begin = PACE_OUTER();
    struct view v;
    struct small small;
    struct group group;
    view_of_errors(p, ey->q, &v);
    small_of(&v, scratch, (uint8_t *)scratch + PLANES * image_sums_bytes(&v), &small);
    for (uint32_t i = begin; i < p->c_in; i += PLANES) {
        if (PACE_STOP(i, 0, PLANES * v.h * v.w * (v.kh * v.kw + 2 * WORK_OUTPUT))) {
            return;
        }
        to_group(p, w, i, i > begin, &group);
        put_errors_of_four(&small, &group, ey, clamp, ex);
    }
}

#endif

/* dwconv2d_bwd_x_s8() of all other images. */
APART void put_tiles_of_errors(const struct conv2d *p, const struct error_s8 *ey, const struct split_weights *w,
                               const struct clamp *clamp, const struct error_s8 *ex, void *scratch PACED)
{
    struct errors e = {.p = p, .ey = ey, .ex = ex, .clamp = clamp};
    view_of_errors(p, ey->q, &e.v);
    e.at = buffers_of(&e.v, group_sums_bytes(&e.v, p->c_in), scratch);
#if KERNELS_MVE
    e.at.stand = is_upright(&e.v) ? &e.at.upright : NULL;
#endif
    e.lane_sums = (is_kept(&e.v) ? image_sums_bytes(&e.v) : tile_sums_bytes(&e.v)) / (uint32_t)sizeof(int32_t);
    begin_tiles(&e);
    int plain = is_plain(p, w);
    uint32_t taps = (uint32_t)p->kh * p->kw * (is_kept(&e.v) ? 1u : 2u);
    uint32_t work = PLANES * e.v.h * e.v.w * (taps + 2 * WORK_OUTPUT);
    (void)work;
#if KERNELS_DSP && !KERNELS_MVE
    begin_whole(&e, e.at.taps);
#endif
    for (uint32_t begin = PACE_OUTER(), i = begin; i < p->c_in; i += PLANES) {
        if (PACE_STOP(i, 0, work)) {
            return;
        }
        to_group(p, w, i, plain && i > begin, &e.group);
#if KERNELS_DSP && !KERNELS_MVE
        if (e.whole) {
            put_whole(&e);
            continue;
        }
#endif
        for (uint32_t lane = 0; lane < e.group.lanes; lane++) {
            e.level[lane] = 0.0f;
        }
        pass_group(&e, 0);
        for (uint32_t lane = 0; lane < e.group.lanes; lane++) {
            e.level[lane] = errors_gain(&e, e.group.channel[lane], e.level[lane]);
        }
        pass_group(&e, 1);
    }
}

void dwconv2d_bwd_x_s8(const struct conv2d *p, const struct error_s8 *ey, const struct split_weights *w,
                       const struct clamp *clamp, const struct error_s8 *ex, void *scratch PACED)
{
#if KERNELS_MVE
    if (has_small_errors(p, w)) {
        put_groups_of_errors(p, ey, w, clamp, ex, scratch PACE);
        return;
    }
#endif
    put_tiles_of_errors(p, ey, w, clamp, ex, scratch PACE);
}
