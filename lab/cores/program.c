/* SPDX-License-Identifier: Apache-2.0 */
/* A training session through microtrain.h, the same on every core. What it prints are lines of a word and a number. */
#include <stdio.h>

#include "paint.h"
#include "sha256.h"
#include "timer.h"
#include PROGRAM_HEADER

enum { STEPS = PROGRAM_STEPS, WORK = PROGRAM_WORK };

static struct microtrain device;
static uint64_t arena[PROGRAM_ARENA_BYTES / 8 + 1], learned[PROGRAM_TRAINABLE_BYTES / 8 + 1];
static uint8_t row[PROGRAM_ROW_BYTES];

static void check(int status)
{
    if (status != MICROTRAIN_OK) {
        printf("failed %d: %s\n", status, microtrain_text(status));
    }
}

/* Ticks of something, and of the longest piece of it. */
struct took {
    uint32_t all, most;
};

static void took(struct took *t, uint32_t start)
{
    uint32_t ticks_taken = since(start);
    t->all += ticks_taken;
    t->most = ticks_taken > t->most ? ticks_taken : t->most;
}

/* What was begun, piece by piece. */
static void finish(struct took *t)
{
    float loss;
    int status = MICROTRAIN_MORE;
    while (status == MICROTRAIN_MORE) {
        uint32_t start = ticks();
        status = microtrain_step(&device, WORK, &loss);
        took(t, start);
    }
    check(status);
}

/* Feeds pattern n, row by row, in pieces or not. */
static void feed(uint32_t n, int sliced, struct took *t)
{
    uint32_t counter = n * 1000003u;
    for (uint32_t y = 0; y < PROGRAM_HEIGHT; y++) {
        for (uint32_t i = 0; i < sizeof row; i++, counter += 0x9e3779b9u) {
            row[i] = (uint8_t)hash(counter);
        }
        uint32_t start = ticks();
        check(sliced ? microtrain_feed_row_begin(&device, y, row) : microtrain_feed_row(&device, y, row));
        took(t, start);
        if (sliced) {
            finish(t);
        }
    }
}

static void say(const char *what, uint32_t number)
{
    printf("%s %lu\n", what, (unsigned long)number);
}

/* Every other step in pieces. */
static void train(uint32_t n)
{
    struct took t = {0, 0};
    uint32_t label = n % PROGRAM_CLASSES;
    int sliced = n % 2;
    feed(n, sliced, &t);
    uint32_t start = ticks();
    check(sliced ? microtrain_train_begin(&device, label) : microtrain_train(&device, label, NULL));
    took(&t, start);
    if (sliced) {
        finish(&t);
        say("slice", t.most);
    }
    say(sliced ? "sliced" : "step", t.all);
}

int main(void)
{
    const struct microtrain_memory memory = {arena, sizeof arena, learned, sizeof learned};
    uint8_t digest[SHA256_BYTES];
    struct took t = {0, 0};
    uint32_t label = 0;
    start_counting();
    check(microtrain_init(&device, &PROGRAM_MODEL, &memory));
    check(microtrain_selftest(&device));
    feed(0, 0, &t);
    paint();
    uint32_t start = ticks();
    int status = microtrain_train(&device, 0, NULL);
    took(&t, start);
    say("stack", unpainted());
    check(status);
    say("step", t.all);
    t = (struct took){0, 0};
    for (uint32_t n = 1; n < STEPS; n++) {
        train(n);
    }
    feed(STEPS, 0, &t);
    start = ticks();
    check(microtrain_predict(&device, NULL, &label));
    took(&t, start);
    say("inference", t.all);
    say("label", label);
    sha256((const uint8_t *)learned, PROGRAM_TRAINABLE_BYTES, digest);
    printf("sha256 ");
    for (uint32_t i = 0; i < SHA256_BYTES; i++) {
        printf("%02x", digest[i]);
    }
    printf("\n");
    return 0;
}
