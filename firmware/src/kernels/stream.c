/* Row-by-row chains. Contract: kernels/stream.h. */
#include "kernels/stream.h"

#include <string.h>

/* Where a chain stands. */
struct progress {
    const struct stream *s;
    const int8_t *x;
    int8_t *y;
    int8_t *window[STREAM_STAGES_MAX]; /* [kh][w_in][c_in] of each stage */
    int8_t *row;                       /* output row that waits for its residual add */
    void *scratch;                     /* of the kernels */
    uint16_t fed[STREAM_STAGES_MAX];   /* rows that entered the window, padding included */
    uint16_t made[STREAM_STAGES_MAX];  /* rows that came out */
};

static uint32_t align4(uint32_t bytes)
{
    return (bytes + 3u) & ~3u;
}

static uint32_t row_bytes(const struct stream_stage *stage)
{
    return (uint32_t)stage->row->w_in * stage->row->c_in;
}

static uint32_t out_bytes(const struct stream_stage *stage)
{
    return (uint32_t)stage->row->w_out * stage->row->c_out;
}

static uint32_t window_bytes(const struct stream_stage *stage)
{
    return align4(stage->row->kh * row_bytes(stage));
}

static uint32_t kernel_scratch(const struct stream_stage *stage)
{
    return stage->depthwise ? dwconv2d_fwd_scratch(stage->row) : conv2d_fwd_scratch(stage->row);
}

uint32_t stream_fwd_scratch(const struct stream_stage *stage, uint32_t stages, uint32_t add)
{
    uint32_t bytes = add ? align4(out_bytes(&stage[stages - 1])) : 0, most = 0;
    for (uint32_t i = 0; i < stages; i++) {
        uint32_t scratch = kernel_scratch(&stage[i]);
        bytes += window_bytes(&stage[i]);
        most = scratch > most ? scratch : most;
    }
    return bytes + most;
}

/* Empty windows, with the padding above the image already in them. */
static void start(struct progress *at, int8_t *scratch)
{
    const struct stream *s = at->s;
    for (uint32_t i = 0; i < s->stages; i++) {
        const struct stream_stage *stage = &s->stage[i];
        at->window[i] = scratch;
        at->fed[i] = stage->pad_h;
        at->made[i] = 0;
        memset(scratch, stage->row->x_zero, stage->row->kh * row_bytes(stage));
        scratch += window_bytes(stage);
    }
    at->row = scratch;
    at->scratch = scratch + (s->add ? align4(out_bytes(&s->stage[s->stages - 1])) : 0);
}

/* Moves a window on by one row and returns the place of the new one. */
static int8_t *open_row(struct progress *at, uint32_t i)
{
    const struct stream_stage *stage = &at->s->stage[i];
    uint32_t bytes = row_bytes(stage);
    int8_t *row = at->window[i];
    for (uint32_t k = 1; k < stage->row->kh; k++, row += bytes) {
        memcpy(row, row + bytes, bytes);
    }
    at->fed[i]++;
    return row;
}

/* True when the newest row of a window completed one that is an output. */
static int is_ready(const struct progress *at, uint32_t i)
{
    const struct stream_stage *stage = &at->s->stage[i];
    return at->fed[i] == at->made[i] * stage->stride_h + stage->row->kh && at->made[i] < stage->h_out;
}

static void make_row(const struct progress *at, uint32_t i, int8_t *out)
{
    const struct stream_stage *stage = &at->s->stage[i];
    if (stage->depthwise) {
        dwconv2d_fwd_s8(stage->row, at->window[i], stage->w, stage->b, out, NULL, at->scratch);
    } else {
        conv2d_fwd_s8(stage->row, at->window[i], stage->w, stage->b, out, NULL, at->scratch);
    }
}

/* The last stage's next row into y, with the residual added. */
static void finish_row(struct progress *at, uint32_t i)
{
    const struct stream *s = at->s;
    uint32_t offset = at->made[i] * out_bytes(&s->stage[i]);
    if (!s->add) {
        make_row(at, i, at->y + offset);
    } else {
        make_row(at, i, at->row);
        add_fwd_s8(s->add, at->row, at->x + offset, at->y + offset, NULL);
    }
    at->made[i]++;
}

/* Gives stage i a row (NULL: padding) and follows it down the chain. */
static void feed(struct progress *at, uint32_t i, const int8_t *row)
{
    const struct stream_stage *stage = &at->s->stage[i];
    int8_t *slot = open_row(at, i);
    if (row) {
        memcpy(slot, row, row_bytes(stage));
    } else {
        memset(slot, stage->row->x_zero, row_bytes(stage));
    }
    for (; is_ready(at, i); i++) {
        if (i + 1u == at->s->stages) {
            finish_row(at, i);
            return;
        }
        make_row(at, i, open_row(at, i + 1));
        at->made[i]++;
    }
}

void stream_fwd_s8(const struct stream *s, const int8_t *x, int8_t *y, void *scratch)
{
    struct progress at = {.s = s, .x = x, .y = y};
    start(&at, scratch);
    uint32_t bytes = row_bytes(&s->stage[0]);
    for (uint32_t row = 0; row < s->stage[0].h_in; row++) {
        feed(&at, 0, x + row * bytes);
    }
    for (uint32_t i = 0; i < s->stages; i++) {
        while (at.made[i] < s->stage[i].h_out) {
            feed(&at, i, NULL);
        }
    }
}
