/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions of a stretch of code, counted by a timer of the board: QEMU, with -icount shift=0, lets a nanosecond pass
 * an instruction. And numbers that look random, for inputs. */
#ifndef TIMER_H
#define TIMER_H

#include <stdint.h>

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

#endif
