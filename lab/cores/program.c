/* SPDX-License-Identifier: Apache-2.0 */
/* A training session through microtrain.h, the same on every core. What it prints are lines of a word and a number.
 * Instructions are counted by a timer of the board: QEMU, with -icount shift=0, lets a nanosecond pass an instruction. */
#include <stdio.h>

#include "sha256.h"
#include PROGRAM_HEADER

enum { STEPS = PROGRAM_STEPS };

static struct microtrain device;
static uint64_t arena[PROGRAM_ARENA_BYTES / 8 + 1], learned[PROGRAM_TRAINABLE_BYTES / 8 + 1];
static uint8_t row[PROGRAM_ROW_BYTES];

#if defined(__riscv)

static void start_counting(void) {}

static uint32_t ticks(void)
{
    uint32_t count;
    __asm__ volatile(".option push\n.option arch, +zicsr\ncsrr %0, minstret\n.option pop" : "=r"(count));
    return count;
}

#elif defined(__arm__)

/* SysTick, ARMv7-M ARM, section B3.3: counts down from 2^24 - 1 with the core's clock. */
#define SYST ((volatile uint32_t *)0xE000E010u)

static void start_counting(void)
{
    SYST[1] = 0xffffffu;
    SYST[2] = 0;
    SYST[0] = 5;
}

static uint32_t ticks(void)
{
    return 0xffffffu - SYST[2];
}

#else

static void start_counting(void) {}

static uint32_t ticks(void)
{
    return 0;
}

#endif

static uint32_t since(uint32_t start)
{
#if defined(__arm__)
    return (ticks() - start) & 0xffffffu;
#else
    return ticks() - start;
#endif
}

static uint32_t hash(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

static void check(int status)
{
    if (status != MICROTRAIN_OK) {
        printf("failed %d: %s\n", status, microtrain_text(status));
    }
}

/* Feeds pattern n, row by row. Returns ticks; *most grows to the longest row's. */
static uint32_t feed(uint32_t n, uint32_t *most)
{
    uint32_t counter = n * 1000003u, all = 0;
    for (uint32_t y = 0; y < PROGRAM_HEIGHT; y++) {
        for (uint32_t i = 0; i < sizeof row; i++, counter += 0x9e3779b9u) {
            row[i] = (uint8_t)hash(counter);
        }
        uint32_t start = ticks();
        check(microtrain_feed_row(&device, y, row));
        uint32_t took = since(start);
        all += took;
        *most = took > *most ? took : *most;
    }
    return all;
}

static void say(const char *what, uint32_t number)
{
    printf("%s %lu\n", what, (unsigned long)number);
}

/* Every other step in pieces. */
static void train(uint32_t n)
{
    float loss = 0.0f;
    uint32_t most_row = 0, fed = feed(n, &most_row), label = n % PROGRAM_CLASSES, all = 0, most = 0, start = ticks();
    if (n % 2 == 0) {
        check(microtrain_train(&device, label, &loss));
        say("step", fed + since(start));
        return;
    }
    check(microtrain_train_begin(&device, label));
    for (int status = MICROTRAIN_MORE; status == MICROTRAIN_MORE;) {
        start = ticks();
        status = microtrain_step(&device, &loss);
        uint32_t took = since(start);
        all += took;
        most = took > most ? took : most;
    }
    say("sliced", fed + all);
    say("slice", most);
    say("row", most_row);
}

int main(void)
{
    const struct microtrain_memory memory = {arena, sizeof arena, learned, sizeof learned};
    uint8_t digest[SHA256_BYTES];
    uint32_t most = 0;
    start_counting();
    check(microtrain_init(&device, &PROGRAM_MODEL, &memory));
    check(microtrain_selftest(&device));
    for (uint32_t n = 0; n < STEPS; n++) {
        train(n);
    }
    uint32_t fed = feed(STEPS, &most), start = ticks(), label;
    check(microtrain_predict(&device, NULL, &label));
    say("inference", fed + since(start));
    say("label", label);
    sha256((const uint8_t *)learned, PROGRAM_TRAINABLE_BYTES, digest);
    printf("sha256 ");
    for (uint32_t i = 0; i < SHA256_BYTES; i++) {
        printf("%02x", digest[i]);
    }
    printf("\n");
    return 0;
}
