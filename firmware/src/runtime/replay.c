/* SPDX-License-Identifier: Apache-2.0 */
#include "replay.h"

#include "model_api.h"

#if MODEL_RECORDS > 0

#include <string.h>

_Static_assert(MODEL_RECORDS >= MODEL_CLASSES && MODEL_RECORDS <= UINT16_MAX,
               "a replay buffer holds one record per class at least: convert with a larger --replay");

enum { NOWHERE = MODEL_RECORDS };

static const uint32_t random_keep = 0x80000000u, random_recall = 0x80000001u; /* beyond all tensor ids */

/* tools/convert/memory/replay.py counts these bytes. */
static struct {
    uint32_t held;
    uint32_t seen[MODEL_CLASSES];   /* images of a class since the last clear */
    uint16_t stored[MODEL_CLASSES]; /* records of a class */
    uint16_t label[MODEL_RECORDS];
    uint8_t record[MODEL_RECORDS][MODEL_RECORD_BYTES];
} replay_buffer;

void replay_clear(void)
{
    memset(&replay_buffer, 0, sizeof replay_buffer);
}

uint32_t replay_held(void)
{
    return replay_buffer.held;
}

/* A number below n of 32 random bits. */
static uint32_t below(uint32_t random, uint32_t n)
{
    return (uint32_t)((uint64_t)random * n >> 32);
}

static uint32_t largest_class(void)
{
    uint32_t most = 0;
    for (uint32_t k = 0; k < MODEL_CLASSES; k++) {
        most = replay_buffer.stored[k] > most ? replay_buffer.stored[k] : most;
    }
    return most;
}

/* Any record of the classes that have `most` of them. */
static uint32_t of_largest(uint32_t most, uint32_t random)
{
    uint32_t classes = 0, slot = 0;
    for (uint32_t k = 0; k < MODEL_CLASSES; k++) {
        classes += replay_buffer.stored[k] == most;
    }
    for (uint32_t left = below(random, classes * most);; slot++) {
        if (replay_buffer.stored[replay_buffer.label[slot]] == most && left-- == 0) {
            return slot;
        }
    }
}

/* The n-th record of a class, which has more than n. */
static uint32_t of_class(uint32_t label, uint32_t n)
{
    uint32_t slot = 0;
    while (replay_buffer.label[slot] != label || n-- > 0) {
        slot++;
    }
    return slot;
}

/* Where the next image of a class goes; NOWHERE: it is left out. */
static uint32_t place(uint32_t label, uint32_t random)
{
    if (replay_buffer.held < MODEL_RECORDS) {
        return replay_buffer.held;
    }
    uint32_t own = replay_buffer.stored[label], most = largest_class();
    if (own + 1 < most) {
        return of_largest(most, random);
    }
    uint32_t n = below(random, replay_buffer.seen[label]);
    return n < own ? of_class(label, n) : NOWHERE;
}

void replay_keep(uint32_t label, uint32_t seed, uint32_t step)
{
    replay_buffer.seen[label]++;
    uint32_t slot = place(label, random_key(seed, step, random_keep));
    if (slot == NOWHERE) {
        return;
    }
    if (slot == replay_buffer.held) {
        replay_buffer.held++;
    } else {
        replay_buffer.stored[replay_buffer.label[slot]]--;
    }
    replay_buffer.stored[label]++;
    replay_buffer.label[slot] = (uint16_t)label;
    model_keep(replay_buffer.record[slot]);
}

uint32_t replay_recall(uint32_t seed, uint32_t step)
{
    uint32_t slot = below(random_key(seed, step, random_recall), replay_buffer.held);
    model_recall(replay_buffer.record[slot]);
    return replay_buffer.label[slot];
}

#endif
