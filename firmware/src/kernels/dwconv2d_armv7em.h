/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise errors of images that are one tile, for Armv7E-M: what is done for a group of channels in
 * dwconv2d_bwd_x.c is done here channel by channel, from sums to int8. */

/* Prepares that where it can be, and the four phases of a stride of 2 where there are. */
static void begin_whole(struct errors *e, void *taps)
{
    e->phased = is_kept(&e->v) && begin_phases(&e->v, taps, &e->phases);
    if (e->phased) {
        first_tile(&e->v, &e->tile);
        begin_tile(&e->v, &e->tile, &e->at, planes_of(e->p->c_in), 1);
    }
    e->whole = e->phased || (e->tiles == 1 && e->v.fast && e->tile.runs.count == 1);
}

/* A byte for each channel of the group, not 0 where an error of its outputs is not. Ends when all have one. */
static uint32_t live_channels(const struct errors *e)
{
    const struct conv2d *p = e->p;
    const int8_t *q = e->ey->q + e->group.channel[0];
    uint32_t live = e->group.neighbours ? 0 : ~0u;
    for (uint32_t n = (uint32_t)p->h_out * p->w_out; n && (live - 0x01010101u) & ~live & 0x80808080u;
         n--, q += p->c_out) {
        live |= load_u32(q);
    }
    return live;
}

/* Errors of a channel all of whose outputs' errors are 0, as behind a clamp that stops every pixel. */
static void put_dead(struct errors *e, uint32_t channel)
{
    const struct conv2d *p = e->p;
    int8_t *q = e->ex->q + channel;
    errors_gain(e, channel, 0.0f);
    for (uint32_t n = (uint32_t)p->h_in * p->w_in; n; n--, q += p->c_in) {
        *q = 0;
    }
}

/* Errors of the group, one channel after the other. */
static void put_whole(struct errors *e)
{
    const struct conv2d *p = e->p;
    uint32_t pixels = (uint32_t)p->h_in * p->w_in, c = p->c_in;
    int32_t *sums = e->at.sums;
    const int16_t *plane = e->at.planes;
    uint32_t live = live_channels(e);
    fill_group(&e->v, &e->tile, &e->group, &e->at);
    e->at.windows.word = 0;
    e->at.windows.bias = 0;
    for (uint32_t lane = 0; lane < e->group.lanes; lane++, plane += e->v.plane, live >>= 8) {
        uint32_t at = e->group.channel[lane];
        if (!(live & 0xffu)) {
            put_dead(e, at);
            continue;
        }
        if (e->phased) {
            sum_phases(plane, e->group.w[lane], sums, &e->phases);
        } else {
            run_windows(plane, e->group.w[lane], sums, &e->at.windows);
        }
        const struct channel ch = channel_of(e->ex, e->clamp, c, at);
        const struct mask_view mask = {ch.mask, ch.mask_step, 31u - ch.bit, 0};
        float gain = errors_gain(e, at, mask_channel(sums, pixels, &mask, 0.0f));
        put_channel_errors(sums, pixels, ch.q, c, gain);
    }
}
