/* SPDX-License-Identifier: Apache-2.0 */
/* What a library's learner and the one of a firmware do alike: arguments are checked here, a session does the work.
 * Contract: microtrain.h. */
#include "selftest.h"
#include "words.h"

int microtrain_reset(struct microtrain *m)
{
    struct call call = enter(m, NEEDS_NOTHING);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
#ifdef MICROTRAIN_LIBRARY
    call.instance->job = NO_JOB;
#endif
    session_reset(&call.instance->session);
    session_forget_records(&call.instance->session);
    return leave(&call, MICROTRAIN_OK);
}

int microtrain_set(struct microtrain *m, uint32_t seed, float rate)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    if (!(rate >= 0.0f && rate <= 3.4e38f)) {
        return leave(&call, MICROTRAIN_ERR_ARGUMENT);
    }
    call.instance->session.seed = seed;
    call.instance->session.rate = rate;
    return leave(&call, MICROTRAIN_OK);
}

int microtrain_feed_row(struct microtrain *m, uint32_t y, const uint8_t *row)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
#ifdef MICROTRAIN_LIBRARY /* a host may send a row again, which a session passes over */
    int status = status_of_row(s, y, row);
    if (status != MICROTRAIN_OK) {
        return leave(&call, status);
    }
    s->heard = 0; /* sound has come to its end */
#endif
    return leave(&call, session_put_row(s, y, row));
}

#ifdef MODEL_SOUND
int microtrain_feed_sound(struct microtrain *m, uint32_t at, const int16_t *samples, uint32_t count)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
#ifdef MICROTRAIN_LIBRARY
    uint32_t all = s->model->sound_samples;
    if (!samples || !all || at > all || count > all - at) {
        return leave(&call, MICROTRAIN_ERR_ARGUMENT);
    }
#endif
    return leave(&call, session_put_sound(s, at, (const uint8_t *)samples, count));
}
#endif

#if MODEL_HOP > 0
int microtrain_slide(struct microtrain *m)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
    return leave(&call, HOP(s) ? session_slide(s) : MICROTRAIN_ERR_ARGUMENT);
}
#endif

int microtrain_predict(struct microtrain *m, float *scores, uint32_t *label)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
    uint32_t best;
    int status = session_infer(s, &best);
    if (status == MICROTRAIN_OK) {
        tell(s, best, scores, label);
    }
    return leave(&call, status);
}

#if MODEL_IMPRINT > 0
int microtrain_imprint(struct microtrain *m, uint32_t label)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
    uint32_t predicted;
    int status = IMPRINTS(s) ? session_imprint(s, label, &predicted) : MICROTRAIN_ERR_NO_STATISTICS;
    return leave(&call, status);
}

int microtrain_imprint_head(struct microtrain *m, uint32_t *classes)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
    uint32_t known = 0;
    int status = IMPRINTS(s) ? session_imprint_head(s, &known) : MICROTRAIN_ERR_NO_STATISTICS;
    if (status == MICROTRAIN_OK && classes) {
        *classes = known;
    }
    return leave(&call, status);
}
#endif

int microtrain_selftest(struct microtrain *m)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
    uint32_t found;
    session_take_arena(s);
    int status = selftest_kernels(s, &found);
    status = status < 0 ? status : selftest_flash(s, &found);
    status = status < 0 ? status : selftest_memory(s, &found);
    return leave(&call, status);
}

int microtrain_state(const struct microtrain *m, struct microtrain_state *state)
{
#ifdef MICROTRAIN_LIBRARY
    if (!m || !state) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    if (look_inside(m)->magic != MAGIC) {
        return MICROTRAIN_ERR_INSTANCE;
    }
#endif
    const struct instance *i = look_inside(m);
    const struct session *s = &i->session;
    *state = (struct microtrain_state){
        .rows_missing = session_rows_missing(s),
        .steps = s->step,
        .mean_loss = session_mean_loss(s),
        .looks = LOOKS(s),
        .diverged = guard_diverged(&s->guard),
        .under_way = under_way(i),
        .records = HELD(s),
    };
    return MICROTRAIN_OK;
}
