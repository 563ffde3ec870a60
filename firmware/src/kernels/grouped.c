/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution in groups, or with taps apart: forward and gradients. Contract: kernels/grouped.h. */
#include "kernels/grouped.h"

#include "channel.h"
#include "dense.h"
#include "requantize.h"
#include "update.h"

/* Output channels that are summed at once; pixels of which the sums to the input are kept; pixels whose errors make up
 * a tile; bytes and channels of saved rows. */
enum { OUTPUTS = 16, STRIP = 256, CHUNK = 256, ROW_BYTES = 2048, ROWS = 16 };

/* Sizes that follow from the parameters. */
struct shape {
    uint32_t taps_h, taps_w, taps, inputs, outputs; /* channels of a group */
    uint32_t pixels;                                /* of the output */
};

static struct shape shape_of(const struct conv2d *p, const struct groups *s)
{
    struct shape shape = {.taps_h = (p->kh - 1u) / s->dilation_h + 1u, .taps_w = (p->kw - 1u) / s->dilation_w + 1u};
    shape.taps = shape.taps_h * shape.taps_w;
    shape.inputs = p->c_in / (uint32_t)s->groups;
    shape.outputs = p->c_out / (uint32_t)s->groups;
    shape.pixels = (uint32_t)p->h_out * p->w_out;
    return shape;
}

/* One of the two weight matrices and the input channels of a group that it is for. */
struct part {
    const int8_t *w;
    const uint16_t *order; /* NULL: all channels in natural order */
    uint32_t count, k;     /* channels; weights of an output channel */
};

static struct part part_of(const struct shape *shape, const struct split_weights *w, int trained)
{
    uint32_t frozen = shape->inputs - w->c_trained;
    struct part part = {.w = w->frozen, .order = w->order, .count = frozen};
    if (trained) {
        part = (struct part){.w = w->trained, .order = w->order ? w->order + frozen : NULL, .count = w->c_trained};
    }
    part.k = part.count * shape->taps;
    return part;
}

/* What an output sees through a tap: which pixel of the input, or -1. */
ALWAYS_INLINE int32_t seen_pixel(const struct conv2d *p, int32_t y, int32_t x)
{
    return y >= 0 && y < p->h_in && x >= 0 && x < p->w_in ? y * p->w_in + x : -1;
}

/* ---- forward ---------------------------------------------------------------------------------------------------- */

/* bytes[taps][count] = what an output pixel sees of a group, padding as x_zero. x: the group's first channel. */
static void fetch_field(const struct conv2d *p, const struct groups *s, const struct shape *shape, const int8_t *x,
                        uint32_t pixel, const struct part *part, int8_t *bytes)
{
    int32_t y = (int32_t)(pixel / p->w_out) * p->stride_h - p->pad_h;
    int32_t left = (int32_t)(pixel % p->w_out) * p->stride_w - p->pad_w;
    for (uint32_t ky = shape->taps_h; ky; ky--, y += s->dilation_h) {
        int32_t at = left;
        for (uint32_t kx = shape->taps_w; kx; kx--, at += s->dilation_w, bytes += part->count) {
            int32_t from = seen_pixel(p, y, at);
            const int8_t *values = x + from * p->c_in;
            if (from < 0) {
                fill_bytes(bytes, p->x_zero, part->count);
            } else if (part->order) {
                for (uint32_t i = 0; i < part->count; i++) {
                    bytes[i] = values[part->order[i]];
                }
            } else {
                copy_bytes(bytes, values, part->count);
            }
        }
    }
}

/* Sums and, while a pixel is packed, its bytes. */
static uint32_t forward_sums_bytes(const struct shape *shape)
{
    uint32_t k = round_up4(shape->taps * shape->inputs);
    uint32_t sums = 4 * LANES * (shape->outputs < OUTPUTS ? shape->outputs : (uint32_t)OUTPUTS);
    return k > sums ? k : sums;
}

uint32_t gconv2d_fwd_scratch(const struct conv2d *p, const struct groups *s)
{
    const struct shape shape = shape_of(p, s);
    return forward_sums_bytes(&shape) + tile_bytes(shape.taps * shape.inputs + 4, LANES);
}

/* Outputs first .. first + n of the span's pixels, and their bits of a mask in which these are still 0. */
static void put_outputs(const struct conv2d *p, const struct span *at, const int32_t *sums, uint32_t first, uint32_t n,
                        int8_t *y, uint8_t *mask)
{
    for (uint32_t lane = 0; lane < at->live; lane++) {
        uint32_t pixel = at->first + lane;
        int8_t *to = y + pixel * p->c_out + first;
        uint8_t *bits = mask ? mask + pixel * mask_stride(p->c_out) : NULL;
        for (uint32_t i = 0; i < n; i++) {
            int32_t v = requantize_wide(sums[i * at->lanes + lane], multiplier_at(p, first + i), p->y_zero),
                    q = saturate8(v);
            to[i] = (int8_t)q;
            if (bits && v == q) {
                bits[(first + i) >> 3] = (uint8_t)(bits[(first + i) >> 3] | 1u << ((first + i) & 7u));
            }
        }
    }
}

/* What forward works on: one group. */
struct field {
    const struct conv2d *p;
    const struct shape *shape;
    struct part part[2];
    uint32_t first; /* output channel */
    int32_t *sums;
    int16_t *tile[2];
};

/* The sums of outputs o .. o + n of the group, and the outputs. */
static void sum_outputs(const struct field *f, const struct span *at, uint32_t o, uint32_t n, const int32_t *b)
{
    for (uint32_t i = 0; i < n * at->lanes; i++) {
        f->sums[i] = b[f->first + o + i / at->lanes];
    }
    for (uint32_t i = 0; i < 2; i++) {
        const struct part *part = &f->part[i];
        if (part->k) {
            dot_rows_add(f->tile[i], at->lanes, part->w + (f->first + o) * part->k, part->k, n, f->sums);
        }
    }
}

/* Packs what the span's pixels see. x: the group's first channel. */
static void pack_fields(const struct field *f, const struct groups *s, const struct span *at, const int8_t *x)
{
    int8_t *bytes = (int8_t *)f->sums;
    for (uint32_t i = 0; i < 2; i++) {
        const struct part *part = &f->part[i];
        if (!part->k) {
            continue;
        }
        clear_lanes(f->tile[i], at, part->k);
        for (uint32_t lane = 0; lane < at->live; lane++) {
            fetch_field(f->p, s, f->shape, x, at->first + lane, part, bytes);
            pack_lane(f->tile[i], at->lanes, lane, bytes, part->k, f->p->x_zero);
        }
    }
}

/* All outputs of one group. */
static void put_group(const struct field *f, const struct groups *s, const int8_t *x, const int32_t *b, int8_t *y,
                      uint8_t *mask)
{
    uint32_t pixels = f->shape->pixels, outputs = f->shape->outputs;
    struct span at;
    for (uint32_t i = 0; i < pixels; i = at.first + at.live) {
        at = span_at(i, pixels, 0);
        pack_fields(f, s, &at, x);
        for (uint32_t o = 0, n; o < outputs; o += n) {
            n = outputs - o < OUTPUTS ? outputs - o : (uint32_t)OUTPUTS;
            sum_outputs(f, &at, o, n, b);
            put_outputs(f->p, &at, f->sums, f->first + o, n, y, mask);
        }
    }
}

void gconv2d_fwd_s8(const struct conv2d *p, const struct groups *s, const int8_t *x, const struct split_weights *w,
                    const int32_t *b, int8_t *y, uint8_t *mask, void *scratch PACED)
{
    const struct shape shape = shape_of(p, s);
    struct field f = {.p = p, .shape = &shape, .sums = scratch};
    f.part[0] = part_of(&shape, w, 0);
    f.part[1] = part_of(&shape, w, 1);
    f.tile[0] = (int16_t *)(void *)((int8_t *)scratch + forward_sums_bytes(&shape));
    f.tile[1] = f.tile[0] + round_up4(f.part[0].k) * LANES;
    uint32_t begin = PACE_OUTER();
    if (mask && begin == 0) {
        memset(mask, 0, shape.pixels * mask_stride(p->c_out));
    }
    for (uint32_t g = begin; g < s->groups; g++) {
        if (PACE_STOP(g, 0, shape.pixels * shape.outputs * (shape.taps * shape.inputs + WORK_OUTPUT))) {
            return;
        }
        f.first = g * shape.outputs;
        put_group(&f, s, x + g * shape.inputs, b, y, mask);
    }
}

/* ---- gradient to the input -------------------------------------------------------------------------------------- */

static uint32_t input_pixels(const struct conv2d *p)
{
    return (uint32_t)p->h_in * p->w_in;
}

static uint32_t strip_pixels(const struct conv2d *p)
{
    return input_pixels(p) < STRIP ? input_pixels(p) : (uint32_t)STRIP;
}

uint32_t gconv2d_bwd_x_scratch(const struct conv2d *p, const struct groups *s)
{
    const struct shape shape = shape_of(p, s);
    return 4 * LANES * strip_pixels(p) + tile_bytes(shape.outputs, LANES) + round_up4(2 * shape.outputs);
}

/* A span of the input channels of a group against all errors. */
struct columns {
    const struct conv2d *p;
    const struct groups *s;
    const struct shape *shape;
    const struct part *part;
    const int8_t *w;  /* of the group's first output channel */
    const int8_t *ey; /* of the group's first output channel */
    int16_t *r;       /* [outputs] */
    int16_t *tile;    /* of one tap: `outputs` values */
    int32_t *sums;    /* [strip][lanes] */
    struct span at;   /* columns of the weight matrix */
};

/* r[o] = rint(scale[o] / S * 2^guard) of a group. Returns S / 2^guard. */
static float align_errors(const struct columns *col, const float *scale)
{
    uint32_t count = col->shape->outputs;
    float largest = 0.0f, one = (float)(1 << col->p->guard);
    for (uint32_t o = 0; o < count; o++) {
        largest = scale[o] > largest ? scale[o] : largest;
    }
    for (uint32_t o = 0; o < count; o++) {
        col->r[o] = (int16_t)(largest > 0.0f ? round_nearest(scale[o] / largest * one) : 0);
    }
    return largest / one;
}

/* Adds to the sums of pixels first .. end what reaches them through a tap, from (top, left) of an output's corner. */
static void add_tap(const struct columns *col, int32_t top, int32_t left, uint32_t first, uint32_t end)
{
    const struct conv2d *p = col->p;
    const int8_t *errors = col->ey;
    int32_t y = top - p->pad_h;
    for (uint32_t oy = 0; oy < p->h_out; oy++, y += p->stride_h) {
        int32_t x = left - p->pad_w;
        for (uint32_t ox = 0; ox < p->w_out; ox++, x += p->stride_w, errors += p->c_out) {
            uint32_t pixel = (uint32_t)seen_pixel(p, y, x); /* one that is not seen lies behind all */
            if (pixel >= first && pixel < end) {
                dot_rows_add(col->tile, col->at.lanes, errors, col->shape->outputs, 1,
                             col->sums + (pixel - first) * col->at.lanes);
            }
        }
    }
}

/* The sums of pixels first .. end. */
static void sum_strip(const struct columns *col, uint32_t first, uint32_t end)
{
    const struct shape *shape = col->shape;
    const int8_t *w = col->w + col->at.first;
    memset(col->sums, 0, (end - first) * col->at.lanes * sizeof *col->sums);
    for (uint32_t ky = 0; ky < shape->taps_h; ky++) {
        for (uint32_t kx = 0; kx < shape->taps_w; kx++, w += col->part->count) {
            pack_columns(col->tile, &col->at, w, col->part->k, col->r, shape->outputs);
            add_tap(col, (int32_t)(ky * col->s->dilation_h), (int32_t)(kx * col->s->dilation_w), first, end);
        }
    }
}

/* Where the errors go. */
struct joint {
    const struct error_s8 *ex;
    const struct clamp *clamp;
    uint32_t first; /* channel of the group */
    float unit;     /* real gradient of 1 in a sum, before the clamp */
};

/* Errors of the span's channels: peak over all pixels, then rounding. */
static void put_columns(const struct columns *col, const struct joint *to)
{
    uint32_t pixels = input_pixels(col->p), strip = strip_pixels(col->p), at[LANES] = {0};
    struct channel ch[LANES] = {{0}};
    int32_t peak[LANES] = {0};
    float gain[LANES] = {0.0f};
    for (uint32_t j = 0; j < col->at.live; j++) {
        uint32_t column = col->at.first + j;
        at[j] = to->first + (col->part->order ? col->part->order[column] : column);
        ch[j] = channel_of(to->ex, to->clamp, col->p->c_in, at[j]);
    }
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < pixels; i += strip) {
            uint32_t n = pixels - i < strip ? pixels - i : strip;
            int fresh = pass == 0 || pixels > strip;
            if (fresh) {
                sum_strip(col, i, i + n);
            }
            for (uint32_t j = 0; j < col->at.live; j++) {
                peak[j] = fresh ? channel_mask(ch[j], i, n, col->sums + j, col->at.lanes, peak[j]) : peak[j];
                if (pass) {
                    channel_write(ch[j], i, n, col->sums + j, col->at.lanes, gain[j]);
                }
            }
        }
        for (uint32_t j = 0; pass == 0 && j < col->at.live; j++) {
            float unit = channel_unit(to->clamp, at[j], to->unit);
            gain[j] = channel_gain((float)peak[j], unit, &to->ex->scale[at[j]]);
        }
    }
}

void gconv2d_bwd_x_s8(const struct conv2d *p, const struct groups *s, const struct error_s8 *ey,
                      const struct split_weights *w, const struct clamp *clamp, const struct error_s8 *ex,
                      void *scratch PACED)
{
    const struct shape shape = shape_of(p, s);
    struct columns col = {.p = p, .s = s, .shape = &shape, .sums = scratch};
    col.tile = (int16_t *)(void *)(col.sums + LANES * strip_pixels(p));
    col.r = col.tile + round_up4(shape.outputs) * LANES;
    for (uint32_t g = PACE_OUTER(); g < s->groups; g++) {
        uint32_t work = shape.pixels * shape.outputs * shape.taps + input_pixels(p) * WORK_OUTPUT;
        if (PACE_STOP(g, 0, shape.inputs * work * (input_pixels(p) > STRIP ? 2 : 1))) {
            return;
        }
        (void)work;
        col.ey = ey->q + g * shape.outputs;
        struct joint to = {ex, clamp, g * shape.inputs, align_errors(&col, ey->scale + g * shape.outputs)};
        for (int trained = 0; trained < 2; trained++) {
            const struct part part = part_of(&shape, w, trained);
            col.part = &part;
            col.w = part.k ? part.w + g * shape.outputs * part.k : NULL;
            for (uint32_t i = 0; i < part.count; i = col.at.first + col.at.live) {
                col.at = span_at(i, part.count, 0);
                put_columns(&col, &to);
            }
        }
    }
}

/* ---- gradient to the weights ------------------------------------------------------------------------------------ */

/* Saved channels of which rows are made at once; the row of ones behind them takes part in ROW_BYTES. */
static uint32_t block_channels(const struct shape *shape, uint32_t c_trained)
{
    uint32_t rows = ROW_BYTES / shape->pixels, block = rows < 3 ? 2 : rows - 1 < ROWS ? rows - 1 : (uint32_t)ROWS;
    return block < c_trained ? block : c_trained;
}

static uint32_t chunk_pixels(const struct shape *shape)
{
    return shape->pixels < CHUNK ? shape->pixels : (uint32_t)CHUNK;
}

uint32_t gconv2d_bwd_w_scratch(const struct conv2d *p, const struct groups *s, uint16_t c_trained)
{
    const struct shape shape = shape_of(p, s);
    uint32_t rows = block_channels(&shape, c_trained) + 1;
    return 4 * rows * LANES + tile_bytes(chunk_pixels(&shape), LANES) + round_up4(rows * shape.pixels);
}

/* One group and one tap, and a block of its trained channels. */
struct block {
    const struct conv2d *p;
    const struct shape *shape;
    int32_t top, left;            /* of the tap, from an output's corner */
    uint32_t group, first, count; /* trained channels */
    int32_t *sums;                /* [count + 1][lanes] */
    int16_t *tile;                /* errors of a chunk of pixels */
    int8_t *rows;                 /* by chunk: [count + 1][pixels of it], saved inputs under the tap, then ones */
};

/* row[i] = what output first + i sees of one saved channel, padding as x_zero. */
static void pack_row(const struct block *at, const int8_t *x, uint32_t c_x, uint32_t first, uint32_t n, int8_t *row)
{
    const struct conv2d *p = at->p;
    for (uint32_t ox = first % p->w_out, oy = first / p->w_out; n; n--) {
        int32_t y = (int32_t)(oy * p->stride_h) - p->pad_h + at->top;
        int32_t from = seen_pixel(p, y, (int32_t)(ox * p->stride_w) - p->pad_w + at->left);
        *row++ = from < 0 ? (int8_t)p->x_zero : x[(uint32_t)from * c_x];
        if (++ox == p->w_out) {
            ox = 0;
            oy++;
        }
    }
}

/* All rows of the block. */
static void pack_saved(const struct block *at, const struct saved_input *x, uint32_t c_trained)
{
    int8_t *row = at->rows;
    for (uint32_t i = 0, pixels = at->shape->pixels, n; i < pixels; i += n) {
        n = pixels - i < CHUNK ? pixels - i : (uint32_t)CHUNK;
        for (uint32_t t = 0; t < at->count; t++, row += n) {
            uint32_t column = at->group * c_trained + at->first + t;
            pack_row(at, x->x + (x->index ? x->index[column] : column), x->c_x, i, n, row);
        }
        memset(row, 1, n);
        row += n;
    }
}

/* sums[t][lane] = sum over the pixels of errors of output channel span->first + lane of the group and saved channel t;
 * behind the last of these the sum of the errors alone. e: errors of the group's first channel */
static void correlate(const struct block *at, const int8_t *e, const struct span *span)
{
    uint32_t pixels = at->shape->pixels, rows = at->count + 1, c = at->p->c_out;
    memset(at->sums, 0, rows * span->lanes * sizeof *at->sums);
    for (uint32_t i = 0, n; i < pixels; i += n) {
        n = pixels - i < CHUNK ? pixels - i : (uint32_t)CHUNK;
        pack_columns(at->tile, span, e + i * c + span->first, c, NULL, n);
        dot_rows_add(at->tile, span->lanes, at->rows + i * rows, n, rows, at->sums);
    }
}

/* The trained weights of one layer and their step. */
struct descent {
    const struct trained_weights *w;
    uint32_t key, c_trained;
    float lr;
};

/* All weights of one tap and a block of trained channels. */
static void descend_block(const struct block *at, const struct error_s8 *ey, const struct descent *d, uint32_t tap)
{
    uint32_t first = at->group * at->shape->outputs;
    struct span span;
    for (uint32_t o = 0; o < at->shape->outputs; o = span.first + span.live) {
        span = span_at(o, at->shape->outputs, 0);
        correlate(at, ey->q + first, &span);
        for (uint32_t i = o; i < span.first + span.live; i++) {
            const int32_t *sums = at->sums + (i - span.first);
            struct steps steps = {.sums = sums, .stride = span.lanes};
            steps.shift = at->p->x_zero * sums[at->count * span.lanes];
            steps.factor = d->lr * d->w->qas[first + i] * ey->scale[first + i];
            uint32_t index = ((first + i) * at->shape->taps + tap) * d->c_trained + at->first;
            update_weights(d->w, index, at->count, &steps, d->key);
        }
    }
}

void gconv2d_bwd_w_s8(const struct conv2d *p, const struct groups *s, const struct error_s8 *ey,
                      const struct saved_input *x, uint16_t c_trained, const struct trained_weights *w,
                      const struct sgd *sgd, void *scratch PACED)
{
    const struct shape shape = shape_of(p, s);
    const struct descent d = {w, random_key(sgd->seed, sgd->step, w->id), c_trained, sgd->lr_weight};
    struct block at = {.p = p, .shape = &shape, .sums = scratch};
    uint32_t most = block_channels(&shape, c_trained);
    at.tile = (int16_t *)(void *)(at.sums + (most + 1) * LANES);
    at.rows = (int8_t *)at.tile + tile_bytes(chunk_pixels(&shape), LANES);
    for (at.group = PACE_OUTER(); at.group < s->groups; at.group++) {
        if (PACE_STOP(at.group, 0, shape.outputs * shape.taps * c_trained * (shape.pixels + WORK_OUTPUT))) {
            return;
        }
        for (uint32_t tap = 0; tap < shape.taps; tap++) {
            at.top = (int32_t)(tap / shape.taps_w * s->dilation_h);
            at.left = (int32_t)(tap % shape.taps_w * s->dilation_w);
            for (at.first = 0; at.first < c_trained; at.first += most) {
                at.count = c_trained - at.first < most ? c_trained - at.first : most;
                pack_saved(&at, x, c_trained);
                descend_block(&at, ey, &d, tap);
            }
        }
    }
}
