/* SPDX-License-Identifier: Apache-2.0 */
/* Dense forward with Helium (Armv8.1-M, MVE). Contract: conv2d_mve.h.
 *
 * VMLADAVA sums 16 products of bytes into a core register: weights stand as they lie, inputs with their zero point,
 * which the biases make up for. A pixel of up to 64 values is held in q0-q3 and met by one row after the other; a longer
 * one is read again for every four rows. Four sums become a vector, which is rounded as the contract says it.
 */
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

#include "assembly.inc"

/* struct pixels_mve, by offset from r0 */
    .equ    X, 0
    .equ    X_STEP, 4
    .equ    PIXELS, 8
    .equ    W, 12
    .equ    K, 16
    .equ    FROM, 20
    .equ    FROM_STEP, 24
    .equ    M, 28
    .equ    N, 32
    .equ    ZERO, 36
    .equ    Y, 40
    .equ    Y_STEP, 44
    .equ    MASK, 48
    .equ    MASK_STEP, 52

/* Frame, by offset from sp: a copy of that struct, then */
    .equ    M_END, 56
    .equ    GROUP, 60       /* where four rows begin */
    .equ    END, 64         /* what is done with their sums */
    .equ    TAIL, 68        /* values of the last vector, 1 to 16 */
    .equ    ADVANCE, 72     /* of r1, and of what else points to rows */
    .equ    MASK_AT, 76
    .equ    LOW_BITS, 80
    .equ    FRAME, 88

/* The four sums as a vector. */
    .macro  sums_to q
    vmov    \q[2], \q[0], r0, r4
    vmov    \q[3], \q[1], r2, r6
    .endm

/* q5 = the outputs of the four sums, before they are saturated. r9: multipliers. */
    .macro  round_sums
    sums_to q5
    vldrw.u32 q6, [r9], #16
    vcvt.f32.s32 q5, q5
    vmul.f32 q5, q5, q6
    vcvtn.s32.f32 q5, q5
    vqadd.s32 q5, q5, q7
    .endm

    .macro  put_rounded
    vqmovnb.s32 q5, q5
    vqmovnb.s16 q5, q5
    vstrb.32 q5, [r7], #4
    .endm

/* Goes on with the next four rows or the next pixel. */
    .macro  next_group long
    .if     \long
    ldrd    r0, r2, [sp, #M_END]
    cmp     r9, r0
    .else
    mov     r2, r5
    cmp     r9, lr
    .endif
    it      ne
    bxne    r2
    b       .Lnext_pixel
    .endm

    .macro  end_sums name, long
\name:
    sums_to q5
    add     r9, r9, #16
    vstrw.32 q5, [r7], #16
    next_group \long
    .endm

    .macro  end_put name, long
\name:
    round_sums
    put_rounded
    next_group \long
    .endm

/* r2 = which of q5 do not fit, as the bits in `powers`. */
    .macro  saturated powers
    movs    r0, #128
    vadd.i32 q6, q5, r0
    adr     r4, \powers
    movs    r0, #255
    vldrw.u32 q4, [r4]
    vpt.u32 hi, q6, r0
    vaddvt.u32 r2, q4
    .endm

/* The first four of eight channels, then the others. */
    .macro  end_masked name, long
\name:
    round_sums
    saturated .Llow
    ldr     r0, [sp, #TAIL]
    adr     r4, .Lhigh_\name
    orr     r4, r4, #1
    vctp.8  r0
    str     r2, [sp, #LOW_BITS]
    put_rounded
    .if     \long
    str     r4, [sp, #END]
    ldr     r2, [sp, #GROUP]
    bx      r2
    .else
    mov     r10, r4
    bx      r5
    .endif
    .balign 4
.Lhigh_\name:
    round_sums
    saturated .Lhigh
    ldrd    r4, r6, [sp, #MASK_AT]
    ldr     r0, [sp, #TAIL]
    orr     r6, r6, r2
    vctp.8  r0
    mvn     r6, r6
    strb    r6, [r4], #1
    str     r4, [sp, #MASK_AT]
    adr     r4, \name
    orr     r4, r4, #1
    .if     \long
    str     r4, [sp, #END]
    .else
    mov     r10, r4
    .endif
    put_rounded
    next_group \long
    .endm

/* Four rows against a pixel of `count` whole vectors: rows lie one behind the other. */
    .macro  whole_row sum, count
    .irp    at, 0, 1, 2, 3
    .if     \at < \count
    vldrb.u8 q4, [r1], #16
    vmladava.s8 \sum, q4, q\at
    .endif
    .endr
    .endm

    .macro  whole count
    .balign 4
.Lwhole_\count:
    ldm     r12!, {r0, r2, r4, r6}
    whole_row r0, \count
    whole_row r2, \count
    whole_row r4, \count
    whole_row r6, \count
    bx      r10
    .endm

/* The same where the last vector is not whole: r1 and r3 point to rows beside one another. */
    .macro  part_rows first, second, count
    .irp    at, 0, 1, 2
    .if     \at < \count - 1
    vldrb.u8 q4, [r1], #16
    vmladava.s8 \first, q4, q\at
    vldrb.u8 q5, [r3], #16
    vmladava.s8 \second, q5, q\at
    .endif
    .endr
    .irp    at, 0, 1, 2, 3
    .if     \at == \count - 1
    vpstttt
    vldrbt.u8 q4, [r1]
    vmladavat.s8 \first, q4, q\at
    vldrbt.u8 q5, [r3]
    vmladavat.s8 \second, q5, q\at
    .endif
    .endr
    add     r1, r1, r8
    add     r3, r3, r8
    .endm

    .macro  part count
    .balign 4
.Lpart_\count:
    ldm     r12!, {r0, r2, r4, r6}
    part_rows r0, r2, \count
    part_rows r4, r6, \count
    bx      r10
    .endm

/* r0: the struct, r4 and r6: ends of short and of long pixels. */
    .macro  entry name, end
    .balign 4
    begin_too \name
    push    {r4-r11, lr}
    vpush   {d8-d15}
    adr.w   r4, .Lshort_\end
    adr.w   r6, .Llong_\end
    b.w     .Lpixels
    end     \name
    .endm

    .section .text.pixels_mve, "ax", %progbits
    .balign 4
.Llow:
    .word   1, 2, 4, 8
.Lhigh:
    .word   16, 32, 64, 128
    entry   pixels_sums, sums
    entry   pixels_put, put
    entry   pixels_put_masked, masked

.Lpixels:
    sub     sp, sp, #FRAME
    orr     r4, r4, #1
    orr     r6, r6, #1
    ldm     r0!, {r1-r3, r5, r7, r8, r9}
    stm     sp, {r1-r3, r5, r7, r8, r9}
    ldm     r0, {r1-r3, r5, r8, r9, r10}
    add     r0, sp, #M
    stm     r0, {r1-r3, r5, r8, r9, r10}
    add     r1, r1, r2, lsl #2
    str     r1, [sp, #M_END]
    ldr     r3, [sp, #ZERO]
    vdup.32 q7, r3
    sub     r0, r7, #1
    and     r1, r0, #15
    add     r1, r1, #1
    str     r1, [sp, #TAIL]
    vctp.8  r1
    lsr     r0, r0, #4              /* vectors but the last */
    cmp     r0, #4
    bhs     .Llong
    str     r4, [sp, #END]
    lsl     r3, r7, #1
    sub     r3, r3, r0, lsl #4
    str     r3, [sp, #ADVANCE]      /* of two rows, of what has not been read */
    adr     r2, .Lloops
    add     r2, r2, r0, lsl #3
    cmp     r1, #16
    it      ne
    addne   r2, r2, #4
    ldr     r2, [r2]
    adr     r3, .Lloops
    add     r2, r2, r3
    str     r2, [sp, #GROUP]
    b       .Lpixel
    .balign 4
.Lloops:                            /* by vectors but the last: whole, not whole */
    .word   .Lwhole_1 - .Lloops + 1, .Lpart_1 - .Lloops + 1
    .word   .Lwhole_2 - .Lloops + 1, .Lpart_2 - .Lloops + 1
    .word   .Lwhole_3 - .Lloops + 1, .Lpart_3 - .Lloops + 1
    .word   .Lwhole_4 - .Lloops + 1, .Lpart_4 - .Lloops + 1
.Llong:
    str     r6, [sp, #END]
    add     r0, r0, #1
    lsl     r0, r0, #4
    rsb     r0, r0, r7, lsl #2
    str     r0, [sp, #ADVANCE]
    adr     r2, .Llong_rows
    orr     r2, r2, #1
    str     r2, [sp, #GROUP]

.Lpixel:
    ldr     r0, [sp, #K]
    ldr     r9, [sp, #M]
    ldr     r12, [sp, #FROM]
    ldr     r7, [sp, #Y]
    ldr     r1, [sp, #W]
    ldr     r2, [sp, #MASK]
    ldr     r8, [sp, #ADVANCE]
    str     r2, [sp, #MASK_AT]
    cmp     r0, #64
    bhi     .Llong_pixel
    ldr     r2, [sp, #X]
    add     r3, r1, r0
    ldr     r5, [sp, #GROUP]
    ldr     r10, [sp, #END]
    ldr     lr, [sp, #M_END]
    subs    r0, r0, #16
    bgt     .Ltwo
    vpst
    vldrbt.u8 q0, [r2]
    bx      r5
.Ltwo:
    vldrb.u8 q0, [r2], #16
    subs    r0, r0, #16
    bgt     .Lthree
    vpst
    vldrbt.u8 q1, [r2]
    bx      r5
.Lthree:
    vldrb.u8 q1, [r2], #16
    subs    r0, r0, #16
    bgt     .Lfour
    vpst
    vldrbt.u8 q2, [r2]
    bx      r5
.Lfour:
    vldrb.u8 q2, [r2], #16
    vpst
    vldrbt.u8 q3, [r2]
    bx      r5

.Llong_pixel:
    sub     r1, r1, r8
    add     r3, r1, r0
    add     r5, r3, r0
    add     r10, r5, r0
    mov     r8, r0
    .balign 4
.Llong_rows:
    ldr     r0, [sp, #ADVANCE]
    ldr     r11, [sp, #X]
    add     r1, r1, r0
    add     r3, r3, r0
    add     r5, r5, r0
    add     r10, r10, r0
    ldm     r12!, {r0, r2, r4, r6}
    dlstp.8 lr, r8
.Lvector:
    vldrb.u8 q0, [r11], #16
    vldrb.u8 q1, [r1], #16
    vmladava.s8 r0, q1, q0
    vldrb.u8 q2, [r3], #16
    vmladava.s8 r2, q2, q0
    vldrb.u8 q1, [r5], #16
    vmladava.s8 r4, q1, q0
    vldrb.u8 q2, [r10], #16
    vmladava.s8 r6, q2, q0
    letp    lr, .Lvector
    ldr     pc, [sp, #END]

    whole   1
    whole   2
    whole   3
    whole   4
    part    1
    part    2
    part    3
    part    4
    .balign 4
    end_put .Lshort_put, 0
    .balign 4
    end_put .Llong_put, 1
    .balign 4
    end_sums .Lshort_sums, 0
    .balign 4
    end_sums .Llong_sums, 1

.Lnext_pixel:
    ldr     r0, [sp, #PIXELS]
    ldrd    r2, r3, [sp, #X]
    subs    r0, r0, #1
    beq     .Ldone
    str     r0, [sp, #PIXELS]
    add     r2, r2, r3
    str     r2, [sp, #X]
    ldrd    r2, r3, [sp, #FROM]
    add     r2, r2, r3
    str     r2, [sp, #FROM]
    ldrd    r2, r3, [sp, #Y]
    add     r2, r2, r3
    str     r2, [sp, #Y]
    ldrd    r2, r3, [sp, #MASK]
    add     r2, r2, r3
    str     r2, [sp, #MASK]
    b       .Lpixel
.Ldone:
    add     sp, sp, #FRAME
    vpop    {d8-d15}
    pop     {r4-r11, pc}
    .balign 4
    end_masked .Lshort_masked, 0
    .balign 4
    end_masked .Llong_masked, 1

/* void rows_biases(const int8_t *w, uint32_t k, uint32_t n, int32_t minus_zero, const int32_t *b, int32_t *to) */
    begin   rows_biases
    push    {r4-r8, lr}
    ldrd    r5, r6, [sp, #24]
.Lrow:
    movs    r4, #0
    mov     r7, r0
    dlstp.8 lr, r1
.Lsum:
    vldrb.u8 q0, [r7], #16
    vaddva.s8 r4, q0
    letp    lr, .Lsum
    ldr     r8, [r5], #4
    add     r0, r0, r1
    mla     r4, r4, r3, r8
    subs    r2, r2, #1
    str     r4, [r6], #4
    bne     .Lrow
    pop     {r4-r8, pc}
    end     rows_biases

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
