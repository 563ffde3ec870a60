/* SPDX-License-Identifier: Apache-2.0 */
/* How deep the stack gets in a call: what is below the stack pointer is painted before, and looked at after. */
#ifndef PAINT_H
#define PAINT_H

#include <stdint.h>

enum { PAINTED = 8192, PAINT = 0xa5 };

/* Of the function that this is inlined into; NULL where nobody measures its stack. */
static inline __attribute__((always_inline)) volatile uint8_t *stack_pointer(void)
{
    volatile uint8_t *sp = 0;
#if defined(__arm__)
    __asm__ volatile("mov %0, sp" : "=r"(sp));
#elif defined(__riscv)
    __asm__ volatile("mv %0, sp" : "=r"(sp));
#endif
    return sp;
}

static inline __attribute__((always_inline)) void paint(void)
{
    volatile uint8_t *sp = stack_pointer();
    for (int32_t i = 1; sp && i <= PAINTED; i++) {
        sp[-i] = PAINT;
    }
}

/* Bytes below the stack pointer that something has written since. */
static inline __attribute__((always_inline)) uint32_t unpainted(void)
{
    volatile uint8_t *sp = stack_pointer();
    int32_t depth = sp ? PAINTED : 0;
    while (depth && sp[-depth] == PAINT) {
        depth--;
    }
    return (uint32_t)depth;
}

#endif
