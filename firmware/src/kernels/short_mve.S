/* SPDX-License-Identifier: Apache-2.0 */
/* Dense forward of short rows with Helium, two pixels at a time. Contract: conv2d_mve.h.
 *
 * Of up to 16 values, four rows of weights stay in q0-q3 while pixels go by. Of up to 32, two pixels stay there while rows go
 * by; what is loaded behind a row is 0 in the pixels.
 */
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

#include "assembly.inc"

/* Outputs of either pixel, \one and \other, as 16 bits with the zero point added: \one, the other in the upper halves. */
    .macro  round_two one, other, m, zero
    vcvt.f32.s32 \one, \one
    vcvt.f32.s32 \other, \other
    vmul.f32 \one, \one, \m
    vmul.f32 \other, \other, \m
    vcvtn.s32.f32 \one, \one
    vcvtn.s32.f32 \other, \other
    vqmovnb.s32 \one, \one
    vqmovnt.s32 \one, \other
    vqadd.s16 \one, \one, \zero
    .endm

/* Sums of a pixel at r1 as q. step: bytes to the next one, 0: r2. What is loaded behind the values is 0 in the rows; with
 * `part` it is not loaded. r9: biases. */
    .macro  stay q, step, part
    .if     \part
    vpst
    .endif
    .if     \part && \step
    vldrbt.u8 \q, [r1], #\step
    .elseif \step
    vldrb.u8 \q, [r1], #\step
    .else
    vldrbt.u8 \q, [r1]
    add     r1, r1, r2
    .endif
    ldm     r9, {r4, r6, r8, r10}
    vmladava.s8 r4, \q, q0
    vmladava.s8 r6, \q, q1
    vmladava.s8 r8, \q, q2
    vmladava.s8 r10, \q, q3
    vmov    \q[2], \q[0], r4, r8
    vmov    \q[3], \q[1], r6, r10
    .endm

/* Behind a first pixel that is followed by the second, nothing else is loaded. */
    .macro  staying step, first, second
.Lstay_pair_\step:
    stay    q4, \step, \first
    stay    q7, \step, \second
    round_two q4, q7, q6, r7
    vqmovnb.s16 q4, q4
    vstrb.16 q4, [r3, q5]
    add     r3, r3, r5
    le      lr, .Lstay_pair_\step
    .endm

/* Frame of rows that stay. */
    .equ    STAY_M, 0
    .equ    STAY_FOURS, 4
    .equ    STAY_FROM, 8
    .equ    STAY_Y, 12
    .equ    STAY_X, 16
    .equ    STAY_PAIRS, 20
    .equ    STAY_W, 24
    .equ    STAY_STEP, 28   /* of pixels that follow one another: 8 or 16, else 0 */
    .equ    STAY_FRAME, 32

/* void rows_stay(const struct pixels_mve *at): k <= 16, from_step 0, y_step < 65532, an even number of pixels. */
    begin   rows_stay
    push    {r4-r11, lr}
    vpush   {d8-d15}
    sub     sp, sp, #STAY_FRAME
    ldr     r9, [r0, #12]           /* w */
    ldr     r12, [r0, #16]          /* k */
    ldrd    r4, r6, [r0, #28]       /* m, n */
    ldr     r8, [r0, #20]           /* from */
    ldr     r7, [r0, #36]           /* zero */
    ldrd    r3, r5, [r0, #40]       /* y, y_step */
    ldm     r0, {r1, r2, r11}       /* x, x_step, pixels */
    lsr     r6, r6, #2
    lsr     r11, r11, #1
    strd    r4, r6, [sp, #STAY_M]
    strd    r8, r3, [sp, #STAY_FROM]
    strd    r1, r11, [sp, #STAY_X]
    sub     r4, r12, #8
    bics    r4, r4, #8              /* k is 8 or 16 */
    it      eq
    cmpeq   r2, r12
    ite     eq
    moveq   r4, r12
    movne   r4, #0
    strd    r9, r4, [sp, #STAY_W]
    movs    r4, #0
    vidup.u16 q5, r4, #1            /* places: four of either pixel, in turn */
    vmov.i16 q6, #1
    vshr.u16 q4, q5, #1
    vand    q5, q5, q6
    vmla.s16 q4, q5, r5
    vmov    q5, q4
    lsls    r5, r5, #1
    vctp.8  r12
.Lstay_group:
    ldrd    r4, r6, [sp, #STAY_M]
    ldrd    r9, r3, [sp, #STAY_FROM]
    ldrd    r8, r0, [sp, #STAY_W]
    ldrd    r1, lr, [sp, #STAY_X]
    add     r10, r8, r12
    vpstt
    vldrbt.u8 q0, [r8]
    vldrbt.u8 q1, [r10]
    add     r8, r10, r12
    add     r10, r8, r12
    vpstt
    vldrbt.u8 q2, [r8]
    vldrbt.u8 q3, [r10]
    vldrw.u32 q6, [r4], #16
    add     r8, r10, r12
    add     r10, r3, #4
    add     r11, r9, #16
    str     r4, [sp, #STAY_M]
    str     r8, [sp, #STAY_W]
    strd    r11, r10, [sp, #STAY_FROM]
    cmp     r0, #8
    beq     .Lstay_pair_8
    bhi     .Lstay_pair_16
    staying 0, 1, 1
.Lstay_next:
    ldr     r6, [sp, #STAY_FOURS]
    subs    r6, r6, #1
    str     r6, [sp, #STAY_FOURS]
    bne     .Lstay_group
    add     sp, sp, #STAY_FRAME
    vpop    {d8-d15}
    pop     {r4-r11, pc}
    staying 8, 0, 1
    b       .Lstay_next
    staying 16, 0, 0
    b       .Lstay_next
    end     rows_stay

/* Frame of pixels that stay. */
    .equ    FROM_STEP, 0
    .equ    ROWS, 4         /* where rows go by */
    .equ    END, 8          /* what is done with the sums */
    .equ    MASK, 12        /* of both pixels */
    .equ    W, 20
    .equ    M, 24
    .equ    FROM, 28
    .equ    Y, 32
    .equ    Y_STEP, 36
    .equ    ZERO, 40
    .equ    MASK_STEP, 44
    .equ    FOURS, 48
    .equ    X, 52
    .equ    X_STEP, 56
    .equ    PAIRS, 60
    .equ    FRAME, 64

    .macro  go_by name, rows
    .balign 4
    begin_too pixels_stay_\name
    push    {r4-r11, lr}
    adr.w   r11, .Lby_\name
    adr.w   r12, .L\rows
    b.w     .Lpixels_stay
    end     pixels_stay_\name
    .endm

/* Sums of a row, of k bytes from r1 on: the first 16, and the last 16, which overlap them. */
    .macro  row_goes_by one, other
    vldrb.u8 q4, [r1]
    add     r1, r1, r3
    vldrb.u8 q5, [r1, #-16]
    vmladav.s8 \one, q4, q0
    vmladav.s8 \other, q4, q2
    vmladava.s8 \one, q5, q1
    vmladava.s8 \other, q5, q3
    .endm

/* Sums of four rows as q6 and q7. */
    .macro  four_go_by
    row_goes_by r0, r4
    row_goes_by r2, r6
    row_goes_by r8, r10
    vmov    q6[2], q6[0], r0, r8
    vmov    q7[2], q7[0], r4, r10
    row_goes_by r0, r4
    vmov    q6[3], q6[1], r2, r0
    vmov    q7[3], q7[1], r6, r4
    .endm

    .section .text.pixels_stay, "ax", %progbits
    go_by   sums, by_rows
    go_by   put, put_rows
    go_by   masked, by_rows

/* The struct: x, x_step, pixels, w, k, from, from_step | m, n, zero, y, y_step, mask, mask_step. 16 < k <= 32, an even number
 * of pixels. The last 16 values of a pixel are 0 where they overlap the first. */
.Lpixels_stay:
    vpush   {d8-d15}
    sub     sp, sp, #FRAME
    ldm     r0!, {r1, r2, r3, r4, r5, r6, r7}
    strd    r1, r2, [sp, #X]
    lsr     r3, r3, #1
    str     r3, [sp, #PAIRS]
    str     r4, [sp, #W]
    str     r6, [sp, #FROM]
    adr.w   r6, .Lby_rows
    cmp     r7, #0
    it      ne
    movne   r12, r6
    mov     r3, r5
    orr     r12, r12, #1
    strd    r7, r12, [sp, #FROM_STEP]
    ldm     r0, {r1, r2, r4, r5, r6, r7, r8}
    orr     r11, r11, #1
    str     r11, [sp, #END]
    str     r1, [sp, #M]
    lsr     r2, r2, #2
    str     r2, [sp, #FOURS]
    strd    r5, r6, [sp, #Y]
    str     r4, [sp, #ZERO]
    str     r8, [sp, #MASK_STEP]
    add     r8, r8, r7
    strd    r7, r8, [sp, #MASK]
.Lby_pair:
    ldrd    r0, r2, [sp, #X]
    rsb     r6, r3, #32
    add     r4, r0, r2
    vctp.8  r6
    vldrb.u8 q0, [r0]
    vldrb.u8 q2, [r4]
    add     r0, r0, r3
    add     r6, r4, r3
    vldrb.u8 q1, [r0, #-16]
    vldrb.u8 q3, [r6, #-16]
    add     r4, r4, r2
    vpstt
    vmovt.i32 q1, #0
    vmovt.i32 q3, #0
    str     r4, [sp, #X]
    ldrd    r5, r7, [sp, #Y]
    ldr     r1, [sp, #W]
    add     r7, r7, r5
    ldrd    r11, r9, [sp, #M]
    movs    r12, #0
    ldr     lr, [sp, #FOURS]
    ldr     pc, [sp, #ROWS]

    .macro  by_put
    vqmovnb.s16 q6, q6
    vstrb.32 q6, [r5], #4
    vshr.u32 q6, q6, #16
    vstrb.32 q6, [r7], #4
    .endm

/* Outputs of rows whose biases are those of all pixels. */
    .balign 4
.Lput_rows:
    ldr     r12, [sp, #ZERO]
.Lput_four_rows:
    four_go_by
    vldrw.u32 q4, [r9], #16
    vldrw.u32 q5, [r11], #16
    vadd.i32 q6, q6, q4
    vadd.i32 q7, q7, q4
    round_two q6, q7, q5, r12
    by_put
    le      lr, .Lput_four_rows
    b       .Lby_next

    .balign 4
.Lby_rows:
    four_go_by
    ldr     r0, [sp, #FROM_STEP]
    add     r0, r0, r9
    vldrw.u32 q4, [r9], #16
    vldrw.u32 q5, [r0]
    vadd.i32 q6, q6, q4
    vadd.i32 q7, q7, q5
    ldr     pc, [sp, #END]

    .balign 4
.Lby_sums:
    vstrw.32 q6, [r5], #16
    vstrw.32 q7, [r7], #16
    le      lr, .Lby_rows
    b       .Lby_next

    .macro  by_round
    vldrw.u32 q4, [r11], #16
    ldr     r0, [sp, #ZERO]
    round_two q6, q7, q4, r0
    .endm

    .balign 4
.Lby_put:
    by_round
    by_put
    le      lr, .Lby_rows
    b       .Lby_next

/* The first four rows of a byte of the mask, then the others: bits of the pixels are the lower and the upper byte of r12. */
    .balign 4
.Lby_masked:
    by_round
    adr     r0, .Lby_powers
    movs    r2, #128
    vmov.i16 q4, #255
    vadd.i16 q5, q6, r2
    vldrh.u16 q7, [r0]
    vpt.u16 cs, q4, q5
    vaddvat.u16 r12, q7
    by_put
    adr     r0, .Lby_masked_high + 1
    str     r0, [sp, #END]
    le      lr, .Lby_rows
    b       .Lby_next
    .balign 4
.Lby_powers:
    .hword  1, 256, 2, 512, 4, 1024, 8, 2048
    .balign 4
.Lby_masked_high:
    by_round
    movs    r2, #128
    vmov.i16 q4, #255
    vadd.i16 q5, q6, r2
    adr     r0, .Lby_powers
    vldrh.u16 q7, [r0]
    vshl.i16 q7, q7, #4
    vpt.u16 cs, q4, q5
    vaddvat.u16 r12, q7
    by_put
    ldrd    r0, r2, [sp, #MASK]
    strb    r12, [r0], #1
    lsr     r12, r12, #8
    strb    r12, [r2], #1
    movs    r12, #0
    strd    r0, r2, [sp, #MASK]
    adr     r0, .Lby_masked + 1
    str     r0, [sp, #END]
    le      lr, .Lby_rows

.Lby_next:
    ldr     r0, [sp, #PAIRS]
    subs    r0, r0, #1
    beq     .Lby_done
    str     r0, [sp, #PAIRS]
    ldrd    r0, r2, [sp, #Y]
    add     r0, r0, r2, lsl #1
    str     r0, [sp, #Y]
    ldr     r0, [sp, #FROM]
    ldr     r2, [sp, #FROM_STEP]
    add     r0, r0, r2, lsl #1
    str     r0, [sp, #FROM]
    ldr     r0, [sp, #FOURS]        /* mask: behind this pixel's, then two further */
    ldrd    r2, r4, [sp, #MASK]
    ldr     r6, [sp, #MASK_STEP]
    lsr     r0, r0, #1
    sub     r2, r2, r0
    sub     r4, r4, r0
    add     r2, r2, r6, lsl #1
    add     r4, r4, r6, lsl #1
    strd    r2, r4, [sp, #MASK]
    b       .Lby_pair
.Lby_done:
    add     sp, sp, #FRAME
    vpop    {d8-d15}
    pop     {r4-r11, pc}

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
