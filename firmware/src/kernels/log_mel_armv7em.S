/* SPDX-License-Identifier: Apache-2.0 */
/* Bands and their logarithms for Armv7E-M with the DSP extension. Contract: log_mel.c. */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)

#include "assembly.inc"

/* Samples from r1, of any alignment, to r0, at a word, 16 at a time: r2 of them. */
    begin   log_mel_copy
    push    {r4-r9, lr}
0:  ldr     r3, [r1]
    ldr     r4, [r1, #4]
    ldr     r5, [r1, #8]
    ldr     r6, [r1, #12]
    ldr     r7, [r1, #16]
    ldr     r8, [r1, #20]
    ldr     r9, [r1, #24]
    ldr     r12, [r1, #28]
    add     r1, r1, #32
    stm     r0!, {r3-r9, r12}
    subs    r2, r2, #1
    bne     0b
    pop     {r4-r9, pc}
    end     log_mel_copy

/* The next k goes into the band below, r4, and into that above, r5. */
    .macro  goes power, weights
    smlawt  r4, \power, \weights, r4
    smlawb  r5, \power, \weights, r5
    .endm

/* r4 = the logarithm of the energy r4, from that of 2^31 on. Spoils r6. */
    .macro  logarithm
    bic     r4, r4, r4, asr #31
    add     r4, r4, #1
    clz     r6, r4
    lsl     r4, r4, r6
    lsr     r4, r4, #24
    ldrh    r4, [r12, r4, lsl #1]
    sub     r4, r4, r6, lsl #10
    .endm

    .macro  value
    ldrd    r9, r10, [sp]
    mla     r4, r4, r9, r10
    usat    r4, #8, r4, asr #18
    strb    r4, [r11], #1
    .endm

    .macro  level
    ldr     r10, [sp, #4]
    add     r4, r4, r10
    ssat    r4, #16, r4
    strh    r4, [r11], #2
    .endm

/* void \name(const int32_t *power, const uint16_t *counts, const uint32_t *weights, int32_t offset, const uint16_t *logs,
 *             uint32_t bands, made, const uint32_t *line)
 *
 * r12: logs, less those of numbers below a half of all; lr: bands left, r11: what is made. On the stack: gain, constant. */
    .macro  bands name, ending
    begin   \name
    push    {r4-r11, lr}
    ldrd    r12, lr, [sp, #36]
    ldr     r11, [sp, #44]
    ldr     r9, [sp, #48]
    ldrd    r9, r10, [r9]
    sub     sp, sp, #8
    strd    r9, r10, [sp]
    sub     r12, r12, #256
    mov     r5, r3
    ldrh    r6, [r1], #2
    cbz     r6, 1f
0:  ldr     r7, [r0], #4
    ldr     r9, [r2], #4
    smlawb  r5, r7, r9, r5
    subs    r6, r6, #1
    bne     0b
1:  mov     r4, r5
    mov     r5, r3
    ldrh    r6, [r1], #2
    lsrs    r6, r6, #1
    bcc     2f
    ldr     r7, [r0], #4
    ldr     r9, [r2], #4
    goes    r7, r9
2:  beq     4f
3:  ldrd    r7, r8, [r0], #8
    ldrd    r9, r10, [r2], #8
    goes    r7, r9
    goes    r8, r10
    subs    r6, r6, #1
    bne     3b
4:  logarithm
    \ending
    subs    lr, lr, #1
    bne     1b
    add     sp, sp, #8
    pop     {r4-r11, pc}
    end     \name
    .endm

    bands   log_mel_values, value
    bands   log_mel_heights, level

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
