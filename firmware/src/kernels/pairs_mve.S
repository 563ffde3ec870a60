/* SPDX-License-Identifier: Apache-2.0 */
/* Dense forward of long rows with Helium: four rows of weights against two pixels, eight sums in core registers, so that
 * six loads serve eight vectors of products. Contract: conv2d_mve.h.
 *
 * All registers are taken: rows r1, r3, r5, r7, pixels r9, r11, the sums of one r0, r2, r4, r6, of the other r8, r10, r12,
 * lr. What else there is lies in the frame, where vectors follow one another without a loop: eight are jumped into.
 */
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

#include "assembly.inc"

/* Frame, by offset from sp. */
    .equ    ROWS, 0         /* four */
    .equ    ENTRY, 16       /* the first vector */
    .equ    AFTER, 20       /* what follows eight */
    .equ    LAST, 24        /* what follows all whole vectors */
    .equ    KEPT, 28
    .equ    LOOP, 32        /* eights that are left */
    .equ    LOOPS, 36
    .equ    X_NEXT, 40      /* from behind two pixels to the next two */
    .equ    FROM, 44        /* of both pixels */
    .equ    Y, 52           /* of both, then their step, then the zero point */
    .equ    Y_STEP2, 60
    .equ    ZERO, 64
    .equ    LEFT, 68        /* pairs */
    .equ    PAIRS, 72
    .equ    X, 76           /* of both pixels */
    .equ    Y_AT, 84        /* of four rows; step to the second pixel */
    .equ    Y_STEP, 88
    .equ    FROM_AT, 92
    .equ    FROM_STEP, 96
    .equ    MASK_AT, 100
    .equ    MASK_STEP, 104
    .equ    M, 108
    .equ    FOURS, 112
    .equ    ROWS_STEP, 116  /* from four rows to the next */
    .equ    Y_FOUR, 120     /* the same in y */
    .equ    MASK, 124       /* of both pixels */
    .equ    HIGH, 132       /* the upper half of the mask's byte */
    .equ    TAIL, 136
    .equ    END, 140        /* what is done with the sums */
    .equ    FRAME, 144

    .macro  products_of_pairs
    vldrb.u8 q0, [r9], #16
    vldrb.u8 q1, [r11], #16
    vldrb.u8 q2, [r1], #16
    vmladava.s8 r0, q2, q0
    vldrb.u8 q3, [r3], #16
    vmladava.s8 r8, q2, q1
    vldrb.u8 q2, [r5], #16
    vmladava.s8 r2, q3, q0
    vmladava.s8 r10, q3, q1
    vldrb.u8 q3, [r7], #16
    vmladava.s8 r4, q2, q0
    vmladava.s8 r12, q2, q1
    vmladava.s8 r6, q3, q0
    vmladava.s8 lr, q3, q1
    .endm
    .equ    VECTOR, 14 * 4
    .equ    MOST, 8

/* r2: what is done with the sums, r3: bytes to the next four rows in y. */
    .macro  pairs name
    .balign 4
    begin_too pairs_\name
    push    {r4-r11, lr}
    adr.w   r2, .Lpairs_\name
    .ifc    \name, sums
    movs    r3, #16
    .else
    movs    r3, #4
    .endif
    b.w     .Lpairs
    end     pairs_\name
    .endm

/* Sums of either pixel as q4 and q5. */
    .macro  pair_sums
    vmov    q4[2], q4[0], r0, r4
    vmov    q4[3], q4[1], r2, r6
    vmov    q5[2], q5[0], r8, r12
    vmov    q5[3], q5[1], r10, lr
    .endm

/* Outputs as 16 bits, zero point added: q4, one pixel in the lower, the other in the upper halves of words. r2, r4: y, r6:
 * its step. */
    .macro  pair_round
    pair_sums
    vcvt.f32.s32 q4, q4
    vcvt.f32.s32 q5, q5
    vmul.f32 q4, q4, q7
    vmul.f32 q5, q5, q7
    vcvtn.s32.f32 q4, q4
    vcvtn.s32.f32 q5, q5
    add     r0, sp, #Y
    vqmovnb.s32 q4, q4
    ldm     r0, {r2, r4, r6, r8}
    vqmovnt.s32 q4, q5
    vqadd.s16 q4, q4, r8
    .endm

    .macro  pair_put
    vqmovnb.s16 q4, q4
    vstrb.32 q4, [r2]
    vshr.u32 q4, q4, #16
    vstrb.32 q4, [r4]
    add     r2, r2, r6
    add     r4, r4, r6
    strd    r2, r4, [sp, #Y]
    .endm

    .section .text.pairs_mve, "ax", %progbits
    .balign 4
    pairs   sums
    pairs   put
    pairs   masked

/* r0: the struct of pixels_put(), of an even number of pixels. */
.Lpairs:
    vpush   {d8-d15}
    sub     sp, sp, #FRAME
    orr     r2, r2, #1
    str     r3, [sp, #Y_FOUR]
    ldm     r0!, {r1, r3, r4, r5, r6, r7, r8}   /* x, x_step, pixels, w, k, from, from_step */
    add     r9, r1, r3
    strd    r1, r9, [sp, #X]
    lsr     r4, r4, #1
    str     r4, [sp, #PAIRS]
    add     r9, r5, r6
    add     r10, r9, r6
    add     r11, r10, r6
    strd    r5, r9, [sp, #ROWS]
    strd    r10, r11, [sp, #ROWS + 8]
    lsl     r9, r6, #2
    str     r9, [sp, #ROWS_STEP]
    strd    r7, r8, [sp, #FROM_AT]
    ands    r7, r6, #15
    str     r7, [sp, #TAIL]
    add     r9, r6, #15
    bic     r9, r9, #15
    rsb     r9, r9, r3, lsl #1
    str     r9, [sp, #X_NEXT]
    mov     r8, r2
    adr.w   r12, .Lpair_tail
    it      ne
    orrne   r8, r12, #1
    str     r2, [sp, #END]
    lsr     r9, r6, #4              /* whole vectors */
    and     r10, r9, #MOST - 1
    lsrs    r9, r9, #3
    strd    r9, r9, [sp, #LOOP]
    mov     r11, r8
    adr.w   r12, .Lpair_again
    it      ne
    orrne   r11, r12, #1
    strd    r11, r8, [sp, #AFTER]
    adr.w   r12, .Lpair_blocks_end
    mov     r9, #VECTOR
    mls     r12, r10, r9, r12
    orr     r12, r12, #1
    str     r12, [sp, #ENTRY]
    ldm     r0, {r1, r3, r4, r5, r6, r7, r8}    /* m, n, zero, y, y_step, mask, mask_step */
    str     r1, [sp, #M]
    lsr     r3, r3, #2
    str     r3, [sp, #FOURS]
    str     r4, [sp, #ZERO]
    strd    r5, r6, [sp, #Y_AT]
    lsl     r6, r6, #1
    str     r6, [sp, #Y_STEP2]
    strd    r7, r8, [sp, #MASK_AT]
    movs    r3, #0
    str     r3, [sp, #HIGH]
    ldr     r3, [sp, #TAIL]
    vctp.8  r3

.Lpair_group:
    ldrd    r9, r11, [sp, #X]
    ldrd    r0, r2, [sp, #Y_AT]
    ldr     r4, [sp, #PAIRS]
    ldr     r6, [sp, #M]
    add     r2, r2, r0
    strd    r0, r2, [sp, #Y]
    ldrd    r0, r2, [sp, #FROM_AT]
    str     r4, [sp, #LEFT]
    add     r2, r2, r0
    strd    r0, r2, [sp, #FROM]
    ldrd    r0, r2, [sp, #MASK_AT]
    vldrw.u32 q7, [r6], #16
    add     r2, r2, r0
    strd    r0, r2, [sp, #MASK]
    str     r6, [sp, #M]
.Lpair:
    ldr     lr, [sp, #FROM]
    ldm     sp, {r1, r3, r5, r7}
    ldm     lr, {r0, r2, r4, r6}
    ldr     lr, [sp, #FROM + 4]
    ldm     lr, {r8, r10, r12, lr}
    ldr     pc, [sp, #ENTRY]
    .balign 4
.Lpair_blocks:
    .rept   MOST
    products_of_pairs
    .endr
.Lpair_blocks_end:
    ldr     pc, [sp, #AFTER]

    .balign 4
.Lpair_again:
    str     r0, [sp, #KEPT]
    ldr     r0, [sp, #LOOP]
    subs    r0, r0, #1
    it      lo
    ldrlo   r0, [sp, #LOOPS]
    str     r0, [sp, #LOOP]
    ldr     r0, [sp, #KEPT]
    bhs     .Lpair_blocks
    ldr     pc, [sp, #LAST]

    .balign 4
.Lpair_tail:
    vpstttt
    vldrbt.u8 q0, [r9], #16
    vldrbt.u8 q1, [r11], #16
    vldrbt.u8 q2, [r1]
    vldrbt.u8 q3, [r3]
    vmladava.s8 r0, q2, q0
    vmladava.s8 r8, q2, q1
    vmladava.s8 r2, q3, q0
    vmladava.s8 r10, q3, q1
    vpstt
    vldrbt.u8 q2, [r5]
    vldrbt.u8 q3, [r7]
    vmladava.s8 r4, q2, q0
    vmladava.s8 r12, q2, q1
    vmladava.s8 r6, q3, q0
    vmladava.s8 lr, q3, q1
    ldr     pc, [sp, #END]

    .balign 4
.Lpairs_put:
    pair_round
    pair_put
.Lpair_next:
    ldr     r0, [sp, #X_NEXT]
    ldr     r2, [sp, #FROM_STEP]
    ldr     r4, [sp, #LEFT]
    add     r9, r9, r0
    add     r11, r11, r0
    cbnz    r2, .Lpair_next_from
.Lpair_count:
    subs    r4, r4, #1
    str     r4, [sp, #LEFT]
    bne     .Lpair
    ldr     r0, [sp, #FOURS]
    subs    r0, r0, #1
    beq     .Lpairs_done
    str     r0, [sp, #FOURS]
    ldr     r0, [sp, #ROWS_STEP]
    ldm     sp, {r1, r3, r5, r7}
    add     r1, r1, r0
    add     r3, r3, r0
    add     r5, r5, r0
    add     r7, r7, r0
    stm     sp, {r1, r3, r5, r7}
    ldr     r0, [sp, #Y_AT]
    ldr     r1, [sp, #Y_FOUR]
    ldr     r3, [sp, #FROM_AT]
    add     r0, r0, r1
    add     r3, r3, #16
    str     r0, [sp, #Y_AT]
    str     r3, [sp, #FROM_AT]
    ldr     r0, [sp, #HIGH]
    ldr     r1, [sp, #MASK_AT]
    add     r1, r1, r0              /* behind every second four rows */
    eor     r0, r0, #1
    str     r1, [sp, #MASK_AT]
    str     r0, [sp, #HIGH]
    b       .Lpair_group
.Lpair_next_from:
    ldrd    r6, r8, [sp, #FROM]
    add     r6, r6, r2, lsl #1
    add     r8, r8, r2, lsl #1
    strd    r6, r8, [sp, #FROM]
    b       .Lpair_count

    .balign 4
.Lpairs_sums:
    pair_sums
    ldrd    r2, r4, [sp, #Y]
    ldr     r6, [sp, #Y_STEP2]
    vstrw.32 q4, [r2]
    vstrw.32 q5, [r4]
    add     r2, r2, r6
    add     r4, r4, r6
    strd    r2, r4, [sp, #Y]
    b       .Lpair_next

    .balign 4
.Lpairs_masked:
    pair_round
    ldr     r1, [sp, #HIGH]
    adr     r3, .Lpair_powers
    add     r3, r3, r1, lsl #5
    vldrh.u16 q0, [r3]
    vldrh.u16 q1, [r3, #16]
    ldrd    r5, r7, [sp, #MASK]
    movs    r1, #128
    vadd.i16 q2, q4, r1
    ldrb    r10, [r5]
    ldrb    r12, [r7]
    vmov.i16 q3, #255
    vptt.u16 cs, q3, q2
    vaddvat.u16 r10, q0
    vaddvat.u16 r12, q1
    ldr     r1, [sp, #MASK_STEP]
    strb    r10, [r5]
    strb    r12, [r7]
    add     r5, r5, r1, lsl #1
    add     r7, r7, r1, lsl #1
    strd    r5, r7, [sp, #MASK]
    ldr     r1, [sp, #TAIL]
    vctp.8  r1
    pair_put
    b       .Lpair_next

    .balign 4
.Lpair_powers:
    .hword  1, 0, 2, 0, 4, 0, 8, 0, 0, 1, 0, 2, 0, 4, 0, 8
    .hword  16, 0, 32, 0, 64, 0, 128, 0, 0, 16, 0, 32, 0, 64, 0, 128

.Lpairs_done:
    add     sp, sp, #FRAME
    vpop    {d8-d15}
    pop     {r4-r11, pc}

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
