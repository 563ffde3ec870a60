/* SPDX-License-Identifier: Apache-2.0 */
/* What the forward pass and the gradient to the input of a depthwise convolution have in common: channels are taken
 * PLANES at a time, an image tile by tile. How images are read: planes.h. */
#ifndef KERNELS_DEPTHWISE_H
#define KERNELS_DEPTHWISE_H

#include "planes.h"

/* Up to PLANES rows of the split weights. */
struct group {
    uint32_t lanes;
    int neighbours; /* four channels, one beside the other */
    uint16_t channel[PLANES];
    const int8_t *w[PLANES];
};

/* The group of channel `first`. */
void group_at(const struct conv2d *p, const struct split_weights *w, uint32_t first, struct group *group);

/* True where all groups are neighbours with rows of one matrix. */
ALWAYS_INLINE int is_plain(const struct conv2d *p, const struct split_weights *w)
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

/* sums_bytes: of sums, before taps and planes. */
ALWAYS_INLINE struct buffers buffers_of(const struct view *v, uint32_t sums_bytes, void *scratch)
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

ALWAYS_INLINE uint32_t planes_of(uint32_t channels)
{
    return channels < PLANES ? channels : (uint32_t)PLANES;
}

#if KERNELS_MVE
#include "dwconv2d_mve.h"
/* Beside the ways of small images, so that the stack holds what the one or the other needs. */
#define APART NEVER_INLINE
#else
#define APART ALWAYS_INLINE
#endif

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

#endif
