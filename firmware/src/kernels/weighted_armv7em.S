/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of a few columns of weights, each row times its factor, for Armv7E-M with the DSP extension. Contract: dense.h. */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)

#include "assembly.inc"

/* A row of weights times half `half` of r12, b or t. */
    .macro  weighted_row lanes, half
    ldr     r10, [r0]
    .if     \lanes == 6
    ldrsb   lr, [r0, #4]
    .endif
    sxtb16  r11, r10, ror #8
    sxtb16  r10, r10
    .if     \lanes == 6
    smlab\half r8, lr, r12, r8
    ldrsb   lr, [r0, #5]
    .endif
    smlab\half r4, r10, r12, r4
    add     r0, r0, r1
    smlab\half r5, r11, r12, r5
    smlat\half r6, r10, r12, r6
    smlat\half r7, r11, r12, r7
    .if     \lanes == 6
    smlab\half r9, lr, r12, r9
    .endif
    .endm

/* Two rows of six lanes, in an order that was searched for: 16 cycles by llvm-mca. */
    .macro  two_rows_of_six
    ldr     r10, [r0]
    sxtb16  r11, r10, ror #8
    ldrsb   lr, [r0, #4]
    sxtb16  r10, r10
    smlabb  r4, r10, r12, r4
    smlabb  r8, lr, r12, r8
    ldrsb   lr, [r0, #5]
    add     r0, r0, r1
    smlabb  r5, r11, r12, r5
    smlabb  r9, lr, r12, r9
    ldrsb   lr, [r0, #4]
    smlatb  r7, r11, r12, r7
    ldr     r11, [r0]
    smlatb  r6, r10, r12, r6
    sxtb16  r10, r11, ror #8
    smlabt  r8, lr, r12, r8
    sxtb16  r11, r11
    smlatt  r7, r10, r12, r7
    ldrsb   lr, [r0, #5]
    smlabt  r5, r10, r12, r5
    add     r0, r0, r1
    smlabt  r4, r11, r12, r4
    smlatt  r6, r11, r12, r6
    smlabt  r9, lr, r12, r9
    .endm

/* void name(const int8_t *rows, uint32_t step, const int16_t *factors, uint32_t n, int32_t *sums)
 *
 * Registers: r0 row, r1 step, r2 factors, r3 rows left, r4-r9 sums, r10, r11 and lr weights, r12 two factors. */
    .macro  weighted_columns name, lanes
    begin   \name
    push    {r4-r11, lr}
    ldr     r12, [sp, #36]
    .if     \lanes == 6
    ldm     r12, {r4-r9}
    .else
    ldm     r12, {r4-r7}
    .endif
    subs    r3, r3, #2
    blt     .Lodd_\name
.Ltwo_\name:
    ldr     r12, [r2], #4
    .if     \lanes == 6
    two_rows_of_six
    .else
    weighted_row 4, b
    weighted_row 4, t
    .endif
    subs    r3, r3, #2
    bge     .Ltwo_\name
.Lodd_\name:
    cmn     r3, #1
    bne     .Lend_\name
    ldrh    r12, [r2]
    weighted_row \lanes, b
.Lend_\name:
    ldr     r12, [sp, #36]
    .if     \lanes == 6
    stm     r12, {r4-r9}
    .else
    stm     r12, {r4-r7}
    .endif
    pop     {r4-r11, pc}
    end     \name
    .endm

    weighted_columns weighted_columns6, 6
    weighted_columns weighted_columns4, 4

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
