/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of a board in a fleet, the same on every core. What it prints are lines of a word and a number, and the SHA-256 of
 * all that was sent and is held back. */
#include <stdio.h>
#include <string.h>

#include "paint.h"
#include "sha256.h"
#include "timer.h"
#include PROGRAM_HEADER

enum { ROUNDS = 4, LOST = 1, ROOM = 96, MOMENTUM = 192, BLOCKS = 4 };

static struct microtrain device;
static uint64_t arena[PROGRAM_ARENA_BYTES / 8 + 1], learned[PROGRAM_TRAINABLE_BYTES / 8 + 1];
static uint64_t base[PROGRAM_TRAINABLE_BYTES / 8 + 1], last[PROGRAM_TRAINABLE_BYTES / 8 + 1];
static uint8_t input[PROGRAM_HEIGHT * PROGRAM_ROW_BYTES];

/* What is hashed: the start of a masked update, bodies, then what is held back. */
static struct {
    uint64_t masked[BLOCKS][MICROTRAIN_MASK_VALUES];
    uint8_t bodies[ROUNDS][ROOM];
    uint32_t held[PROGRAM_HELD_BYTES / 4], velocity[PROGRAM_HELD_BYTES / 4];
} said;

static void check(int status)
{
    if (status != MICROTRAIN_OK) {
        printf("failed %d: %s\n", status, microtrain_text(status));
    }
}

static void learn(uint32_t n)
{
    for (uint32_t i = 0; i < sizeof input; i++) {
        input[i] = (uint8_t)hash(n * 1000003u + i);
    }
    check(microtrain_feed(&device, input));
    check(microtrain_train(&device, n % PROGRAM_CLASSES, NULL));
}

/* Of what has changed since the base of the last round. */
static void mask(void)
{
    static const struct microtrain_mask masks[] = {{"the board's own", 0}, {"with another board", 1}};
    for (uint32_t block = 0; block < BLOCKS; block++) {
        check(microtrain_fleet_masked(&PROGRAM_SHARED, base, learned, 50, masks, 2, block, said.masked[block]));
    }
}

/* Returns the ticks of its update. */
static uint32_t one_round(uint32_t number)
{
    const struct microtrain_fleet_memory memory = {base, number ? last : NULL, said.held, said.velocity};
    const struct microtrain_fleet_rule rule = {ROOM, MOMENTUM};
    uint32_t bytes = 0;
    memcpy(base, learned, PROGRAM_TRAINABLE_BYTES); /* the fleet has what this board has learned */
    int along = microtrain_fleet_along(&PROGRAM_SHARED, &memory);
    check(microtrain_fleet_begin(&PROGRAM_SHARED, &memory, along, learned));
    for (uint32_t step = 0; step < 3; step++) {
        learn(3 * number + step);
    }
    uint32_t start = ticks();
    check(microtrain_fleet_update(&PROGRAM_SHARED, &memory, learned, along, &rule, said.bodies[number], &bytes));
    uint32_t took = since(start);
    if (number == LOST) {
        check(microtrain_fleet_take_back(&PROGRAM_SHARED, said.held, said.bodies[number], bytes));
    }
    memcpy(last, base, PROGRAM_TRAINABLE_BYTES);
    printf("along %d\nbytes %lu\n", along, (unsigned long)bytes);
    return took;
}

int main(void)
{
    const struct microtrain_memory memory = {arena, sizeof arena, learned, sizeof learned};
    uint8_t digest[SHA256_BYTES];
    start_counting();
    check(microtrain_init(&device, &PROGRAM_MODEL, &memory));
    check(microtrain_set(&device, 1, 4.0f));
    for (uint32_t number = 0; number < ROUNDS; number++) {
        printf("update %lu\n", (unsigned long)one_round(number));
    }
    uint32_t start = ticks();
    mask();
    printf("mask %lu\n", (unsigned long)(since(start) / BLOCKS));
    sha256((const uint8_t *)&said, sizeof said, digest);
    printf("sha256 ");
    for (uint32_t i = 0; i < SHA256_BYTES; i++) {
        printf("%02x", digest[i]);
    }
    printf("\n");
    return 0;
}
