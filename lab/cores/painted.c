/* SPDX-License-Identifier: Apache-2.0 */
/* The stack that each public function takes on a core: lines of a name and the most that any call of it took. */
#include <stdio.h>

#include "paint.h"
#include PROGRAM_HEADER

enum { SLOT_BYTES = 1 << 16, SLOTS = 2, WORK = PROGRAM_WORK };

static struct microtrain device;
static uint64_t arena[PROGRAM_ARENA_BYTES / 8 + 1], learned[PROGRAM_TRAINABLE_BYTES / 8 + 1];
static uint8_t input[PROGRAM_HEIGHT * PROGRAM_ROW_BYTES], slots[SLOTS][SLOT_BYTES];

#define MEASURE(name, call)                                                                                            \
    do {                                                                                                               \
        paint();                                                                                                       \
        int returned = (int)(call);                                                                                    \
        uint32_t depth = unpainted();                                                                                  \
        printf("microtrain_" #name " %lu\nstatus_" #name " %d\n", (unsigned long)depth, returned);                     \
    } while (0)

/* The storage takes no stack of its own. */
static int copy(volatile uint8_t *to, const volatile uint8_t *from, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        to[i] = from[i];
    }
    return 0;
}

static int read_slot(void *context, uint32_t slot, uint32_t offset, void *to, uint32_t size)
{
    (void)context;
    return copy(to, slots[slot] + offset, size);
}

static int program_slot(void *context, uint32_t slot, uint32_t offset, const void *from, uint32_t size)
{
    (void)context;
    return copy(slots[slot] + offset, from, size);
}

static int erase_slot(void *context, uint32_t slot)
{
    (void)context;
    volatile uint8_t *to = slots[slot];
    for (uint32_t i = 0; i < SLOT_BYTES; i++) {
        to[i] = 0xff;
    }
    return 0;
}

static int sync_slots(void *context)
{
    (void)context;
    return 0;
}

static const struct microtrain_storage storage = {NULL, read_slot, program_slot, erase_slot, sync_slots, SLOT_BYTES,
                                                  4,    0};

static void whole_calls(void)
{
    static float scores[PROGRAM_CLASSES], target[PROGRAM_CLASSES], loss;
    static int16_t samples[4];
    static uint64_t records[1024]; /* enough for a small model, where it has any */
    uint32_t label = 0;
    MEASURE(remember, microtrain_remember(&device, records, sizeof records));
    MEASURE(feed, microtrain_feed(&device, input));
    MEASURE(predict, microtrain_predict(&device, scores, &label));
    MEASURE(slide, microtrain_slide(&device));
    MEASURE(feed_sound, microtrain_feed_sound(&device, 0, samples, 4));
    for (uint32_t y = 0; y < PROGRAM_HEIGHT; y++) {
        MEASURE(feed_row, microtrain_feed_row(&device, y, input + y * PROGRAM_ROW_BYTES));
    }
    MEASURE(imprint, microtrain_imprint(&device, 0));
    MEASURE(imprint_head, microtrain_imprint_head(&device, &label));
    microtrain_feed(&device, input);
    MEASURE(train, microtrain_train(&device, 0, &loss));
    microtrain_feed(&device, input);
    MEASURE(train_target, microtrain_train_target(&device, target, &loss));
    MEASURE(train_target_begin, microtrain_train_target_begin(&device, target));
    MEASURE(recall, microtrain_recall(&device, 1, 2, &loss));
}

static void finish(void)
{
    int status = MICROTRAIN_MORE;
    while (status == MICROTRAIN_MORE) {
        MEASURE(step, status = microtrain_step(&device, WORK, NULL));
    }
}

static void pieces(void)
{
    static float scores[PROGRAM_CLASSES];
    microtrain_reset(&device);
    for (uint32_t y = 0; y < PROGRAM_HEIGHT; y++) {
        MEASURE(feed_row_begin, microtrain_feed_row_begin(&device, y, input + y * PROGRAM_ROW_BYTES));
        finish();
    }
    MEASURE(predict_begin, microtrain_predict_begin(&device));
    finish();
    MEASURE(scores, microtrain_scores(&device, scores, NULL));
    microtrain_feed(&device, input);
    MEASURE(train_begin, microtrain_train_begin(&device, 0));
    finish();
    microtrain_feed(&device, input);
    microtrain_train(&device, 0, NULL);
    MEASURE(recall_begin, microtrain_recall_begin(&device, 1, 1));
    finish();
}

static void kept(void)
{
    struct microtrain_state state;
    MEASURE(forget, microtrain_forget(&device, &storage));
    for (int save = 0; save < 3; save++) {
        MEASURE(save, microtrain_save(&device, &storage));
    }
    MEASURE(load, microtrain_load(&device, &storage));
    MEASURE(state, microtrain_state(&device, &state));
}

static void in_a_fleet(void)
{
    static uint64_t base[PROGRAM_TRAINABLE_BYTES / 8 + 1], last[PROGRAM_TRAINABLE_BYTES / 8 + 1];
    static uint32_t held[PROGRAM_HELD_BYTES / 4 + 1], velocity[PROGRAM_HELD_BYTES / 4 + 1];
    static const struct microtrain_mask masks[2] = {{{1}, 0}, {{2}, 1}};
    static uint64_t masked[MICROTRAIN_MASK_VALUES];
    static uint8_t body[64];
    const struct microtrain_fleet_memory memory = {base, last, held, velocity};
    const struct microtrain_fleet_rule rule = {sizeof body, 192};
    uint32_t bytes = 0;
    int along = 0;
    copy((uint8_t *)base, (const uint8_t *)learned, PROGRAM_TRAINABLE_BYTES);
    for (int round = 0; round < 3; round++) {
        MEASURE(fleet_along, along = microtrain_fleet_along(&PROGRAM_SHARED, &memory));
        MEASURE(fleet_begin, microtrain_fleet_begin(&PROGRAM_SHARED, &memory, along, learned));
        microtrain_feed(&device, input);
        microtrain_train(&device, 0, NULL);
        MEASURE(fleet_update, microtrain_fleet_update(&PROGRAM_SHARED, &memory, learned, along, &rule, body, &bytes));
        MEASURE(fleet_take_back, microtrain_fleet_take_back(&PROGRAM_SHARED, held, body, bytes));
        MEASURE(fleet_masked, microtrain_fleet_masked(&PROGRAM_SHARED, base, learned, 9, masks, 2, 0, masked));
        copy((uint8_t *)last, (const uint8_t *)base, PROGRAM_TRAINABLE_BYTES);
        copy((uint8_t *)base, (const uint8_t *)learned, PROGRAM_TRAINABLE_BYTES);
    }
}

int main(void)
{
    const struct microtrain_memory memory = {arena, sizeof arena, learned, sizeof learned};
    struct microtrain_sizes sizes;
    MEASURE(version, microtrain_version());
    MEASURE(text, microtrain_text(MICROTRAIN_OK) == NULL);
    MEASURE(sizes, microtrain_sizes(&PROGRAM_MODEL, &sizes));
    MEASURE(init, microtrain_init(&device, &PROGRAM_MODEL, &memory));
    MEASURE(selftest, microtrain_selftest(&device));
    MEASURE(reset, microtrain_reset(&device));
    MEASURE(set, microtrain_set(&device, 1, 1.0f));
    for (uint32_t i = 0; i < sizeof input; i++) {
        input[i] = (uint8_t)(i * 7);
    }
    whole_calls();
    pieces();
    kept();
    in_a_fleet();
    printf("end 0\n");
    return 0;
}
