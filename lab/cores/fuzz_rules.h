/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of an instance while random calls run, and what follows from it for the next one. */
#ifndef FUZZ_RULES_H
#define FUZZ_RULES_H

#include <stdio.h>
#include <string.h>

#include PROGRAM_HEADER
#include "fuzz_fleet.h"

enum { INSTANCES = 2, SHOWN = 10, OLD_WORDS = 2048 };

/* What is known of an instance. */
struct expected {
    int made, under_way;
    int scored;                              /* an inference in pieces was the last call */
    uint32_t rows, heard;                    /* that are in; samples */
    enum { PURE, UNKNOWN } order;            /* whether it is known how many samples are in */
    enum { STAYS, MAY_SLIDE, MAYBE } slides; /* whether the input can move on */
    uint32_t hears;                          /* samples that are in then */
    struct {
        uint32_t rows;
        int slides, scored;
    } then; /* once the pieces are done */
    struct board board;
    uint32_t room, records; /* for records; a lower bound of those held */
    uint64_t arena[PROGRAM_ARENA_BYTES / 8 + 1], learned[PROGRAM_TRAINABLE_BYTES / 8 + 1], old[OLD_WORDS];
    struct microtrain instance;
};

static struct expected known[INSTANCES];
static uint8_t pixels[PROGRAM_HEIGHT * PROGRAM_ROW_BYTES];
static uint32_t random_state;
static unsigned long failures;
static struct microtrain_sizes sizes;
static int statistics; /* the model has them */
enum worked { SCORED, ROWS_IN_PIECES, TRAINED, AIMED, LOOKED_AT, RECALLED, HEARD, SLID, SAVED, LOADED, WORKED };
static unsigned long worked[WORKED];

static uint32_t draw(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state % n;
}

/* status must be wanted, or what `or` says. */
static void expect(const char *call, int status, int wanted, int or)
{
    if (status < 0 && strcmp(microtrain_text(status), microtrain_text(INT32_MIN)) == 0) {
        failures++;
        printf("%s returned %d, which has no text\n", call, status);
    }
    if (status == wanted || status == or) {
        return;
    }
    if (failures++ < SHOWN) {
        printf("%s returned %d, not %d\n", call, status, wanted);
    }
}

/* What a call that needs no step under way must return; OK: it is let in. */
static int let_in(const struct expected *x)
{
    return !x->made ? MICROTRAIN_ERR_INSTANCE : x->under_way ? MICROTRAIN_ERR_BUSY : MICROTRAIN_OK;
}

/* Nothing is in, and nothing is under way. */
static void forget_input(struct expected *x)
{
    x->under_way = 0;
    x->rows = 0;
    x->heard = 0;
    x->order = PURE;
    x->slides = STAYS;
}

/* What the state says of the input, after calls of which it says more than their status. */
static void look(struct expected *x)
{
    struct microtrain_state now;
    if (microtrain_state(&x->instance, &now) == MICROTRAIN_OK) {
        x->under_way = now.under_way;
        x->rows = PROGRAM_HEIGHT - now.rows_missing;
    }
}

/* How many records there are; what a call that may keep one leaves. */
static void count_records(struct expected *x)
{
    struct microtrain_state now;
    if (microtrain_state(&x->instance, &now) == MICROTRAIN_OK) {
        expect("records", now.records >= x->records && now.records <= x->room, 1, 1);
        x->records = now.records;
    }
}

/* A training step of an instance that is let in. */
static void learn(struct expected *x)
{
    static const float target[PROGRAM_CLASSES];
    expect("feed", microtrain_feed(&x->instance, pixels), MICROTRAIN_OK, MICROTRAIN_OK);
    int status = sizes.targets ? microtrain_train_target(&x->instance, target, NULL)
                               : microtrain_train(&x->instance, draw(PROGRAM_CLASSES), NULL);
    expect("train", status, MICROTRAIN_OK, MICROTRAIN_OK);
    forget_input(x);
    count_records(x);
}

#endif
