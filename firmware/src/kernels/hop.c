/* SPDX-License-Identifier: Apache-2.0 */
/* Windows that overlap. Contract: kernels/hop.h. In the memory: rows of the input, of each stage how it stands and what
 * stays of its window, rows of y. */
#include "kernels/hop.h"

#include "chip.h"
#include "stream_state.h"

#ifdef MICROTRAIN_LIBRARY
#define IS_RESUMED() (pace && pace->phase)
#else
#define IS_RESUMED() 0
#endif

/* Bytes of the input's rows, where some of them enter again. */
static uint32_t input_bytes(const struct hop *p, const struct stream *s)
{
    const struct conv2d *first = s->stage[0].conv;
    return p->again ? round_up4(first->h_in * in_bytes(first)) : 0;
}

/* How a stage stands when its input has moved by `shift` rows. */
static struct progress moved(const struct conv2d *p, struct progress stage, uint32_t shift)
{
    uint32_t out = shift / p->stride_h, next = stage.made * (uint32_t)p->stride_h;
    next = next > shift ? next : shift;
    next = next < stage.fed ? next : stage.fed;
    uint32_t rows = stage.fed - next;
    stage.made = (uint16_t)(stage.made > out ? stage.made - out : 0);
    stage.fed = (uint16_t)(stage.fed > shift ? stage.fed - shift : 0);
    stage.first = (uint16_t)(stage.fed - rows);
    return stage;
}

static uint32_t window_bytes(const struct conv2d *p, const struct progress *stage)
{
    return (uint32_t)(stage->fed - stage->first) * in_bytes(p);
}

uint32_t hop_bytes(const struct hop *p, const struct stream *s)
{
    uint32_t bytes = input_bytes(p, s), rows = s->stage[0].conv->h_in, shift = p->rows, stays = 0;
    for (uint32_t i = 0; p->goes && i < s->stages; i++) {
        const struct conv2d *conv = s->stage[i].conv;
        uint32_t fed = rows + conv->pad_h;
        rows = fed < conv->kh ? 0 : (fed - conv->kh) / conv->stride_h + 1u;
        struct progress stage = moved(conv, (struct progress){.fed = (uint16_t)fed, .made = (uint16_t)rows}, shift);
        bytes += (uint32_t)sizeof stage + round_up4(window_bytes(conv, &stage));
        stays = ((uint32_t)stage.made - p->top) * out_bytes(conv);
        shift /= conv->stride_h;
    }
    return bytes + stays;
}

/* Keeps how the stages will stand, what stays of their windows, and the rows of y that stay. */
static void keep(const struct hop *p, const struct stream *s, const int8_t *y, uint8_t *scratch, uint8_t *to)
{
    const struct progress *stage = stages_of(scratch);
    uint32_t shift = p->rows, stays = 0, row = 0;
    for (uint32_t i = 0; i < s->stages; i++, stage++) {
        const struct conv2d *conv = s->stage[i].conv;
        struct progress next = moved(conv, *stage, shift);
        uint32_t bytes = window_bytes(conv, &next), from = (next.first + shift - stage->first) * in_bytes(conv);
        memcpy(to, &next, sizeof next);
        memcpy(to + sizeof next, scratch + stage->window + from, bytes);
        to += sizeof next + round_up4(bytes);
        shift /= conv->stride_h;
        stays = (uint32_t)next.made - p->top;
        row = out_bytes(conv);
    }
    memcpy(to, y + (p->top + shift) * row, stays * row);
}

/* Puts back what keep() kept. */
static void go_on(const struct hop *p, const struct stream *s, int8_t *y, uint8_t *scratch, const uint8_t *from)
{
    struct progress *stage = stages_of(scratch);
    uint32_t stays = 0, row = 0;
    for (uint32_t i = 0; i < s->stages; i++, stage++) {
        const struct conv2d *conv = s->stage[i].conv;
        memcpy(stage, from, sizeof *stage);
        uint32_t bytes = window_bytes(conv, stage);
        memcpy(scratch + stage->window, from + sizeof *stage, bytes);
        from += sizeof *stage + round_up4(bytes);
        stays = (uint32_t)stage->made - p->top;
        row = out_bytes(conv);
    }
    memcpy(y + p->top * row, from, stays * row);
}

/* The row that comes is the last of its strip, however many have come. */
static void end_strip(const struct stream *s, void *scratch)
{
    ((struct head *)scratch)->waiting = s->rows - 1u;
}

void hop_take(const struct hop *p, const struct stream *s, int8_t *y, void *scratch, void *memory PACED)
{
    const struct conv2d *conv = s->stage[0].conv;
    const struct progress *first = stages_of(scratch);
    uint32_t row = (uint32_t)first->fed - conv->pad_h, bytes = in_bytes(conv);
    if (!IS_RESUMED()) {
        const int8_t *x = stream_row(s, scratch);
        if (p->again) {
            memcpy((uint8_t *)memory + row * bytes, x, bytes);
        }
        if (p->goes && row + 1u == conv->h_in) {
            end_strip(s, scratch);
        }
    }
    stream_take(s, y, scratch PACE);
    if (p->goes && !PACE_PAUSED() && (uint32_t)first->fed - conv->pad_h == conv->h_in) {
        keep(p, s, y, scratch, (uint8_t *)memory + input_bytes(p, s));
    }
}

void hop_slide(const struct hop *p, const struct stream *s, int8_t *y, void *scratch, void *memory)
{
    const struct conv2d *conv = s->stage[0].conv;
    uint8_t *kept = memory;
    uint32_t bytes = in_bytes(conv);
    stream_begin(s, scratch);
    if (p->again) {
        move_down(kept, kept + p->rows * bytes, (uint32_t)(conv->h_in - p->rows) * bytes);
    }
    for (uint32_t row = 0; row < p->again; row++) {
        memcpy(stream_row(s, scratch), kept + row * bytes, bytes);
        if (p->goes && row + 1u == p->again) {
            end_strip(s, scratch);
        }
        stream_take(s, y, scratch UNPACED);
    }
    if (p->goes) {
        go_on(p, s, y, scratch, kept + input_bytes(p, s));
    }
}
