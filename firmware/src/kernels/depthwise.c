/* SPDX-License-Identifier: Apache-2.0 */
/* What depthwise.h declares. */
#include "depthwise.h"

void group_at(const struct conv2d *p, const struct split_weights *w, uint32_t first, struct group *group)
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

#if KERNELS_MVE

void small_of(const struct view *v, int32_t *sums, void *floats, struct small *s)
{
    s->v = v;
    s->row = round_up4(v->w);
    s->places = s->row - 1 + v->kw;
    s->sums = sums;
    s->all = s->row == v->w;
    s->taps = floats;
    s->x = s->taps + 4 * v->kh * v->kw;
    fill_bytes(s->x, 0, 16 * (uint32_t)v->image_h * s->places);
    struct overlap columns = overlap_of(-v->pad_w, (int32_t)s->places, v->image_w, v->space_w);
    s->image = v->image + (uint32_t)columns.first * v->c;
    s->spread.c = v->c;
    s->spread.columns = (uint32_t)columns.n;
    s->spread.rows = (uint32_t)v->image_h;
    s->spread.row_bytes = (uint32_t)v->image_w * v->c;
    s->spread.to = s->x + 4 * columns.at;
    s->spread.step = 16 * (uint32_t)v->space_w;
    s->spread.to_row = 16 * s->places;
    s->spread.zero = v->zero;
}

void sum_spaced_rows(const struct small *s, struct windows_of_four *at, uint32_t y, uint32_t h)
{
    const struct view *v = s->v;
    at->h = 1;
    at->top = 0;
    for (uint32_t end = y + h; y < end; y++, at->sums += 4 * s->row) {
        struct overlap rows = overlap_of((int32_t)y - v->pad_h, (int32_t)v->kh, v->image_h, v->space_h);
        at->x = s->x + 4 * s->places * (uint32_t)rows.first;
        at->taps = s->taps + 4 * v->kw * (uint32_t)rows.at;
        at->rows = at->kh = rows.n;
        sum_windows_of_four(v->kw, at);
    }
}

#endif
