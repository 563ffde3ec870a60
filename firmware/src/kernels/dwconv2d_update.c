/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise convolution: gradient to the weights with the update folded in. Contract: kernels/conv2d.h; how images are
 * read: planes.h. */
#include "planes.h"
#include "update.h"

uint32_t dwconv2d_bwd_w_scratch(const struct conv2d *p, uint16_t c_trained)
{
    struct view v;
    view_of_input(p, NULL, p->c_in, &v);
    uint32_t sums = 4u * p->kh * p->kw, errors = v.tile_w * (uint32_t)sizeof(int16_t);
    return c_trained ? sums + errors + planes_bytes(&v, 1) : 0;
}

/* sums[x] += errors of a row against what tap x of a row of taps saw; `taps` is a literal. Errors are zero up to the
 * even place. */
ALWAYS_INLINE void correlate_body(const int16_t *e, const int16_t *row, uint32_t n, uint32_t stride, int32_t *sums,
                                  uint32_t taps)
{
    int32_t acc[7] = {0};
    uint32_t i = 0;
#if KERNELS_DSP
    for (; stride == 1 && i < n; i += 2) {
        int32_t pair = (int32_t)load_u32(e + i);
#pragma GCC unroll 7
        for (uint32_t x = 0; x < taps; x++) {
            acc[x] = __smlad(pair, (int32_t)load_u32(row + i + x), acc[x]);
        }
    }
#endif
    for (; i < n; i++) {
#pragma GCC unroll 7
        for (uint32_t x = 0; x < taps; x++) {
            acc[x] += e[i] * row[i * stride + x];
        }
    }
#pragma GCC unroll 7
    for (uint32_t x = 0; x < taps; x++) {
        sums[x] += acc[x];
    }
}

static void correlate(const int16_t *e, const int16_t *row, uint32_t n, uint32_t stride, int32_t *sums, uint32_t kw)
{
    if (kw == 3) {
        correlate_body(e, row, n, stride, sums, 3);
    } else if (kw == 5) {
        correlate_body(e, row, n, stride, sums, 5);
    } else if (kw == 7) {
        correlate_body(e, row, n, stride, sums, 7);
    } else {
        for (uint32_t x = 0; x < kw; x++) {
            correlate_body(e, row + x, n, stride, sums + x, 1);
        }
    }
}

/* Sums of all taps of one channel. e: its error of pixel 0; errors: [v->tile_w] of a row of a tile. */
static void correlate_channel(const struct conv2d *p, const int8_t *e, const struct view *v, uint16_t channel,
                              int16_t *errors, int16_t *plane, int32_t *sums)
{
    memset(sums, 0, (uint32_t)p->kh * p->kw * sizeof *sums);
    struct tile tile;
    for (first_tile(v, &tile); tile.h; next_tile(v, &tile)) {
        clear_planes(v, plane, 1);
        fill_planes(v, &tile, &channel, 1, plane);
        errors[(tile.w - 1) | 1u] = 0; /* the place that makes up the last pair, or one that is written */
        for (uint32_t oy = 0; oy < tile.h; oy++) {
            const int8_t *from = e + ((tile.y + oy) * p->w_out + tile.x) * p->c_out;
            for (uint32_t ox = 0; ox < tile.w; ox++, from += p->c_out) {
                errors[ox] = *from;
            }
            for (uint32_t y = 0; y < p->kh; y++) {
                const int16_t *row = plane + (oy * v->stride_h + y) * v->places + v->shift;
                correlate(errors, row, tile.w, p->stride_w, sums + y * p->kw, p->kw);
            }
        }
    }
}

void dwconv2d_bwd_w_s8(const struct conv2d *p, const struct error_s8 *ey, const struct saved_input *x,
                       const uint16_t *channels, uint16_t c_trained, const struct trained_weights *w,
                       const struct sgd *sgd, void *scratch PACED)
{
    int32_t *sums = scratch;
    uint32_t key = random_key(sgd->seed, sgd->step, w->id), taps = (uint32_t)p->kh * p->kw;
    int16_t *errors = (int16_t *)(void *)(sums + taps);
    struct view v;
    view_of_input(p, x->x, x->c_x, &v);
    for (uint32_t i = PACE_OUTER(); i < c_trained; i++) {
        if (PACE_STOP(i, 0, v.h * v.w * (taps + WORK_OUTPUT))) {
            return;
        }
        uint32_t ch = channels ? channels[i] : i;
        uint16_t saved = x->index ? x->index[i] : (uint16_t)i;
        correlate_channel(p, ey->q + ch, &v, saved, errors, errors + v.tile_w, sums);
        float factor = sgd->lr_weight * w->qas[ch] * ey->scale[ch];
        struct steps steps = {.sums = sums, .stride = 1, .shift = 0, .factor = factor};
        update_weights(w, i * taps, taps, &steps, key);
    }
}
