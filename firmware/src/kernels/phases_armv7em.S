/* SPDX-License-Identifier: Apache-2.0 */
/* Errors through a depthwise 7x7 kernel with stride 2, for Armv7E-M with the DSP extension. Contract: planes.h.
 *
 * An input meets the taps of every second row and column alone: those of even and of odd rows and columns are four
 * convolutions of the errors, with 3 or 4 rows and columns of taps. Pairs of neighbouring columns of a plane lie in a
 * word; taps t0 to t3 of a row are three words, (t0 t1) (t1 t2) (t2 t3), as windows begin at even and odd columns.
 */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)

#include "assembly.inc"

    .equ    PITCH, 48           /* bytes of a row of the plane: NARROW_PLACES */
    .equ    LONG, 48            /* bytes of four rows of taps, and of three */
    .equ    SHORT, 36

/* Frame: as in struct phases, but that TAPS go on from phase to phase; then what is our own. */
    .equ    ROWS, 0
    .equ    FOURS, 4
    .equ    SKIP, 8
    .equ    TAPS, 12
    .equ    PHASE, 16           /* odd rows and columns, odd rows, odd columns, none */
    .equ    ROWS_LEFT, 20
    .equ    FOURS_LEFT, 24
    .equ    PLANE, 28
    .equ    SUMS, 32
    .equ    FRAME, 36           /* 9 registers and this: a multiple of 8 */

/* `count` rows of taps, from every second row of weights back from r1: to r4 for odd columns, to r5 for even ones. The
 * last weight of a row is its first tap. */
    .macro  rows_of_taps count
    mov     r3, #\count
.Ltaps_\count:
    ldr     r6, [r1]            /* w0 .. w3 */
    ldr     r7, [r1, #3]        /* w3 .. w6 */
    sub     r1, r1, #14
    sxtb16  r8, r6              /* w0 w2 */
    sxtb16  r6, r6, ror #8      /* w1 w3 */
    sxtb16  r9, r7, ror #8      /* w4 w6 */
    sxtb16  r7, r7              /* w3 w5 */
    ror     r10, r9, #16        /* w6 w4 */
    pkhbt   r11, r9, r8         /* w4 w2 */
    ror     r12, r8, #16        /* w2 w0 */
    stm     r4!, {r10-r12}
    pkhbt   r8, r7, r6, lsl #16 /* w3 w1 */
    ror     r7, r7, #16         /* w5 w3 */
    uxth    r9, r6              /* w1 and nothing */
    stm     r5!, {r7-r9}
    subs    r3, r3, #1
    bne     .Ltaps_\count
    .endm

/* A row of taps over a row of the plane. init: zero in the first. */
    .macro  row_of_plane row, init=sum
    ldm     r1!, {r2-r4}
    ldrd    r5, r6, [r0, #PITCH * \row]
    ldrd    r7, r12, [r0, #PITCH * \row + 8]
    .ifc    \init, zero
    smuad   r8, r5, r2
    smultb  r9, r5, r2
    smuad   r10, r6, r2
    smultb  r11, r6, r2
    .else
    smlad   r8, r5, r2, r8
    smlatb  r9, r5, r2, r9
    smlad   r10, r6, r2, r10
    smlatb  r11, r6, r2, r11
    .endif
    smlad   r8, r6, r4, r8
    smlad   r9, r6, r3, r9
    smlad   r10, r7, r4, r10
    smlad   r11, r7, r3, r11
    smlabt  r9, r7, r4, r9
    smlabt  r11, r12, r4, r11
    .endm

/* void sum_phases(const int16_t *plane, const int8_t *w, int32_t *sums, const struct phases *at)
 *
 * Registers: r0 plane, r1 taps, r2-r4 those of a row, r5-r7 and r12 words of the plane, r8-r11 sums of four windows,
 * lr where they go. */
    begin   sum_phases
    push    {r4-r11, lr}
    sub     sp, sp, #FRAME
    ldm     r3, {r4-r7}
    stm     sp, {r4-r7}
    str     r0, [sp, #PLANE]
    str     r2, [sp, #SUMS]
    mov     r4, r7
    add     r5, r7, #LONG
    add     r1, r1, #6 * 7
    rows_of_taps 4
    mov     r4, r5
    add     r5, r5, #SHORT
    add     r1, r1, #7 * 7
    rows_of_taps 3
    mov     r2, #0
.Lphase:
    str     r2, [sp, #PHASE]
    ldrd    r0, lr, [sp, #PLANE]
    ldrd    r3, r4, [sp, #ROWS]
    cmp     r2, #2
    it      lt
    addlt   lr, lr, r4, lsl #5
    tst     r2, #1
    it      eq
    addeq   lr, lr, #4
.Lrow_of_phase:
    strd    r3, r4, [sp, #ROWS_LEFT]
.Lfour_of_phase:
    ldrd    r1, r2, [sp, #TAPS]
    cmp     r2, #2
    row_of_plane 0, zero
    row_of_plane 1
    row_of_plane 2
    bge     .Lput_phase
    row_of_plane 3
.Lput_phase:
    str     r8, [lr]
    str     r9, [lr, #8]
    str     r10, [lr, #16]
    str     r11, [lr, #24]
    add     r0, r0, #8
    add     lr, lr, #32
    ldrd    r3, r4, [sp, #ROWS_LEFT]
    subs    r4, r4, #1
    str     r4, [sp, #FOURS_LEFT]
    bne     .Lfour_of_phase
    ldrd    r4, r5, [sp, #FOURS]
    add     lr, lr, r4, lsl #5
    add     r0, r0, r5
    subs    r3, r3, #1
    bne     .Lrow_of_phase
    ldr     r2, [sp, #PHASE]
    str     r1, [sp, #TAPS]
    add     r2, r2, #1
    cmp     r2, #4
    bne     .Lphase
    add     sp, sp, #FRAME
    pop     {r4-r11, pc}
    end     sum_phases

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
