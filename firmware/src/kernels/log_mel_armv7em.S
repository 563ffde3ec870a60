/* SPDX-License-Identifier: Apache-2.0 */
/* The FFT's stages with twiddles for Armv7E-M with the DSP extension. Contract: log_mel.c. */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)

#include "assembly.inc"

/* The number at lr times the twiddle at r2 + \at, to \re and \im. Spoils r5, \t and \u. */
    .macro  turned re, im, at, t, u
    ldrd    \re, \im, [lr]
    ldr     r5, [r2, #\at]
    smulwb  \t, \re, r5
    smulwt  \u, \im, r5
    smulwt  \re, \re, r5
    smlawb  \im, \im, r5, \re
    sub     \re, \t, \u
    .endm

/* void join(struct complex *z, const struct complex *last, uint32_t quarter, const int16_t *twiddles)
 *
 * r0: number of the first quarter, r1: bytes of a quarter, r2: its twiddles, lr: numbers of the others. On the stack: the
 * end of the first quarter, last, twiddles. */
    begin   log_mel_join
    push    {r4-r11, lr}
    sub     sp, sp, #12
    strd    r1, r3, [sp, #4]
    lsl     r1, r2, #3
0:  ldr     r2, [sp, #8]
    add     r3, r0, r1
    str     r3, [sp]
1:  add     lr, r0, r1
    turned  r3, r4, 0, r6, r7
    add     lr, lr, r1, lsl #1
    turned  r6, r7, 8, r8, r9
    add     r8, r3, r6 /* the sum of the second and the fourth: r8, r10; their difference: r9, r11 */
    sub     r9, r3, r6
    add     r10, r4, r7
    sub     r11, r4, r7
    sub     lr, lr, r1
    turned  r3, r4, 4, r6, r7
    add     r2, r2, #12
    ldrd    r6, r7, [r0]
    add     r5, r3, r6, asr #1 /* the sum of the first and the third: r5, r12; their difference: r3, r4 */
    rsb     r3, r3, r6, asr #1
    add     r12, r4, r7, asr #1
    rsb     r4, r4, r7, asr #1
    add     r6, r5, r8
    add     r7, r12, r10
    strd    r6, r7, [r0], #8
    sub     r6, r5, r8
    sub     r7, r12, r10
    strd    r6, r7, [lr]
    sub     lr, lr, r1
    add     r6, r3, r11
    sub     r7, r4, r9
    strd    r6, r7, [lr]
    add     lr, lr, r1, lsl #1
    sub     r6, r3, r11
    add     r7, r4, r9
    strd    r6, r7, [lr]
    ldr     r5, [sp]
    cmp     r0, r5
    bne     1b
    add     r0, r0, r1
    add     r0, r0, r1, lsl #1
    ldr     r5, [sp, #4]
    cmp     r0, r5
    bne     0b
    add     sp, sp, #12
    pop     {r4-r11, pc}
    end     log_mel_join

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
