/* SPDX-License-Identifier: Apache-2.0 */
/* Dense micro-kernels with Helium, of the backward passes. Contract and panel layout: dense.h. */
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

#include "assembly.inc"

    .equ    LANE_0, 0       /* and the other one: values of the two lanes */
    .equ    ROW_STEP, 8     /* bytes to the next row: n, or 0 */
    .equ    SUMS_STEP, 12   /* bytes from the sums of a row to the next */
    .equ    THREES, 16
    .equ    SUMS, 20
    .equ    REST, 24        /* from where three rows were read to to the next three */

/* void name(const struct dot_pair *at)
 *
 * Two lanes, of bytes or 16 bits, against rows of int8, three at a time: sums[row][2], from nothing or added to. */
    .macro  dot name, add, bytes
    begin   \name
    push    {r4-r11, lr}
    sub     sp, sp, #28
    ldm     r0, {r1-r8}             /* lanes, rows, n, row step, sums step, threes, sums */
    stm     sp, {r1-r2}
    str     r5, [sp, #ROW_STEP]
    str     r6, [sp, #SUMS_STEP]
    str     r7, [sp, #THREES]
    mov     r12, r8
    .if     \bytes
    add     r0, r4, #15
    bic     r0, r0, #15
    .else
    add     r0, r4, #7
    bic     r0, r0, #7
    .endif
    add     r2, r5, r5, lsl #1
    sub     r0, r2, r0
    str     r0, [sp, #REST]
    mov     r7, r4
    mov     r1, r3
    add     r3, r1, r5
    mov     r4, r5
    add     r5, r3, r4
.Lthree_\name:
    ldrd    r9, r11, [sp]
    .if     \add
    ldr     r10, [sp, #SUMS_STEP]
    ldrd    r0, r2, [r12]
    add     r8, r12, r10
    ldrd    r4, r6, [r8]
    add     r8, r8, r10
    ldr     r10, [r8, #4]
    ldr     r8, [r8]
    .else
    movs    r0, #0
    movs    r2, #0
    movs    r4, #0
    movs    r6, #0
    mov     r8, r0
    mov     r10, r0
    .endif
    .if     \bytes
    dlstp.8 lr, r7
    .else
    dlstp.16 lr, r7
    .endif
.Lvector_\name:
    .if     \bytes
    vldrb.u8 q0, [r9], #16
    vldrb.u8 q1, [r1], #16
    vmladava.s8 r0, q0, q1
    vldrb.u8 q2, [r11], #16
    vmladava.s8 r2, q2, q1
    vldrb.u8 q3, [r3], #16
    vmladava.s8 r4, q0, q3
    vmladava.s8 r6, q2, q3
    vldrb.u8 q1, [r5], #16
    vmladava.s8 r8, q0, q1
    vmladava.s8 r10, q2, q1
    .else
    vldrh.u16 q0, [r9], #16
    vldrb.s16 q1, [r1], #8
    vmladava.s16 r0, q0, q1
    vldrh.u16 q2, [r11], #16
    vmladava.s16 r2, q2, q1
    vldrb.s16 q3, [r3], #8
    vmladava.s16 r4, q0, q3
    vmladava.s16 r6, q2, q3
    vldrb.s16 q1, [r5], #8
    vmladava.s16 r8, q0, q1
    vmladava.s16 r10, q2, q1
    .endif
    letp    lr, .Lvector_\name
    strd    r0, r2, [r12]
    ldrd    r0, r2, [sp, #SUMS_STEP]
    add     r12, r12, r0
    subs    r2, r2, #1
    strd    r4, r6, [r12]
    ldr     r4, [sp, #REST]
    add     r12, r12, r0
    str     r2, [sp, #THREES]
    strd    r8, r10, [r12]
    add     r12, r12, r0
    add     r1, r1, r4
    add     r3, r3, r4
    add     r5, r5, r4
    bne     .Lthree_\name
    add     sp, sp, #28
    pop     {r4-r11, pc}
    end     \name
    .endm

    dot     dot_pair, 0, 0
    dot     dot_pair_add, 1, 0
    dot     dot_pair_bytes, 0, 1
    dot     dot_pair_bytes_add, 1, 1

/* Frame of what follows, by offset from sp, behind eight zeros. */
    .equ    FROM, 32        /* the first vector */
    .equ    AFTER, 36       /* what follows eight */
    .equ    LAST, 40        /* what follows all whole vectors */
    .equ    KEPT, 44
    .equ    LOOP, 48        /* eights that are left */
    .equ    LOOPS, 52
    .equ    BOTH_LANES, 56
    .equ    SUMS_AT, 64
    .equ    STEP, 68        /* from the sums of a row to the next */
    .equ    FOURS, 72
    .equ    NEXT, 76        /* from where four rows were read to to the next four */
    .equ    FRAME, 80

/* Eight values of two lanes, r9 and r11, and of four rows. */
    .macro  eight_of_four
    vldrh.u16 q0, [r9], #16
    vldrh.u16 q1, [r11], #16
    vldrb.s16 q2, [r1], #8
    vmladava.s16 r0, q0, q2
    vldrb.s16 q3, [r3], #8
    vmladava.s16 r2, q1, q2
    vldrb.s16 q2, [r5], #8
    vmladava.s16 r4, q0, q3
    vmladava.s16 r6, q1, q3
    vldrb.s16 q3, [r7], #8
    vmladava.s16 r8, q0, q2
    vmladava.s16 r10, q1, q2
    vmladava.s16 r12, q0, q3
    vmladava.s16 lr, q1, q3
    .endm
    .equ    EIGHT, 14 * 4
    .equ    MOST, 8

/* The same as dot_pair() and dot_pair_add() with four rows at a time; the sums take all registers, so that no loop is counted
 * in one: eight vectors are jumped into. */
    .macro  dot_four name, add
    begin   \name
    push    {r4-r11, lr}
    sub     sp, sp, #FRAME
    mov     r12, r0
    movs    r0, #0
    movs    r1, #0
    .irp    at, 0, 8, 16, 24
    strd    r0, r1, [sp, #\at]
    .endr
    ldm     r12, {r1-r8}            /* lanes, rows, n, row step, sums step, fours, sums */
    strd    r1, r2, [sp, #BOTH_LANES]
    strd    r8, r6, [sp, #SUMS_AT]
    str     r7, [sp, #FOURS]
    add     r0, r4, #7
    bic     r0, r0, #7
    rsb     r0, r0, r4, lsl #2
    str     r0, [sp, #NEXT]
    adr.w   r8, .Lfour_end_\name
    adr.w   r9, .Lfour_tail_\name
    orr     r8, r8, #1
    ands    r10, r4, #7
    it      ne
    orrne   r8, r9, #1
    vctp.16 r10
    lsr     r10, r4, #3
    and     r11, r10, #MOST - 1
    mov     r9, r8
    lsrs    r10, r10, #3
    adr.w   r0, .Lfour_again_\name
    it      ne
    orrne   r9, r0, #1
    strd    r9, r8, [sp, #AFTER]
    strd    r10, r10, [sp, #LOOP]
    adr.w   r0, .Lfour_after_\name
    mov     r9, #EIGHT
    mls     r0, r11, r9, r0
    orr     r0, r0, #1
    str     r0, [sp, #FROM]
    mov     r1, r3
    add     r3, r1, r4
    add     r5, r3, r4
    add     r7, r5, r4
.Lfour_\name:
    .if     \add
    ldr     r12, [sp, #STEP]
    ldr     r11, [sp, #SUMS_AT]
    ldrd    r0, r2, [r11]
    add     r11, r11, r12
    ldrd    r4, r6, [r11]
    add     r11, r11, r12
    ldrd    r8, r10, [r11]
    add     r11, r11, r12
    ldrd    r12, lr, [r11]
    .else
    ldm     sp, {r0, r2, r4, r6, r8, r10, r12, lr}
    .endif
    ldrd    r9, r11, [sp, #BOTH_LANES]
    ldr     pc, [sp, #FROM]
    .balign 4
.Lfour_eights_\name:
    .rept   MOST
    eight_of_four
    .endr
.Lfour_after_\name:
    ldr     pc, [sp, #AFTER]
    .balign 4
.Lfour_again_\name:
    str     r0, [sp, #KEPT]
    ldr     r0, [sp, #LOOP]
    subs    r0, r0, #1
    it      lo
    ldrlo   r0, [sp, #LOOPS]
    str     r0, [sp, #LOOP]
    ldr     r0, [sp, #KEPT]
    bhs     .Lfour_eights_\name
    ldr     pc, [sp, #LAST]
    .balign 4
.Lfour_tail_\name:
    vpstttt
    vldrht.u16 q0, [r9]
    vldrht.u16 q1, [r11]
    vldrbt.s16 q2, [r1], #8
    vldrbt.s16 q3, [r3], #8
    vmladava.s16 r0, q0, q2
    vmladava.s16 r2, q1, q2
    vmladava.s16 r4, q0, q3
    vmladava.s16 r6, q1, q3
    vpstt
    vldrbt.s16 q2, [r5], #8
    vldrbt.s16 q3, [r7], #8
    vmladava.s16 r8, q0, q2
    vmladava.s16 r10, q1, q2
    vmladava.s16 r12, q0, q3
    vmladava.s16 lr, q1, q3
    .balign 4
.Lfour_end_\name:
    ldrd    r9, r11, [sp, #SUMS_AT]
    strd    r0, r2, [r9]
    add     r9, r9, r11
    strd    r4, r6, [r9]
    add     r9, r9, r11
    ldrd    r0, r2, [sp, #FOURS]
    strd    r8, r10, [r9]
    add     r9, r9, r11
    strd    r12, lr, [r9]
    add     r9, r9, r11
    str     r9, [sp, #SUMS_AT]
    add     r1, r1, r2
    add     r3, r3, r2
    add     r5, r5, r2
    add     r7, r7, r2
    subs    r0, r0, #1
    str     r0, [sp, #FOURS]
    bne     .Lfour_\name
    add     sp, sp, #FRAME
    pop     {r4-r11, pc}
    end     \name
    .endm

    dot_four dot_four, 0
    dot_four dot_four_add, 1

/* void pack_lane_of(int16_t *lane, const int8_t *rows, uint32_t step, uint32_t n, const int16_t *r)
 *
 * lane[k] = rows[k * step] * r[k]; r NULL: 1. */
    begin   pack_lane_of
    push    {r4, lr}
    ldr     r12, [sp, #8]
    movs    r4, #0
    vidup.u16 q1, r4, #1
    vmul.i16 q1, q1, r2
    lsl     r2, r2, #3
    dlstp.16 lr, r3
    cmp     r12, #0
    beq     .Lplain
.Lscaled:
    vldrb.s16 q0, [r1, q1]
    vldrh.u16 q2, [r12], #16
    vmul.i16 q0, q0, q2
    add     r1, r1, r2
    vstrh.16 q0, [r0], #16
    letp    lr, .Lscaled
    pop     {r4, pc}
.Lplain:
    vldrb.s16 q0, [r1, q1]
    add     r1, r1, r2
    vstrh.16 q0, [r0], #16
    letp    lr, .Lplain
    pop     {r4, pc}
    end     pack_lane_of

/* void gather_near(int8_t *to, const int8_t *from, uint32_t step, uint32_t n) */
    begin   gather_near
    push    {r4, lr}
    movs    r4, #0
    vidup.u16 q1, r4, #1
    vmul.i16 q1, q1, r2
    lsl     r2, r2, #3
    dlstp.16 lr, r3
.Lstepped:
    vldrb.u16 q0, [r1, q1]
    add     r1, r1, r2
    vstrb.16 q0, [r0], #8
    letp    lr, .Lstepped
    pop     {r4, pc}
    end     gather_near

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
