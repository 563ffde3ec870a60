/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise micro-kernels for Armv7E-M with the DSP extension. Contract: planes.h.
 *
 * Pairs of neighbouring columns of a plane lie in a word. A window that begins at an even column takes its taps as
 * pairs A = (w0 w1) (w2 w3) .. and w[last] alone, one that begins at an odd column as w0 alone and pairs
 * B = (w1 w2) (w3 w4) ..; so both are kept, A and B of pair 0, A and B of pair 1, ...
 */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)

#include "assembly.inc"
#include "kernels/choices.h"

/* ---- taps ------------------------------------------------------------------------------------------------------- */

/* A word of weights at w + offset, or with flip its bytes in reverse order: bytes 0, 2 in x and bytes 1, 3 in y. */
    .macro  four_taps w, offset, flip, x=r2, y=r3
    ldr     \y, [\w, #\offset]
    .if     \flip
    rev     \y, \y
    .endif
    sxtb16  \x, \y
    sxtb16  \y, \y, ror #8
    .endm

/* Pairs (b0 b1) (b1 b2) of such a word; of bytes 1 to 3 with `late`. */
    .macro  two_pairs a, b, x=r2, y=r3, late=0
    .if     \late
    pkhbt   \a, \y, \x
    pkhtb   \b, \y, \x, asr #16
    .else
    pkhbt   \a, \x, \y, lsl #16
    pkhbt   \b, \y, \x
    .endif
    .endm

/* Rows of taps as pairs A0 B0 A1 B1 .. Flipped: the last weight comes first. No byte outside w is read. Nine weights at
 * r1: to r1-r6. */
    .macro  taps_of_3 flip
    .if     \flip
    four_taps r1, 5, 1, r8, r9
    four_taps r1, 3, 1, r10, r11
    four_taps r1, 0, 1, r12, lr
    two_pairs r1, r2, r8, r9
    two_pairs r3, r4, r10, r11, 1
    two_pairs r5, r6, r12, lr, 1
    .else
    four_taps r1, 0, 0, r8, r9
    four_taps r1, 3, 0, r10, r11
    four_taps r1, 5, 0, r12, lr
    two_pairs r1, r2, r8, r9
    two_pairs r3, r4, r10, r11
    two_pairs r5, r6, r12, lr, 1
    .endif
    .endm

/* void name(const int8_t *w, uint32_t *taps)
 *
 * The same of more weights, in memory; for the functions below, as r2-r9 are lost. Five taps: bytes 0 to 3 of the row,
 * then its last pair from bytes 1 to 4. */
    .macro  taps_of_5 name, flip
    begin   \name
    mov     r12, #5
    .if     \flip
    add     r0, r0, #20
    .endif
.Lrow_\name:
    four_taps r0, \flip, \flip
    two_pairs r4, r5
    pkhtb   r6, r3, r2, asr #16
    ldr     r2, [r0, #1 - \flip]
    .if     \flip
    rev     r2, r2
    .endif
    sxtb16  r2, r2, ror #8
    pkhtb   r7, r2, r3, asr #16
    stm     r1!, {r4-r7}
    add     r0, r0, #5 - 10 * \flip
    subs    r12, r12, #1
    bne     .Lrow_\name
    bx      lr
    end     \name
    .endm

    taps_of_5 taps_5x5, 0
    taps_of_5 taps_5x5_flipped, 1

/* Seven taps: bytes 0 to 3 of the row, then bytes 3 to 6. */
    .macro  taps_of_7 name, flip
    begin   \name
    mov     r12, #7
    .if     \flip
    add     r0, r0, #42
    .endif
.Lrow_\name:
    four_taps r0, 3 * \flip, \flip
    two_pairs r4, r5
    pkhtb   r6, r3, r2, asr #16
    four_taps r0, 3 - 3 * \flip, \flip
    two_pairs r7, r8
    pkhtb   r9, r3, r2, asr #16
    stm     r1!, {r4-r9}
    add     r0, r0, #7 - 14 * \flip
    subs    r12, r12, #1
    bne     .Lrow_\name
    bx      lr
    end     \name
    .endm

    taps_of_7 taps_7x7, 0
    taps_of_7 taps_7x7_flipped, 1

/* ---- windows ------------------------------------------------------------------------------------------------------- */

/* Frame, by offset from sp: as in struct windows, but that the first is where the windows of this row end, and rows are
 * those that are left; then what is our own. */
    .equ    ROW_END, 0
    .equ    ROWS, 4
    .equ    BIAS, 8
    .equ    SKIP, 12
    .equ    WORD, 16
    .equ    OFFSET, 20
    .equ    C, 24
    .equ    C3, 28
    .equ    Y_SKIP, 32
    .equ    TAPS, 36
    .equ    TO, 40              /* where the next sums or outputs go */
    .equ    DONE, 44            /* what comes behind the sums of four windows */
    .equ    FRAME, 52           /* 9 registers and this: a multiple of 8 */
    .equ    FAST, 44            /* in struct windows alone */

/* void run_windows(const int16_t *plane, const int8_t *w, void *to, const struct windows *at) */
    begin   run_windows
    ldr     r12, [r3, #FAST]
    tbh     [pc, r12, lsl #1]
.Lways:
    .irp    way, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
    .hword  (.Lway_\way - .Lways) / 2
    .endr
    .balign 4
    .macro  way number, name
.Lway_\number:
    .if     (MICROTRAIN_WINDOWS >> (\number - 1)) & 1
    go      b.w, \name
    .endif
    .endm
    way     1, windows_3x3
    way     2, wide_windows_3x3
    way     3, windows_3x3_stride2
    way     4, wide_windows_3x3_stride2
    way     5, windows_5x5
    way     6, wide_windows_5x5
    way     7, windows_5x5_stride2
    way     8, wide_windows_5x5_stride2
    way     9, windows_7x7
    way     10, wide_windows_7x7
    way     11, windows_7x7_stride2
    way     12, wide_windows_7x7_stride2
    end     run_windows

    .altmacro

    .macro  product op, sum, x, tap, start
    \op     r\sum, \x, r\tap, r\start
    .endm

/* What word `i` of plane row `row` adds to the four windows. x: its register; first: register of the pair of taps
 * A0. The first product of a window starts from r11, which holds the bias until it becomes the last window's sum. */
    .macro  products k, s, row, i, x, first
    .irp    j, 0, 1, 2, 3
    .set    column, \j * \s + \k / 2 - \k / 4 * 2
    .set    pair, \i - column / 2
    .set    start, 8 + \j
    .ifeq   \row
    .ifeq   pair
    .set    start, 11
    .endif
    .endif
    .ifge   pair
    .ifle   pair - \k / 2
    .ifeq   column - column / 2 * 2
    .ifne   pair - \k / 2
    product smlad, %8 + \j, \x, %\first + 2 * pair, %start
    .else
    product smlabt, %8 + \j, \x, %\first + 2 * pair - 1, %start
    .endif
    .else
    .ifeq   pair
    product smlatb, %8 + \j, \x, %\first, %start
    .else
    product smlad, %8 + \j, \x, %\first + 2 * pair - 1, %start
    .endif
    .endif
    .endif
    .endif
    .endr
    .endm

/* A row of taps over a row of the plane. words: 32-bit words that four windows see of a row; pitch: bytes of a row. */
    .macro  plane_row k, s, row, first, words, pitch
    .irp    i, 0, 2, 4, 6
    .iflt   \i + 1 - \words
    ldrd    r12, lr, [r0, #\pitch * \row + 4 * \i]
    .else
    .iflt   \i - \words
    ldr     r12, [r0, #\pitch * \row + 4 * \i]
    .endif
    .endif
    .iflt   \i - \words
    products \k, \s, \row, \i, r12, \first
    .endif
    .iflt   \i + 1 - \words
    products \k, \s, \row, %\i + 1, lr, \first
    .endif
    .endr
    .endm

    .macro  taps_of k, flip
    .if     \k == 3
    taps_of_3 \flip
    .elseif \flip
    go      bl, taps_\k\()x\k\()_flipped
    .else
    go      bl, taps_\k\()x\k
    .endif
    .endm

/* void name(const int16_t *plane, const int8_t *w, void *to, const struct windows *at)
 *
 * Sums, or outputs where the word is negative. Registers: r0 plane, r8-r11 sums of four windows, r12 and lr words of the
 * plane; taps in r1-r6 (3x3), read row by row through r1 into r2-r5 (5x5) or r2-r7 (7x7); r7 where results go, but for
 * 7x7. */
    .macro  windows name, k, s, pitch
    begin   \name
    push    {r4-r11, lr}
    sub     sp, sp, #FRAME
    ldrd    lr, r7, [r3, #TAPS]
    ldm     r3, {r3-r6, r8-r12}
    add     r3, r3, r0
    cmp     r8, #0
    strd    lr, r2, [sp, #TAPS]
    stm     sp, {r3-r6, r8-r12}
    adr     r8, .Lsums_\name
    bge     .Lkind_\name
    adr     r8, .Lput_\name
.Lkind_\name:
    orr     r8, r8, #1
    str     r8, [sp, #DONE]
    .if     \k > 3
    mov     r10, r0
    mov     r0, r1
    mov     r1, lr
    .endif
    .if     \s == 1
    cbz     r7, .Lplain_\name
    taps_of \k, 1
    b       .Lready_\name
.Lplain_\name:
    .endif
    taps_of \k, 0
.Lready_\name:
    .if     \k > 3
    mov     r0, r10
    .endif
    ldr     r7, [sp, #TO]
.Lfour_\name:
    ldr     r11, [sp, #BIAS]
    .if     \k == 3
    .irp    row, 0, 1, 2
    plane_row 3, \s, \row, %1 + 2 * \row, %(3 * \s + 5) / 2, \pitch
    .endr
    .endif
    .if     \k == 5
    ldr     r1, [sp, #TAPS]
    .irp    row, 0, 1, 2, 3, 4
    ldm     r1!, {r2-r5}
    plane_row 5, \s, \row, 2, %(3 * \s + 6) / 2, \pitch
    .endr
    .endif
    .if     \k == 7
    ldr     r1, [sp, #TAPS]
    .irp    row, 0, 1, 2, 3, 4, 5, 6
    ldm     r1!, {r2-r7}
    plane_row 7, \s, \row, 2, %(3 * \s + 9) / 2, \pitch
    .endr
    ldr     r7, [sp, #TO]
    .endif
    ldr     pc, [sp, #DONE]
    .balign 4
.Lput_\name:
    ldrd    r12, lr, [sp, #WORD]
    smmls   r8, r8, r12, lr
    smmls   r9, r9, r12, lr
    smmls   r10, r10, r12, lr
    ssat    r8, #8, r8, asr #3
    smmls   r11, r11, r12, lr
    ssat    r9, #8, r9, asr #3
    ldrd    r12, lr, [sp, #C]
    strb    r8, [r7]
    ssat    r10, #8, r10, asr #3
    strb    r9, [r7, r12]
    ssat    r11, #8, r11, asr #3
    strb    r10, [r7, r12, lsl #1]
    add     r0, r0, #8 * \s
    strb    r11, [r7, lr]
    ldr     lr, [sp, #ROW_END]
    add     r7, r7, r12, lsl #2
    .if     \k == 7
    str     r7, [sp, #TO]
    .endif
    cmp     r0, lr
    bne     .Lfour_\name
    ldr     r12, [sp, #Y_SKIP]
    add     r7, r7, r12
    .if     \k == 7
    str     r7, [sp, #TO]
    .endif
    mov     r12, lr
    b       .Lrow_\name
    .balign 4
.Lsums_\name:
    stm     r7!, {r8-r11}
    .if     \k == 7
    str     r7, [sp, #TO]
    .endif
    ldr     r12, [sp, #ROW_END]
    add     r0, r0, #8 * \s
    cmp     r0, r12
    bne     .Lfour_\name
.Lrow_\name:
    ldr     lr, [sp, #SKIP]
    add     r0, r0, lr
    add     r12, r12, #\pitch * \s
    ldr     lr, [sp, #ROWS]
    subs    lr, lr, #1
    strd    r12, lr, [sp, #ROW_END]
    bne     .Lfour_\name
    add     sp, sp, #FRAME
    pop     {r4-r11, pc}
    end     \name
    .endm

    .equ    NARROW, 48          /* bytes of a row: NARROW_PLACES and WIDE_PLACES */
    .equ    WIDE, 80

    windows windows_3x3, 3, 1, NARROW
    windows windows_3x3_stride2, 3, 2, NARROW
    windows windows_5x5, 5, 1, NARROW
    windows windows_5x5_stride2, 5, 2, NARROW
    windows windows_7x7, 7, 1, NARROW
    windows windows_7x7_stride2, 7, 2, NARROW
    windows wide_windows_3x3, 3, 1, WIDE
    windows wide_windows_3x3_stride2, 3, 2, WIDE
    windows wide_windows_5x5, 5, 1, WIDE
    windows wide_windows_5x5_stride2, 5, 2, WIDE
    windows wide_windows_7x7, 7, 1, WIDE
    windows wide_windows_7x7_stride2, 7, 2, WIDE

    .noaltmacro

/* ---- planes ----------------------------------------------------------------------------------------------------- */

/* One pixel of four channels to the halfwords at the four places. */
    .macro  one_pixel
    ldr     r7, [r0]
    add     r0, r0, r1
    sxtab16 r9, r4, r7
    sxtab16 r10, r4, r7, ror #8
    strh    r9, [r2], #2
    lsr     r9, r9, #16
    strh    r10, [r3], #2
    lsr     r10, r10, #16
    strh    r9, [r5], #2
    strh    r10, [r12], #2
    .endm

/* Words of two pixels a and b: their channels 0 and 1 in \low, 2 and 3 in \high, which may be a. */
    .macro  halves low, high, a, b
    pkhbt   \low, \a, \b, lsl #16
    pkhtb   \high, \b, \a, asr #16
    .endm

/* void planes_of_four(const struct strip *strip)
 *
 * Four pixels at a time: 24 instructions for 16 values. Registers: r0 x, r1 bytes from pixel to pixel, r2, r3, r5 and r12
 * places of the four planes, r4 - zero twice, r6 pixels left; rows left are in memory. */
    begin   planes_of_four
    push    {r4-r11, lr}
    sub     sp, sp, #20
    ldm     r0!, {r1-r4}
    ldm     r0, {r5-r10}
    strd    r6, r10, [sp]       /* columns, odd */
    strd    r8, r9, [sp, #8]    /* x_skip, place_skip */
    mov     lr, r7
    mov     r0, r1
    mov     r1, r2
    mov     r2, r3
    add     r3, r2, r4
    add     r12, r3, r4, lsl #1
    mov     r7, r5
    add     r5, r3, r4
    mov     r4, r7
.Lrow_of_four:
    str     lr, [sp, #16]
    ldrd    r6, r7, [sp]
    cbz     r7, .Leven_of_four
    one_pixel
    sub     r6, r6, #1
.Leven_of_four:
    subs    r6, r6, #4
    blt     .Lfew_of_four
.Lfour_of_four:
    ldr     r8, [r0, r1]
    ldr     r7, [r0]
    add     r0, r0, r1, lsl #1
    pkhbt   r11, r7, r8, lsl #16
    ldr     r10, [r0, r1]
    ldr     r9, [r0]
    pkhtb   r7, r8, r7, asr #16
    halves  r8, r9, r9, r10
    sxtab16 lr, r4, r8
    sxtab16 r10, r4, r11
    subs    r6, r6, #4
    add     r0, r0, r1, lsl #1
    strd    r10, lr, [r2], #8
    sxtab16 r8, r4, r8, ror #8
    sxtab16 r11, r4, r11, ror #8
    sxtab16 r10, r4, r7
    strd    r11, r8, [r3], #8
    sxtab16 lr, r4, r9
    strd    r10, lr, [r5], #8
    sxtab16 r7, r4, r7, ror #8
    sxtab16 r9, r4, r9, ror #8
    strd    r7, r9, [r12], #8
    bge     .Lfour_of_four
.Lfew_of_four:
    adds    r6, r6, #2
    blt     .Llast_of_four
    ldr     r7, [r0]
    ldr     r8, [r0, r1]
    add     r0, r0, r1, lsl #1
    halves  r11, r7, r7, r8
    sxtab16 r8, r4, r11
    sxtab16 r11, r4, r11, ror #8
    str     r8, [r2], #4
    sxtab16 r8, r4, r7
    str     r11, [r3], #4
    sxtab16 r7, r4, r7, ror #8
    str     r8, [r5], #4
    str     r7, [r12], #4
    sub     r6, r6, #2
.Llast_of_four:
    cmn     r6, #1
    bne     .Lnext_of_four
    one_pixel
.Lnext_of_four:
    ldrd    r8, r9, [sp, #8]
    ldr     lr, [sp, #16]
    add     r0, r0, r8
    add     r2, r2, r9
    add     r3, r3, r9
    add     r5, r5, r9
    add     r12, r12, r9
    subs    lr, lr, #1
    bne     .Lrow_of_four
    add     sp, sp, #20
    pop     {r4-r11, pc}
    end     planes_of_four

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
