/* SPDX-License-Identifier: Apache-2.0 */
/* What only a firmware with one model has. Contract: microtrain_board.h. */
#include "microtrain_board.h"

#include "guard.h"
#include "replay.h"
#include "selftest.h"
#include "words.h"

#ifndef MICROTRAIN_LIBRARY

static struct session *session(struct microtrain *m)
{
    return &inside(m)->session;
}

int microtrain_init(struct microtrain *m, const struct microtrain_model *model, const struct microtrain_memory *memory)
{
    (void)model;
    (void)memory;
    session_init(session(m));
    return MICROTRAIN_OK;
}

const char *microtrain_name(void)
{
    return model_info.name;
}

uint32_t microtrain_id(void)
{
    return model_info.id;
}

uint32_t microtrain_api(void)
{
    return MODEL_API_VERSION;
}

int microtrain_feed_part(struct microtrain *m, uint32_t y, uint32_t x, const uint8_t *pixels, uint32_t size)
{
    return session_put_part(session(m), y, x, pixels, size);
}

void microtrain_feed_pattern(struct microtrain *m, uint32_t n)
{
    session_put_pattern(session(m), n);
}

#ifdef MODEL_SOUND
int microtrain_feed_sound_bytes(struct microtrain *m, uint32_t at, const uint8_t *samples, uint32_t count)
{
    return session_put_sound(session(m), at, samples, count);
}
#endif

void microtrain_drop_input(struct microtrain *m)
{
    session_forget_image(session(m));
}

void microtrain_drop_arena(struct microtrain *m)
{
    session_take_arena(session(m));
}

const float *microtrain_logits(const struct microtrain *m)
{
    (void)m;
    return model_logits();
}

int microtrain_evaluate(struct microtrain *m, uint32_t label, uint32_t *predicted)
{
    return session_eval(session(m), label, predicted);
}

float microtrain_exp(float x)
{
    return exp_f32(x);
}

int microtrain_learn(struct microtrain *m, uint32_t label, uint32_t *predicted, float *loss)
{
    return session_train(session(m), label, predicted, loss);
}

int microtrain_train(struct microtrain *m, uint32_t label, float *loss)
{
    uint32_t predicted;
    float found;
    int status = microtrain_learn(m, label, &predicted, &found);
    if (status == MICROTRAIN_OK && loss) {
        *loss = found;
    }
    return status;
}

#if MODEL_IMPRINT > 0
int microtrain_look(struct microtrain *m, uint32_t label, uint32_t *predicted)
{
    return session_imprint(session(m), label, predicted);
}
#endif

#if MODEL_TARGETS > 0
int microtrain_put_target(struct microtrain *m, uint32_t i, float number)
{
    return session_put_target(session(m), i, number);
}
#endif

void microtrain_seed(struct microtrain *m, uint32_t seed)
{
    session(m)->seed = seed;
}

void microtrain_rate(struct microtrain *m, float rate)
{
    session(m)->rate = rate;
}

int microtrain_settle(struct microtrain *m)
{
    struct instance *i = inside(m);
    if (guard_diverged(&i->session.guard)) {
        checkpoint_roll_back(&i->checkpoint, &i->session);
        return MICROTRAIN_ERR_DIVERGED;
    }
    return checkpoint_autosave(&i->checkpoint, &i->session);
}

void microtrain_guard(struct microtrain *m, uint32_t on)
{
    guard_start(&session(m)->guard, on);
}

void microtrain_autosave(struct microtrain *m, uint32_t steps)
{
    session(m)->autosave = steps;
}

int microtrain_rehearse(struct microtrain *m, uint32_t steps)
{
    return session_rehearse(session(m), steps);
}

#if MODEL_RECORDS > 0

void microtrain_replay(struct microtrain *m, uint32_t steps)
{
    session(m)->replays = steps;
}

void microtrain_drop_records(struct microtrain *m)
{
    replay_clear(session(m));
}

void microtrain_keep(struct microtrain *m, uint32_t on)
{
    session(m)->keeping = on;
}

void microtrain_allow_idle(struct microtrain *m, uint32_t steps)
{
    session_allow_idle(session(m), steps);
}

int microtrain_idle(struct microtrain *m)
{
    return session_idle(session(m));
}

#endif

void microtrain_counts(const struct microtrain *m, struct microtrain_counts *counts)
{
    const struct session *s = &look_inside(m)->session;
    *counts = (struct microtrain_counts)
    {
        .seed = s->seed, .rate = s->rate,
#if MODEL_RECORDS > 0
        .replays = s->replays, .records = replay_held(s), .idle = s->idle,
#endif
        .evaluated = s->evaluated, .correct = s->correct, .infer_cycles = s->infer_cycles,
        .step_cycles = s->step_cycles, .rollbacks = s->guard.rollbacks,
#ifdef MODEL_GATE
        .skipped = s->skipped,
#endif
    };
}

void microtrain_clear_counts(struct microtrain *m)
{
    session_clear_stats(session(m));
}

int microtrain_save(struct microtrain *m, const struct microtrain_storage *storage)
{
    (void)storage;
    return checkpoint_save(&inside(m)->checkpoint, session(m));
}

int microtrain_load(struct microtrain *m, const struct microtrain_storage *storage)
{
    (void)storage;
    checkpoint_load(&inside(m)->checkpoint, session(m));
    return inside(m)->checkpoint.status;
}

int microtrain_forget(struct microtrain *m, const struct microtrain_storage *storage)
{
    (void)storage;
    return checkpoint_forget(&inside(m)->checkpoint);
}

void microtrain_saves(const struct microtrain *m, struct microtrain_saves *saves)
{
    const struct checkpoint *c = &look_inside(m)->checkpoint;
    *saves = (struct microtrain_saves){
        .status = c->status,
        .model_id = c->model_id,
        .version = c->version,
        .number = c->saves,
        .step = c->saved_step,
        .erases = {c->erases[0], c->erases[1]},
        .left = checkpoint_saves_left(c),
    };
}

int microtrain_unsaved(const struct microtrain *m)
{
    return look_inside(m)->session.step != look_inside(m)->checkpoint.saved_step;
}

#if MODEL_FLEET_BYTES > 0

const uint8_t *microtrain_saved(const struct microtrain *m)
{
    return checkpoint_newest(&look_inside(m)->checkpoint);
}

int microtrain_save_again(struct microtrain *m)
{
    struct checkpoint *c = &inside(m)->checkpoint;
    c->again = 1;
    int status = checkpoint_save(c, session(m));
    c->again = 0;
    return status;
}

#endif

void microtrain_test(struct microtrain *m, struct microtrain_tested *tested)
{
    static const char *const names[] = {
        [SELFTEST_DENSE] = "dense convolution",
        [SELFTEST_DEPTHWISE] = "depthwise convolution",
        [SELFTEST_INPUT_GRADIENT] = "gradient to the input",
        [SELFTEST_UPDATE] = "update of the weights",
    };
    struct session *s = session(m);
    uint32_t failed;
    session_take_arena(s);
    tested->kernels = selftest_kernels(s, &failed);
    tested->kernel = failed < SELFTEST_KERNELS ? names[failed] : NULL;
    tested->tables = selftest_flash(s, &tested->crc);
    tested->converted_crc = model_info.parts_crc;
    tested->arena = selftest_memory(s, &tested->wrong_word);
}

#if MICROTRAIN_EXTERNAL
int microtrain_outside_fits(void)
{
    return model_outside == model_info.id;
}
#endif

#endif
