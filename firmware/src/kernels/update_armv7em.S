/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of trained weights and biases for Armv7E-M with the DSP extension. Contract: update.h, and bias_expand_s32() and
 * bias_update_s32() of kernels/conv2d.h.
 */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)

#include "assembly.inc"

/* ---- weights ---------------------------------------------------------------------------------------------------- */

/* Saturates to -127 .. 127 what is to be negated. */
    .macro  negative first, others:vararg
    .irp    v, \first, \others
    ssat    \v, #8, \v
    .endr
    .irp    v, \first, \others
    rsb     \v, \v, #0
    .endr
    .irp    v, \first, \others
    ssat    \v, #8, \v
    .endr
    .endm

/* void descend_pairs(const struct pairs *at, uint32_t count)
 *
 * Registers: r2 sums, r3 bytes to the next, r4 shift, r5 weights, r6 what is hashed, r7-r9 constants of the hash,
 * r10 and r11 steps, r12 and lr random bits, then weights; s0 factor. */
    begin   descend_pairs
    push    {r4-r11, lr}
    ldm     r0!, {r2-r6}
    vldr    s0, [r0]
    movw    r7, #0x352d
    movt    r7, #0x7feb
    movw    r8, #0xa68b
    movt    r8, #0x846c
    movw    r9, #0x79b9
    movt    r9, #0x9e37
.Lpair_of_weights:
    ldr     r10, [r2]
    ldr     r11, [r2, r3]
    add     r2, r2, r3, lsl #1
    sub     r10, r10, r4
    sub     r11, r11, r4
    vmov    s4, s5, r10, r11
    eor     r12, r6, r6, lsr #16
    vcvt.f32.s32 s4, s4
    mul     r12, r12, r7
    vcvt.f32.s32 s5, s5
    vmul.f32 s4, s0, s4
    eor     r12, r12, r12, lsr #15
    vmul.f32 s5, s0, s5
    mul     r12, r12, r8
    vcvtr.s32.f32 s4, s4
    add     r6, r6, r9
    vcvtr.s32.f32 s5, s5
    eor     r12, r12, r12, lsr #16
    vmov    r10, r11, s4, s5
    uxth    lr, r12
    lsr     r12, r12, #16
    qadd    r10, r10, lr
    ldrsb   lr, [r5]
    qadd    r11, r11, r12
    ldrsb   r12, [r5, #1]
    rsb     r10, lr, r10, asr #16
    rsb     r11, r12, r11, asr #16
    negative r10, r11
    strb    r10, [r5], #1
    strb    r11, [r5], #1
    subs    r1, r1, #1
    bne     .Lpair_of_weights
    pop     {r4-r11, pc}
    end     descend_pairs

/* ---- biases ----------------------------------------------------------------------------------------------------- */

/* struct four_biases, by offset. */
    .equ    SCALE, 12
    .equ    BASE, 20
    .equ    WORDS, 24
    .equ    DELTA, 28
    .equ    LIMIT, 32
    .equ    RATE, 36
    .equ    HASHED, 40

/* Frame. */
    .equ    LEFT, 0             /* pixels behind this chunk */
    .equ    FOURS, 4

/* Adds the errors of one pixel's four channels, channels 0 and 2 in r5, 1 and 3 in r6. */
    .macro  add_errors q
    sxtab16 r5, r5, \q
    sxtab16 r6, r6, \q, ror #8
    .endm

/* r8-r11 = floats of four words of multipliers at `from`, times 2^35, where all are integers; else on at `floats`. */
    .macro  words from, floats
    vldmia  \from!, {s12-s15}
    .irp    v, s12, s13, s14, s15
    vcvt.f32.s32 \v, \v
    .endr
    vmov    r8, r9, s12, s13
    vmov    r10, r11, s14, s15
    and     r12, r8, r9
    and     lr, r10, r11
    ands    lr, lr, r12
    bpl     \floats
    .endm

/* Shifts of the four: 118 less the exponent bits of a multiplier, within 0 to 15. */
    .macro  shifts
    .irp    v, r8, r9, r10, r11
    ubfx    \v, \v, #23, #8
    rsb     \v, \v, #118 + 35
    usat    \v, #4, \v
    .endr
    .endm

/* r7 = random bits of a pair of channels: hash32() of the next number. r1, r2: its factors. */
    .macro  random
    ldr     r7, [r0, #HASHED]
    movw    r4, #0x79b9
    movt    r4, #0x9e37
    add     r4, r4, r7
    str     r4, [r0, #HASHED]
    eor     r7, r7, r7, lsr #16
    mul     r7, r7, r1
    eor     r7, r7, r7, lsr #15
    mul     r7, r7, r2
    eor     r7, r7, r7, lsr #16
    .endm

/* Takes step q of one channel, in an FPU register, from its delta. How far that may be from 0: r12 up, lr down. */
    .macro  descend shift, q, bits:vararg
    ldr     r12, [r3], #4
    qadd    lr, r6, r12
    qsub    r12, r6, r12
    lsr     lr, lr, \shift
    lsr     r12, r12, \shift
    vmov    \shift, \q
    usat    lr, #15, lr
    uxtb    r4, \bits
    qadd    \shift, \shift, r4
    ldrsh   r4, [r5]
    usat    r12, #15, r12
    sub     r4, r4, \shift, asr #8
    cmp     r4, r12
    it      gt
    movgt   r4, r12
    cmn     r4, lr
    it      lt
    rsblt   r4, lr, #0
    strh    r4, [r5], #2
    .endm

    .macro  times_each a, b
    vmul.f32 \a, \a, \b
    .endm

/* r8-r11 as of `words`, of the words at r12, of which some are no integers: an exponent of more than shift 0 has room for
 * is limited to that. Changes s12. */
    begin   float_words
    ldm     r12, {r8-r11}
    .irp    v, r8, r9, r10, r11
    cmp     \v, #0x40000000
    it      gt
    movgt   \v, #0x40000000
    cmp     \v, #0
    vmov    s12, \v
    vcvt.f32.s32 s12, s12
    ite     ge
    addge   \v, \v, #35 << 23
    vmovlt  \v, s12
    .endr
    bx      lr
    end     float_words

    .macro  add_delta b, shift
    ldrsh   lr, [r3], #2
    lsl     lr, lr, \shift
    add     \b, \b, lr
    .endm

/* void descend_biases(struct four_biases *at, uint32_t fours)
 *
 * Registers of the sums: r0 at, r1 q, r2 c, r3 3 c, r4 pixels left, r5 and r6 sums of a chunk, r8-r11 sums; of the
 * steps: r3 base, r5 delta, r6 limit, r8-r11 shifts, s4-s7 steps. */
    begin   descend_biases
    push    {r4-r11, lr}
    sub     sp, sp, #12
    str     r1, [sp, #FOURS]
.Lfour_biases:
    ldm     r0, {r1, r2, r12}
    add     r3, r1, #4
    str     r3, [r0]
    add     r3, r2, r2, lsl #1
    mov     r8, #0
    mov     r9, #0
    mov     r10, #0
    mov     r11, #0
.Lchunk_of_errors:
    cmp     r12, #256               /* a half word holds the sum of so many */
    ite     hi
    movhi   r4, #256
    movls   r4, r12
    sub     r12, r12, r4
    str     r12, [sp, #LEFT]
    mov     r5, #0
    mov     r6, #0
    subs    r4, r4, #4
    blt     .Lfew_errors
.Lfour_errors:
    ldr     r7, [r1]
    ldr     r12, [r1, r2]
    ldr     lr, [r1, r2, lsl #1]
    add_errors r7
    ldr     r7, [r1, r3]
    add_errors r12
    add     r1, r1, r2, lsl #2
    add_errors lr
    subs    r4, r4, #4
    add_errors r7
    bge     .Lfour_errors
.Lfew_errors:
    adds    r4, r4, #4
    beq     .Lend_of_chunk
.Lone_error:
    ldr     r7, [r1]
    add     r1, r1, r2
    add_errors r7
    subs    r4, r4, #1
    bne     .Lone_error
.Lend_of_chunk:
    ldr     r12, [sp, #LEFT]
    sxtah   r8, r8, r5
    sxtah   r9, r9, r6
    add     r10, r10, r5, asr #16
    add     r11, r11, r6, asr #16
    cmp     r12, #0
    bne     .Lchunk_of_errors
    add     lr, r0, #SCALE
    ldm     lr, {r1-r6}
    vmov    s4, s5, r8, r9
    vmov    s6, s7, r10, r11
    vldr    s0, [r0, #RATE]
    vldmia  r1!, {s8-s11}
    vldmia  r2!, {s12-s15}
    .irp    v, s8, s9, s10, s11
    vmul.f32 \v, s0, \v
    .endr
    times_each s8, s12
    times_each s9, s13
    times_each s10, s14
    times_each s11, s15
    .irp    v, s4, s5, s6, s7
    vcvt.f32.s32 \v, \v
    .endr
    times_each s4, s8
    times_each s5, s9
    times_each s6, s10
    times_each s7, s11
    .irp    v, s4, s5, s6, s7
    vcvtr.s32.f32 \v, \v
    .endr
    words   r4, .Lfloat_words
.Lwords:
    shifts
    strd    r1, r2, [r0, #SCALE]
    str     r4, [r0, #WORDS]
    movw    r1, #0x352d
    movt    r1, #0x7feb
    movw    r2, #0xa68b
    movt    r2, #0x846c
    random
    descend r8, s4, r7
    descend r9, s5, r7, ror #16
    random
    descend r10, s6, r7
    descend r11, s7, r7, ror #16
    str     r3, [r0, #BASE]
    str     r5, [r0, #DELTA]
    ldr     r1, [sp, #FOURS]
    subs    r1, r1, #1
    str     r1, [sp, #FOURS]
    bne     .Lfour_biases
    add     sp, sp, #12
    pop     {r4-r11, pc}
.Lfloat_words:
    sub     r12, r4, #16
    go      bl, float_words
    b       .Lwords
    end     descend_biases

/* void expand_biases(const struct trained_bias *bias, int32_t *b, uint32_t fours)
 *
 * Registers: r0 words, r1 b, r2 fours left, r3 delta, r4 base. */
    begin   expand_biases
    push    {r4-r11, lr}
    ldm     r0, {r3, r4, r12}
    mov     r0, r12
.Lfour_to_expand:
    words   r0, .Lfloats_to_expand
.Lwords_to_expand:
    shifts
    ldm     r4!, {r5-r7, r12}
    .irp    at, "r5, r8", "r6, r9", "r7, r10", "r12, r11"
    add_delta \at
    .endr
    stm     r1!, {r5-r7, r12}
    subs    r2, r2, #1
    bne     .Lfour_to_expand
    pop     {r4-r11, pc}
.Lfloats_to_expand:
    sub     r12, r0, #16
    go      bl, float_words
    b       .Lwords_to_expand
    end     expand_biases

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
