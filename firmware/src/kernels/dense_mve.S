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
