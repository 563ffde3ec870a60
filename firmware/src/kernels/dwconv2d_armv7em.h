/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise errors of images that are one tile, for Armv7E-M: what is done for a group of channels in dwconv2d.c is done
 * here channel by channel, from sums to int8. */

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

/* Errors of the group, one channel after the other. */
static void put_whole(struct errors *e)
{
    const struct conv2d *p = e->p;
    uint32_t pixels = (uint32_t)p->h_in * p->w_in, c = p->c_in;
    int32_t *sums = e->at.sums;
    const int16_t *plane = e->at.planes;
    fill_group(&e->v, &e->tile, &e->group, &e->at);
    e->at.windows.word = 0;
    e->at.windows.bias = 0;
    for (uint32_t lane = 0; lane < e->group.lanes; lane++, plane += e->v.plane) {
        uint32_t at = e->group.channel[lane];
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
