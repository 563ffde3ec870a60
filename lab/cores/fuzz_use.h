/* SPDX-License-Identifier: Apache-2.0 */
/* Random calls that use an input up, at once or in pieces, and those on records of inputs. */
#ifndef FUZZ_USE_H
#define FUZZ_USE_H

#include "fuzz_rules.h"

enum use { PREDICT, TRAIN, IMPRINT, AIM, TRAIN_BEGIN, PREDICT_BEGIN, AIM_BEGIN, USES };

/* What a call that uses the input up must return, once it is let in. finite: of a target's numbers */
static int wanted_of(const struct expected *x, enum use kind, uint32_t label, int finite)
{
    int aims = kind == AIM || kind == AIM_BEGIN, predicts = kind == PREDICT || kind == PREDICT_BEGIN;
    if (kind == IMPRINT && !statistics) {
        return MICROTRAIN_ERR_NO_STATISTICS;
    }
    if (aims && sizes.targets && !finite) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    if (!predicts && kind != IMPRINT && aims != (sizes.targets != 0)) {
        return MICROTRAIN_ERR_TASK;
    }
    if (!predicts && !aims && label >= PROGRAM_CLASSES) {
        return MICROTRAIN_ERR_LABEL;
    }
    return x->rows < PROGRAM_HEIGHT ? MICROTRAIN_ERR_INPUT : MICROTRAIN_OK;
}

/* A loss that no step has. */
static float unset(void)
{
    return -1.0f;
}

static int is_set(float loss)
{
    return loss != unset();
}

/* A call that uses the input up, for a label, a target or none. */
static void use(struct expected *x, enum use kind)
{
    static const char *const names[] = {"predict",     "train",         "imprint",           "train_target",
                                        "train_begin", "predict_begin", "train_target_begin"};
    static float target[INSTANCES][PROGRAM_CLASSES]; /* which must stay until the last piece */
    float scores[PROGRAM_CLASSES], loss = unset(), zero = 0.0f, *own = target[x - known];
    uint32_t label = draw(8) ? draw(PROGRAM_CLASSES) : PROGRAM_CLASSES + draw(9);
    int wanted = let_in(x), finite = draw(16) != 0, pieces = kind >= TRAIN_BEGIN;
    if (wanted == MICROTRAIN_OK) {
        for (uint32_t k = 0; k < PROGRAM_CLASSES; k++) {
            own[k] = (float)draw(2);
        }
        own[draw(PROGRAM_CLASSES)] /= finite ? 1.0f : zero; /* infinite, or no number */
        wanted = wanted_of(x, kind, label, finite);
    }
    int status = kind == PREDICT         ? microtrain_predict(&x->instance, scores, &label)
                 : kind == TRAIN         ? microtrain_train(&x->instance, label, &loss)
                 : kind == IMPRINT       ? microtrain_imprint(&x->instance, label)
                 : kind == AIM           ? microtrain_train_target(&x->instance, own, &loss)
                 : kind == TRAIN_BEGIN   ? microtrain_train_begin(&x->instance, label)
                 : kind == PREDICT_BEGIN ? microtrain_predict_begin(&x->instance)
                                         : microtrain_train_target_begin(&x->instance, own);
    expect(names[kind], status, wanted, wanted);
    int learned = wanted == MICROTRAIN_OK && (kind == TRAIN || kind == AIM);
    expect("whether there is a loss", is_set(loss), learned, learned);
    if (wanted == MICROTRAIN_OK) {
        int moves = sizes.hop_rows && (kind == PREDICT || kind == PREDICT_BEGIN || kind == IMPRINT);
        x->hears = moves && x->heard == sizes.sound_samples && x->heard ? x->heard - sizes.hop_samples : 0;
        forget_input(x);
        x->under_way = pieces;
        x->slides = moves && !pieces ? MAY_SLIDE : STAYS;
        x->then.rows = 0;
        x->then.slides = moves ? MAY_SLIDE : STAYS;
        x->then.scored = kind == PREDICT_BEGIN;
        worked[TRAINED] += kind == TRAIN;
        worked[AIMED] += kind == AIM;
        worked[LOOKED_AT] += kind == IMPRINT;
        if (sizes.record_bytes && (kind == TRAIN || kind == IMPRINT)) {
            count_records(x);
            expect("a record", x->records != 0, x->room != 0, x->room != 0);
        }
    }
}

/* Memory for records, now and then none, too little, or from an odd byte on; or a step on one of them. */
static void remember(struct expected *x)
{
    uint32_t bytes = draw(8) ? sizes.memory_bytes + draw(9) * sizes.record_bytes : draw(sizes.memory_bytes + 1);
    uint32_t odd = draw(16) == 0, none = draw(16) == 0, in_use = draw(16) == 0;
    bytes = bytes < sizeof x->old ? bytes : (uint32_t)sizeof x->old;
    int wanted = let_in(x);
    if (wanted == MICROTRAIN_OK) {
        wanted = !sizes.record_bytes          ? MICROTRAIN_ERR_NO_RECORDS
                 : none                       ? MICROTRAIN_OK
                 : odd                        ? MICROTRAIN_ERR_ALIGNMENT
                 : bytes < sizes.memory_bytes ? MICROTRAIN_ERR_MEMORY
                 : in_use                     ? MICROTRAIN_ERR_ARGUMENT
                                              : MICROTRAIN_OK;
    }
    void *memory = none ? NULL : (uint8_t *)(in_use ? x->arena : x->old) + odd;
    expect("remember", microtrain_remember(&x->instance, memory, bytes), wanted, wanted);
    if (wanted == MICROTRAIN_OK) {
        x->records = 0;
        x->room = none ? 0 : (bytes - sizes.memory_bytes) / sizes.record_bytes + PROGRAM_CLASSES;
        count_records(x);
    }
}

/* A step on a record; an input is mostly learned from first where there is none, as chance alone seldom comes to that. */
static void recall(struct expected *x)
{
    if (x->made && !x->under_way && x->room && !x->records && draw(4)) {
        learn(x);
        expect("a record", x->records != 0, 1, 1);
    }
    uint32_t of = draw(5), left = draw(of + 2), pieces = draw(2), asked = draw(2);
    float loss = unset();
    int wanted = let_in(x);
    if (wanted == MICROTRAIN_OK) {
        wanted = !sizes.record_bytes ? MICROTRAIN_ERR_NO_RECORDS
                 : !of || left > of  ? MICROTRAIN_ERR_ARGUMENT
                 : !x->records       ? MICROTRAIN_ERR_EMPTY
                                     : MICROTRAIN_OK;
    }
    int status = pieces ? microtrain_recall_begin(&x->instance, left, of)
                        : microtrain_recall(&x->instance, left, of, asked ? &loss : NULL);
    expect("recall", status, wanted, wanted);
    int learned = wanted == MICROTRAIN_OK && !pieces && asked;
    expect("whether there is a loss", is_set(loss), learned, learned);
    if (wanted == MICROTRAIN_OK) {
        forget_input(x);
        x->under_way = (int)pieces;
        x->then.rows = 0;
        x->then.slides = STAYS;
        x->then.scored = 0;
        worked[RECALLED] += !pieces;
    }
}

static void scores(struct expected *x, int scored)
{
    float found[PROGRAM_CLASSES];
    uint32_t label = PROGRAM_CLASSES;
    int wanted = let_in(x);
    wanted = wanted == MICROTRAIN_OK && !scored ? MICROTRAIN_ERR_ORDER : wanted;
    expect("scores", microtrain_scores(&x->instance, draw(4) ? found : NULL, &label), wanted, wanted);
    x->scored = scored;
    if (wanted == MICROTRAIN_OK) {
        expect("label of the scores", label < PROGRAM_CLASSES, 1, 1);
        worked[SCORED]++;
    }
}

static void step(struct expected *x)
{
    int wanted = !x->made ? MICROTRAIN_ERR_INSTANCE : x->under_way ? MICROTRAIN_OK : MICROTRAIN_ERR_ORDER, status;
    float loss;
    uint32_t work = draw(2) ? 20000 : draw(3000);
    do {
        status = microtrain_step(&x->instance, work, &loss);
    } while (status == MICROTRAIN_MORE && draw(64));
    expect("step", status, wanted, wanted == MICROTRAIN_OK ? MICROTRAIN_MORE : wanted);
    if (x->under_way && x->room) {
        count_records(x); /* a piece may have made one */
    }
    if (x->under_way && status == MICROTRAIN_OK) {
        x->under_way = 0;
        x->rows = x->then.rows;
        x->slides = x->then.slides;
        x->scored = x->then.scored;
    }
}

#endif
