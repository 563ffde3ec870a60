/* SPDX-License-Identifier: Apache-2.0 */
#include "shot.h"

#include <stddef.h>

#include "board.h"
#include "reply.h"
#include "teach.h"

const char *const shot_mode_names[MODES] = {
    [MODE_INFER] = "infer", [MODE_TRAIN] = "train", [MODE_EVALUATE] = "evaluate"};

/* The rows of a picture that has been taken, on their way to the model. */
static int pass_rows(struct demo *d, struct microtrain *m)
{
    scaler_begin(&d->scaler);
    for (uint32_t y = 0; y < CAMERA_HEIGHT; y++) {
        if (camera_row(d->pixels) != CAMERA_OK) {
            microtrain_drop_input(m);
            return CAMERA_ERR_SPI;
        }
        screen_row(&d->screen, y, d->pixels);
        if (scaler_take(&d->scaler, y, d->pixels)) {
            (void)microtrain_feed_row(m, d->scaler.y - 1u, d->scaler.row); /* they come in order */
        }
    }
    camera_release();
    return CAMERA_OK;
}

int shot_capture(struct demo *d, struct microtrain *m)
{
    if (!d->camera_ready) {
        int opened = camera_open();
        if (opened < CAMERA_OK) {
            return opened;
        }
    }
    microtrain_drop_input(m);
    int status = camera_capture();
    if (status == CAMERA_OK) {
        status = pass_rows(d, m);
    }
    d->camera_ready = status == CAMERA_OK; /* a camera that has failed is set up again for the next picture */
    return status;
}

uint32_t shot_percent(float probability)
{
    return probability >= 1.0f ? 100 : probability > 0.0f ? (uint32_t)(100.0f * probability + 0.5f) : 0;
}

uint32_t shot_percent_of(const struct microtrain *m, uint32_t class)
{
    const float *logits = microtrain_logits(m);
    float largest = logits[0], sum = 0.0f;
    for (uint32_t k = 1; k < MODEL_CLASSES; k++) {
        largest = logits[k] > largest ? logits[k] : largest;
    }
    for (uint32_t k = 0; k < MODEL_CLASSES; k++) {
        sum += microtrain_exp(logits[k] - largest);
    }
    return shot_percent(microtrain_exp(logits[class] - largest) / sum);
}

static void step(struct demo *d, struct protocol *p)
{
    struct shot *shot = &d->shot;
    struct microtrain *m = &p->learner;
    switch (d->mode) {
    case MODE_TRAIN:
        teach_shot(d, p);
        break;
    case MODE_EVALUATE:
        (void)microtrain_evaluate(m, shot->label, &shot->predicted);
        shot->percent = shot_percent_of(m, shot->predicted);
        break;
    default:
        (void)microtrain_predict(m, NULL, &shot->predicted);
        shot->percent = shot_percent_of(m, shot->predicted);
        break;
    }
}

/* In place of a result, NULL where there is one. */
static const char *complaint(int status)
{
    return status == SHOT_OK ? NULL : status == SHOT_NONE ? "" : "no picture";
}

void shot_show(const struct demo *d, const struct protocol *p)
{
    struct microtrain_state state;
    struct microtrain_counts counts;
    (void)microtrain_state(&p->learner, &state);
    microtrain_counts(&p->learner, &counts);
    const struct panel panel = {
        .mode = shot_mode_names[d->mode],
        .complaint = complaint(d->shot.status),
        .class = d->shot.predicted,
        .percent = d->shot.percent,
        .steps = state.steps,
        .correct = counts.correct,
        .counted = counts.evaluated,
    };
    screen_panel(&d->screen, &panel);
}

void shot_mode(struct demo *d, struct protocol *p, enum demo_mode mode)
{
    if (d->mode == MODE_TRAIN && mode != MODE_TRAIN) {
        teach_end(d, p);
    }
    d->mode = mode;
    light_mode(&d->light, mode);
    shot_show(d, p);
}

int shot_take(struct demo *d, struct protocol *p, uint32_t label)
{
    if (p->transfer.active || p->transfer.incomplete) {
        return SHOT_ERR_BUSY;
    }
    if (label >= MODEL_CLASSES) {
        return SHOT_ERR_LABEL;
    }
    int status = shot_capture(d, &p->learner);
    d->shot.status = status;
    if (status != CAMERA_OK) {
        light_error(&d->light);
        shot_show(d, p);
        return status;
    }
    d->shot.label = label;
    step(d, p);
    shot_show(d, p);
    light_prediction(&d->light, d->shot.predicted, d->shot.percent);
    return SHOT_OK;
}

void shot_say(const struct demo *d, const struct protocol *p)
{
    const struct shot *shot = &d->shot;
    int looked = d->mode == MODE_TRAIN && shot->looked;
    reply_text(looked ? "look" : shot_mode_names[d->mode]);
    if (d->mode != MODE_INFER) {
        reply_u32(shot->label);
    }
    reply_u32(shot->predicted);
    reply_u32(shot->percent);
    if (d->mode == MODE_TRAIN && !looked) {
        reply_f32(shot->loss);
    }
    if (d->mode == MODE_EVALUATE) {
        struct microtrain_counts counts;
        microtrain_counts(&p->learner, &counts);
        reply_u32(counts.correct);
        reply_u32(counts.evaluated);
    }
    reply_end();
}

const char *shot_reason(int status)
{
    switch (status) {
    case SHOT_ERR_BUSY:
        return "a push is under way or incomplete; `image` or `reset` ends it";
    case SHOT_ERR_LABEL:
        return "the label is not a class of the model";
    default:
        return camera_reason(status);
    }
}
