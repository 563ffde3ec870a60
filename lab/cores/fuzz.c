/* SPDX-License-Identifier: Apache-2.0 */
/* Random sequences of calls of microtrain.h and microtrain_fleet.h, good ones and bad, on two instances of one model, with a
 * storage that fails now and then. A model of the rules says what each call must return; compiled with sanitizers.
 *
 *     fuzz SEED SEQUENCES      prints the first failures, "worked NAME N" of what succeeded, "sequences N", "failures N" */
#define _POSIX_C_SOURCE 200809L /* alarm() */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include PROGRAM_HEADER
#include "fuzz_fleet.h"

enum { INSTANCES = 2, CALLS = 24, SLOT_BYTES = 1 << 16, SHOWN = 10, SAMPLES = 1024, OLD_WORDS = 2048, TOO_LONG_S = 20 };

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
static uint8_t slots[2][SLOT_BYTES], pixels[PROGRAM_HEIGHT * PROGRAM_ROW_BYTES];
static uint32_t state, storage_fails;
static unsigned long failures;
static struct microtrain_sizes sizes;
static int statistics; /* the model has them */
static int16_t noise[SAMPLES];
enum worked { SCORED, ROWS_IN_PIECES, TRAINED, AIMED, LOOKED_AT, RECALLED, HEARD, SLID, LOADED, WORKED };
static unsigned long worked[WORKED];

static uint32_t draw(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % n;
}

static int fails(void)
{
    return storage_fails && draw(storage_fails) == 0;
}

static int read_slot(void *context, uint32_t slot, uint32_t offset, void *to, uint32_t size)
{
    (void)context;
    if (slot > 1 || offset > SLOT_BYTES || size > SLOT_BYTES - offset) {
        abort();
    }
    memcpy(to, slots[slot] + offset, size);
    return fails();
}

static int program_slot(void *context, uint32_t slot, uint32_t offset, const void *from, uint32_t size)
{
    (void)context;
    if (slot > 1 || offset > SLOT_BYTES || size > SLOT_BYTES - offset || offset % 4 || size % 4) {
        abort();
    }
    int failed = fails();
    memcpy(slots[slot] + offset, from, failed ? size / 2 : size);
    return failed;
}

static int erase_slot(void *context, uint32_t slot)
{
    (void)context;
    int failed = fails();
    memset(slots[slot], 0xff, failed ? SLOT_BYTES / 2 : SLOT_BYTES);
    return failed;
}

static int sync_slot(void *context)
{
    (void)context;
    return fails();
}

static const struct microtrain_storage storage = {NULL, read_slot, program_slot, erase_slot, sync_slot, SLOT_BYTES,
                                                  4,    1};

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

static void make(struct expected *x)
{
    struct microtrain_memory memory = {x->arena, sizeof x->arena, x->learned, sizeof x->learned};
    int wanted = MICROTRAIN_OK;
    if (draw(8) == 0) {
        memory.arena_bytes = draw(PROGRAM_ARENA_BYTES);
        wanted = MICROTRAIN_ERR_MEMORY;
    }
    expect("init", microtrain_init(&x->instance, &PROGRAM_MODEL, &memory), wanted, wanted);
    if (wanted == MICROTRAIN_OK) {
        x->made = 1;
        x->scored = 0;
        x->room = x->records = 0;
        forget_input(x);
    }
}

/* Rows that are in, once this one is. */
static void took(struct expected *x, uint32_t y)
{
    x->order = PURE;
    x->heard = 0;
    x->rows = y + 1;
    x->slides = STAYS;
}

static void feed(struct expected *x)
{
    int wanted = let_in(x), how = (int)draw(3);
    uint32_t y = draw(4) ? x->rows : draw(PROGRAM_HEIGHT + 2);
    if (how == 0) {
        expect("feed", microtrain_feed(&x->instance, pixels), wanted, wanted);
        if (wanted == MICROTRAIN_OK) {
            took(x, 0);
            x->rows = PROGRAM_HEIGHT;
        }
        return;
    }
    if (wanted == MICROTRAIN_OK) {
        wanted = y >= PROGRAM_HEIGHT      ? MICROTRAIN_ERR_ARGUMENT
                 : y != 0 && y != x->rows ? MICROTRAIN_ERR_ORDER
                                          : MICROTRAIN_OK;
    }
    const uint8_t *row = pixels + (y < PROGRAM_HEIGHT ? y : 0) * PROGRAM_ROW_BYTES;
    if (how == 1) {
        expect("feed_row", microtrain_feed_row(&x->instance, y, row), wanted, wanted);
    } else {
        expect("feed_row_begin", microtrain_feed_row_begin(&x->instance, y, row), wanted, wanted);
    }
    if (wanted == MICROTRAIN_OK) {
        took(x, y);
        x->under_way = how == 2;
        x->rows = how == 2 ? y : y + 1;
        x->then.rows = y + 1;
        x->then.slides = STAYS;
        x->then.scored = 0;
        worked[ROWS_IN_PIECES] += how == 2;
    }
}

/* Samples: mostly those that follow, else some that are in already, or leave a gap, or are too many. */
static void hear(struct expected *x)
{
    uint32_t all = sizes.sound_samples, most = all ? all : 9;
    uint32_t at = x->order == UNKNOWN ? 0 : draw(4) ? x->heard : draw(most + 2);
    uint32_t count = draw(3) && at <= most ? most - at : draw(most + 2); /* all the rest, or any number */
    int wanted = let_in(x), again = at != 0 && at <= x->heard && count <= x->heard - at;
    if (wanted == MICROTRAIN_OK) {
        wanted = !all || at > all || count > all - at  ? MICROTRAIN_ERR_ARGUMENT
                 : at != 0 && !again && at != x->heard ? MICROTRAIN_ERR_ORDER
                                                       : MICROTRAIN_OK;
    }
    int status = microtrain_feed_sound(&x->instance, at, noise + (at < SAMPLES - most ? at : 0), count);
    expect("feed_sound", status, wanted, wanted);
    if (wanted != MICROTRAIN_OK || again) {
        return;
    }
    x->order = at == 0 ? PURE : x->order;
    x->heard = at + count;
    x->slides = STAYS;
    look(x);
    if (x->heard == all) {
        expect("rows of all samples", (int)x->rows, PROGRAM_HEIGHT, PROGRAM_HEIGHT);
        worked[HEARD]++;
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

/* A call that uses the input up, for a label, a target or none. */
static void use(struct expected *x, enum use kind)
{
    static const char *const names[] = {"predict",     "train",         "imprint",           "train_target",
                                        "train_begin", "predict_begin", "train_target_begin"};
    static float target[INSTANCES][PROGRAM_CLASSES]; /* which must stay until the last piece */
    float scores[PROGRAM_CLASSES], loss, zero = 0.0f, *own = target[x - known];
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
    uint32_t odd = draw(16) == 0, none = draw(16) == 0;
    bytes = bytes < sizeof x->old ? bytes : (uint32_t)sizeof x->old;
    int wanted = let_in(x);
    if (wanted == MICROTRAIN_OK) {
        wanted = !sizes.record_bytes          ? MICROTRAIN_ERR_NO_RECORDS
                 : none                       ? MICROTRAIN_OK
                 : odd                        ? MICROTRAIN_ERR_ALIGNMENT
                 : bytes < sizes.memory_bytes ? MICROTRAIN_ERR_MEMORY
                                              : MICROTRAIN_OK;
    }
    void *memory = none ? NULL : (uint8_t *)x->old + odd;
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
        expect("feed", microtrain_feed(&x->instance, pixels), MICROTRAIN_OK, MICROTRAIN_OK);
        expect("train", microtrain_train(&x->instance, draw(PROGRAM_CLASSES), NULL), MICROTRAIN_OK, MICROTRAIN_OK);
        forget_input(x);
        count_records(x);
        expect("a record", x->records != 0, 1, 1);
    }
    uint32_t of = draw(5), left = draw(of + 2), pieces = draw(2);
    float loss;
    int wanted = let_in(x);
    if (wanted == MICROTRAIN_OK) {
        wanted = !sizes.record_bytes ? MICROTRAIN_ERR_NO_RECORDS
                 : !of || left > of  ? MICROTRAIN_ERR_ARGUMENT
                 : !x->records       ? MICROTRAIN_ERR_EMPTY
                                     : MICROTRAIN_OK;
    }
    int status = pieces ? microtrain_recall_begin(&x->instance, left, of)
                        : microtrain_recall(&x->instance, left, of, draw(2) ? &loss : NULL);
    expect("recall", status, wanted, wanted);
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

static void slide(struct expected *x)
{
    int wanted = let_in(x), other;
    if (wanted == MICROTRAIN_OK) {
        wanted = !sizes.hop_rows ? MICROTRAIN_ERR_ARGUMENT : x->slides == STAYS ? MICROTRAIN_ERR_ORDER : MICROTRAIN_OK;
    }
    other = wanted == MICROTRAIN_OK && x->slides == MAYBE ? MICROTRAIN_ERR_ORDER : wanted;
    int status = microtrain_slide(&x->instance);
    expect("slide", status, wanted, other);
    if (wanted == MICROTRAIN_OK) {
        x->slides = STAYS;
    }
    if (status == MICROTRAIN_OK) {
        x->rows = PROGRAM_HEIGHT - sizes.hop_rows;
        x->heard = x->hears;
        worked[SLID]++;
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

static void keep(struct expected *x)
{
    int wanted = let_in(x), status;
    storage_fails = draw(2) ? 0 : 1 + draw(60);
    switch (draw(3)) {
    case 0:
        status = microtrain_save(&x->instance, &storage);
        expect("save", status, wanted, storage_fails && wanted == MICROTRAIN_OK ? MICROTRAIN_ERR_STORAGE : wanted);
        break;
    case 1:
        wanted = wanted == MICROTRAIN_ERR_BUSY ? MICROTRAIN_OK : wanted;
        status = microtrain_load(&x->instance, &storage);
        if (wanted == MICROTRAIN_OK && status != MICROTRAIN_NONE) {
            x->slides = status == MICROTRAIN_OK ? STAYS : MAYBE;
            x->order = status == MICROTRAIN_OK ? PURE : UNKNOWN;
            x->heard = 0;
            worked[LOADED] += status == MICROTRAIN_OK;
        }
        if (wanted == MICROTRAIN_OK && status == MICROTRAIN_ERR_STORAGE) {
            expect("load", storage_fails != 0, 1, 1);
        } else {
            expect("load", status, wanted, wanted == MICROTRAIN_OK ? MICROTRAIN_NONE : wanted);
        }
        break;
    default:
        status = microtrain_forget(&x->instance, &storage);
        expect("forget", status, wanted, storage_fails && wanted == MICROTRAIN_OK ? MICROTRAIN_ERR_STORAGE : wanted);
    }
    look(x); /* what a load leaves of what was under way */
    x->records = 0;
    if (x->made) {
        count_records(x);
    }
}

/* The self-test, which loses the input. */
static void test(struct expected *x)
{
    int wanted = let_in(x);
    expect("selftest", microtrain_selftest(&x->instance), wanted, wanted);
    if (wanted == MICROTRAIN_OK) {
        forget_input(x);
    }
}

static void other(struct expected *x)
{
    int wanted = !x->made ? MICROTRAIN_ERR_INSTANCE : MICROTRAIN_OK, status;
    uint32_t classes;
    switch (draw(5)) {
    case 4:
        test(x);
        break;
    case 0:
        expect("reset", microtrain_reset(&x->instance), wanted, wanted);
        forget_input(x);
        x->records = 0;
        if (x->made) {
            count_records(x);
            expect("records after reset", (int)x->records, 0, 0);
        }
        break;
    case 1:
        expect("set", microtrain_set(&x->instance, draw(99), 1.0f), let_in(x), let_in(x));
        break;
    case 2:
        wanted = let_in(x);
        status = microtrain_imprint_head(&x->instance, &classes);
        expect("imprint_head", status, wanted,
               wanted != MICROTRAIN_OK ? wanted
               : statistics            ? MICROTRAIN_ERR_EMPTY
                                       : MICROTRAIN_ERR_NO_STATISTICS);
        if (status == MICROTRAIN_OK) {
            forget_input(x);
        }
        break;
    default:
        expect("NULL", microtrain_feed(x->made ? &x->instance : NULL, NULL),
               x->made ? (x->under_way ? MICROTRAIN_ERR_BUSY : MICROTRAIN_ERR_ARGUMENT) : MICROTRAIN_ERR_ARGUMENT,
               MICROTRAIN_ERR_ARGUMENT);
    }
}

static void call(struct expected *x)
{
    uint32_t kind = draw(28);
    int scored = x->scored;
    x->scored = 0; /* any call that is let in ends it, but scores itself */
    if (kind < 1) {
        x->scored = scored;
        make(x);
    } else if (kind < 3) {
        scores(x, scored);
    } else if (kind < 7) {
        feed(x);
    } else if (kind < 14) {
        use(x, (enum use)(kind - 7));
    } else if (kind < 17) {
        step(x);
        if (draw(2)) {
            scored = x->scored;
            x->scored = 0;
            scores(x, scored);
        }
    } else if (kind < 19) {
        hear(x);
    } else if (kind < 20 && draw(4) == 0) {
        keep(x);
    } else if (kind < 22) {
        slide(x);
    } else if (kind < 24) {
        other(x);
    } else if (kind < 26) {
        (draw(8) ? recall : remember)(x);
    } else if (x->made && !x->under_way) {
        x->scored = scored;
        for (uint32_t n = 1 + draw(6); n; n--) {
            fleet(&x->board, (uint8_t *)x->learned);
        }
    } else {
        x->scored = scored;
    }
}

/* One sequence: instances that are made at once or not at all yet, then calls on either. */
static void sequence(void)
{
    for (uint32_t i = 0; i < INSTANCES; i++) {
        known[i].made = 0;
        known[i].room = known[i].records = 0;
        known[i].scored = 0;
        memset(&known[i].board, 0, sizeof known[i].board);
        forget_input(&known[i]);
        memset(&known[i].instance, draw(2) ? 0 : 0xa5, sizeof known[i].instance);
        if (draw(8)) {
            make(&known[i]);
        }
        if (sizes.record_bytes && draw(4)) {
            remember(&known[i]);
        }
    }
    for (uint32_t n = 1 + draw(CALLS); n; n--) {
        call(&known[draw(INSTANCES)]);
    }
}

static void say_worked(void)
{
    static const char *const names[] = {"scores", "feed_row_begin", "train", "train_target", "imprint",
                                        "recall", "feed_sound",     "slide", "load"};
    static const char *const fleets[] = {"fleet_along", "fleet_begin", "fleet_update", "fleet_take_back",
                                         "fleet_masked"};
    for (uint32_t k = 0; k < WORKED; k++) {
        printf("worked %s %lu\n", names[k], worked[k]);
    }
    for (uint32_t k = 0; k < FLEET_DONE; k++) {
        printf("worked %s %lu\n", fleets[k], fleet_done[k]);
    }
}

int main(int argc, char **argv)
{
    state = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) * 2u + 1u : 1u;
    unsigned long sequences = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000ul;
    memset(slots, 0xff, sizeof slots);
    for (size_t i = 0; i < sizeof pixels; i++) {
        pixels[i] = (uint8_t)draw(256);
    }
    for (size_t i = 0; i < SAMPLES; i++) {
        noise[i] = (int16_t)draw(65536);
    }
    if (microtrain_version() != MICROTRAIN_VERSION) {
        failures++;
        printf("version is not the header's\n");
    }
    microtrain_sizes(&PROGRAM_MODEL, &sizes);
    make(&known[0]);
    statistics = microtrain_imprint_head(&known[0].instance, NULL) != MICROTRAIN_ERR_NO_STATISTICS;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned long n = 0; n < sequences; n++) {
        (void)alarm(TOO_LONG_S); /* a call that never ends is a failure too */
        sequence();
    }
    say_worked();
    printf("sequences %lu\nfailures %lu\n", sequences, failures);
    return failures != 0;
}
