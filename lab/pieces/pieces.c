/* SPDX-License-Identifier: Apache-2.0 */
/* The longest piece of each step of each model, at several amounts of work: lines `piece MODEL JOB STEP WORK TICKS`. */
#include <stdio.h>

#include "microtrain/library.h"
#include "microtrain/words.h"
#include "models.h"
#include "timer.h"

enum { BEGIN = 9, STEPS = 1024 }; /* a job beside those of words.h: what a begin takes */

static struct microtrain device;
static uint64_t arena[MOST_ARENA_BYTES / 8 + 1], learned[MOST_TRAINABLE_BYTES / 8 + 1];
static uint8_t row[MOST_WIDTH * MOST_CHANNELS];
static float target[MOST_CLASSES];
static uint32_t longest[4][STEPS];

static void check(int status)
{
    if (status < 0) {
        printf("failed %d: %s\n", status, microtrain_text(status));
    }
}

/* Ticks of a begin and of the pieces behind it, by step. */
static void finish(uint32_t work, uint32_t *begin, uint32_t start, int status)
{
    uint32_t took = since(start);
    *begin = took > *begin ? took : *begin;
    check(status);
    for (status = MICROTRAIN_MORE; status == MICROTRAIN_MORE;) {
        float loss;
        const struct instance *i = inside(&device);
        uint32_t *most = &longest[i->job][i->job == ROW ? 0 : i->next];
        start = ticks();
        status = microtrain_step(&device, work, &loss);
        took = since(start);
        *most = took > *most ? took : *most;
    }
    check(status);
}

static void feed(const struct microtrain_sizes *sizes, uint32_t work, uint32_t *begin)
{
    for (uint32_t y = 0; y < sizes->height; y++) {
        for (uint32_t i = 0; i < sizes->row_bytes; i++) {
            row[i] = (uint8_t)hash(y * 65536u + i);
        }
        uint32_t start = ticks();
        int status = microtrain_feed_row_begin(&device, y, row);
        finish(work, begin, start, status);
    }
}

static void say(uint32_t model, uint32_t job, uint32_t step, uint32_t work, uint32_t ticks)
{
    if (ticks) {
        printf("piece %lu %lu %lu %lu %lu\n", (unsigned long)model, (unsigned long)job, (unsigned long)step,
               (unsigned long)work, (unsigned long)ticks);
    }
}

static void measure(uint32_t number, uint32_t work)
{
    const struct microtrain_memory memory = {arena, sizeof arena, learned, sizeof learned};
    struct microtrain_sizes sizes;
    uint32_t begin[4] = {0};
    memset(longest, 0, sizeof longest);
    check(microtrain_sizes(models[number], &sizes));
    check(microtrain_init(&device, models[number], &memory));
    for (uint32_t n = 0; n < 2; n++) { /* the second step has errors that the first one's head makes */
        feed(&sizes, work, &begin[ROW]);
        uint32_t start = ticks();
        int status = sizes.targets ? microtrain_train_target_begin(&device, target)
                                   : microtrain_train_begin(&device, n % sizes.classes);
        finish(work, &begin[TRAINING], start, status);
    }
    feed(&sizes, work, &begin[ROW]);
    uint32_t start = ticks();
    int status = microtrain_predict_begin(&device);
    finish(work, &begin[INFERENCE], start, status);
    for (uint32_t job = ROW; job <= TRAINING; job++) {
        say(number, BEGIN, job, work, begin[job]);
        for (uint32_t step = 0; step < STEPS; step++) {
            say(number, job, step, work, longest[job][step]);
        }
    }
}

int main(void)
{
    (void)enter, (void)leave; /* of words.h */
    start_counting();
    for (uint32_t number = 0; number < sizeof models / sizeof models[0]; number++) {
        for (uint32_t i = 0; i < sizeof works / sizeof works[0]; i++) {
            measure(number, works[i]);
        }
    }
    printf("end\n");
    return 0;
}
