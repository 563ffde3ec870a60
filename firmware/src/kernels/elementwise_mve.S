/* SPDX-License-Identifier: Apache-2.0 */
/* Residual add and sums of two errors with Helium. Contract: kernels/elementwise.h. */
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

#include "assembly.inc"

/* \v = four values before they are saturated. r4 and r5: factors, r6 what is added to their products. */
    .macro  add_four v, other, at
    .if     \at
    vldrb.s32 \v, [r1, #\at]
    vldrb.s32 \other, [r2, #\at]
    .else
    vldrb.s32 \v, [r1]
    vldrb.s32 \other, [r2]
    .endif
    vmul.i32 \v, \v, r4
    vmla.s32 \v, \other, r5
    vadd.i32 \v, \v, r6
    vshr.s32 \v, \v, #22
    .endm

    .macro  begin_add
    push    {r4-r8, lr}
    add     r0, r0, #12
    ldm     r0, {r4-r6}
    rsb     r4, r4, #0
    ldr     r0, [sp, #24]
    .endm

/* void add_vectors(const struct add *p, const int8_t *a, const int8_t *b, int8_t *y, uint32_t n) */
    begin   add_vectors
    begin_add
    wlstp.32 lr, r0, .Ladded
.Ladd:
    add_four q0, q1, 0
    vqmovnb.s32 q0, q0
    adds    r1, r1, #4
    vqmovnb.s16 q0, q0
    adds    r2, r2, #4
    vstrb.32 q0, [r3], #4
    letp    lr, .Ladd
.Ladded:
    pop     {r4-r8, pc}
    end     add_vectors

/* void add_vectors_masked(const struct add *p, const int8_t *a, const int8_t *b, int8_t *y, uint32_t n, uint8_t *mask)
 *
 * n: a multiple of 8 and not 0. Two vectors of four are the lower and the upper halves of one. */
    begin   add_vectors_masked
    begin_add
    vpush   {d8-d9}
    ldr     r7, [sp, #44]
    adr     r8, .Ladd_tables
    vldrh.u16 q3, [r8]
    vldrh.u16 q4, [r8, #16]
    mov     r8, #128
    lsrs    r0, r0, #3
    dls     lr, r0
.Ladd_masked:
    add_four q0, q2, 0
    add_four q1, q2, 4
    vqmovnb.s32 q0, q0
    vqmovnt.s32 q0, q1
    vmov.i16 q2, #255
    vadd.i16 q1, q0, r8
    movs    r0, #0
    vpt.u16 cs, q2, q1
    vaddvat.u16 r0, q3
    vqmovnb.s16 q0, q0
    strb    r0, [r7], #1
    vstrb.16 q0, [r3, q4]
    adds    r1, r1, #8
    adds    r2, r2, #8
    adds    r3, r3, #8
    le      lr, .Ladd_masked
    vpop    {d8-d9}
    pop     {r4-r8, pc}
    .balign 4
.Ladd_tables:
    .hword  1, 16, 2, 32, 4, 64, 8, 128
    .hword  0, 4, 1, 5, 2, 6, 3, 7
    end     add_vectors_masked

/* q0 = sums of four channels of a pixel, 0 where the mask stops them. q2 and q3: units, q4: powers that make the
 * channels' bits of the mask signs. */
    .macro  sum_pair
    ldrb    r8, [r6]
    vldrb.s32 q0, [r2]
    vldrb.s32 q1, [r3]
    vcvt.f32.s32 q0, q0
    vcvt.f32.s32 q1, q1
    vmul.f32 q0, q0, q2
    vmul.f32 q1, q1, q3
    vadd.f32 q0, q0, q1
    vmul.i32 q1, q4, r8
    vpt.s32 ge, q1, zr
    vmovt.i32 q0, #0
    add     r2, r2, r4
    add     r3, r3, r4
    add     r6, r6, r7
    .endm

    .macro  begin_pairs
    push    {r4-r8, lr}
    vpush   {d8-d11}
    ldm     r0!, {r2-r8}            /* a, b, c, pixels, mask, its step, bit */
    vldrw.u32 q2, [r0]
    vldrw.u32 q3, [r0, #16]
    bits_to_signs q4, q1, r8
    dls     lr, r5
    .endm

    .macro  end_pairs
    vpop    {d8-d11}
    pop     {r4-r8, pc}
    .endm

/* void peaks_of_four(const struct four_pairs *pairs, float *peaks) */
    begin   peaks_of_four
    begin_pairs
    vmov.i32 q5, #0
.Lpeak_of_four:
    sum_pair
    vmaxnma.f32 q5, q0
    le      lr, .Lpeak_of_four
    vstrw.32 q5, [r1]
    end_pairs
    end     peaks_of_four

/* void put_sums_of_four(const struct four_pairs *pairs, const float *gains, int8_t *q) */
    begin   put_sums_of_four
    mov     r12, r2
    begin_pairs
    vldrw.u32 q5, [r1]
    mov     r1, r12
.Lput_sums_of_four:
    sum_pair
    vmul.f32 q0, q0, q5
    vcvtn.s32.f32 q0, q0
    vstrb.32 q0, [r1]
    add     r1, r1, r4
    le      lr, .Lput_sums_of_four
    end_pairs
    end     put_sums_of_four

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
