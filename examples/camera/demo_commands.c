/* SPDX-License-Identifier: Apache-2.0 */
/* The demo's own commands. */
#include <string.h>

#include "commands.h"
#include "reply.h"
#include "shot.h"
#include "text.h"

/* clang-format off */
#define TABLE(ROW) \
    ROW(camera, run_camera(d), 0, 0, NEEDS_NOTHING, \
        ": set the camera up again") \
    ROW(capture, run_capture(d, &p->learner), 0, 0, NEEDS_ARENA, \
        ": a picture for `infer`, `train` or `eval`") \
    ROW(shoot, run_shoot(d, p, w), 0, 1, NEEDS_ARENA, \
        " [L]: a picture and what the mode says, with label L or that of the first button") \
    ROW(mode, run_mode(d, p, w->word[1]), 1, 1, NEEDS_NOTHING, \
        " infer|train|evaluate: what a shot does") \
    ROW(label, run_label(d, w), 1, 2, NEEDS_NOTHING, \
        " A [B]: classes that the two buttons stand for")
/* clang-format on */

enum { TABLE(COMMAND_NUMBER) TABLE_ROWS };

static const struct command table[] = {TABLE(COMMAND_ENTRY)};

static int fail(int status)
{
    return reply_error(status == SHOT_ERR_LABEL  ? "argument"
                       : status == SHOT_ERR_BUSY ? "busy"
                                                 : "camera",
                       shot_reason(status));
}

static int run_camera(struct demo *d)
{
    int status = camera_open();
    d->camera_ready = status >= CAMERA_OK;
    reply_text("sensor ");
    reply_hex(camera_id(), 4);
    reply_end();
    if (status < CAMERA_OK) {
        return fail(status);
    }
    if (status == CAMERA_NO_ID) {
        reply_line("warning the sensor tells no id; it is taken for an OV2640");
    }
    return reply_ok("ok camera 320x240");
}

static int run_capture(struct demo *d, struct microtrain *m)
{
    int status = shot_capture(d, m);
    return status == CAMERA_OK ? reply_ok("ok capture") : fail(status);
}

static int run_shoot(struct demo *d, struct protocol *p, const struct words *w)
{
    uint32_t label = d->label[0];
    if (w->count == 2 && !parse_u32(w->word[1], &label)) {
        return fail(SHOT_ERR_LABEL);
    }
    int status = shot_take(d, p, label);
    if (status != SHOT_OK) {
        return fail(status);
    }
    reply_text("ok shoot ");
    shot_say(d, p);
    return 1;
}

static int run_mode(struct demo *d, struct protocol *p, const char *word)
{
    for (uint32_t mode = 0; mode < MODES; mode++) {
        if (strcmp(word, shot_mode_names[mode]) == 0) {
            shot_mode(d, p, (enum demo_mode)mode);
            reply_text("ok mode ");
            reply_line(word);
            return 1;
        }
    }
    return reply_error("argument", "mode takes infer, train or evaluate");
}

static int run_label(struct demo *d, const struct words *w)
{
    uint32_t label[BUTTONS] = {d->label[0], d->label[1]};
    for (uint32_t i = 0; i + 1 < w->count; i++) {
        if (!parse_u32(w->word[i + 1], &label[i]) || label[i] >= MODEL_CLASSES) {
            return fail(SHOT_ERR_LABEL);
        }
    }
    memcpy(d->label, label, sizeof label);
    reply_text("ok label");
    reply_u32(d->label[0]);
    reply_u32(d->label[1]);
    reply_end();
    return 1;
}

int demo_command(struct demo *d, struct protocol *p, const struct words *w)
{
    int row = command_find(p, table, TABLE_ROWS, w);
    switch (row) {
        TABLE(COMMAND_CASE)
    }
    return row;
}

void demo_help(void)
{
    command_help(table, TABLE_ROWS);
}
