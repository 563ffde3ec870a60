/* SPDX-License-Identifier: Apache-2.0 */
/* Pointwise convolution of eight input channels for Armv7E-M with the DSP extension. Contract: narrow.h.
 *
 * A row of eight weights is four words of pairs, which stay in registers while the pixels pass: nine instructions an
 * output, of which four are products. The tiles of dense_armv7em.S would take eleven, as their rows end too often.
 */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)

#include "assembly.inc"
#include "kernels/choices.h"

/* void narrow_pack(int16_t *to, const int8_t *x, uint32_t pixels, uint32_t minus_zero)
 *
 * Two pixels at a time. Registers: r0 to, r1 x, r2 pixels left, r3 minus the zero point in both halves. */
    begin   narrow_pack
    push    {r4-r11, lr}
.Ltwo_pixels:
    ldr     r5, [r1], #16
    ldr     r7, [r1, #-12]
    ldr     r9, [r1, #-8]
    ldr     r11, [r1, #-4]
    sxtab16 r4, r3, r5
    sxtab16 r5, r3, r5, ror #8
    sxtab16 r6, r3, r7
    sxtab16 r7, r3, r7, ror #8
    sxtab16 r8, r3, r9
    sxtab16 r9, r3, r9, ror #8
    sxtab16 r10, r3, r11
    sxtab16 r11, r3, r11, ror #8
    subs    r2, r2, #2
    stm     r0!, {r4-r11}
    bne     .Ltwo_pixels
    pop     {r4-r11, pc}
    end     narrow_pack

/* Frame, by offset from sp: where the pixels begin and end, then as in struct narrow. */
    .equ    PIXELS, 0
    .equ    END, 4
    .equ    ROW, 8              /* weights, bias, word, y and how many are left */
    .equ    OFFSET, 28          /* and c */
    .equ    SHIFT, 36           /* of a row's fine multiplier; with it the frame is 8 larger */
#if MICROTRAIN_TFLITE
    .equ    FRAME, 44           /* 9 registers and this: a multiple of 8 */
    .equ    TO_ZERO, 1          /* from what put->offset is */
#else
    .equ    FRAME, 36
    .equ    TO_ZERO, 3
#endif

/* Two pixels, their sums in r8 and r9: what a sum waits for stands between the products of the other. */
    .macro  two_integers
    ldm     r0!, {r8-r11}
    smlad   r8, r8, r4, r12
    smlad   r8, r9, r5, r8
    smlad   r8, r10, r6, r8
    smlad   r8, r11, r7, r8
    ldm     r0!, {r9-r11}
    smmls   r8, r8, r1, r2
    smlad   r9, r9, r4, r12
    smlad   r9, r10, r5, r9
    ldr     r10, [r0], #4
    smlad   r9, r11, r6, r9
    ssat    r8, #8, r8, asr #3
    smlad   r9, r10, r7, r9
    smmls   r9, r9, r1, r2
    strb    r8, [r3]
    ssat    r9, #8, r9, asr #3
    strb    r9, [r3, lr]
    add     r3, r3, lr, lsl #1
    .endm

    .macro  two_sums
    ldm     r0!, {r8-r11}
    smlad   r8, r8, r4, r12
    smlad   r8, r9, r5, r8
    smlad   r8, r10, r6, r8
    smlad   r8, r11, r7, r8
    ldm     r0!, {r9-r11}
    smlad   r9, r9, r4, r12
    smlad   r9, r10, r5, r9
    ldr     r10, [r0], #4
    smlad   r9, r11, r6, r9
    smlad   r9, r10, r7, r9
    .endm

    .macro  two_twice
    two_sums
    ldr     r11, [sp, #SHIFT]
    put_twice r8, r1, r2, r11, r10, [r3]
    put_twice r9, r1, r2, r11, r10, [r3, lr]
    add     r3, r3, lr, lsl #1
    .endm

    .macro  two_floats
    two_sums
    times_multiplier r8, r9
    qadd    r8, r8, r2
    qadd    r9, r9, r2
    ssat    r8, #8, r8
    ssat    r9, #8, r9
    strb    r8, [r3]
    strb    r9, [r3, lr]
    add     r3, r3, lr, lsl #1
    .endm

/* Four pixels a round; r0 pixels, r1 word, r2 offset or zero point, r3 y, r4-r7 weights, r8-r11 pixels, r12 bias, lr
 * c. */
    .macro  narrow_pixels two
.Lpixels_\two:
    \two
    \two
    ldr     r8, [sp, #END]
    cmp     r0, r8
    bne     .Lpixels_\two
    .endm

/* void narrow_put(const int16_t *pixels, uint32_t n, const struct narrow *put) */
    begin   narrow_put
    push    {r4-r11, lr}
    sub     sp, sp, #FRAME
    add     r1, r0, r1, lsl #4
    strd    r0, r1, [sp, #PIXELS]
    ldm     r2, {r4-r10}
#if MICROTRAIN_TFLITE
    vldr    s5, [r2, #28]
#endif
    strd    r9, r10, [sp, #OFFSET]
    add     r12, sp, #ROW
    mov     lr, r10
.Lnext_row:
    ldr     r0, [r4], #8
    ldr     r9, [r4, #-4]
    ldr     r10, [r5], #4
    ldr     r1, [r6], #4
#if MICROTRAIN_TFLITE
    vmov    r2, s5
    add     r3, r6, r2
    ldr     r2, [r3, #-4]
    vmov    s6, r2
#endif
    mov     r3, r7
    add     r7, r7, #1
    stm     r12, {r4-r8}
    sxtb16  r4, r0
    sxtb16  r5, r0, ror #8
    sxtb16  r6, r9
    sxtb16  r7, r9, ror #8
    ldr     r0, [sp, #PIXELS]
    ldr     r2, [sp, #OFFSET]
    mov     r12, r10
#if MICROTRAIN_TFLITE
    vmov    r8, s6
    cmp     r8, #0
    beq     .Lfloat_row
    shift_of r1, r8, r2, r9
    str     r1, [sp, #SHIFT]
    mov     r1, r8
    narrow_pixels two_twice
#else
    cmp     r1, #0
    bge     .Lfloat_row
    narrow_pixels two_integers
#endif
.Lrow_done:
    add     r12, sp, #ROW
    ldm     r12, {r4-r8}
    subs    r8, r8, #1
    bne     .Lnext_row
    add     sp, sp, #FRAME
    pop     {r4-r11, pc}
.Lfloat_row:
    vmov    s2, r1
    asr     r2, r2, #TO_ZERO
    narrow_pixels two_floats
    b       .Lrow_done
    end     narrow_put

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
