/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of a stem's fields and of columns of weights for Armv7E-M with the DSP extension. Contract: dense.h and, of the
 * fields, conv2d.c; the layout of a tile: dense_armv7em.S.
 */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)

#include "assembly.inc"

/* Four values of two lanes, group `at` of six lanes, from their words in r7 and r8. What is behind the third value is
 * cut off with `three`. */
    .macro  put_group at, three=0
    sxtab16 r9, r6, r7
    sxtab16 r10, r6, r8
    strd    r9, r10, [r0, #48 * \at]
    sxtab16 r9, r6, r7, ror #8
    sxtab16 r10, r6, r8, ror #8
    .if     \three
    uxth    r9, r9
    uxth    r10, r10
    .endif
    strd    r9, r10, [r0, #48 * \at + 24]
    .endm

    .macro  load_group at, offset, three=0
    ldr     r7, [r2, #\offset]
    ldr     r8, [r4, #\offset]
    put_group \at, \three
    .endm

/* void pack6_fields(int16_t *tile, const struct field *fields, uint32_t minus_zero)
 *
 * Six lanes of three rows of nine bytes, two at a time: pack6() of 27 values that need not lie in a row. Registers:
 * r0 tile, r1 fields, r2-r5 places and steps of two of them, r6 minus the zero point in both halves, r7-r10 values,
 * r12 end of the fields. */
    begin   pack6_fields
    push    {r4-r10, lr}
    mov     r6, r2
    add     r12, r1, #48
.Ltwo_fields:
    ldm     r1!, {r2-r5}
    load_group 0, 0, 1
    load_group 1, 3
    ldrh    r7, [r2, #7]
    ldrh    r8, [r4, #7]
    add     r2, r2, r3
    add     r4, r4, r5
    ldr     r9, [r2]
    ldr     r10, [r4]
    pkhbt   r7, r7, r9, lsl #16
    pkhbt   r8, r8, r10, lsl #16
    put_group 2
    load_group 3, 2
    ldr     r7, [r2, #5]
    ldr     r8, [r4, #5]
    ldrb    r9, [r2, r3]
    ldrb    r10, [r4, r5]
    lsr     r7, r7, #8
    lsr     r8, r8, #8
    orr     r7, r7, r9, lsl #24
    orr     r8, r8, r10, lsl #24
    put_group 4
    add     r2, r2, r3
    add     r4, r4, r5
    load_group 5, 1
    load_group 6, 5
    add     r0, r0, #8
    cmp     r1, r12
    bne     .Ltwo_fields
    pop     {r4-r10, pc}
    end     pack6_fields

/* Values k and k + 2 of all lanes, from rows r1 and r12 = r1 + 2 * step, a word for each lane. */
    .macro  half_group lanes, next:vararg
    add     r12, r1, r2, lsl #1
    ldr     r7, [r1]
    .if     \lanes == 6
    ldrsb   r10, [r1, #4]
    ldrsb   lr, [r1, #5]
    ldrsb   r5, [r12, #4]
    ldr     r11, [r12]
    add     r1, \next
    ldrsb   r12, [r12, #5]
    pkhbt   r10, r10, r5, lsl #16
    .else
    ldr     r11, [r12]
    add     r1, \next
    .endif
    sxtb16  r6, r7
    sxtb16  r5, r11
    sxtb16  r7, r7, ror #8
    sxtb16  r11, r11, ror #8
    pkhbt   r4, r6, r5, lsl #16
    pkhtb   r6, r5, r6, asr #16
    pkhbt   r5, r7, r11, lsl #16
    pkhtb   r7, r11, r7, asr #16
    .if     \lanes == 6
    pkhbt   r11, lr, r12, lsl #16
    stm     r0!, {r4-r7, r10, r11}
    .else
    stm     r0!, {r4-r7}
    .endif
    .endm

/* The same times r8 and r9 in half `half`, b or t. The order was searched for: a product waits two cycles for what it
 * reads, and a word for its products. */
    .macro  half_group_scaled lanes, half, next:vararg
    .if     \lanes == 6
    add     r12, r1, r2, lsl #1
    ldr     r7, [r1]
    sxtb16  r6, r7
    ldrsb   r4, [r1, #4]
    ldrsb   lr, [r1, #5]
    ldrsb   r5, [r12, #4]
    ldr     r11, [r12]
    add     r1, \next
    ldrsb   r12, [r12, #5]
    sxtb16  r10, r11
    smulb\half lr, lr, r8
    sxtb16  r11, r11, ror #8
    smulb\half r12, r12, r9
    smulb\half r5, r5, r9
    sxtb16  r7, r7, ror #8
    smulb\half r4, r4, r8
    pkhbt   lr, lr, r12, lsl #16
    pkhbt   r12, r4, r5, lsl #16
    smulb\half r5, r10, r9
    smulb\half r4, r6, r8
    smult\half r10, r10, r9
    smult\half r6, r6, r8
    pkhbt   r4, r4, r5, lsl #16
    smulb\half r5, r7, r8
    pkhbt   r6, r6, r10, lsl #16
    smulb\half r10, r11, r9
    smult\half r11, r11, r9
    smult\half r7, r7, r8
    pkhbt   r5, r5, r10, lsl #16
    pkhbt   r7, r7, r11, lsl #16
    stm     r0!, {r4-r7, r12, lr}
    .else
    ldr     r7, [r1]
    add     r12, r1, r2, lsl #1
    sxtb16  r6, r7
    ldr     r11, [r12]
    add     r1, \next
    sxtb16  r10, r11
    smulb\half r4, r6, r8
    sxtb16  r7, r7, ror #8
    smulb\half lr, r10, r9
    sxtb16  r11, r11, ror #8
    smulb\half r5, r7, r8
    smult\half r10, r10, r9
    pkhbt   r4, r4, lr, lsl #16
    smult\half r6, r6, r8
    smulb\half r12, r11, r9
    pkhbt   r6, r6, r10, lsl #16
    smult\half r11, r11, r9
    smult\half r7, r7, r8
    pkhbt   r5, r5, r12, lsl #16
    pkhbt   r7, r7, r11, lsl #16
    stm     r0!, {r4-r7}
    .endif
    .endm

/* void name(int16_t *tile, const int8_t *rows, uint32_t step, uint32_t groups, const int16_t *r)
 *
 * All lanes: value k of lane i from rows[k * step + i], scaled: times r[k]. Registers: r0 tile, r1 row, r2 step,
 * r3 groups or, scaled, r up to the end in [sp]; r8 and r9 factors of values k, k + 1 and of k + 2, k + 3. */
    .macro  columns name, lanes, scaled
    begin   \name
    push    {r4-r11, lr}
    sub     sp, sp, #4
    .if     \scaled
    mov     r4, r3
    ldr     r3, [sp, #40]
    add     r4, r3, r4, lsl #3
    str     r4, [sp]
    .endif
.Lgroup_\name:
    .if     \scaled
    ldr     r8, [r3], #4        /* r may begin in the middle of a word, where LDRD must not */
    ldr     r9, [r3], #4
    half_group_scaled \lanes, b, r1, r2
    half_group_scaled \lanes, t, r12, r2
    ldr     r4, [sp]
    cmp     r3, r4
    .else
    half_group \lanes, r1, r2
    half_group \lanes, r12, r2
    subs    r3, r3, #1
    .endif
    bne     .Lgroup_\name
    add     sp, sp, #4
    pop     {r4-r11, pc}
    end     \name
    .endm

    columns columns6, 6, 0
    columns columns4, 4, 0
    columns columns6_scaled, 6, 1
    columns columns4_scaled, 4, 1

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
