/* SPDX-License-Identifier: Apache-2.0 */
/* The longest piece of each step of each model, at several amounts of work, and what begins, records and slides take. Lines:
 *   piece MODEL JOB STEP WORK TICKS
 *   begin MODEL TICKS
 *   slide MODEL TICKS
 *   keep MODEL RECORDS TICKS               the longest of many, with room for so many records
 *   recall MODEL RECORDS STEPS TICKS       the longest of so many, on as many records, in steps 0 .. STEPS - 1 */
#include <stdio.h>

#include "microtrain/library.h"
#include "microtrain/words.h"
#include "models.h"
#include "timer.h"

enum { STEPS = 1024, TURNS = 3 };

static struct microtrain device;
static uint64_t arena[MOST_ARENA_BYTES / 8 + 1], learned[MOST_TRAINABLE_BYTES / 8 + 1];
static uint64_t records[MOST_RECORDS_BYTES / 8 + 1];
static uint8_t row[MOST_WIDTH * MOST_CHANNELS];
static float target[MOST_CLASSES];
static uint32_t longest[4][STEPS], longest_begin, longest_keep;

static void check(int status)
{
    if (status < 0) {
        printf("failed %d: %s\n", status, microtrain_text(status));
    }
}

static void raise_to(uint32_t *most, uint32_t took)
{
    *most = took > *most ? took : *most;
}

/* Of what the next piece takes. */
static uint32_t *longest_of(const struct instance *i)
{
    const struct session *s = &i->session;
    if (i->job == TRAINING && s->replay.records && i->next == s->model->record_step && !i->kept) {
        return &longest_keep;
    }
    return i->job == RECALLING ? &longest[TRAINING][i->next] : &longest[i->job][i->job == ROW ? 0 : i->next];
}

/* Ticks of a begin, which has ended, and of the pieces behind it. */
static void finish(uint32_t work, uint32_t start, int status)
{
    raise_to(&longest_begin, since(start));
    check(status);
    for (status = MICROTRAIN_MORE; status == MICROTRAIN_MORE;) {
        float loss;
        uint32_t *most = longest_of(inside(&device));
        start = ticks();
        status = microtrain_step(&device, work, &loss);
        raise_to(most, since(start));
    }
    check(status);
}

/* Rows from y on. */
static void feed(const struct microtrain_sizes *sizes, uint32_t y, uint32_t work)
{
    for (; y < sizes->height; y++) {
        for (uint32_t i = 0; i < sizes->row_bytes; i++) {
            row[i] = (uint8_t)hash(y * 65536u + i);
        }
        uint32_t start = ticks();
        int status = microtrain_feed_row_begin(&device, y, row);
        finish(work, start, status);
    }
}

static int train_begin(const struct microtrain_sizes *sizes, uint32_t label)
{
    return sizes->targets ? microtrain_train_target_begin(&device, target) : microtrain_train_begin(&device, label);
}

static void train(const struct microtrain_sizes *sizes, uint32_t work)
{
    feed(sizes, 0, work);
    uint32_t start = ticks();
    int status = train_begin(sizes, 0);
    finish(work, start, status);
}

static void predict(const struct microtrain_sizes *sizes, uint32_t from, uint32_t work)
{
    feed(sizes, from, work);
    uint32_t start = ticks();
    int status = microtrain_predict_begin(&device);
    finish(work, start, status);
}

static void slide(uint32_t number, const struct microtrain_sizes *sizes, uint32_t work)
{
    uint32_t start = ticks();
    int status = microtrain_slide(&device);
    uint32_t took = since(start);
    check(status);
    printf("slide %lu %lu\n", (unsigned long)number, (unsigned long)took);
    predict(sizes, sizes->height - sizes->hop_rows, work);
}

/* Pieces of a training step, and of an inference, which slides where the model can. */
static void measure(uint32_t number, const struct microtrain_sizes *sizes, uint32_t work, int infers)
{
    memset(longest, 0, sizeof longest);
    train(sizes, work);
    if (infers) {
        predict(sizes, 0, work);
        if (sizes->hop_rows) {
            slide(number, sizes, work);
        }
    }
    for (uint32_t job = ROW; job <= TRAINING; job++) {
        for (uint32_t step = 0; step < STEPS; step++) {
            if (longest[job][step]) {
                printf("piece %lu %lu %lu %lu %lu\n", (unsigned long)number, (unsigned long)job, (unsigned long)step,
                       (unsigned long)work, (unsigned long)longest[job][step]);
            }
        }
    }
}

/* Records of one class, then of all others: their places are drawn among all, one by one. */
static void keep(const struct microtrain_sizes *sizes, uint32_t room)
{
    struct session *s = &inside(&device)->session;
    for (uint32_t n = 0; n < 3 * room; n++) {
        uint32_t label = n < room || sizes->classes == 1 ? 0 : 1 + n % (sizes->classes - 1);
        uint32_t start = ticks();
        replay_keep(s, label, s->seed, n);
        raise_to(&longest_keep, since(start));
    }
}

static void recall(uint32_t number, uint32_t room)
{
    struct instance *i = inside(&device);
    uint32_t most = 0;
    for (i->session.step = 0; i->session.step < TURNS * room; i->session.step++) {
        uint32_t start = ticks();
        int status = microtrain_recall_begin(&device, 1, 1);
        raise_to(&most, since(start));
        check(status);
        i->job = NO_JOB;
    }
    printf("recall %lu %lu %lu %lu\n", (unsigned long)number, (unsigned long)room, (unsigned long)(TURNS * room),
           (unsigned long)most);
}

/* With room for some records: while an input is one, what the front made of it is there. */
static void remember(uint32_t number, const struct microtrain_sizes *sizes, uint32_t room)
{
    const struct instance *i = inside(&device);
    uint32_t bytes = sizes->memory_bytes + (room - sizes->classes) * sizes->record_bytes;
    longest_keep = 0;
    check(microtrain_remember(&device, records, bytes));
    feed(sizes, 0, UINT32_MAX);
    check(train_begin(sizes, 0));
    while (longest_of(i) != &longest_keep) {
        float loss;
        check(microtrain_step(&device, UINT32_MAX, &loss));
    }
    keep(sizes, room);
    finish(UINT32_MAX, ticks(), MICROTRAIN_OK);
    printf("keep %lu %lu %lu\n", (unsigned long)number, (unsigned long)room, (unsigned long)longest_keep);
    recall(number, room);
    check(microtrain_remember(&device, NULL, 0));
}

static void of_model(uint32_t number)
{
    const struct microtrain_memory memory = {arena, sizeof arena, learned, sizeof learned};
    struct microtrain_sizes sizes;
    check(microtrain_sizes(models[number], &sizes));
    check(microtrain_init(&device, models[number], &memory));
    train(&sizes, UINT32_MAX); /* the next step has errors that this one's head makes */
    longest_begin = 0;
    for (uint32_t i = 0; i < sizeof works / sizeof works[0]; i++) {
        measure(number, &sizes, works[i], i == 0);
    }
    printf("begin %lu %lu\n", (unsigned long)number, (unsigned long)longest_begin);
    if (sizes.record_bytes) {
        remember(number, &sizes, sizes.classes);
        remember(number, &sizes, ROOM > sizes.classes ? ROOM : sizes.classes);
    }
}

int main(void)
{
    (void)enter, (void)leave; /* of words.h */
    start_counting();
    for (uint32_t number = 0; number < sizeof models / sizeof models[0]; number++) {
        of_model(number);
    }
    printf("end\n");
    return 0;
}
