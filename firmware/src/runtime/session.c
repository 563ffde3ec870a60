/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <math.h>
#include <string.h>

#include "instance.h"
#include "kernels/imprint.h"
#include "kernels/pixels.h"

enum { SEED_DEFAULT = 1, NOBODY = INT32_MAX };

void session_init(struct session *s)
{
#ifndef MICROTRAIN_LIBRARY /* there it is zero but for its model and memory */
    memset(s, 0, sizeof *s);
#endif
    s->seed = SEED_DEFAULT;
    s->rate = 1.0f;
    s->replays = REPLAY_DEFAULT;
    s->guard.on = 1;
#if MODEL_RECORDS > 0 && !defined(MICROTRAIN_LIBRARY)
    s->keeping = 1;
#endif
    session_reset(s);
    session_forget_records(s);
}

void session_reset(struct session *s)
{
    uint32_t given = INFO(s)->init_bytes;
    memcpy(TRAINABLES(s), TRAINABLES_INIT(s), given);
    memset(TRAINABLES(s) + given, 0, INFO(s)->trainable_bytes - given);
    s->step = 0;
    guard_start(&s->guard, s->guard.on);
#if MODEL_RECORDS > 0 && defined(MICROTRAIN_LIBRARY)
    replay_clear(s);
#endif
    session_take_arena(s);
    session_clear_stats(s);
}

#if MODEL_RECORDS > 0 && !defined(MICROTRAIN_LIBRARY)
void session_forget_records(struct session *s)
{
    replay_clear(s);
    session_allow_idle(s, 0);
}
#endif

void session_clear_stats(struct session *s)
{
    s->evaluated = 0;
    s->correct = 0;
    s->losses = 0;
    s->loss_sum = 0.0f;
#ifdef MODEL_GATE
    s->skipped = 0;
#endif
}

void session_forget_image(struct session *s)
{
    s->row = 0;
    s->part_end = 0;
#ifdef MODEL_SOUND
    s->heard = 0;
#endif
#if MODEL_HOP > 0
    s->slides = 0;
#endif
}

#ifdef PIXEL_TABLES

/* What the model's table has for pixels. channel: of the first one */
static void look_up(const struct session *s, int8_t *out, uint32_t channel, const uint8_t *pixels, uint32_t size)
{
    uint32_t step = PIXEL_TABLES(s) > 1 ? 256u : 0u;
    for (uint32_t i = 0; i < size; i++) {
        out[i] = PIXEL_TABLE(s)[channel * step + pixels[i]];
        channel = channel + 1 == CHANNELS(s) ? 0 : channel + 1;
    }
}

#endif

/* Raw pixels to stored ones: sat8(rint(pixel * gain + offset)), each operation rounded to float32. They go to the model's
 * next row, from byte x on. */
static void store_pixels(const struct session *s, int8_t *row, uint32_t x, const uint8_t *pixels, uint32_t size)
{
    int8_t *out = row + x;
    uint32_t channel = x % CHANNELS(s);
#ifdef PIXEL_TABLES
    if (PIXEL_TABLES(s)) {
        look_up(s, out, channel, pixels, size);
        return;
    }
#endif
#if PIXELS_AT_ONCE
    pixels_s8(out, pixels, size, channel, INFO(s)->input_gain, INFO(s)->input_offset, CHANNELS(s));
#else
    for (uint32_t i = 0; i < size; i++) {
        float product = (float)pixels[i] * INFO(s)->input_gain[channel];
        float value = clampf(product + INFO(s)->input_offset[channel], -128.0f, 127.0f);
        out[i] = (int8_t)rintf(value);
        channel = channel + 1 == CHANNELS(s) ? 0 : channel + 1;
    }
#endif
}

/* The first byte of an image: whatever was in the model's memory is gone. */
static void start_image(struct session *s)
{
    session_forget_image(s);
    s->image_cycles = 0;
    MODEL(s, start)(OF(s));
}

static void take_row(struct session *s)
{
    uint32_t start = CYCLES();
    MODEL(s, take_row)(OF(s));
    s->image_cycles += CYCLES() - start;
    s->row++;
    s->part_end = 0;
}

int session_put_row(struct session *s, uint32_t y, const uint8_t *pixels)
{
    if (y >= ROWS(s)) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    if (y == 0) {
        start_image(s);
    }
    if (y > s->row) {
        return MICROTRAIN_ERR_ORDER;
    }
    if (y == s->row) {
        store_pixels(s, MODEL(s, row)(OF(s)), 0, pixels, ROW_BYTES(s));
        take_row(s);
    }
    return MICROTRAIN_OK;
}

int session_put_part(struct session *s, uint32_t y, uint32_t x, const uint8_t *pixels, uint32_t size)
{
    if (y >= ROWS(s) || x >= ROW_BYTES(s) || size > ROW_BYTES(s) - x) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    if (y == 0 && x == 0) {
        start_image(s);
    }
    if (y != s->row) {
        return MICROTRAIN_ERR_ORDER;
    }
    if (x != 0 && x != s->part_end) {
        return MICROTRAIN_ERR_INPUT;
    }
    store_pixels(s, MODEL(s, row)(OF(s)), x, pixels, size);
    s->part_end = x + size;
    if (s->part_end == ROW_BYTES(s)) {
        take_row(s);
    }
    return MICROTRAIN_OK;
}

#ifdef MODEL_SOUND
int session_put_sound(struct session *s, uint32_t at, const uint8_t *samples, uint32_t count)
{
    if (at == 0) {
        start_image(s);
        MODEL(s, listen)(OF(s));
    } else if (at <= s->heard && count <= s->heard - at) {
        return MICROTRAIN_OK;
    } else if (at != s->heard) {
        return MICROTRAIN_ERR_ORDER;
    }
    while (count > 0) {
        if (s->row == ROWS(s)) {
            return MICROTRAIN_ERR_ARGUMENT;
        }
        uint32_t start = CYCLES(), taken = MODEL(s, hear)(OF_AND(s) samples, count);
        const uint8_t *row = MODEL(s, heard)(OF(s));
        s->image_cycles += CYCLES() - start;
        s->heard += taken;
        samples += 2 * taken;
        count -= taken;
        if (row) {
            store_pixels(s, MODEL(s, row)(OF(s)), 0, row, ROW_BYTES(s));
            take_row(s);
        }
    }
    return MICROTRAIN_OK;
}
#endif

#if MODEL_HOP > 0
uint32_t session_can_slide(const struct session *s)
{
#ifdef MODEL_SOUND
    if (s->heard != 0 && s->heard == ALL_HEARD(s)) {
        return 2 * (HOP(s) > 0);
    }
#endif
    return HOP(s) > 0;
}

int session_slide(struct session *s)
{
    if (s->slides == 0) {
        return MICROTRAIN_ERR_ORDER;
    }
#ifdef MODEL_SOUND
    uint32_t heard = s->slides == 2 ? HEARD(s) : 0;
#endif
    session_forget_image(s);
    uint32_t start = CYCLES();
    MODEL(s, slide)(OF(s));
    s->image_cycles = CYCLES() - start;
    s->row = ROWS(s) - HOP(s);
#ifdef MODEL_SOUND
    s->heard = heard;
#endif
    return MICROTRAIN_OK;
}
#endif

void session_put_pattern(struct session *s, uint32_t n)
{
    uint32_t counter = n;
    start_image(s);
    while (s->row < ROWS(s)) {
        int8_t *row = MODEL(s, row)(OF(s));
        for (uint32_t x = 0; x < ROW_BYTES(s); x++, counter += 0x9e3779b9u) {
            uint8_t pixel = (uint8_t)hash32(counter);
            store_pixels(s, row, x, &pixel, 1);
        }
        take_row(s);
    }
}

static uint32_t best_class(struct session *s)
{
    const float *logits = MODEL(s, logits)(OF(s));
    uint32_t best = 0;
    for (uint32_t k = 1; k < INFO(s)->classes; k++) {
        best = logits[k] > logits[best] ? k : best;
    }
    return best;
}

/* The forward pass of an image that has come, which may become a record of its class. draw: of what decides that. Inlined, so
 * that no frame of its own lies below the steps. */
__attribute__((always_inline)) static inline void forward_new(struct session *s, uint32_t label, uint32_t draw,
                                                              int train)
{
#if MODEL_RECORDS > 0
    FRONT(s);
    if (KEEPS(s) && label != NOBODY) {
        replay_keep(s, label, s->seed, draw);
    }
    REST(s, train);
#else
    (void)label;
    (void)draw;
    FORWARD(s, train);
#endif
}

/* An inference; label: NOBODY where the image is not to be remembered. */
static int infer(struct session *s, uint32_t label, uint32_t draw, uint32_t *predicted)
{
    if (session_rows_missing(s)) {
        return MICROTRAIN_ERR_INPUT;
    }
    uint32_t start = CYCLES();
#if MODEL_HOP > 0
    uint32_t slides = session_can_slide(s);
#endif
    session_forget_image(s);
    forward_new(s, label, draw, 0);
    *predicted = best_class(s);
#if MODEL_HOP > 0
    s->slides = slides;
#endif
    s->infer_cycles = s->image_cycles + CYCLES() - start;
    return MICROTRAIN_OK;
}

int session_infer(struct session *s, uint32_t *predicted)
{
    return infer(s, NOBODY, 0, predicted);
}

int session_eval(struct session *s, uint32_t label, uint32_t *predicted)
{
    if (label >= INFO(s)->classes) {
        return MICROTRAIN_ERR_LABEL;
    }
    int status = session_infer(s, predicted);
    if (status == MICROTRAIN_OK) {
        s->evaluated++;
        s->correct += *predicted == label;
    }
    return status;
}

#if MODEL_IMPRINT > 0
int session_imprint(struct session *s, uint32_t label, uint32_t *predicted)
{
    if (label >= INFO(s)->classes) {
        return MICROTRAIN_ERR_LABEL;
    }
    if (s->seen == IMPRINT_SAMPLES_MAX) {
        return MICROTRAIN_ERR_FULL;
    }
    int status = infer(s, label, s->step + s->seen, predicted);
    if (status == MICROTRAIN_OK) {
        if (s->seen++ == 0) {
            MODEL(s, imprint_clear)(OF(s));
        }
        MODEL(s, imprint_add)(OF_AND(s) label);
    }
    return status;
}

int session_imprint_head(struct session *s, uint32_t *classes)
{
    if (s->seen == 0) {
        return MICROTRAIN_ERR_EMPTY;
    }
    session_forget_image(s);
    s->step++; /* so that a checkpoint is due */
    ALIVE();
    *classes = MODEL(s, imprint_solve)(OF(s));
    return MICROTRAIN_OK;
}

void session_take_arena(struct session *s)
{
    session_forget_image(s);
    s->seen = 0;
}
#endif

/* Rates and random numbers of the next step. rate: factor on the scheme's learning rates */
static struct sgd next_sgd(const struct session *s, float rate)
{
    return (struct sgd){
        .lr_weight = INFO(s)->lr_weight * rate,
        .lr_bias = INFO(s)->lr_bias * rate,
        .lr_head = INFO(s)->lr_head * rate,
        .seed = s->seed,
        .step = s->step,
    };
}

/* Backward pass and update. Returns the loss. */
static float learn(struct session *s, uint32_t label, const struct sgd *sgd)
{
    s->step++;
    ALIVE();
    float loss = BACKWARD(s, label, sgd);
#ifdef MODEL_GATE
    s->skipped += loss < MODEL_GATE;
#endif
    guard_see(&s->guard, loss);
    return loss;
}

#ifndef MICROTRAIN_LIBRARY
int session_rehearse(struct session *s, uint32_t count)
{
#if MODEL_RECORDS > 0
    if (replay_held(s) == 0) {
        return MICROTRAIN_ERR_EMPTY;
    }
    session_take_arena(s);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t label = replay_recall(s, s->seed, s->step);
        REST(s, 1);
        struct sgd sgd = next_sgd(s, s->rate);
        (void)learn(s, label, &sgd);
    }
    return MICROTRAIN_OK;
#else
    (void)s;
    (void)count;
    return MICROTRAIN_ERR_EMPTY;
#endif
}
#endif

static void count(struct session *s, float loss)
{
    s->losses++;
    s->loss_sum += loss;
}

#ifdef MICROTRAIN_LIBRARY

uint32_t session_best(struct session *s)
{
    return best_class(s);
}

void session_place_row(struct session *s, uint32_t y, const uint8_t *pixels)
{
    if (y == 0) {
        start_image(s);
    }
    s->heard = 0; /* sound has come to its end */
    store_pixels(s, MODEL(s, row)(OF(s)), 0, pixels, ROW_BYTES(s));
}

void session_took_row(struct session *s)
{
    s->row++;
    s->part_end = 0;
}

int session_begin(struct session *s, uint32_t label, struct model_pass *pass)
{
    if (label >= INFO(s)->classes) {
        return MICROTRAIN_ERR_LABEL;
    }
    if (session_rows_missing(s)) {
        return MICROTRAIN_ERR_INPUT;
    }
    session_take_arena(s);
    *pass = (struct model_pass){.train = 1, .label = label, .sgd = next_sgd(s, s->rate)};
    return MICROTRAIN_OK;
}

void session_keep(struct session *s, uint32_t label)
{
    replay_keep(s, label, s->seed, s->step);
}

void session_end(struct session *s, const struct model_pass *pass)
{
    session_recall_end(s, pass);
    count(s, pass->loss);
}

int session_recall_begin(struct session *s, float factor, struct model_pass *pass)
{
    if (replay_held(s) == 0) {
        return MICROTRAIN_ERR_EMPTY;
    }
    session_take_arena(s);
    uint32_t label = replay_recall(s, s->seed, s->step);
    *pass = (struct model_pass){.train = 1, .label = label, .sgd = next_sgd(s, s->rate * factor)};
    return MICROTRAIN_OK;
}

void session_recall_end(struct session *s, const struct model_pass *pass)
{
    s->step++;
    guard_see(&s->guard, pass->loss);
}

#endif

#if MODEL_TARGETS > 0
int session_put_target(struct session *s, uint32_t i, float number)
{
    int finite = number - number == 0.0f;
    if (!finite || i >= MODEL_TARGETS || (i != 0 && i != s->targets)) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    model_target[i] = number;
    s->targets = i + 1;
    return MICROTRAIN_OK;
}
#endif

int session_train(struct session *s, uint32_t label, uint32_t *predicted, float *loss)
{
    if (label >= INFO(s)->classes) {
        return MICROTRAIN_ERR_LABEL;
    }
    if (session_rows_missing(s)) {
        return MICROTRAIN_ERR_INPUT;
    }
#if MODEL_TARGETS > 0
    if (s->targets < MODEL_TARGETS) {
        return MICROTRAIN_ERR_TASK;
    }
    s->targets = 0;
#endif
    uint32_t start = CYCLES();
    session_take_arena(s);
    forward_new(s, label, s->step, 1);
    *predicted = best_class(s);
    struct sgd sgd = next_sgd(s, s->rate);
    *loss = learn(s, label, &sgd);
#ifndef MICROTRAIN_LIBRARY
    (void)session_rehearse(s, s->replays);
#endif
    s->step_cycles = s->image_cycles + CYCLES() - start;
    count(s, *loss);
    return MICROTRAIN_OK;
}

#if MODEL_RECORDS > 0 && !defined(MICROTRAIN_LIBRARY)
void session_allow_idle(struct session *s, uint32_t steps)
{
    s->idle = steps;
    s->idle_most = steps;
}

int session_idle(struct session *s)
{
    if (s->idle == 0 || s->row != 0 || s->part_end != 0) {
        return 0;
    }
    float rate = s->rate;
    s->rate = rate * ((float)s->idle / (float)s->idle_most);
    int status = session_rehearse(s, 1);
    s->rate = rate;
    s->idle = status == MICROTRAIN_OK ? s->idle - 1 : 0;
    return status == MICROTRAIN_OK;
}
#endif
