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

    .macro  put v
    qadd    \v, \v, r6
    ssat    \v, #8, \v
    strb    \v, [r3], #1
    .endm

/* Four values of a and of b less their zero points, as halves and then in r8-r12, lr, r7 and r8. */
    .macro  load_values
    ldr     r7, [r1], #4
    ldr     r9, [r2], #4
    sxtab16 r10, r4, r7, ror #8
    sxtab16 r7, r4, r7
    sxtab16 r12, r5, r9, ror #8
    sxtab16 r9, r5, r9
    asr     r8, r7, #16
    asr     r11, r10, #16
    asr     lr, r9, #16
    .endm

/* As floats in s12-s15 and s16-s19. */
    .macro  float_values
    vmov    s12, s13, r7, r10
    vmov    s14, s15, r8, r11
    asr     r7, r12, #16
    vmov    s16, s17, r9, r12
    vmov    s18, s19, lr, r7
    each    from_half, s12, s13, s14, s15, s16, s17, s18, s19
    .endm

    .macro  scale_values
    vmul.f32 s12, s12, s0
    vmul.f32 s13, s13, s0
    vmul.f32 s14, s14, s0
    vmul.f32 s15, s15, s0
    vmul.f32 s16, s16, s1
    vmul.f32 s17, s17, s1
    vmul.f32 s18, s18, s1
    vmul.f32 s19, s19, s1
    .endm

    .macro  add_values
    vadd.f32 s8, s12, s16
    vadd.f32 s9, s13, s17
    vadd.f32 s10, s14, s18
    vadd.f32 s11, s15, s19
    .endm

/* With 128 added an output is 0 to 255, and only one that saturates is larger before than after, as unsigned numbers.
 * Its bit comes in at the top of r11. */
    .macro  put_masked v, rotate=rrx
    qadd    \v, \v, r6
    usat    lr, #8, \v
    cmp     lr, \v
    \rotate r11, r11
    eor     lr, lr, #0x80
    strb    lr, [r3], #1
    .endm

/* name: of its own label. The bits of eight values are a byte of the mask; a bit that runs ahead of them falls out
 * with the eighth. */
    .macro  put_values name, masked
    each    to_int, s4, s5, s6, s7
    vmov    r7, r8, s4, s5
    vmov    r9, r10, s6, s7
    .if     \masked
    vmov    r11, s20
    each    put_masked, r7, r8, r9
    put_masked r10, rrxs
    bcc     .Lhalf_\name
    ldr     r12, [sp, #MASK]
    lsr     r11, r11, #24
    strb    r11, [r12], #1
    str     r12, [sp, #MASK]
    mov     r11, #0x80
.Lhalf_\name:
    vmov    s20, r11
    .else
    each    put, r7, r8, r9, r10
    .endif
    .endm

    .equ    COUNT, 60
    .equ    MASK, 64

/* void name(const struct add *p, const int8_t *a, const int8_t *b, int8_t *y, uint32_t n [, uint8_t *mask])
 *
 * n values, a multiple of 4 and not 0; masked: of 8. Four are made ready for their division, which takes as long as
 * thirteen other instructions, while the four before are divided. Registers: r0 left, r1 a, r2 b, r3 y, r4 and r5 minus
 * the zero points in both halves, r6 zero point of y, masked: and 128, s0-s2 scales, s4-s7 quotients, s8-s11 dividends,
 * s20 bits of the mask. */
    .macro  residual name, masked
    begin   \name
    push    {r4-r11, lr}
    vpush   {d8-d10}
    ldrsh   r4, [r0, #6]
    ldrsh   r5, [r0, #8]
    ldrsh   r6, [r0, #10]
    rsb     r4, r4, #0
    rsb     r5, r5, #0
    pkhbt   r4, r4, r4, lsl #16
    pkhbt   r5, r5, r5, lsl #16
    add     r0, r0, #12
    vldmia  r0, {s0-s2}
    ldr     r0, [sp, #COUNT]
    .if     \masked
    add     r6, r6, #128
    mov     r7, #0x80
    vmov    s20, r7
    .endif
    load_values
    float_values
    scale_values
    add_values
    subs    r0, r0, #4
    beq     .Llast_\name
.Lnext_\name:
    vdiv.f32 s4, s8, s2
    load_values
    vdiv.f32 s5, s9, s2
    float_values
    vdiv.f32 s6, s10, s2
    scale_values
    vdiv.f32 s7, s11, s2
    add_values
    put_values next_\name, \masked
    subs    r0, r0, #4
    bne     .Lnext_\name
.Llast_\name:
    vdiv.f32 s4, s8, s2
    vdiv.f32 s5, s9, s2
    vdiv.f32 s6, s10, s2
    vdiv.f32 s7, s11, s2
    put_values last_\name, \masked
    vpop    {d8-d10}
    pop     {r4-r11, pc}
    end     \name
    .endm

    residual add_values, 0
    residual add_values_masked, 1

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
