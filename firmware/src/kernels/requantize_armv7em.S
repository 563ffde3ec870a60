/* SPDX-License-Identifier: Apache-2.0 */
/* From sums to int8 for Armv7E-M with the DSP extension: outputs, with and without a mask, and errors.
 * Contract: requantize.h.
 *
 * Sums go through the FPU a few at a time. VCVTR rounds to nearest even (FPSCR) and saturates, so what follows is QADD:
 * a rounded product may be as large as an int32 can be.
 */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)

#include "assembly.inc"

    .macro  each instruction, first, others:vararg
    .irp    v, \first, \others
    \instruction \v
    .endr
    .endm

    .macro  to_float v
    vcvt.f32.s32 \v, \v
    .endm

    .macro  to_int v
    vcvtr.s32.f32 \v, \v
    .endm

    .macro  saturate zero, first, others:vararg
    .irp    v, \first, \others
    qadd    \v, \v, \zero
    .endr
    .irp    v, \first, \others
    ssat    \v, #8, \v
    .endr
    .endm

    .macro  times factor, first, others:vararg
    .irp    v, \first, \others
    vmul.f32 \v, \v, \factor
    .endr
    .endm

/* ---- outputs ---------------------------------------------------------------------------------------------------- */

/* Bits of a lane from r8, whose low and high half bytes are those of channels 0 to 3 and 4 to 7, to the byte at `at`: bit
 * 8 i goes to bit 24 + i of the product and bit 8 i + 4 to bit 28 + i. */
    .macro  byte_of lane, at:vararg
    .if     \lane
    and     lr, r4, r8, lsr #\lane
    .else
    and     lr, r4, r8
    .endif
    mul     lr, lr, r5
    lsr     lr, lr, #24
    strb    lr, \at
    .endm

/* void put_masks(const uint8_t *bits, uint32_t eights, uint32_t lanes, uint8_t *mask, uint32_t stride)
 *
 * Registers: r0 bits, r1 eights left, r2 lanes, r3 mask, r4 and r5 constants, r6 and r7 bits of eight channels, r9 stride,
 * r12 mask of lane 1. */
    begin   put_masks
    push    {r4-r9, lr}
    ldr     r9, [sp, #28]
    mov     r4, #0x11111111
    movw    r5, #0x0408
    movt    r5, #0x0102
.Leight_channels:
    ldrd    r6, r7, [r0], #8
    mvn     r6, r6
    mvn     r7, r7
    and     r8, r6, #0x0f0f0f0f
    and     lr, r7, #0x0f0f0f0f
    orr     r8, r8, lr, lsl #4
    add     r12, r3, r9
    byte_of 0, [r3]
    byte_of 1, [r12]
    byte_of 2, [r3, r9, lsl #1]
    byte_of 3, [r12, r9, lsl #1]
    cmp     r2, #4
    beq     .Lnext_eight
    and     r6, r6, #0xf0f0f0f0
    and     r7, r7, #0xf0f0f0f0
    orr     r8, r7, r6, lsr #4
    byte_of 0, [r3, r9, lsl #2]
    byte_of 1, [r12, r9, lsl #2]
.Lnext_eight:
    add     r3, r3, #1
    subs    r1, r1, #1
    bne     .Leight_channels
    pop     {r4-r9, pc}
    end     put_masks

/* void requantize_channel(const int32_t *sums, const struct runs *runs, int32_t zero, int8_t *y, uint32_t c, float m)
 *
 * Four of a run pass through the FPU while the four before are saturated and stored. Registers: r0 sums, r1 left of a
 * run, r2 zero, r3 y, r4 c, r5-r8 values, r9 runs, r10 and r11 what to skip behind a run of sums and of y, r12 length
 * of a run, lr 3 c. */
    begin   requantize_channel
    push    {r4-r11, lr}
    ldr     r4, [sp, #36]
    ldm     r1, {r9-r12}
    add     lr, r4, r4, lsl #1
.Lrun:
    subs    r1, r12, #4
    blt     .Lfew_of_run
    vldmia  r0!, {s4-s7}
    each    to_float, s4, s5, s6, s7
    times   s0, s4, s5, s6, s7
    each    to_int, s4, s5, s6, s7
    subs    r1, r1, #4
    vmov    r5, r6, s4, s5
    vmov    r7, r8, s6, s7
    blt     .Llast_of_run
.Lfour_of_run:
    vldmia  r0!, {s4-s7}
    vcvt.f32.s32 s4, s4
    qadd    r5, r5, r2
    vcvt.f32.s32 s5, s5
    qadd    r6, r6, r2
    vcvt.f32.s32 s6, s6
    qadd    r7, r7, r2
    vcvt.f32.s32 s7, s7
    qadd    r8, r8, r2
    vmul.f32 s4, s4, s0
    ssat    r5, #8, r5
    vmul.f32 s5, s5, s0
    ssat    r6, #8, r6
    vmul.f32 s6, s6, s0
    strb    r5, [r3]
    vmul.f32 s7, s7, s0
    strb    r6, [r3, r4]
    vcvtr.s32.f32 s4, s4
    ssat    r7, #8, r7
    vcvtr.s32.f32 s5, s5
    ssat    r8, #8, r8
    vcvtr.s32.f32 s6, s6
    strb    r7, [r3, r4, lsl #1]
    vcvtr.s32.f32 s7, s7
    strb    r8, [r3, lr]
    add     r3, r3, r4, lsl #2
    subs    r1, r1, #4
    vmov    r5, r6, s4, s5
    vmov    r7, r8, s6, s7
    bge     .Lfour_of_run
.Llast_of_run:
    saturate r2, r5, r6, r7, r8
    strb    r5, [r3]
    strb    r6, [r3, r4]
    strb    r7, [r3, r4, lsl #1]
    strb    r8, [r3, lr]
    add     r3, r3, r4, lsl #2
.Lfew_of_run:
    adds    r1, r1, #4
    beq     .Lend_of_run
.Lone_of_run:
    vldmia  r0!, {s4}
    to_float s4
    times   s0, s4
    to_int  s4
    vmov    r5, s4
    saturate r2, r5
    strb    r5, [r3]
    add     r3, r3, r4
    subs    r1, r1, #1
    bne     .Lone_of_run
.Lend_of_run:
    add     r0, r0, r10
    add     r3, r3, r11
    subs    r9, r9, #1
    bne     .Lrun
    pop     {r4-r11, pc}
    end     requantize_channel

/* One value of a channel, to y and to the mask. */
    .macro  put_channel v, y, mask
    qadd    \v, \v, r2
    ssat    lr, #8, \v
    strb    lr, \y
    cmp     \v, lr
    ldrb    lr, \mask
    it      eq
    orreq   lr, lr, r11
    strb    lr, \mask
    .endm

/* The same in eighths, rounded down, which comes from an integer. */
    .macro  put_integer v, y, mask
    ssat    lr, #8, \v, asr #3
    strb    lr, \y
    cmp     lr, \v, asr #3
    ldrb    lr, \mask
    it      eq
    orreq   lr, lr, r11
    strb    lr, \mask
    .endm

/* Four sums, or one, in r5-r8: what their float makes of them, or their integer in eighths. */
    .macro  float_sums first, others:vararg
    .ifnb   \others
    vldmia  r0!, {s4-s7}
    each    to_float, s4, s5, s6, s7
    times   s0, s4, s5, s6, s7
    each    to_int, s4, s5, s6, s7
    vmov    r5, r6, s4, s5
    vmov    r7, r8, s6, s7
    .else
    vldmia  r0!, {s4}
    to_float s4
    times   s0, s4
    to_int  s4
    vmov    r5, s4
    .endif
    .endm

    .macro  integer_sums first, others:vararg
    .ifnb   \others
    ldm     r0!, {r5-r8}
    .else
    ldr     r5, [r0], #4
    .endif
    .irp    v, \first, \others
    smmls   \v, \v, lr, r2
    .endr
    .endm

/* void name(const int32_t *sums, int8_t *y, uint8_t *mask, const struct masked_run *run)
 *
 * Registers: r0 sums, r1 left, r2 zero, r3 y, r4 c, r5-r8 values, r9 mask, r10 stride, r11 bit, r12 3 c; s0 the float or
 * the integer's word. */
    .macro  channel_masked name, sums, put, integer
    begin   \name
    push    {r4-r11, lr}
    mov     r9, r2
    mov     lr, r3
    mov     r3, r1
    ldm     lr, {r1, r2, r4, r10-r12}
    vmov    s0, r12
    add     r12, r4, r4, lsl #1
    subs    r1, r1, #4
    blt     .Lfew_\name
.Lfour_\name:
    .if     \integer
    vmov    lr, s0
    .endif
    \sums   r5, r6, r7, r8
    \put    r5, "[r3]", "[r9]"
    \put    r6, "[r3, r4]", "[r9, r10]"
    add     r9, r9, r10, lsl #1
    \put    r7, "[r3, r4, lsl #1]", "[r9]"
    \put    r8, "[r3, r12]", "[r9, r10]"
    add     r3, r3, r4, lsl #2
    add     r9, r9, r10, lsl #1
    subs    r1, r1, #4
    bge     .Lfour_\name
.Lfew_\name:
    adds    r1, r1, #4
    beq     .Lend_\name
.Lone_\name:
    .if     \integer
    vmov    lr, s0
    .endif
    \sums   r5
    \put    r5, "[r3]", "[r9]"
    add     r3, r3, r4
    add     r9, r9, r10
    subs    r1, r1, #1
    bne     .Lone_\name
.Lend_\name:
    pop     {r4-r11, pc}
    end     \name
    .endm

    channel_masked float_channel_masked, float_sums, put_channel, 0
    channel_masked integer_channel_masked, integer_sums, put_integer, 1

/* ---- errors ----------------------------------------------------------------------------------------------------- */

/* Sums in r\first.. where a bit of r12 is set, else 0. */
    .macro  mask_sums bit, v, others:vararg
    sbfx    lr, r12, #\bit, #1
    and     \v, \v, lr
    .ifnb   \others
    mask_sums (\bit + 1), \others
    .endif
    .endm

    .macro  absolute v
    vabs.f32 \v, \v
    .endm

/* void name(int32_t *sums, uint32_t pixels, const struct mask_view *mask, float *peaks)
 *
 * Sums that the mask stops become 0, all become floats in their places; peaks[lane] = the largest magnitude, or what
 * it was. The bits of the lanes lie in one or two bytes, read one by one, so that none behind the mask is read.
 * Registers: r0 sums, r1 pixels, r2 mask, r3 stride, r4 shift, r5 second byte, r6-r11 sums, r12 bits, s8-s13 peaks. */
    .macro  mask_errors name, lanes
    begin   \name
    push    {r3-r11, lr}
    .if     \lanes == 6
    vldmia  r3, {s8-s13}
    .else
    vldmia  r3, {s8-s11}
    .endif
    ldm     r2, {r2-r5}
.Lpixel_\name:
    ldrb    r12, [r2]
    ldrb    lr, [r2, r5]
    add     r2, r2, r3
    orr     r12, r12, lr, lsl #8
    lsr     r12, r12, r4
    .if     \lanes == 6
    ldm     r0, {r6-r11}
    mask_sums 0, r6, r7, r8, r9, r10, r11
    vmov    s4, s5, r10, r11
    .else
    ldm     r0, {r6-r9}
    mask_sums 0, r6, r7, r8, r9
    .endif
    vmov    s0, s1, r6, r7
    vmov    s2, s3, r8, r9
    .if     \lanes == 6
    each    to_float, s0, s1, s2, s3, s4, s5
    vstmia  r0!, {s0-s5}
    each    absolute, s0, s1, s2, s3, s4, s5
    larger  s12, s4
    larger  s13, s5
    .else
    each    to_float, s0, s1, s2, s3
    vstmia  r0!, {s0-s3}
    each    absolute, s0, s1, s2, s3
    .endif
    larger  s8, s0
    larger  s9, s1
    larger  s10, s2
    larger  s11, s3
    subs    r1, r1, #1
    bne     .Lpixel_\name
    ldr     r3, [sp]
    .if     \lanes == 6
    vstmia  r3, {s8-s13}
    .else
    vstmia  r3, {s8-s11}
    .endif
    pop     {r3-r11, pc}
    end     \name
    .endm

    mask_errors mask_errors6, 6
    mask_errors mask_errors4, 4

/* void name(const float *sums, uint32_t pixels, const float *gains, int8_t *q, uint32_t c)
 *
 * q[lane] of each pixel = rint(sum * gain). Registers: r0 sums, r1 pixels, r3 q, r4 c, r6-r11 values. */
    .macro  put_errors name, lanes
    begin   \name
    push    {r4-r11, lr}
    ldr     r4, [sp, #36]
    .if     \lanes == 6
    vldmia  r2, {s8-s13}
    .else
    vldmia  r2, {s8-s11}
    .endif
.Lpixel_\name:
    .if     \lanes == 6
    vldmia  r0!, {s0-s5}
    vmul.f32 s4, s4, s12
    vmul.f32 s5, s5, s13
    .else
    vldmia  r0!, {s0-s3}
    .endif
    vmul.f32 s0, s0, s8
    vmul.f32 s1, s1, s9
    vmul.f32 s2, s2, s10
    vmul.f32 s3, s3, s11
    each    to_int, s0, s1, s2, s3
    .if     \lanes == 6
    each    to_int, s4, s5
    vmov    r10, r11, s4, s5
    strb    r10, [r3, #4]
    strb    r11, [r3, #5]
    .endif
    vmov    r6, r7, s0, s1
    vmov    r8, r9, s2, s3
    strb    r6, [r3]
    strb    r7, [r3, #1]
    strb    r8, [r3, #2]
    strb    r9, [r3, #3]
    add     r3, r3, r4
    subs    r1, r1, #1
    bne     .Lpixel_\name
    pop     {r4-r11, pc}
    end     \name
    .endm

    put_errors put_errors6, 6
    put_errors put_errors4, 4

/* float mask_channel(int32_t *sums, uint32_t n, const struct mask_view *mask, float peak)
 *
 * The same for one channel, whose bit is bit 31 - shift of its byte. Registers: r0 sums, r1 left, r2 mask, r3 stride,
 * r4 shift, r5-r8 sums, r9-r12 bytes, lr 3 strides, s0 and s1 peaks. */
    begin   mask_channel
    push    {r4-r11, lr}
    ldm     r2, {r2-r4}
    vmov    s1, s0
    add     lr, r3, r3, lsl #1
    subs    r1, r1, #4
    blt     .Lfew_sums
.Lfour_sums:
    ldrb    r9, [r2]
    ldrb    r10, [r2, r3]
    ldrb    r11, [r2, r3, lsl #1]
    ldrb    r12, [r2, lr]
    ldm     r0, {r5-r8}
    lsl     r9, r9, r4
    lsl     r10, r10, r4
    add     r2, r2, r3, lsl #2
    lsl     r11, r11, r4
    and     r5, r5, r9, asr #31
    lsl     r12, r12, r4
    and     r6, r6, r10, asr #31
    and     r7, r7, r11, asr #31
    vmov    s4, s5, r5, r6
    and     r8, r8, r12, asr #31
    vmov    s6, s7, r7, r8
    each    to_float, s4, s5, s6, s7
    vstmia  r0!, {s4-s7}
    each    absolute, s4, s5, s6, s7
    larger  s0, s4
    larger  s1, s5
    larger  s0, s6
    larger  s1, s7
    subs    r1, r1, #4
    bge     .Lfour_sums
.Lfew_sums:
    adds    r1, r1, #4
    beq     .Lend_sums
.Lone_sum:
    ldr     r5, [r0]
    ldrb    r12, [r2]
    add     r2, r2, r3
    lsl     r12, r12, r4
    and     r5, r5, r12, asr #31
    vmov    s4, r5
    to_float s4
    vstmia  r0!, {s4}
    absolute s4
    larger  s0, s4
    subs    r1, r1, #1
    bne     .Lone_sum
.Lend_sums:
    larger  s0, s1
    pop     {r4-r11, pc}
    end     mask_channel

/* void put_channel_errors(const float *sums, uint32_t n, int8_t *q, uint32_t c, float gain)
 *
 * Registers: r0 sums, r1 left, r2 q, r3 c, r4-r7 values, r12 3 c. */
    begin   put_channel_errors
    push    {r4-r7, lr}
    add     r12, r3, r3, lsl #1
    subs    r1, r1, #4
    blt     .Lfew_errors
.Lfour_errors:
    vldmia  r0!, {s4-s7}
    times   s0, s4, s5, s6, s7
    each    to_int, s4, s5, s6, s7
    vmov    r4, r5, s4, s5
    vmov    r6, r7, s6, s7
    strb    r4, [r2]
    strb    r5, [r2, r3]
    strb    r6, [r2, r3, lsl #1]
    strb    r7, [r2, r12]
    add     r2, r2, r3, lsl #2
    subs    r1, r1, #4
    bge     .Lfour_errors
.Lfew_errors:
    adds    r1, r1, #4
    beq     .Lend_errors
.Lone_error:
    vldmia  r0!, {s4}
    times   s0, s4
    to_int  s4
    vmov    r4, s4
    strb    r4, [r2]
    add     r2, r2, r3
    subs    r1, r1, #1
    bne     .Lone_error
.Lend_errors:
    pop     {r4-r7, pc}
    end     put_channel_errors

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
