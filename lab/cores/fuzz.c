/* SPDX-License-Identifier: Apache-2.0 */
/* Random sequences of calls of microtrain.h and microtrain_fleet.h, good ones and bad, on two instances of one model, with a
 * storage that fails, is cut off, or goes wrong without a word. A model of the rules says what each call must return; compiled
 * with sanitizers.
 *
 *     fuzz SEED SEQUENCES      prints the first failures, "worked NAME N" of what succeeded, "sequences N", "failures N" */
#define _POSIX_C_SOURCE 200809L /* alarm() */
#include <stdlib.h>
#include <unistd.h>

#include "fuzz_input.h"
#include "fuzz_rules.h"
#include "fuzz_storage.h"
#include "fuzz_use.h"

enum { CALLS = 24, TOO_LONG_S = 20 };

/* Memory that is none, and what is said of it. */
static int bad_memory(struct expected *x, struct microtrain_memory *memory)
{
    switch (draw(6)) {
    case 0:
        memory->arena_bytes = draw(PROGRAM_ARENA_BYTES);
        return MICROTRAIN_ERR_MEMORY;
    case 1:
        memory->trainable_bytes = draw(PROGRAM_TRAINABLE_BYTES);
        return MICROTRAIN_ERR_MEMORY;
    case 2:
        memory->arena = NULL;
        return MICROTRAIN_ERR_ARGUMENT;
    case 3:
        memory->trainables = (uint8_t *)x->learned + 1 + draw(7);
        return MICROTRAIN_ERR_ALIGNMENT;
    case 4:
        memory->arena = x->learned; /* which are the trainables */
        return MICROTRAIN_ERR_ARGUMENT;
    default:
        memory->trainables = &x->instance;
        return MICROTRAIN_ERR_ARGUMENT;
    }
}

static void make(struct expected *x)
{
    struct microtrain_memory memory = {x->arena, sizeof x->arena, x->learned, sizeof x->learned};
    int wanted = draw(8) ? MICROTRAIN_OK : bad_memory(x, &memory), no = MICROTRAIN_ERR_ARGUMENT;
    expect("init", microtrain_init(&x->instance, &PROGRAM_MODEL, &memory), wanted, wanted);
    if (wanted == MICROTRAIN_OK) {
        x->made = 1;
        x->scored = 0;
        x->room = x->records = 0;
        forget_input(x);
    }
    expect("init of no model", microtrain_init(&x->instance, NULL, &memory), no, no);
    expect("init without memory", microtrain_init(&x->instance, &PROGRAM_MODEL, NULL), no, no);
    expect("sizes of no model", microtrain_sizes(NULL, &sizes), no, no);
    expect("sizes to nowhere", microtrain_sizes(&PROGRAM_MODEL, NULL), no, no);
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
    } else if (kind < 20) {
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
                                        "recall", "feed_sound",     "slide", "save",         "load"};
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
    random_state = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) * 2u + 1u : 1u;
    unsigned long sequences = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000ul;
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
    new_storage();
    while (!known[0].made) {
        make(&known[0]);
    }
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
