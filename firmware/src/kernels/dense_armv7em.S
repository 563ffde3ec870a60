/* SPDX-License-Identifier: Apache-2.0 */
/* Dense micro-kernels for Armv7E-M with the DSP extension. Contract and panel layout: dense.h. Tiles of columns and of a
 * stem's fields are packed in tiles_armv7em.S.
 *
 * A tile holds LANES int16 panels, word by word side by side; against them one int8 row at a time is streamed, as it
 * lies in memory. SXTB16 widens bytes 0, 2 and bytes 1, 3 of a word, so a group of four values is two words per lane:
 *
 *     [lane 0 k0 k2] [lane 1 k0 k2] ...  [lane 0 k1 k3] [lane 1 k1 k3] ...
 *
 * Six lanes are as many as the registers hold beside the four words that one LDM brings: 18 instructions for 24
 * multiply-accumulates, 15 cycles by llvm-mca: an LDM is issued alone, all else beside a product. LDRD instead of LDM
 * would be 21 instructions and 12 cycles.
 */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)

#include "assembly.inc"
#include "kernels/choices.h"

/* Registers: r0 panels, r1 row, r2-r7 in turns four bytes of the row, two of them widened and panel words, r8-r12, lr
 * sums. init: what the first product of a lane is added to: its sum, nothing, or the bias in `lr` (six lanes) or r11
 * (four lanes), which is why the last lane comes last. */

    .macro  product sum, panel, pair, init
    .ifc    \init, zero
    smuad   \sum, \panel, \pair
    .else
    .ifc    \init, sum
    smlad   \sum, \panel, \pair, \sum
    .else
    smlad   \sum, \panel, \pair, \init
    .endif
    .endif
    .endm

/* Four values of a row against the panels. `raw` holds them, `pair` the first two widened; a-d are free. What is short
 * stands in front of a product, which it is issued with. more: where four values that follow are, seen from r1, or none;
 * they are left in `pair`, the first two widened in `a`. fresh: the first of a row, whose values are loaded here. */
    .macro  group lanes, init, raw, pair, a, b, c, d, more, fresh=0
    ldm     r0!, {\a, \b, \c, \d}
    .if     \fresh
    first_values
    .endif
    sxtb16  \raw, \raw, ror #8
    product r8, \a, \pair, \init
    product r9, \b, \pair, \init
    product r10, \c, \pair, \init
    product r11, \d, \pair, \init
    ldm     r0!, {\a, \b, \c, \d}
    .if     \lanes == 6
    product r12, \a, \pair, \init
    product lr, \b, \pair, \init
    next_values \pair, \more
    product r8, \c, \raw, sum
    product r9, \d, \raw, sum
    ldm     r0!, {\a, \b, \c, \d}
    product r10, \a, \raw, sum
    product r11, \b, \raw, sum
    product r12, \c, \raw, sum
    widen_next \a, \pair, \more
    product lr, \d, \raw, sum
    .else
    next_values \pair, \more
    product r8, \a, \raw, sum
    product r9, \b, \raw, sum
    product r10, \c, \raw, sum
    widen_next \a, \pair, \more
    product r11, \d, \raw, sum
    .endif
    .endm

    .macro  next_values to, at
    .ifnc   \at, none
    ldr     \to, [r1, #\at]
    .endif
    .endm

    .macro  widen_next to, raw, at
    .ifnc   \at, none
    sxtb16  \to, \raw
    .endif
    .endm

/* Groups of a round of the loop, UNROLL. In a round r1 is where it begins, also if it is not full; between rows it is
 * AHEAD bytes, a round, in front of the row. */
    .macro  unroll groups
    .set    UNROLL, \groups
    .set    AHEAD, 4 * UNROLL
    .endm

/* Group `at` of the unrolled loop, with registers by turns. .Lgroup_lanes_at: the first two are loaded. */
    .macro  loop_group lanes, at
    .if     \at < UNROLL
.Lgroup_\lanes\()_\at:
    .if     \at == UNROLL - 1
    turn    \at, group, \lanes, none
    .else
    turn    \at, group, \lanes, 4 * \at + 4
    .endif
    .endif
    .endm

    .macro  turn at, what, lanes, more
    .if     \at % 3 == 0
    \what\()_of \lanes, \more, r2, r3, r4, r5, r6, r7
    .elseif \at % 3 == 1
    \what\()_of \lanes, \more, r3, r4, r2, r5, r6, r7
    .else
    \what\()_of \lanes, \more, r4, r2, r3, r5, r6, r7
    .endif
    .endm

    .macro  group_of lanes, more, raw, pair, a, b, c, d
    group   \lanes, sum, \raw, \pair, \a, \b, \c, \d, \more
    .endm

/* The first four values of a row or a round. */
    .macro  first_values
    ldr     r2, [r1, #AHEAD]!
    sxtb16  r3, r2
    .endm

/* The way into the loop at group `at`; r1: the row. */
    .macro  way_in lanes, at
    .if     \at < UNROLL
    turn    \at, values, \lanes, \at
    b.w     .Lgroup_\lanes\()_\at
    .endif
    .endm

    .macro  values_of lanes, at, raw, pair, others:vararg
    ldr.w   \raw, [r1, #4]
    sub.w   r1, r1, #4 * \at - 4
    sxtb16.w \pair, \raw
    .endm

    .equ    WAY_IN, 16          /* bytes of each */

/* The way on behind a first group that is not full or the only one: r1 as where four values follow, or between rows. */
    .macro  way_back bytes
    sub.w   r1, r1, #\bytes
    ldr.w   pc, [sp, #WAY]
    .endm

    .equ    WAY_BACK, 8         /* bytes of each */

/* Frame: what rows of every kind need, by offset from sp. Below it is what their own kind needs. */
    .equ    WAY, 32         /* behind a first group that is not full or the only one */
    .equ    ENTRY, 36       /* where a row goes on behind its first group */
    .equ    PANELS_END, 40
    .equ    DONE, 44        /* where it goes on behind its last */
    .equ    ROUND, 48       /* and behind a round: DONE where a row has but one */
    .equ    FRAME, 52       /* 9 registers and this: a multiple of 8 */

/* Rows whose sums are kept. */
    .equ    PANELS, 0
    .equ    BIAS, 4         /* of the next row */
    .equ    SUMS, 8
    .equ    SUMS_END, 12

/* Rows that end in outputs: as in struct dot_put, then what is as above. */
    .equ    PUT_NEXT, 16        /* in the place of the offset with a mask: where the next row begins */
    .equ    PUT_PANELS, 24
    .equ    PUT_WORDS_END, 28

/* In struct dot_put alone. */
    .equ    PUT_TILES, 24
    .equ    PUT_ROWS, 28
    .equ    PUT_X, 32           /* and the step */
    .equ    PUT_GROUPS, 40      /* and minus the zero point */
    .equ    PUT_FINE, 48

/* A zero point from what put->offset is: in eighths, or twice as much. */
#if MICROTRAIN_TFLITE
    .equ    TO_ZERO, 1
#else
    .equ    TO_ZERO, 3
#endif

/* Where fine multipliers begin, seen from the words, to s5: entry of functions that end in outputs. Uses r4. */
    .macro  keep_fine
#if MICROTRAIN_TFLITE
    ldr     r4, [sp, #FRAME + 36]
    ldr     r4, [r4, #PUT_FINE]
    vmov    s5, r4
#endif
    .endm

/* Behind a row r4 becomes its channel's fine multiplier, r5 the shift, r6 half a unit and the zero point; or it goes to
 * `float`, with all as it was. r0 is lost, r4 and r5 are in the frame. */
    .macro  begin_twice float
    vmov    r4, s5
    str     r5, [sp, #12]
    add     r5, r5, r4
    ldr     r4, [r5, #-4]
    cmp     r4, #0
    beq.w   \float
    mov     r5, r0
    shift_of r5, r4, r6, r0
    .endm

/* What is the same of all kinds: the entry and PANELS_END from r0 panels, r2 values of a row and r6 where its last group
 * goes on; the way to its first row is r7. */
    .macro  rows_of lanes
.Lrows_\lanes:
    str     r6, [sp, #DONE]
    add     r4, r2, #3
    lsr     r4, r4, #2              /* groups of a row */
    .if     \lanes == 6
    add     r5, r4, r4, lsl #1
    add     r0, r0, r5, lsl #4
    .else
    add     r0, r0, r4, lsl #5
    .endif
    str     r0, [sp, #PANELS_END]
    sub     r1, r1, #AHEAD
    sub     r4, r4, #1              /* groups beside the first, which has 1 to 4 values */
    str     r6, [sp, #ROUND]
    str     r6, [sp, #WAY]
    cbz     r4, .Lback_\lanes
    cmp     r4, #UNROLL
    bls     .Lround_\lanes
    adr     r6, .Lagain_\lanes
    orr     r6, r6, #1
    str     r6, [sp, #ROUND]
.Lround_\lanes:
    rsb     r4, r4, #0
    and     r4, r4, #UNROLL - 1     /* the group of the loop that comes second */
    adr     r6, .Lways_in_\lanes
    orr     r6, r6, #1
    mov     r5, #WAY_IN
    mla     r6, r4, r5, r6          /* without shifts: tools/memory_report follows it */
    str     r6, [sp, #WAY]
    ands    r2, r2, #3              /* values of the first group, or 0 for all four */
    beq     .Lenter_\lanes
.Lback_\lanes:
    and     r2, r2, #3
    adr     r6, .Lways_back_\lanes
    orr     r6, r6, #1
    mov     r5, #WAY_BACK
    mla     r6, r2, r5, r6
.Lenter_\lanes:
    str     r6, [sp, #ENTRY]
    bx      r7
    .balign 4
.Lways_back_\lanes:
    way_back AHEAD - 4
    way_back 3
    way_back 2
    way_back 1
    .balign 4
.Lways_in_\lanes:
    .irp    at, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    way_in  \lanes, \at
    .endr
    .balign 4
.Lloop_\lanes:
    first_values
    .irp    at, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    loop_group \lanes, \at
    .endr
    ldr     pc, [sp, #ROUND]
    .balign 4
.Lagain_\lanes:
    ldr     r3, [sp, #PANELS_END]
    cmp     r0, r3
    bne     .Lloop_\lanes
    ldr     pc, [sp, #DONE]
.Lend_\lanes:
    add     sp, sp, #FRAME
    pop     {r4-r11, pc}
    .endm

/* A function of its own in the section of the loop that it shares. */
    .macro  entry name
    begin_too \name
    push    {r4-r11, lr}
    sub     sp, sp, #FRAME
    adr     r6, .Ldone_\name
    adr     r7, .Lfirst_\name
    orr     r6, r6, #1
    orr     r7, r7, #1
    .endm

/* The first group of a row. */
    .macro  begin_row lanes, init
    group   \lanes, \init, r2, r3, r4, r5, r6, r7, none, 1
    ldr     pc, [sp, #ENTRY]
    .endm

/* What the first products of a row are added to, and SUMS; r5: BIAS, r6: SUMS. */
    .macro  begin_sums lanes, init
    .ifc    \init, zero
    str     r6, [sp, #SUMS]
    .else
    .ifc    \init, sum
    str     r6, [sp, #SUMS]
    .if     \lanes == 6
    ldm     r6, {r8-r12, lr}
    .else
    ldm     r6, {r8-r11}
    .endif
    .else
    ldr     \init, [r5], #4
    strd    r5, r6, [sp, #BIAS]
    .endif
    .endif
    .endm

/* void name(const int16_t *panels, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums
 *           [, const int32_t *bias]) */
    .macro  dot name, lanes, init
    entry   \name
    str     r0, [sp, #PANELS]
    ldr     r5, [sp, #FRAME + 36]
    .if     \lanes == 6
    add     r4, r3, r3, lsl #1
    add     r4, r5, r4, lsl #3
    .else
    add     r4, r5, r3, lsl #4
    .endif
    strd    r5, r4, [sp, #SUMS]
    .ifnc   \init, zero
    .ifnc   \init, sum
    ldr     r4, [sp, #FRAME + 40]
    str     r4, [sp, #BIAS]
    .endif
    .endif
    b       .Lrows_\lanes
    .balign 4
.Lfirst_\name:
    ldm     sp, {r0, r5, r6}
    b       .Lnext_\name
    .balign 4
.Ldone_\name:
    ldm     sp, {r0, r5-r7}
    .if     \lanes == 6
    stm     r6!, {r8-r12, lr}
    .else
    stm     r6!, {r8-r11}
    .endif
    cmp     r6, r7
    beq.w   .Lend_\lanes
.Lnext_\name:
    begin_sums \lanes, \init
    begin_row \lanes, \init
    end     \name
    .endm

/* What the first products of a row are added to, from r4. */
    .macro  load_from lanes, init
    .ifc    \init, sum
    .if     \lanes == 6
    ldm     r4!, {r8-r12, lr}
    .else
    ldm     r4!, {r8-r11}
    .endif
    .else
    ldr     \init, [r4], #4
    .endif
    .endm

    .macro  integer_output r
    smmls   \r, \r, r0, r6
    .endm

/* In eighths, limited far beyond those that saturate. */
    .macro  twice_eighths r
    round_twice \r, r4, r6, r5, r0
    ssat    \r, #16, \r
    lsl     \r, \r, #3
    .endm

    .macro  float_outputs a, b
    times_multiplier \a, \b
    qadd    \a, \a, r6
    qadd    \b, \b, r6
    ssat    \a, #8, \a
    ssat    \b, #8, \b
    .endm

/* Groups of four bytes of rows that lie `step` apart. Registers: r0 tile, r1 row 0, r2 step, r3 groups, r12 row 3, lr
 * minus the zero point in both halves, r4-r9 words of the rows, r10 and r11. */
    .macro  pack_groups name, lanes
.Lpack_\name:
    ldr     r5, [r1, r2]
    ldr     r6, [r1, r2, lsl #1]
    .if     \lanes == 6
    ldr     r8, [r1, r2, lsl #2]
    ldr     r9, [r12, r2, lsl #1]
    .endif
    ldr     r4, [r1], #4
    ldr     r7, [r12], #4
    sxtab16 r10, lr, r4
    sxtab16 r11, lr, r5
    strd    r10, r11, [r0], #8
    sxtab16 r10, lr, r6
    sxtab16 r11, lr, r7
    strd    r10, r11, [r0], #8
    .if     \lanes == 6
    sxtab16 r10, lr, r8
    sxtab16 r11, lr, r9
    strd    r10, r11, [r0], #8
    sxtab16 r8, lr, r8, ror #8
    sxtab16 r9, lr, r9, ror #8
    .endif
    sxtab16 r4, lr, r4, ror #8
    sxtab16 r5, lr, r5, ror #8
    sxtab16 r6, lr, r6, ror #8
    sxtab16 r7, lr, r7, ror #8
    .if     \lanes == 6
    stm     r0!, {r4-r9}
    .else
    stm     r0!, {r4-r7}
    .endif
    subs    r3, r3, #1
    bne     .Lpack_\name
    .endm

/* The next tile of six pixels, if there is one: what is as in front of its first row, and its panels. r7: c. */
    .macro  next_tile name
.Ltile_\name:
    ldr     lr, [sp, #FRAME + 36]
    ldr     r6, [lr, #PUT_TILES]
    subs    r6, r6, #1
    bmi.w   .Lend_6
    str     r6, [lr, #PUT_TILES]
    ldm     lr, {r2-r5}
    add     r6, r7, r7, lsl #1
    add     r2, r2, r6, lsl #1
    add     r3, r3, r6, lsl #1
    strd    r2, r3, [lr]
    stm     sp, {r2-r5}
    ldrd    r1, r2, [lr, #PUT_X]
    add     r12, r2, r2, lsl #1
    add     r4, r1, r12, lsl #1
    str     r4, [lr, #PUT_X]
    add     r12, r12, r1
    ldrd    r3, lr, [lr, #PUT_GROUPS]
    pack_groups \name, 6
    ldr     r1, [sp, #FRAME + 36]
    ldr     r0, [sp, #PUT_PANELS]
    ldm     sp, {r2-r5}
    ldr     r1, [r1, #PUT_ROWS]
    sub     r1, r1, #AHEAD
    b       .Lnext_\name
    .endm

/* void name(const int16_t *panels, const int8_t *rows, uint32_t n, uint32_t count, struct dot_put *put)
 *
 * Behind a row: r0 word of its channel, r2 and r3 y of lanes 0 and 3, r4 from, r5 words, r6 the zero point and a half in
 * eighths, r7 c. */
    .macro  dot_put name, lanes, init, tiles
    entry   \name
    str     r0, [sp, #PUT_PANELS]
    ldr     r8, [sp, #FRAME + 36]
    ldm     r8, {r8-r12, lr}
    stm     sp, {r8-r12, lr}
    add     r11, r11, r3, lsl #2
    str     r11, [sp, #PUT_WORDS_END]
    keep_fine
    b       .Lrows_\lanes
    .balign 4
.Lfirst_\name:
    ldm     sp, {r2-r5}
    ldr     r0, [sp, #PUT_PANELS]
    b       .Lnext_\name
    .balign 4
.Ldone_\name:
    ldm     sp, {r2-r7}
    ldr     r0, [r5], #4
#if MICROTRAIN_TFLITE
    begin_twice .Lfloat_\name
    put_twice r9, r4, r6, r5, r0, [r2, r7]
    put_twice r10, r4, r6, r5, r0, [r2, r7, lsl #1]
    .if     \lanes == 6
    put_twice r12, r4, r6, r5, r0, [r2, r7, lsl #2]
    put_twice lr, r4, r6, r5, r0, [r3, r7, lsl #1]
    .endif
    round_twice r8, r4, r6, r5, r0
    ssat    r8, #8, r8
    round_twice r11, r4, r6, r5, r0
    ssat    r11, #8, r11
    ldrd    r4, r5, [sp, #8]
#else
    cmp     r0, #0
    bge     .Lfloat_\name
    integer_output r9
    integer_output r10
    .if     \lanes == 6
    integer_output r12
    ssat    r9, #8, r9, asr #3
    integer_output lr
    ssat    r10, #8, r10, asr #3
    integer_output r8
    strb    r9, [r2, r7]
    integer_output r11
    ssat    r12, #8, r12, asr #3
    strb    r10, [r2, r7, lsl #1]
    ssat    lr, #8, lr, asr #3
    strb    r12, [r2, r7, lsl #2]
    ssat    r8, #8, r8, asr #3
    strb    lr, [r3, r7, lsl #1]
    .else
    integer_output r8
    ssat    r9, #8, r9, asr #3
    integer_output r11
    ssat    r10, #8, r10, asr #3
    strb    r9, [r2, r7]
    ssat    r8, #8, r8, asr #3
    strb    r10, [r2, r7, lsl #1]
    .endif
    ssat    r11, #8, r11, asr #3
#endif
    ldrd    r0, r6, [sp, #PUT_PANELS]
    strb    r8, [r2], #1
.Lput_\name:
    cmp     r5, r6
    strb    r11, [r3], #1
    .if     \tiles
    beq     .Ltile_\name
    .else
    beq.w   .Lend_\lanes
    .endif
.Lnext_\name:
    load_from \lanes, \init
    stm     sp, {r2-r5}
    begin_row \lanes, \init
.Lfloat_\name:
    vmov    s2, r0
    asr     r6, r6, #TO_ZERO
#if MICROTRAIN_TFLITE
    ldrd    r4, r5, [sp, #8]
#endif
    float_outputs r8, r9
    float_outputs r10, r11
    .if     \lanes == 6
    float_outputs r12, lr
    strb    r12, [r2, r7, lsl #2]
    strb    lr, [r3, r7, lsl #1]
    .endif
    strb    r9, [r2, r7]
    strb    r10, [r2, r7, lsl #1]
    strb    r8, [r2], #1
    ldrd    r0, r6, [sp, #PUT_PANELS]
    b       .Lput_\name
    .if     \tiles
    next_tile \name
    .endif
    end     \name
    .endm

/* The output of a sum in eighths to `at`, and whether it saturates: of r8 to lr, r8 gets a bit for each lane. */
    .macro  masked_output v, lane, at:vararg
    ssat    r6, #8, \v, asr #3
    strb    r6, \at
    eor     \v, r6, \v, asr #3       /* not negative, as saturation keeps the sign */
    usat    \v, #1, \v
    .if     \lane
    orr     r8, r8, \v, lsl #\lane
    .endif
    .endm

/* Values of a float in eighths, limited far beyond those that saturate. */
    .macro  float_eighths a, b
    times_multiplier \a, \b
    .irp    v, \a, \b
    qadd    \v, \v, r6
    ssat    \v, #16, \v
    lsl     \v, \v, #3
    .endr
    .endm

/* Behind a row whose mask is kept, of either kind: as in dot_put, but that r3 is where its bits go, r0 becomes y of lane
 * 1, and the offset is in s3. */
    .macro  masked_rows_of lanes
    .balign 4
.Lmasked_\lanes:
    ldm     sp, {r2-r7}
    ldr     r0, [r5], #4
    vmov    r6, s3
#if MICROTRAIN_TFLITE
    begin_twice .Lmasked_float_\lanes
    .irp    v, r8, r9, r10, r11
    twice_eighths \v
    .endr
    .if     \lanes == 6
    twice_eighths r12
    twice_eighths lr
    .endif
    ldrd    r4, r5, [sp, #8]
#else
    cmp     r0, #0
    bge     .Lmasked_float_\lanes
    .irp    v, r8, r9, r10, r11
    integer_output \v
    .endr
    .if     \lanes == 6
    integer_output r12
    integer_output lr
    .endif
#endif
.Lmasked_outputs_\lanes:
    add     r0, r2, r7
    masked_output r8, 0, [r2]
    masked_output r9, 1, [r0]
    masked_output r10, 2, [r2, r7, lsl #1]
    masked_output r11, 3, [r0, r7, lsl #1]
    .if     \lanes == 6
    masked_output r12, 4, [r2, r7, lsl #2]
    masked_output lr, 5, [r0, r7, lsl #2]
    .endif
    add     r2, r2, #1
    strb    r8, [r3], #1
    ldrd    r0, r6, [sp, #PUT_PANELS]
    cmp     r5, r6
    beq.w   .Lend_\lanes
    ldr     pc, [sp, #PUT_NEXT]
.Lmasked_float_\lanes:
    vmov    s2, r0
    asr     r6, r6, #TO_ZERO
#if MICROTRAIN_TFLITE
    ldrd    r4, r5, [sp, #8]
#endif
    float_eighths r8, r9
    float_eighths r10, r11
    .if     \lanes == 6
    float_eighths r12, lr
    .endif
    b       .Lmasked_outputs_\lanes
    .endm

/* void name(const int16_t *panels, const int8_t *rows, uint32_t n, uint32_t count, const struct dot_put *put)
 *
 * The function `like`, but for what is behind a row. */
    .macro  dot_put_masked name, lanes, like
    begin_too \name
    push    {r4-r11, lr}
    sub     sp, sp, #FRAME
    str     r0, [sp, #PUT_PANELS]
    ldr     r8, [sp, #FRAME + 36]
    ldm     r8, {r8-r12, lr}
    vmov    s3, r12
    adr     r6, .Lmasked_\lanes
    adr     r7, .Lfirst_\like
    adr     r12, .Lnext_\like
    .irp    to, r6, r7, r12
    orr     \to, \to, #1
    .endr
    stm     sp, {r8-r12, lr}
    add     r11, r11, r3, lsl #2
    str     r11, [sp, #PUT_WORDS_END]
    keep_fine
    b.w     .Lrows_\lanes
    end     \name
    .endm

    unroll  16
    .section .text.dot6, "ax", %progbits
    dot     dot6_bias, 6, lr
    dot     dot6_zero, 6, zero
    dot     dot6_add, 6, sum
    rows_of 6
    dot_put dot6_put, 6, lr, 1
    dot_put dot6_add_put, 6, sum, 0
    masked_rows_of 6
    dot_put_masked dot6_put_masked, 6, dot6_put
    dot_put_masked dot6_add_put_masked, 6, dot6_add_put

    unroll  8
    .section .text.dot4, "ax", %progbits
    dot     dot4_bias, 4, r11
    dot     dot4_zero, 4, zero
    dot     dot4_add, 4, sum
    rows_of 4
    dot_put dot4_put, 4, r11, 0
    dot_put dot4_add_put, 4, sum, 0
    masked_rows_of 4
    dot_put_masked dot4_put_masked, 4, dot4_put
    dot_put_masked dot4_add_put_masked, 4, dot4_add_put

/* void name(int16_t *tile, const int8_t *rows, uint32_t step, uint32_t groups, uint32_t minus_zero)
 *
 * All lanes: groups of four bytes of rows that lie `step` apart. */
    .macro  pack name, lanes
    begin   \name
    push    {r4-r11, lr}
    ldr     lr, [sp, #36]
    add     r12, r2, r2, lsl #1
    add     r12, r12, r1
    pack_groups \name, \lanes
    pop     {r4-r11, pc}
    end     \name
    .endm

    pack    pack6, 6
    pack    pack4, 4

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
