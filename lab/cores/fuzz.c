/* SPDX-License-Identifier: Apache-2.0 */
/* Random sequences of calls of microtrain.h, good ones and bad, on two instances of one model, with a storage that fails
 * now and then. A model of the rules says what each call must return; compiled with sanitizers.
 *
 *     fuzz SEED SEQUENCES      prints "sequences N" and "failures N", and the first failures */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include PROGRAM_HEADER

enum { INSTANCES = 2, CALLS = 24, SLOT_BYTES = 1 << 16, SHOWN = 10 };

/* What is known of an instance. */
struct expected {
    int made, under_way;
    uint32_t rows;                                 /* that are in */
    enum { STAYS, MAY_SLIDE, MAYBE } slides, then; /* whether the input can move on; then: once the pieces are done */
    uint64_t arena[PROGRAM_ARENA_BYTES / 8 + 1], learned[PROGRAM_TRAINABLE_BYTES / 8 + 1];
    struct microtrain instance;
};

static struct expected known[INSTANCES];
static uint8_t slots[2][SLOT_BYTES], pixels[PROGRAM_HEIGHT * PROGRAM_ROW_BYTES];
static uint32_t state, storage_fails;
static unsigned long failures;
static int statistics; /* the model has them */
static uint32_t hop;   /* rows by which its input moves on */

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
    x->slides = STAYS;
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
        forget_input(x);
    }
}

static void feed(struct expected *x)
{
    int wanted = let_in(x), all = draw(3) != 0;
    uint32_t y = draw(4) ? x->rows : draw(PROGRAM_HEIGHT + 2);
    if (all) {
        expect("feed", microtrain_feed(&x->instance, pixels), wanted, wanted);
        x->rows = wanted == MICROTRAIN_OK ? PROGRAM_HEIGHT : x->rows;
        x->slides = wanted == MICROTRAIN_OK ? STAYS : x->slides;
        return;
    }
    if (wanted == MICROTRAIN_OK) {
        wanted = y >= PROGRAM_HEIGHT      ? MICROTRAIN_ERR_ARGUMENT
                 : y != 0 && y != x->rows ? MICROTRAIN_ERR_ORDER
                                          : MICROTRAIN_OK;
    }
    const uint8_t *row = pixels + (y < PROGRAM_HEIGHT ? y : 0) * PROGRAM_ROW_BYTES;
    expect("feed_row", microtrain_feed_row(&x->instance, y, row), wanted, wanted);
    x->rows = wanted == MICROTRAIN_OK ? y + 1 : x->rows;
    x->slides = wanted == MICROTRAIN_OK ? STAYS : x->slides;
}

/* A call that uses the input up, for a label or none. */
static void use(struct expected *x, int kind)
{
    static const char *const names[] = {"predict", "train", "imprint", "train_begin", "predict_begin"};
    float scores[PROGRAM_CLASSES], loss;
    uint32_t label = draw(8) ? draw(PROGRAM_CLASSES) : PROGRAM_CLASSES + draw(9);
    int labelled = kind >= 1 && kind <= 3, wanted = let_in(x);
    if (wanted == MICROTRAIN_OK) {
        wanted = labelled && label >= PROGRAM_CLASSES ? MICROTRAIN_ERR_LABEL
                 : x->rows < PROGRAM_HEIGHT           ? MICROTRAIN_ERR_INPUT
                                                      : MICROTRAIN_OK;
    }
    if (wanted != MICROTRAIN_ERR_INSTANCE && wanted != MICROTRAIN_ERR_BUSY && kind == 2 && !statistics) {
        wanted = MICROTRAIN_ERR_NO_STATISTICS;
    }
    int status = kind == 0   ? microtrain_predict(&x->instance, scores, &label)
                 : kind == 1 ? microtrain_train(&x->instance, label, &loss)
                 : kind == 2 ? microtrain_imprint(&x->instance, label)
                 : kind == 3 ? microtrain_train_begin(&x->instance, label)
                             : microtrain_predict_begin(&x->instance);
    expect(names[kind], status, wanted, wanted);
    if (wanted == MICROTRAIN_OK) {
        int learns = kind == 1 || kind == 3, moves = hop && !learns;
        x->rows = 0;
        x->under_way = kind >= 3;
        x->slides = moves && kind < 3 ? MAY_SLIDE : STAYS;
        x->then = moves ? MAY_SLIDE : STAYS;
    }
}

static void slide(struct expected *x)
{
    int wanted = let_in(x), other;
    if (wanted == MICROTRAIN_OK) {
        wanted = !hop ? MICROTRAIN_ERR_ARGUMENT : x->slides == STAYS ? MICROTRAIN_ERR_ORDER : MICROTRAIN_OK;
    }
    other = wanted == MICROTRAIN_OK && x->slides == MAYBE ? MICROTRAIN_ERR_ORDER : wanted;
    int status = microtrain_slide(&x->instance);
    expect("slide", status, wanted, other);
    if (wanted == MICROTRAIN_OK) {
        x->rows = status == MICROTRAIN_OK ? PROGRAM_HEIGHT - hop : x->rows;
        x->slides = STAYS;
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
    if (x->under_way && status == MICROTRAIN_OK) {
        x->under_way = 0;
        x->slides = x->then;
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
    struct microtrain_state now;
    if (microtrain_state(&x->instance, &now) == MICROTRAIN_OK) { /* what a load leaves of what was under way */
        x->under_way = now.under_way;
        x->rows = PROGRAM_HEIGHT - now.rows_missing;
    }
}

/* The self-test, which loses the input; and what only models of other kinds take. */
static void refused_or_tested(struct expected *x)
{
    static const float target[PROGRAM_CLASSES];
    static const int16_t samples[4];
    int in = let_in(x);
    switch (draw(3)) {
    case 0:
        expect("selftest", microtrain_selftest(&x->instance), in, in);
        if (in == MICROTRAIN_OK) {
            forget_input(x);
        }
        break;
    case 1:
        in = in == MICROTRAIN_OK ? MICROTRAIN_ERR_ARGUMENT : in;
        expect("feed_sound", microtrain_feed_sound(&x->instance, draw(9), samples, draw(5)), in, in);
        break;
    default:
        in = in == MICROTRAIN_OK ? MICROTRAIN_ERR_TASK : in;
        expect("train_target", microtrain_train_target(&x->instance, target, NULL), in, in);
    }
}

static void other(struct expected *x)
{
    int wanted = !x->made ? MICROTRAIN_ERR_INSTANCE : MICROTRAIN_OK, status;
    uint32_t classes;
    switch (draw(5)) {
    case 4:
        refused_or_tested(x);
        break;
    case 0:
        expect("reset", microtrain_reset(&x->instance), wanted, wanted);
        forget_input(x);
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
        x->slides = status == MICROTRAIN_OK ? STAYS : x->slides;
        break;
    default:
        expect("NULL", microtrain_feed(x->made ? &x->instance : NULL, NULL),
               x->made ? (x->under_way ? MICROTRAIN_ERR_BUSY : MICROTRAIN_ERR_ARGUMENT) : MICROTRAIN_ERR_ARGUMENT,
               MICROTRAIN_ERR_ARGUMENT);
    }
    struct microtrain_state now;
    if (microtrain_state(&x->instance, &now) == MICROTRAIN_OK) {
        x->rows = PROGRAM_HEIGHT - now.rows_missing;
    }
}

static void call(struct expected *x)
{
    uint32_t kind = draw(18);
    if (kind < 1) {
        make(x);
    } else if (kind < 5) {
        feed(x);
    } else if (kind < 10) {
        use(x, (int)kind - 5);
    } else if (kind < 13) {
        step(x);
    } else if (kind < 14 && draw(4) == 0) {
        keep(x);
    } else if (kind > 15) {
        slide(x);
    } else {
        other(x);
    }
}

/* One sequence: instances that are made at once or not at all yet, then calls on either. */
static void sequence(void)
{
    for (uint32_t i = 0; i < INSTANCES; i++) {
        known[i].made = 0;
        forget_input(&known[i]);
        memset(&known[i].instance, draw(2) ? 0 : 0xa5, sizeof known[i].instance);
        if (draw(8)) {
            make(&known[i]);
        }
    }
    for (uint32_t n = 1 + draw(CALLS); n; n--) {
        call(&known[draw(INSTANCES)]);
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
    struct microtrain_sizes sizes;
    microtrain_sizes(&PROGRAM_MODEL, &sizes);
    hop = sizes.hop_rows;
    make(&known[0]);
    statistics = microtrain_imprint_head(&known[0].instance, NULL) != MICROTRAIN_ERR_NO_STATISTICS;
    for (unsigned long n = 0; n < sequences; n++) {
        sequence();
    }
    printf("sequences %lu\nfailures %lu\n", sequences, failures);
    return failures != 0;
}
