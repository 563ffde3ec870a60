/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise convolution: gradient to the input. Contract: kernels/conv2d.h. */
#include "channel.h"
#include "depthwise.h"
#include "requantize.h"

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

/* All errors of the group. */
static void put_errors_of_four(const struct small *s, const struct group *group, const struct error_s8 *ey,
                               const struct clamp *clamp, const struct error_s8 *ex)
{
    uint32_t ch = group->channel[0], c = s->v->c, peaks[4] = {0};
    uint32_t rows = s->all ? 1 : s->v->h, n = s->all ? s->v->w * s->v->h : s->v->w; /* of pixels that lie on end */
    const struct channel first = channel_of(ex, clamp, c, ch);
    struct windows_of_four at;
    float gains[4];
    fill_four(s, group);
    begin_windows(s, &at);
    sum_four(s, &at, 0, s->v->h, s->sums);
    for (uint32_t y = 0; y < rows; y++) {
        mask_four(s->sums + 4 * s->row * y, n, first.mask + y * n * first.mask_step, first.mask_step, first.bit, peaks);
    }
    for (uint32_t i = 0; i < 4; i++) {
        float unit = channel_unit(clamp, ch + i, ey->scale[ch + i]);
        gains[i] = channel_gain((float)peaks[i], unit, &ex->scale[ch + i]);
    }
    for (uint32_t y = 0; y < rows; y++) {
        write_four(s->sums + 4 * s->row * y, n, vldrwq_f32(gains), first.q + y * n * c, c);
    }
}

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
