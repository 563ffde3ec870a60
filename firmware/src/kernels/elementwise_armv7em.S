/* SPDX-License-Identifier: Apache-2.0 */
/* Residual add and sums of two errors for Armv7E-M with the DSP extension. Contract: kernels/elementwise.h. */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)

#include "assembly.inc"

    .macro  each instruction, first, others:vararg
    .irp    v, \first, \others
    \instruction \v
    .endr
    .endm

    .macro  from_half v
    vcvt.f32.s16 \v, \v, #0
    .endm

    .macro  to_int v
    vcvtr.s32.f32 \v, \v
    .endm

/* ---- residual add with proven integers ------------------------------------------------------------------------- */

/* Four values: r7-r10 = r4 * a + r5 * b + r6. */
    .macro  sums_of_products
    ldrsb   r7, [r1]
    ldrsb   r8, [r1, #1]
    ldrsb   r9, [r1, #2]
    ldrsb   r10, [r1, #3]
    mla     r7, r7, r4, r6
    ldrsb   r12, [r2]
    mla     r8, r8, r4, r6
    ldrsb   lr, [r2, #1]
    mla     r9, r9, r4, r6
    add     r1, r1, #4
    mla     r10, r10, r4, r6
    mla     r7, r12, r5, r7
    ldrsb   r12, [r2, #2]
    mla     r8, lr, r5, r8
    ldrsb   lr, [r2, #3]
    add     r2, r2, #4
    mla     r9, r12, r5, r9
    .endm

    .macro  integer_masked v, at, bit
    ssat    lr, #8, \v, asr #22
    strb    lr, [r3, #\at]
    cmp     lr, \v, asr #22
    it      eq
    orreq   r11, r11, #\bit
    .endm

    .macro  four_integers at, masked
    sums_of_products
    .if     \masked
    mla     r10, lr, r5, r10
    integer_masked r7, \at, 1 << \at
    integer_masked r8, \at + 1, 2 << \at
    integer_masked r9, \at + 2, 4 << \at
    integer_masked r10, \at + 3, 8 << \at
    .else
    ssat    r7, #8, r7, asr #22
    mla     r10, lr, r5, r10
    ssat    r8, #8, r8, asr #22
    strb    r7, [r3], #4
    ssat    r9, #8, r9, asr #22
    strb    r8, [r3, #-3]
    ssat    r10, #8, r10, asr #22
    strb    r9, [r3, #-2]
    strb    r10, [r3, #-1]
    .endif
    .endm

/* void name(const struct add *p, const int8_t *a, const int8_t *b, int8_t *y, uint32_t n [, uint8_t *mask])
 *
 * n values, a multiple of 4 and not 0; masked: of 8. Registers: r0 left, r1 a, r2 b, r3 y, r4 and r5 factors, r6 what is added to their
 * products, r7-r10 sums, r11 bits of the mask. */
    .macro  integers name, masked
    begin   \name
    push    {r4-r11, lr}
    add     r0, r0, #12
    ldm     r0, {r4-r6}
    rsb     r4, r4, #0
    ldr     r0, [sp, #36]
.Lnext_\name:
    .if     \masked
    mov     r11, #0
    four_integers 0, 1
    four_integers 4, 1
    ldr     r12, [sp, #40]
    add     r3, r3, #8
    strb    r11, [r12], #1
    str     r12, [sp, #40]
    subs    r0, r0, #8
    .else
    four_integers 0, 0
    subs    r0, r0, #4
    .endif
    bne     .Lnext_\name
    pop     {r4-r11, pc}
    end     \name
    .endm

    integers add_integers, 0
    integers add_integers_masked, 1

/* ---- sums of two errors ----------------------------------------------------------------------------------------- */

/* Four bytes of an error, those in r12 alone, as floats in \a-\d; \q: where the next pixel is. */
    .macro  load_error q, a, b, c, d
    ldr     r9, [\q]
    add     \q, \q, r4
    and     r9, r9, r12
    sxtb16  r10, r9
    sxtb16  r9, r9, ror #8
    asr     r11, r10, #16
    asr     lr, r9, #16
    vmov    \a, \b, r10, r9
    vmov    \c, \d, r11, lr
    each    from_half, \a, \b, \c, \d
    .endm

/* The sums of a pixel in s4-s7, 0 where the mask stops them. r12: bytes that pass, as chip.h's bytes_of(). */
    .macro  pair_sums
    ldrb    r12, [r6]
    add     r6, r6, r7
    lsr     r12, r12, r8
    and     r12, r12, #15
    mul     r12, r12, r1
    and     r12, r12, #0x01010101
    rsb     r12, r12, r12, lsl #8
    load_error r2, s4, s5, s6, s7
    load_error r3, s8, s9, s10, s11
    vmul.f32 s4, s4, s12
    vmul.f32 s5, s5, s13
    vmul.f32 s6, s6, s14
    vmul.f32 s7, s7, s15
    vmul.f32 s8, s8, s16
    vmul.f32 s9, s9, s17
    vmul.f32 s10, s10, s18
    vmul.f32 s11, s11, s19
    vadd.f32 s4, s4, s8
    vadd.f32 s5, s5, s9
    vadd.f32 s6, s6, s10
    vadd.f32 s7, s7, s11
    .endm

/* Registers: r1 what spreads four bits, r2 a, r3 b, r4 c, r5 pixels left, r6 mask, r7 its step, r8 bit, s12-s15 and
 * s16-s19 units. */
    .macro  load_pairs
    ldm     r0!, {r2-r8}
    vldm    r0, {s12-s19}
    movw    r1, #0x4081
    movt    r1, #0x0020
    .endm

    .macro  grow peak, v
    vabs.f32 \v, \v
    larger  \peak, \v
    .endm

/* void peaks_of_pairs(const struct four_pairs *pairs, float *peaks) */
    begin   peaks_of_pairs
    push    {r1, r4-r11, lr}
    vpush   {d8-d9}
    load_pairs
    mov     r9, #0
    vmov    s0, s1, r9, r9
    vmov    s2, s3, r9, r9
.Lpeak_of_pairs:
    pair_sums
    grow    s0, s4
    grow    s1, s5
    grow    s2, s6
    grow    s3, s7
    subs    r5, r5, #1
    bne     .Lpeak_of_pairs
    vpop    {d8-d9}
    pop     {r1, r4-r11, lr}
    vstm    r1, {s0-s3}
    bx      lr
    end     peaks_of_pairs

/* void put_pairs(const struct four_pairs *pairs, const float *gains, int8_t *q)
 *
 * r0: q. */
    begin   put_pairs
    push    {r2, r4-r11, lr}
    vpush   {d8-d9}
    vldm    r1, {s0-s3}
    load_pairs
    ldr     r0, [sp, #16]
.Lput_pairs:
    pair_sums
    vmul.f32 s4, s4, s0
    vmul.f32 s5, s5, s1
    vmul.f32 s6, s6, s2
    vmul.f32 s7, s7, s3
    each    to_int, s4, s5, s6, s7
    vmov    r9, r10, s4, s5
    vmov    r11, r12, s6, s7
    strb    r9, [r0]
    strb    r10, [r0, #1]
    strb    r11, [r0, #2]
    strb    r12, [r0, #3]
    add     r0, r0, r4
    subs    r5, r5, #1
    bne     .Lput_pairs
    vpop    {d8-d9}
    pop     {r2, r4-r11, pc}
    end     put_pairs

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
