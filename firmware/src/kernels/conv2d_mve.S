/* SPDX-License-Identifier: Apache-2.0 */
/* Dense forward with Helium (Armv8.1-M, MVE). Contract: conv2d_mve.h.
 *
 * VMLADAVA sums 16 products of bytes into a core register: weights stand as they lie, inputs with their zero point,
 * which the biases make up for. A pixel of up to 64 values is held in q0-q3 and met by one row after the other; longer
 * ones are in pairs_mve.S. Four sums become a vector, which is rounded as the contract says it.
 */
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

#include "assembly.inc"

/* Frame, by offset from sp. The first words are what a short pixel loads: r1-r3, r5, r7-r12, lr. */
    .equ    W, 0
    .equ    X, 4
    .equ    NEXT_W, 8       /* the row behind the first */
    .equ    GROUP, 12       /* where four rows begin */
    .equ    Y, 16
    .equ    ADVANCE, 20     /* of r1, and of what else points to rows */
    .equ    M, 24
    .equ    END, 28         /* what is done with their sums */
    .equ    LOAD, 32        /* where a short pixel is loaded */
    .equ    FROM, 36
    .equ    FOURS, 40
    .equ    X_STEP, 44
    .equ    Y_STEP, 48
    .equ    FROM_STEP, 52
    .equ    MASK_STEP, 56   /* not 0: there is one */
    .equ    MASK, 60
    .equ    MASK_AT, 64
    .equ    TAIL, 68        /* values of the last vector, 1 to 16 */
    .equ    K, 72
    .equ    PIXELS, 76
    .equ    HALVES, 84      /* outputs of eight channels before they are saturated, in 16 bits */
    .equ    FRAME, 104

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
    .macro  next_group
    le      lr, .Lagain
    b       .Lnext_pixel
    .endm

    .macro  end_sums name
\name:
    sums_to q5
    vstrw.32 q5, [r7], #16
    next_group
    .endm

/* What is done with the sums from now on. */
    .macro  end_is name
    adr.w   r10, \name + 1
    .endm

/* The first four of eight channels wait, as 16 bits, for the others; then all eight are put. */
    .macro  end_masked name
\name:
    round_sums
    add     r0, sp, #HALVES
    vqmovnb.s32 q5, q5
    vstrh.32 q5, [r0]
    end_is  .Lhigh_\name
    next_group
    .balign 4
.Lhigh_\name:
    round_sums
    add     r0, sp, #HALVES
    vqmovnb.s32 q5, q5
    adr     r4, .Lpowers
    vstrh.32 q5, [r0, #8]
    movs    r2, #128
    vldrh.u16 q5, [r0]
    vldrh.u16 q4, [r4]
    vadd.i16 q6, q5, r2
    movs    r0, #255
    vpt.u16 hi, q6, r0
    vaddvt.u16 r2, q4
    ldrd    r4, r0, [sp, #MASK_AT]
    vqmovnb.s16 q5, q5
    mvns    r2, r2
    strb    r2, [r4], #1
    vctp.8  r0
    str     r4, [sp, #MASK_AT]
    vstrb.16 q5, [r7], #8
    end_is  \name
    next_group
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

    .macro  whole count, put
    .balign 4
.Lwhole_\count\()_\put:
    ldm     r12!, {r0, r2, r4, r6}
    whole_row r0, \count
    whole_row r2, \count
    whole_row r4, \count
    whole_row r6, \count
    .if     \put
    round_sums
    put_rounded
    le      lr, .Lwhole_\count\()_\put
    b       .Lnext_pixel
    .else
    bx      r10
    .endif
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

    .macro  part count, put
    .balign 4
.Lpart_\count\()_\put:
    ldm     r12!, {r0, r2, r4, r6}
    part_rows r0, r2, \count
    part_rows r4, r6, \count
    .if     \put
    round_sums
    put_rounded
    le      lr, .Lpart_\count\()_\put
    b       .Lnext_pixel
    .else
    bx      r10
    .endif
    .endm

/* Eight values: a vector is two rows. A block that ends with E leaves its predicate inverted. */
    .macro  eight put
    .balign 4
.Leight_\put:
    ldm     r12!, {r0, r2, r4, r6}
    vldrb.u8 q4, [r1], #16
    vldrb.u8 q5, [r1], #16
    vpste
    vmladavat.s8 r0, q4, q0
    vmladavae.s8 r2, q4, q0
    vpste
    vmladavat.s8 r6, q5, q0
    vmladavae.s8 r4, q5, q0
    .if     \put
    round_sums
    put_rounded
    le      lr, .Leight_\put
    b       .Lnext_pixel
    .else
    bx      r10
    .endif
    .endm

/* r0: the struct, r4: the end of four rows, r3: loops. */
    .macro  entry name, end, put
    .balign 4
    begin_too \name
    push    {r4-r11, lr}
    vpush   {d8-d15}
    adr.w   r4, .Lend_\end
    adr.w   r3, .Lloops_\put
    b.w     .Lpixels
    end     \name
    .endm

/* By vectors but the last: whole, not whole; then that of eight values. */
    .macro  loops put
    .balign 4
.Lloops_\put:
    .word   .Lwhole_1_\put - .Lloops_\put + 1, .Lpart_1_\put - .Lloops_\put + 1
    .word   .Lwhole_2_\put - .Lloops_\put + 1, .Lpart_2_\put - .Lloops_\put + 1
    .word   .Lwhole_3_\put - .Lloops_\put + 1, .Lpart_3_\put - .Lloops_\put + 1
    .word   .Lwhole_4_\put - .Lloops_\put + 1, .Lpart_4_\put - .Lloops_\put + 1
    .word   .Leight_\put - .Lloops_\put + 1
    .endm

    .section .text.pixels_mve, "ax", %progbits
    .balign 4
.Lpowers:
    .hword  1, 2, 4, 8, 16, 32, 64, 128
    loops   0
    loops   1
    entry   pixels_sums, sums, 0
    entry   pixels_put, put, 1
    entry   pixels_put_masked, masked, 0

/* The struct: x, x_step, pixels, w, k, from, from_step | m, n, zero, y, y_step, mask, mask_step */
.Lpixels:
    sub     sp, sp, #FRAME
    orr     r4, r4, #1
    ldm     r0!, {r1, r2, r5, r7-r10}
    str     r1, [sp, #X]
    str     r2, [sp, #X_STEP]
    str     r5, [sp, #PIXELS]
    add     r1, r7, r8
    str     r7, [sp, #W]
    str     r1, [sp, #NEXT_W]
    str     r8, [sp, #K]
    str     r9, [sp, #FROM]
    str     r10, [sp, #FROM_STEP]
    ldm     r0, {r1, r2, r5, r7, r9-r11}
    str     r1, [sp, #M]
    lsr     r2, r2, #2
    str     r2, [sp, #FOURS]
    vdup.32 q7, r5
    str     r7, [sp, #Y]
    str     r9, [sp, #Y_STEP]
    str     r10, [sp, #MASK]
    str     r11, [sp, #MASK_STEP]
    sub     r0, r8, #1
    and     r1, r0, #15
    add     r1, r1, #1
    str     r1, [sp, #TAIL]
    vctp.8  r1
    lsr     r0, r0, #4              /* vectors but the last */
    str     r4, [sp, #END]
    lsl     r2, r8, #1
    sub     r2, r2, r0, lsl #4
    str     r2, [sp, #ADVANCE]      /* of two rows, of what has not been read */
    adr     r5, .Lloads
    ldr     r7, [r5, r0, lsl #2]
    add     r2, r3, r0, lsl #3
    cmp     r1, #16
    it      ne
    addne   r2, r2, #4
    cmp     r8, #8
    itt     eq
    addeq   r2, r3, #32
    ldreq   r7, [r5, #16]
    ldr     r2, [r2]
    add     r7, r7, r5
    add     r2, r2, r3
    str     r7, [sp, #LOAD]
    str     r2, [sp, #GROUP]
    b       .Lnew_pixel
    .balign 4
.Lloads:
    .word   .Lload_1 - .Lloads + 1, .Lload_2 - .Lloads + 1, .Lload_3 - .Lloads + 1, .Lload_4 - .Lloads + 1
    .word   .Lload_eight - .Lloads + 1
.Lload_4:
    vldrb.u8 q0, [r2], #16
    vldrb.u8 q1, [r2], #16
    vldrb.u8 q2, [r2], #16
    vpst
    vldrbt.u8 q3, [r2]
    bx      r5
.Lload_3:
    vldrb.u8 q0, [r2], #16
    vldrb.u8 q1, [r2], #16
    vpst
    vldrbt.u8 q2, [r2]
    bx      r5
.Lload_2:
    vldrb.u8 q0, [r2], #16
    vpst
    vldrbt.u8 q1, [r2]
    bx      r5
.Lload_1:
    vpst
    vldrbt.u8 q0, [r2]
    bx      r5
.Lload_eight:
    vpst
    vldrbt.u8 q0, [r2]
    vmov    r4, r6, d0
    vmov    d1, r4, r6
    bx      r5
.Lagain:
    bx      r5

.Lnext_pixel:
    ldr     r0, [sp, #PIXELS]
    ldrd    r2, r4, [sp, #X_STEP]
    subs    r0, r0, #1
    beq     .Ldone
    ldr     r6, [sp, #X]
    ldr     r7, [sp, #Y]
    str     r0, [sp, #PIXELS]
    add     r6, r6, r2
    add     r7, r7, r4
    ldrd    r0, r2, [sp, #FROM_STEP]
    str     r6, [sp, #X]
    str     r7, [sp, #Y]
    orrs    r4, r0, r2
    bne     .Lmore
.Lnew_pixel:
    ldr     r0, [sp, #MASK]
    str     r0, [sp, #MASK_AT]
    ldm     sp, {r1-r3, r5, r7-r12, lr}
    bx      r11
.Lmore:
    ldr     r3, [sp, #FROM]
    ldr     r4, [sp, #MASK]
    add     r3, r3, r0
    add     r4, r4, r2
    str     r3, [sp, #FROM]
    str     r4, [sp, #MASK]
    b       .Lnew_pixel
.Ldone:
    add     sp, sp, #FRAME
    vpop    {d8-d15}
    pop     {r4-r11, pc}

    whole   1, 0
    whole   2, 0
    whole   3, 0
    whole   4, 0
    part    1, 0
    part    2, 0
    part    3, 0
    part    4, 0
    eight   0
    whole   1, 1
    whole   2, 1
    whole   3, 1
    whole   4, 1
    part    1, 1
    part    2, 1
    part    3, 1
    part    4, 1
    eight   1
.Lend_put:
    .balign 4
    end_sums .Lend_sums
    .balign 4
    end_masked .Lend_masked

/* void copy_fields(int8_t *to, const int8_t *from, uint32_t n, uint32_t rows, uint32_t step, uint32_t pixels, uint32_t next) */
    begin   copy_fields
    push    {r4-r8, lr}
    ldrd    r4, r5, [sp, #24]
    ldr     r6, [sp, #32]
    vctp.8  r2
.Lfield:
    mov     r7, r1
    dls     lr, r3
.Lfield_row:
    vpstt
    vldrbt.u8 q0, [r7]
    vstrbt.8 q0, [r0]
    add     r7, r7, r4
    add     r0, r0, r2
    le      lr, .Lfield_row
    add     r1, r1, r6
    subs    r5, r5, #1
    bne     .Lfield
    pop     {r4-r8, pc}
    end     copy_fields

/* void rows_biases(const int8_t *w, uint32_t k, uint32_t n, int32_t minus_zero, const int32_t *b, int32_t *to)
 *
 * Two rows at a time; a last one is summed with itself. */
    begin   rows_biases
    push    {r4-r11, lr}
    ldrd    r5, r11, [sp, #36]
.Lrow:
    movs    r4, #0
    movs    r6, #0
    mov     r7, r0
    subs    r2, r2, #2
    ite     mi
    movmi   r8, r0
    addpl   r8, r0, r1
    dlstp.8 lr, r1
.Lsum:
    vldrb.u8 q0, [r7], #16
    vldrb.u8 q1, [r8], #16
    vaddva.s8 r4, q0
    vaddva.s8 r6, q1
    letp    lr, .Lsum
    bmi     .Lone_row
    ldrd    r9, r10, [r5], #8
    add     r0, r0, r1, lsl #1
    mla     r4, r4, r3, r9
    mla     r6, r6, r3, r10
    strd    r4, r6, [r11], #8
    bne     .Lrow
    pop     {r4-r11, pc}
.Lone_row:
    ldr     r9, [r5]
    mla     r4, r4, r3, r9
    str     r4, [r11]
    pop     {r4-r11, pc}
    end     rows_biases

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
