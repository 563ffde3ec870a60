/* SPDX-License-Identifier: Apache-2.0 */
/* Row-by-row chains. Contract: kernels/stream.h. */
#include "kernels/stream.h"

#include "chip.h"
#include "stream_state.h"

/* A chain on its way. */
struct run {
    const struct stream *s;
    const int8_t *x; /* NULL: rows come from outside */
    int8_t *y;
    uint8_t *scratch;
    struct head *head;
    struct progress *stage;
};

static struct run run_of(const struct stream *s, const int8_t *x, int8_t *y, void *scratch)
{
    return (struct run){s, x, y, scratch, scratch, stages_of(scratch)};
}

/* Most output rows that `rows` new input rows complete. */
static uint32_t rows_completed(const struct conv2d *p, uint32_t rows)
{
    return (rows + p->stride_h - 1u) / p->stride_h;
}

/* True where a stage reads its rows from x itself. */
static int reads_x(const struct stream *s, uint32_t i)
{
    const struct conv2d *p = s->stage[i].conv;
    return i == 0 && s->resident && p->kh == 1 && p->stride_h == 1 && p->pad_h == 0;
}

/* Bytes of the window of stage i when `rows` enter at once. */
static uint32_t window_bytes(const struct stream *s, uint32_t i, uint32_t rows)
{
    const struct conv2d *p = s->stage[i].conv;
    return reads_x(s, i) ? 0 : round_up4((p->kh - 1u + rows) * in_bytes(p));
}

/* The layer's parameters for `rows` output rows whose input, padding included, is the image. */
static struct conv2d strip_of(const struct stream_stage *stage, uint32_t rows)
{
    struct conv2d p = *stage->conv;
    p.h_in = (uint16_t)((rows - 1) * p.stride_h + p.kh);
    p.h_out = (uint16_t)rows;
    p.pad_h = 0;
    return p;
}

static uint32_t kernel_scratch(const struct stream_stage *stage, uint32_t rows)
{
    uint32_t most = 0;
    for (; rows; rows--) {
        struct conv2d p = strip_of(stage, rows);
        uint32_t bytes = stage->kind == STREAM_DWCONV2D ? dwconv2d_fwd_scratch(&p)
                         : stage->kind == STREAM_CONV2D ? conv2d_fwd_scratch(&p)
                                                        : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint32_t stream_fwd_scratch(const struct stream *s)
{
    uint32_t bytes = (uint32_t)sizeof(struct head) + s->stages * (uint32_t)sizeof(struct progress);
    uint32_t rows = s->rows, most = 0;
    for (uint32_t i = 0; i < s->stages; i++) {
        bytes += window_bytes(s, i, rows);
        rows = rows_completed(s->stage[i].conv, rows);
        uint32_t scratch = kernel_scratch(&s->stage[i], rows);
        most = scratch > most ? scratch : most;
    }
    return bytes + most + (s->add ? round_up4(rows * out_bytes(s->stage[s->stages - 1].conv)) : 0);
}

/* Empty windows, with the padding above the image already in them. */
void stream_begin(const struct stream *s, void *scratch)
{
    struct run at = run_of(s, NULL, NULL, scratch);
    uint32_t offset = (uint32_t)sizeof(struct head) + s->stages * (uint32_t)sizeof(struct progress), rows = s->rows;
    for (uint32_t i = 0; i < s->stages; i++) {
        const struct conv2d *p = s->stage[i].conv;
        at.stage[i] = (struct progress){.window = offset, .fed = p->pad_h, .most = (uint16_t)rows};
        fill_bytes(at.scratch + offset, p->x_zero, p->pad_h * in_bytes(p));
        offset += window_bytes(s, i, rows);
        rows = rows_completed(p, rows);
    }
    at.head->sums = offset;
    at.head->kernel = offset + (s->add ? round_up4(rows * out_bytes(s->stage[s->stages - 1].conv)) : 0);
    at.head->waiting = 0;
}

#ifdef MICROTRAIN_LIBRARY
#define OWN_ROWS(s, stage, ...) (s)->own((s)->memory, stage, __VA_ARGS__)
#else
#define OWN_ROWS(s, stage, ...) stream_rows(stage, __VA_ARGS__)

__attribute__((weak)) void stream_rows(const struct stream_stage *stage, const struct conv2d *p, const int8_t *x,
                                       int8_t *y, void *scratch)
{
    (void)stage, (void)p, (void)x, (void)y, (void)scratch;
}
#endif

static int8_t *window_row(const struct run *at, uint32_t i, uint32_t row)
{
    const struct progress *stage = &at->stage[i];
    return (int8_t *)at->scratch + stage->window + (row - stage->first) * in_bytes(at->s->stage[i].conv);
}

/* Drops the rows of a window that no later output needs; returns the place of the next to enter. */
static int8_t *open_window(const struct run *at, uint32_t i)
{
    struct progress *stage = &at->stage[i];
    uint32_t next = stage->made * (uint32_t)at->s->stage[i].conv->stride_h;
    next = next < stage->fed ? next : stage->fed;
    if (next > stage->first) {
        uint32_t kept = (stage->fed - next) * in_bytes(at->s->stage[i].conv);
        move_down(at->scratch + stage->window, window_row(at, i, next), kept);
        stage->first = (uint16_t)next;
    }
    return window_row(at, i, stage->fed);
}

/* Output rows for which a stage has all it needs. */
static uint32_t rows_ready(const struct run *at, uint32_t i)
{
    const struct conv2d *p = at->s->stage[i].conv;
    const struct progress *stage = &at->stage[i];
    uint32_t need = stage->made * (uint32_t)p->stride_h + p->kh, left = (uint32_t)p->h_out - stage->made;
    uint32_t ready = stage->fed < need ? 0 : (stage->fed - need) / p->stride_h + 1u;
    return ready < left ? ready : left;
}

/* The next `rows` output rows of stage i to where they belong, from its input rows x. */
static void make_rows(const struct run *at, uint32_t i, const int8_t *x, uint32_t rows PACED)
{
    const struct stream *s = at->s;
    const struct stream_stage *stage = &s->stage[i];
    const struct conv2d p = strip_of(stage, rows);
    int last = i + 1u == s->stages;
    uint32_t offset = at->stage[i].made * out_bytes(&p);
    int8_t *y = !last ? open_window(at, i + 1) : s->add ? (int8_t *)at->scratch + at->head->sums : at->y + offset;
    void *scratch = at->scratch + at->head->kernel;
    if (stage->kind == STREAM_DWCONV2D) {
        dwconv2d_fwd_s8(&p, x, stage->w, stage->b, y, NULL, scratch PACE);
    } else if (stage->kind == STREAM_CONV2D) {
        conv2d_fwd_s8(&p, x, stage->w, stage->b, y, NULL, scratch PACE);
    } else if (!PACE_CLOSES()) {
        if (PACE_STOP(0, 0, WORK_OUTPUT * rows * out_bytes(&p))) {
            return;
        }
        OWN_ROWS(s, stage, &p, x, y, scratch);
    }
    if (PACE_PAUSED() || (last && s->add && PACE_STOP(PACE_CLOSE, 0, 2 * WORK_OUTPUT * rows * out_bytes(&p)))) {
        return; /* nothing is counted: the same rows go on, from PACE_CLOSE on without the kernel */
    }
    PACE_IS_DONE();
    if (!last) {
        at->stage[i + 1].fed = (uint16_t)(at->stage[i + 1].fed + rows);
    } else if (s->add) {
        struct add add = *s->add;
        add.pixels *= rows;
        add_fwd_s8(&add, y, at->x + offset, at->y + offset, NULL);
    }
    at->stage[i].made = (uint16_t)(at->stage[i].made + rows);
}

/* Runs the chain from stage i on, whose window has new rows, as far as it goes. */
static void advance(const struct run *at, uint32_t i PACED)
{
    uint32_t rows;
    for (; i < at->s->stages && (rows = rows_ready(at, i)) != 0; i++) {
        uint32_t next = at->stage[i].made * (uint32_t)at->s->stage[i].conv->stride_h;
        make_rows(at, i, window_row(at, i, next), rows PACE);
        if (PACE_PAUSED()) {
            PACE_IS(stage, i);
            return;
        }
    }
}

/* Lets the padding below the image in, stage by stage. */
static void finish(const struct run *at PACED)
{
    for (uint32_t i = PACE_CLOSING(); i < at->s->stages; i++) {
        const struct conv2d *p = at->s->stage[i].conv;
        struct progress *stage = &at->stage[i];
        while (stage->made < p->h_out) {
            uint32_t left = (p->h_out - 1u) * p->stride_h + p->kh - stage->fed;
            uint32_t rows = left < stage->most ? left : stage->most;
            fill_bytes(open_window(at, i), p->x_zero, rows * in_bytes(p));
            stage->fed = (uint16_t)(stage->fed + rows);
            advance(at, i PACE);
            if (PACE_PAUSED()) {
                PACE_IS(closing, i);
                return;
            }
        }
    }
}

/* Lets the next rows of x in. */
static void enter(const struct run *at, uint32_t rows PACED)
{
    struct progress *stage = &at->stage[0];
    uint32_t bytes = in_bytes(at->s->stage[0].conv);
    if (reads_x(at->s, 0)) {
        make_rows(at, 0, at->x + stage->made * bytes, rows PACE);
        if (PACE_PAUSED()) {
            PACE_IS(stage, 0);
            PACE_IS(rows, rows);
            return;
        }
        advance(at, 1 PACE);
    } else {
        uint32_t row = (uint32_t)stage->fed - at->s->stage[0].conv->pad_h;
        copy_apart(open_window(at, 0), at->x + row * bytes, rows * bytes);
        stage->fed = (uint16_t)(stage->fed + rows);
        advance(at, 0 PACE);
    }
}

#ifdef MICROTRAIN_LIBRARY

/* Goes on with the rows at which the last piece stopped. Returns 0 where there was none. */
static int resumed(const struct run *at, struct pace *pace)
{
    if (!pace || !pace->phase) {
        return 0;
    }
    uint32_t i = pace->stage;
    if (i == 0 && reads_x(at->s, 0)) {
        const int8_t *x = at->x + at->stage[0].made * in_bytes(at->s->stage[0].conv);
        make_rows(at, 0, x, pace->rows, pace);
        i = 1;
    }
    if (!pace->paused) {
        advance(at, i, pace);
    }
    return 1;
}

/* Keeps where the stream stands. left: rows that have not entered. */
static void note(struct pace *pace, uint32_t left)
{
    if (pace) {
        pace->phase = pace->paused;
        pace->rows_left = left;
        pace->closing = pace->paused ? pace->closing : 0;
    }
}

#define RESUMED(at) resumed(at, pace)
#define NOTE(left) note(pace, left)
#define LEFT(rows) (pace && pace->phase ? pace->rows_left : (rows))
#else
#define RESUMED(at) 0
#define NOTE(left) ((void)0)
#define LEFT(rows) (rows)
#endif

void stream_fwd_s8(const struct stream *s, const int8_t *x, int8_t *y, void *scratch PACED)
{
    struct run at = run_of(s, x, y, scratch);
    uint32_t left = LEFT(s->stage[0].conv->h_in);
    if (!RESUMED(&at)) {
        stream_begin(s, scratch);
    }
    while (left && !PACE_PAUSED()) {
        uint32_t rows = left < s->rows ? left : s->rows;
        enter(&at, rows PACE);
        left -= rows;
    }
    if (!PACE_PAUSED()) {
        finish(&at PACE);
    }
    NOTE(left);
}

int8_t *stream_row(const struct stream *s, void *scratch)
{
    struct run at = run_of(s, NULL, NULL, scratch);
    return at.head->waiting ? window_row(&at, 0, at.stage[0].fed) : open_window(&at, 0);
}

void stream_take(const struct stream *s, int8_t *y, void *scratch PACED)
{
    struct run at = run_of(s, NULL, y, scratch);
    if (!RESUMED(&at)) {
        at.stage[0].fed++;
        if (++at.head->waiting == s->rows) {
            at.head->waiting = 0;
            advance(&at, 0 PACE);
        }
    }
    NOTE(0);
}

void stream_end(const struct stream *s, int8_t *y, void *scratch PACED)
{
    struct run at = run_of(s, NULL, y, scratch);
    if (!RESUMED(&at)) {
        advance(&at, 0 PACE);
    }
    if (!PACE_PAUSED()) {
        finish(&at PACE);
    }
    NOTE(0);
}
