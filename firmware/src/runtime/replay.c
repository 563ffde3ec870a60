/* SPDX-License-Identifier: Apache-2.0 */
#include "replay.h"

#include <string.h>

#include "session.h"

#if MODEL_RECORDS > 0

static const uint32_t random_keep = 0x80000000u, random_recall = 0x80000001u; /* beyond all tensor ids */

#ifdef MICROTRAIN_LIBRARY

#define BUFFER(s) ((s)->replay)
#define ROOM(s) ((s)->replay.records)
#define RECORD(s, slot) ((s)->replay.record + (slot) * (s)->model->record_bytes)

enum { CLASS_BYTES = sizeof(uint32_t) + sizeof(uint16_t), LABEL_BYTES = sizeof(uint16_t) };

uint32_t replay_bytes(const struct microtrain_model *model, uint32_t records)
{
    return (uint32_t)CLASS_BYTES * model->info.classes + records * (LABEL_BYTES + model->record_bytes);
}

void replay_give(struct session *s, void *memory, uint32_t bytes)
{
    uint32_t classes = INFO(s)->classes;
    uint32_t room = memory ? (bytes - replay_bytes(s->model, 0)) / (LABEL_BYTES + s->model->record_bytes) : 0;
    struct replay *buffer = &s->replay;
    buffer->records = room < UINT16_MAX ? room : UINT16_MAX;
    buffer->seen = memory;
    buffer->stored = memory ? (uint16_t *)(void *)(buffer->seen + classes) : NULL;
    buffer->label = memory ? buffer->stored + classes : NULL;
    buffer->record = memory ? (uint8_t *)(buffer->label + buffer->records) : NULL;
    replay_clear(s);
}

void replay_clear(struct session *s)
{
    s->replay.held = 0;
    if (s->replay.records) {
        memset(s->replay.seen, 0, replay_bytes(s->model, 0));
    }
}

#else

_Static_assert(MODEL_RECORDS >= MODEL_CLASSES && MODEL_RECORDS <= UINT16_MAX,
               "a replay buffer holds one record per class at least: convert with a larger --replay");

/* tools/convert/memory/replay.py counts these bytes. */
static struct {
    uint32_t held;
    uint32_t seen[MODEL_CLASSES];   /* images of a class since the last clear */
    uint16_t stored[MODEL_CLASSES]; /* records of a class */
    uint16_t label[MODEL_RECORDS];
    uint8_t record[MODEL_RECORDS][MODEL_RECORD_BYTES];
} replay_buffer;

#define BUFFER(s) (*((void)(s), &replay_buffer))
#define ROOM(s) ((void)(s), (uint32_t)MODEL_RECORDS)
#define RECORD(s, slot) BUFFER(s).record[slot]

void replay_clear(struct session *s)
{
    memset(&BUFFER(s), 0, sizeof replay_buffer);
}

#endif

uint32_t replay_held(const struct session *s)
{
    return BUFFER(s).held;
}

/* A number below n of 32 random bits. */
static uint32_t below(uint32_t random, uint32_t n)
{
    return (uint32_t)((uint64_t)random * n >> 32);
}

static uint32_t largest_class(const struct session *s)
{
    uint32_t most = 0;
    for (uint32_t k = 0; k < INFO(s)->classes; k++) {
        most = BUFFER(s).stored[k] > most ? BUFFER(s).stored[k] : most;
    }
    return most;
}

/* Any record of the classes that have `most` of them. */
static uint32_t of_largest(const struct session *s, uint32_t most, uint32_t random)
{
    uint32_t classes = 0, slot = 0;
    for (uint32_t k = 0; k < INFO(s)->classes; k++) {
        classes += BUFFER(s).stored[k] == most;
    }
    for (uint32_t left = below(random, classes * most);; slot++) {
        if (BUFFER(s).stored[BUFFER(s).label[slot]] == most && left-- == 0) {
            return slot;
        }
    }
}

/* The n-th record of a class, which has more than n. */
static uint32_t of_class(const struct session *s, uint32_t label, uint32_t n)
{
    uint32_t slot = 0;
    while (BUFFER(s).label[slot] != label || n-- > 0) {
        slot++;
    }
    return slot;
}

/* Where the next image of a class goes; ROOM: it is left out. */
static uint32_t place(const struct session *s, uint32_t label, uint32_t random)
{
    if (BUFFER(s).held < ROOM(s)) {
        return BUFFER(s).held;
    }
    uint32_t own = BUFFER(s).stored[label], most = largest_class(s);
    if (own + 1 < most) {
        return of_largest(s, most, random);
    }
    uint32_t n = below(random, BUFFER(s).seen[label]);
    return n < own ? of_class(s, label, n) : ROOM(s);
}

void replay_keep(struct session *s, uint32_t label, uint32_t seed, uint32_t step)
{
    BUFFER(s).seen[label]++;
    uint32_t slot = place(s, label, random_key(seed, step, random_keep));
    if (slot == ROOM(s)) {
        return;
    }
    if (slot == BUFFER(s).held) {
        BUFFER(s).held++;
    } else {
        BUFFER(s).stored[BUFFER(s).label[slot]]--;
    }
    BUFFER(s).stored[label]++;
    BUFFER(s).label[slot] = (uint16_t)label;
    MODEL(s, keep)(OF_AND(s) RECORD(s, slot));
}

/* The place of number i of 0 .. n - 1 in an order that the key draws. Every line in the loop is a bijection of the
 * numbers below the next power of 2; what is not below n is sent on until it is, so all of it is one of 0 .. n - 1. A
 * way on that is a bijection meets no number twice, and fewer than n are not below n: so many draws at most, two mostly. */
static uint32_t in_order(uint32_t i, uint32_t n, uint32_t key)
{
    uint32_t bits = 1;
    while ((n - 1) >> bits) {
        bits++;
    }
    uint32_t mask = (1u << bits) - 1, half = (bits + 1) / 2;
    do {
        for (uint32_t round = key; round; round >>= 8) {
            i = ((i + round) * (round >> 3 | 1)) & mask;
            i ^= i >> half;
        }
    } while (i >= n);
    return i;
}

uint32_t replay_recall(struct session *s, uint32_t seed, uint32_t step)
{
    uint32_t held = BUFFER(s).held;
    uint32_t slot = in_order(step % held, held, random_key(seed, step / held, random_recall));
    MODEL(s, recall)(OF_AND(s) RECORD(s, slot));
    return BUFFER(s).label[slot];
}

#endif
