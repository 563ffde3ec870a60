/* SPDX-License-Identifier: Apache-2.0 */
/* A channel's sums that are rounded twice, as TensorFlow Lite's reference kernels do, for Armv7E-M with the DSP extension.
 * Contract: requantize.h.
 */
#include "kernels/choices.h"

#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP) && MICROTRAIN_TFLITE

#include "assembly.inc"

/* r4 fine, r5 shift, r6 half a unit and the zero point; r10 is lost. */
    .macro  put v, at:vararg
    put_twice \v, r4, r6, r5, r10, \at
    .endm

/* void put_run_twice(const int32_t *sums, uint32_t n, int8_t *y, const struct run_twice *at)
 *
 * Registers: r0 sums, r1 left, r2 y, r3 c, r4-r6 as above, r7-r9 and r12 sums, lr 3 c. */
    begin   put_run_twice
    push    {r4-r12, lr}
    ldm     r3, {r4-r7}
    mov     r3, r7
    add     lr, r3, r3, lsl #1
    subs    r1, r1, #4
    blt     .Lfew
.Lfour:
    ldm     r0!, {r7-r9, r12}
    put     r7, [r2]
    put     r8, [r2, r3]
    put     r9, [r2, r3, lsl #1]
    put     r12, [r2, lr]
    add     r2, r2, r3, lsl #2
    subs    r1, r1, #4
    bge     .Lfour
.Lfew:
    adds    r1, r1, #4
    beq     .Lend
.Lone:
    ldr     r7, [r0], #4
    put     r7, [r2]
    add     r2, r2, r3
    subs    r1, r1, #1
    bne     .Lone
.Lend:
    pop     {r4-r12, pc}
    end     put_run_twice

/* void put_run_twice_masked(const int32_t *sums, uint32_t n, int8_t *y, const struct run_twice *at)
 *
 * Registers: r0 sums, r1 left, r2 y, r3 c, r4-r6 as above, r7 the sum, r8 the output, r9 mask, r11 stride, r12 bit. */
    begin   put_run_twice_masked
    push    {r4-r11, lr}
    ldm     r3, {r4-r9, r12}
    mov     r3, r7
    mov     r11, r9
    mov     r9, r8
.Lone_masked:
    ldr     r7, [r0], #4
    round_twice r7, r4, r6, r5, r10
    ldrb    lr, [r9]
    ssat    r8, #8, r7
    strb    r8, [r2]
    add     r2, r2, r3
    cmp     r8, r7
    it      eq
    orreq   lr, lr, r12
    strb    lr, [r9]
    add     r9, r9, r11
    subs    r1, r1, #1
    bne     .Lone_masked
    pop     {r4-r11, pc}
    end     put_run_twice_masked

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
