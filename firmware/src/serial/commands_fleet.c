/* SPDX-License-Identifier: Apache-2.0 */
/* A board's rounds in a fleet, where it makes its updates itself (microtrain_fleet.h).
 *
 * `join` saves what the board was given, `share` that and what it holds back. So what a round begins with is in flash, and a
 * round that was cut short anywhere is begun again and ends in the same bits; one that was done says its update again.
 */
#include "crc.h"
#include "handlers.h"
#include "reply.h"
#include "text.h"

#if MODEL_FLEET_BYTES > 0

#include <string.h>

#include "microtrain_fleet.h"

enum { LINE_BYTES = 32 }; /* of an update in a line */

/* Behind the trainables, kept with them; then what is held back, its velocity, and the last update. */
struct fleet {
    uint32_t federation, round;          /* in which it takes part, and its last round there; 0: none */
    uint32_t given;                      /* CRC-32 of the trainables that the round was begun with */
    uint32_t along;                      /* of microtrain_fleet_along */
    uint32_t done;                       /* the round is, and this is its update */
    uint32_t update_round, update_bytes; /* 0: it has arrived, or gone back */
    uint32_t steps;
    float loss;
};
_Static_assert(sizeof(struct fleet) == MODEL_FLEET_STATE, "the compiler counts these bytes");

static struct fleet *fleet(void)
{
    return (struct fleet *)(void *)(model_trainables + MODEL_TRAINABLE_BYTES);
}

static uint8_t *held(void)
{
    return model_trainables + MODEL_TRAINABLE_BYTES + sizeof(struct fleet);
}

static uint8_t *update(void)
{
    return held() + 2 * model_shared.held_bytes;
}

static struct microtrain_fleet_memory memory(const void *base, const void *last)
{
    return (struct microtrain_fleet_memory){base, last, held(), held() + model_shared.held_bytes};
}

static uint32_t crc_of(const void *trainables)
{
    return crc32(0, trainables, MODEL_TRAINABLE_BYTES);
}

/* The weights that the round, or the last one, was begun with, in flash; NULL where something else was saved since. */
static const uint8_t *given(const struct protocol *p)
{
    const uint8_t *newest = microtrain_saved(&p->learner);
    return newest && crc_of(newest) == fleet()->given ? newest : NULL;
}

/* A new round, from trainables that are sound. */
static void start(struct protocol *p, uint32_t federation, uint32_t round, uint32_t arrived)
{
    struct fleet *f = fleet();
    const uint8_t *last = NULL;
    if (f->federation != federation || f->round == 0) {
        memset(f, 0, MODEL_FLEET_BYTES);
        f->federation = federation;
    } else {
        last = given(p);
        if (f->update_bytes && arrived < f->update_round) {
            (void)microtrain_fleet_take_back(&model_shared, held(), update(), f->update_bytes);
        }
    }
    f->update_bytes = 0;
    struct microtrain_fleet_memory m = memory(model_trainables, last);
    f->along = microtrain_fleet_along(&model_shared, &m) > 0;
    f->round = round;
    f->given = crc_of(model_trainables);
    f->done = 0;
    microtrain_autosave(&p->learner, 0);
}

int command_join(struct protocol *p, const struct words *w)
{
    uint32_t federation, round, arrived;
    if (!parse_hex32(w->word[1], &federation) || !parse_u32(w->word[2], &round) || round == 0 ||
        !parse_u32(w->word[3], &arrived)) {
        return reply_error("argument", "join takes a fleet of 8 hex digits, a round from 1 on, and a round");
    }
    struct fleet *f = fleet();
    int known = f->federation == federation && f->round != 0;
    if (known && (round < f->round || (round == f->round && !f->done && crc_of(model_trainables) != f->given))) {
        return reply_error("fleet", "the round is over, or was begun with other weights");
    }
    if (known && round == f->round && f->done) {
        return reply_ok("ok join done");
    }
    struct microtrain_fleet_memory m = memory(model_trainables, NULL);
    if (microtrain_fleet_along(&model_shared, &m) < 0) {
        return reply_error("fleet", "the head holds what is no number, or far too large");
    }
    int fresh = !known || round > f->round;
    if (fresh) {
        start(p, federation, round, arrived);
    }
    int status = fresh || !given(p) ? microtrain_save(&p->learner, MICROTRAIN_LINKED) : MICROTRAIN_OK;
    if (status != MICROTRAIN_OK) {
        return reply_error("flash", command_reason(status));
    }
    (void)microtrain_fleet_begin(&model_shared, &m, (int)f->along, model_trainables);
    return reply_ok("ok join");
}

static void say_update(void)
{
    const struct fleet *f = fleet();
    reply_pair("steps", f->steps);
    reply_text("loss");
    reply_f32(f->loss);
    reply_end();
    for (uint32_t i = 0; i < f->update_bytes; i++) {
        if (i % LINE_BYTES == 0) {
            reply_text("update ");
        }
        reply_hex(update()[i], 2);
        if (i % LINE_BYTES == LINE_BYTES - 1 || i == f->update_bytes - 1) {
            reply_end();
        }
    }
}

int command_share(struct protocol *p, const struct words *w)
{
    uint32_t room, momentum;
    struct fleet *f = fleet();
    if (!parse_u32(w->word[1], &room) || room > MODEL_FLEET_ROOM || !parse_u32(w->word[2], &momentum) ||
        momentum > 255) {
        return reply_error("argument", "share takes a number of bytes, at most that of `info`, and a number, 0..255");
    }
    if (f->round == 0) {
        return reply_error("fleet", "no round was begun: join");
    }
    if (!f->done) {
        const uint8_t *base = given(p);
        if (!base) {
            return reply_error("fleet", "something was saved since the round began: push and join again");
        }
        struct microtrain_fleet_memory m = memory(base, NULL);
        struct microtrain_fleet_rule rule = {room, momentum};
        int status = microtrain_fleet_update(&model_shared, &m, model_trainables, (int)f->along, &rule, update(),
                                             &f->update_bytes);
        if (status != MICROTRAIN_OK) {
            return reply_error("fleet",
                               status == MICROTRAIN_ERR_MEMORY ? "so few bytes say nothing" : "training has diverged");
        }
        f->update_round = f->round;
        struct microtrain_state state;
        (void)microtrain_state(&p->learner, &state);
        f->steps = state.steps;
        f->loss = state.mean_loss;
        f->done = 1;
        /* to see next time where the fleet has gone; what was learned stays in use */
        status = microtrain_save_again(&p->learner);
        if (status != MICROTRAIN_OK) {
            return reply_error("flash", command_reason(status));
        }
    }
    say_update();
    return reply_ok_u32("ok share", crc32(0, update(), f->update_bytes));
}

#endif
