/* SPDX-License-Identifier: Apache-2.0 */
/* Random calls of microtrain_fleet.h, good ones and bad, on what an instance has learned. What each must return follows from
 * its arguments; behind an error nothing may have changed. An update has exactly as much memory as it may take. */
#ifndef FUZZ_FLEET_H
#define FUZZ_FLEET_H

#include <stdlib.h>
#include <string.h>

#include PROGRAM_HEADER

enum { BLOCK_BYTES = PROGRAM_TRAINABLE_BYTES + 8, HELD_WORDS = PROGRAM_HELD_BYTES / 4 + 1, BODY_BYTES = 64 };

/* What a board keeps, one beside the other. */
struct board {
    uint32_t base[BLOCK_BYTES / 4], last[BLOCK_BYTES / 4], held[HELD_WORDS], velocity[HELD_WORDS];
    uint8_t body[BODY_BYTES]; /* of the last update */
    uint32_t body_bytes, rounds;
};

/* How often a function did what it is for. */
enum done { ALONG, BEGUN, UPDATED, TAKEN_BACK, MASKED, FLEET_DONE };
static unsigned long fleet_done[FLEET_DONE];

static uint32_t draw(uint32_t n);
static void expect(const char *call, int status, int wanted, int or);

/* Whether a head holds numbers that whole ones can stand for: up to 2^10. */
static int numbers(const void *block)
{
    const struct microtrain_shared *s = &PROGRAM_SHARED;
    for (const struct microtrain_shared_part *p = s->parts; p != s->parts + s->count; p++) {
        for (uint32_t i = 0; i < p->size && p->kind == SHARED_HEAD; i++) {
            float value;
            memcpy(&value, (const uint8_t *)block + p->offset + 4 * i, sizeof value);
            if (!(value >= -1024.0f && value <= 1024.0f)) {
                return 0;
            }
        }
    }
    return 1;
}

/* No number in a head. */
static void spoil(void *block)
{
    const struct microtrain_shared *s = &PROGRAM_SHARED;
    for (const struct microtrain_shared_part *p = s->parts; p != s->parts + s->count; p++) {
        if (p->kind == SHARED_HEAD) {
            memset((uint8_t *)block + p->offset, 0xff, sizeof(float));
        }
    }
}

/* The memory of a call, which may be a bad one; and what that is answered with. */
static int memory_of(struct board *b, struct microtrain_fleet_memory *m)
{
    *m = (struct microtrain_fleet_memory){b->base, b->rounds && draw(4) ? b->last : NULL, b->held,
                                          draw(4) ? b->velocity : NULL};
    switch (draw(12)) {
    case 0:
        m->base = NULL;
        return MICROTRAIN_ERR_ARGUMENT;
    case 1:
        m->held = NULL;
        return MICROTRAIN_ERR_ARGUMENT;
    case 2:
        m->held = (uint8_t *)b->held + 1;
        return MICROTRAIN_ERR_ALIGNMENT;
    case 3:
        m->base = (uint8_t *)b->base + 2;
        return MICROTRAIN_ERR_ALIGNMENT;
    default:
        return numbers(b->base) && (!m->last || numbers(m->last)) ? MICROTRAIN_OK : MICROTRAIN_ERR_DIVERGED;
    }
}

static int along(struct board *b)
{
    struct microtrain_fleet_memory m;
    int wanted = memory_of(b, &m), status = microtrain_fleet_along(&PROGRAM_SHARED, &m);
    expect("fleet_along", status, wanted, wanted == MICROTRAIN_OK && m.last ? 1 : wanted);
    fleet_done[ALONG] += status == 1;
    return status;
}

/* Another round: what was learned is what the fleet has now; now and then it is no number. */
static void next_round(struct board *b, const uint8_t *learned)
{
    memcpy(b->last, b->base, PROGRAM_TRAINABLE_BYTES);
    memcpy(b->base, learned, PROGRAM_TRAINABLE_BYTES);
    b->rounds++;
    if (draw(16) == 0) {
        spoil(draw(2) ? b->base : b->last);
    }
}

static int begin_round(struct board *b, uint8_t *learned)
{
    struct microtrain_fleet_memory m;
    int wanted = memory_of(b, &m), status = microtrain_fleet_begin(&PROGRAM_SHARED, &m, (int)draw(2), learned);
    expect("fleet_begin", status, wanted, wanted);
    fleet_done[BEGUN] += status == MICROTRAIN_OK;
    return status;
}

/* Of what was learned, which is now and then no number. */
static int update(struct board *b, const uint8_t *so_far)
{
    static uint32_t learned[BLOCK_BYTES / 4];
    memcpy(learned, so_far, PROGRAM_TRAINABLE_BYTES);
    if (draw(16) == 0) {
        spoil(learned);
    }
    struct microtrain_fleet_memory m;
    struct microtrain_fleet_rule rule = {draw(BODY_BYTES + 1), draw(300)};
    uint32_t bytes = 0, least = (PROGRAM_SHARED.count + 7) / 8;
    int wanted = memory_of(b, &m);
    uint8_t *body = malloc(rule.room + 1); /* not a byte more than the sanitizer must see */
    if (!body) {
        abort();
    }
    uint8_t *to = body + 1; /* at no alignment */
    if (wanted == MICROTRAIN_OK) {
        wanted = rule.momentum > 255 || (rule.momentum && !m.velocity) ? MICROTRAIN_ERR_ARGUMENT
                 : rule.room < least                                   ? MICROTRAIN_ERR_MEMORY
                 : !numbers(learned)                                   ? MICROTRAIN_ERR_DIVERGED
                                                                       : MICROTRAIN_OK;
    }
    int status = microtrain_fleet_update(&PROGRAM_SHARED, &m, learned, (int)draw(2), &rule, to, &bytes);
    expect("fleet_update", status, wanted, wanted);
    if (status == MICROTRAIN_OK) {
        expect("fleet_update's bytes", bytes >= least && bytes <= rule.room, 1, 1);
        memcpy(b->body, to, bytes);
        b->body_bytes = bytes;
        fleet_done[UPDATED]++;
    }
    free(body);
    return status;
}

/* The last update's body, or one that is damaged or cut, which may be one all the same. */
static int take_back(struct board *b)
{
    uint8_t body[BODY_BYTES];
    uint32_t bytes = b->body_bytes;
    int good = bytes && draw(2);
    memcpy(body, b->body, sizeof body);
    if (!good) {
        body[draw(BODY_BYTES)] ^= (uint8_t)(1u << draw(8));
        bytes = draw(BODY_BYTES + 1);
    }
    uint8_t *exact = malloc(bytes + !bytes);
    if (!exact) {
        abort();
    }
    memcpy(exact, body, bytes);
    int odd = draw(8) == 0, wanted = odd ? MICROTRAIN_ERR_ALIGNMENT : MICROTRAIN_OK;
    int status = microtrain_fleet_take_back(&PROGRAM_SHARED, (uint8_t *)b->held + odd, exact, bytes);
    expect("fleet_take_back", status, wanted, good || odd ? wanted : MICROTRAIN_ERR_ARGUMENT);
    fleet_done[TAKEN_BACK] += good && status == MICROTRAIN_OK;
    free(exact);
    return status;
}

/* Of any block, with masks of which half are taken away: those that are in twice cancel out. */
static int mask(const struct board *b, const uint8_t *learned)
{
    struct microtrain_mask masks[4] = {{{0}, 0}};
    uint64_t plain[MICROTRAIN_MASK_VALUES] = {0}, masked[MICROTRAIN_MASK_VALUES] = {0};
    uint32_t blocks = (PROGRAM_SHARED.values + MICROTRAIN_MASK_VALUES - 1) / MICROTRAIN_MASK_VALUES;
    uint32_t block = draw(blocks + 1), samples = draw(1000), count = 2 * draw(3);
    for (uint32_t k = 0; k < count; k++) {
        memset(masks[k].seed, (int)(k / 2), sizeof masks[k].seed);
        masks[k].minus = k % 2;
    }
    int wanted = block == blocks ? MICROTRAIN_ERR_ARGUMENT : MICROTRAIN_OK;
    int or = numbers(b->base) && numbers(learned) ? wanted : MICROTRAIN_ERR_DIVERGED;
    int status = microtrain_fleet_masked(&PROGRAM_SHARED, b->base, learned, samples, masks, count, block, masked);
    expect("fleet_masked", status, wanted, or);
    int again = microtrain_fleet_masked(&PROGRAM_SHARED, b->base, learned, samples, masks, 0, block, plain);
    expect("fleet_masked without masks", again, status, status);
    expect("fleet_masked's values", memcmp(plain, masked, sizeof plain) == 0, 1, 1);
    fleet_done[MASKED] += status == MICROTRAIN_OK;
    return status;
}

/* One call, on a board and what its instance has learned. */
static void fleet(struct board *b, uint8_t *learned)
{
    static struct board before;
    static uint8_t learned_before[PROGRAM_TRAINABLE_BYTES];
    enum done kind = (enum done)draw(FLEET_DONE);
    if (kind == BEGUN) {
        next_round(b, learned);
    }
    memcpy(&before, b, sizeof before);
    memcpy(learned_before, learned, sizeof learned_before);
    int status = kind == ALONG        ? along(b)
                 : kind == BEGUN      ? begin_round(b, learned)
                 : kind == UPDATED    ? update(b, learned)
                 : kind == TAKEN_BACK ? take_back(b)
                                      : mask(b, learned);
    if (status < 0) {
        int same =
            memcmp(b, &before, sizeof before) == 0 && memcmp(learned, learned_before, sizeof learned_before) == 0;
        expect("a function of the fleet that has failed", same, 1, 1);
    }
}

#endif
