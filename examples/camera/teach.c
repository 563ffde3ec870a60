/* SPDX-License-Identifier: Apache-2.0 */
#include "teach.h"

#include "commands.h"
#include "reply.h"
#include "shot.h"

#if MODEL_IMPRINT > 0

/* As in tools/device/recipe.py. The rate is that of few images and of classes one after the other, as people show them. */
enum { TIMES = 8 }; /* that each record comes up in a rehearsal, in which the rate falls to 0 */
#define RATE 1.5f

/* A look, and the head of all looks. Returns 0 where training has begun, which ends them, or they are too many. */
static int look(struct shot *shot, struct microtrain *m)
{
    struct microtrain_state state;
    uint32_t classes;
    (void)microtrain_state(m, &state);
    if (state.steps > 0 && state.looks == 0) {
        return 0;
    }
    if (microtrain_look(m, shot->label, &shot->predicted) != MICROTRAIN_OK) {
        return 0;
    }
    shot->percent = shot_percent_of(m, shot->label);
    (void)microtrain_imprint_head(m, &classes);
    return 1;
}

#else

static int look(struct shot *shot, struct microtrain *m)
{
    (void)shot;
    (void)m;
    return 0;
}

#endif

static void train(struct shot *shot, struct protocol *p)
{
    (void)microtrain_learn(&p->learner, shot->label, &shot->predicted, &shot->loss);
    shot->percent = shot_percent(microtrain_exp(-shot->loss)); /* the loss is the label's cross-entropy */
    command_trained(p);
}

void teach_shot(struct demo *d, struct protocol *p)
{
    d->taught = 1;
    d->shot.looked = (uint8_t)look(&d->shot, &p->learner);
    if (!d->shot.looked) {
        train(&d->shot, p);
    }
}

#if MODEL_IMPRINT > 0 && MODEL_RECORDS > 0

void teach_start(struct microtrain *m)
{
    struct microtrain_state state;
    (void)microtrain_state(m, &state);
    if (state.steps == 0) {
        microtrain_rate(m, RATE);
    }
}

void teach_end(struct demo *d, struct protocol *p)
{
    struct microtrain_counts counts;
    microtrain_counts(&p->learner, &counts);
    if (!d->taught || counts.records == 0) {
        return;
    }
    microtrain_allow_idle(&p->learner, TIMES * counts.records);
    d->taught = 0;
    d->rehearsing = 1;
    reply_text("rehearsal of");
    reply_u32(TIMES * counts.records);
    reply_line(" steps, while no button is pressed");
}

void teach_poll(struct demo *d, const struct protocol *p)
{
    struct microtrain_counts counts;
    microtrain_counts(&p->learner, &counts);
    if (d->rehearsing && counts.idle == 0) {
        d->rehearsing = 0;
        shot_show(d, p);
        reply_line("rehearsal over");
    }
}

#else

void teach_start(struct microtrain *m)
{
    (void)m;
}

void teach_end(struct demo *d, struct protocol *p)
{
    (void)d;
    (void)p;
}

void teach_poll(struct demo *d, const struct protocol *p)
{
    (void)d;
    (void)p;
}

#endif
