/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise windows and the rounding of channels with Helium. Contract: planes_mve.h, requantize.h. */
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

#include "assembly.inc"

/* Two rows of eight columns as bytes of \to, the first below; what is outside the image is a zero point. Registers: r1, r2
 * rows, r5 which one the first is, r7 rows of the image, r12 those but one; q5 zero points in the lanes behind the
 * image, q6 in all, q7 places. */
    .macro  pair to, temp, whole, name
    cmp     r5, r12
    bhs     .Lseldom_\name
    .if     \whole
    vldrb.u16 \to, [r1, q7]
    vldrb.u16 \temp, [r2, q7]
    .else
    vpstt
    vldrbt.u16 \to, [r1, q7]
    vldrbt.u16 \temp, [r2, q7]
    vorr    \to, \to, q5
    vorr    \temp, \temp, q5
    .endif
.Lpair_\name:
    vsli.16 \to, \temp, #8
    add     r1, r1, r3
    add     r2, r2, r3
    adds    r5, r5, #2
    .endm

/* The same where a row of them is outside. */
    .macro  seldom to, temp, name
.Lseldom_\name:
    vmov    \to, q6
    vmov    \temp, q6
    cmp     r5, r7
    bhs     .Lsecond_\name
    vpst
    vldrbt.u16 \to, [r1, q7]
    vorr    \to, \to, q5
.Lsecond_\name:
    adds    r4, r5, #1
    cmp     r4, r7
    bhs     .Lpair_\name
    vpst
    vldrbt.u16 \temp, [r2, q7]
    vorr    \temp, \temp, q5
    b       .Lpair_\name
    .endm

/* The last pair is the one before the last. */
    .macro  shift height
    vmov    q0, q1
    .if     \height == 8
    vmov    q1, q2
    vmov    q2, q3
    .endif
    .endm

    .macro  loops height, to, whole
    .if     \height == 4
    pair    q0, q4, \whole, \height\()_\whole\()_ahead
    .else
    movs    r4, #\height / 2 - 1
    dls     lr, r4
.Lahead_\height\()_\whole:
    pair    \to, q4, \whole, \height\()_\whole\()_ahead
    shift   \height
    le      lr, .Lahead_\height\()_\whole
    .endif
    dls     lr, r6
.Lgroup_\height\()_\whole:
    pair    \to, q4, \whole, \height\()_\whole\()_group
    .if     \height == 4
    vst20.16 {q0, q1}, [r0]
    vst21.16 {q0, q1}, [r0]
    .else
    vst40.16 {q0, q1, q2, q3}, [r0]
    vst41.16 {q0, q1, q2, q3}, [r0]
    vst42.16 {q0, q1, q2, q3}, [r0]
    vst43.16 {q0, q1, q2, q3}, [r0]
    .endif
    add     r0, r0, r8
    shift   \height
    le      lr, .Lgroup_\height\()_\whole
    b       .Lstood_\height
    .if     \height == 4
    seldom  q0, q4, \height\()_\whole\()_ahead
    .else
    seldom  \to, q4, \height\()_\whole\()_ahead
    .endif
    seldom  \to, q4, \height\()_\whole\()_group
    .endm

/* void name(const struct upright *at, const int8_t *from): all columns, eight at a time; the last eight overlap
 * those before them. Registers beside those of pair: r0 and r9 to, r10 from, r11 columns that are left. */
    .macro  stand name, height, to
    begin   \name
    push    {r4-r11, lr}
    vpush   {d8-d15}
    sub     sp, sp, #12
    mov     r10, r1
    ldr     r9, [r0, #32]
    ldm     r0, {r2, r3, r4, r5, r6, r7, r8, r12}   /* bytes of a row, c, lanes, first, groups, rows, group, zero */
    lsr     r11, r4, #3             /* eights of columns, then those that are left */
    and     r12, r4, #7
    str     r12, [sp, #8]
    ldr     r12, [r0, #28]
    vdup.16 q6, r12
    mov     r12, #0
    vidup.u16 q7, r12, #1
    vmul.i16 q7, q7, r3
    vctp.16 r4
    vmov    q5, q6
    vpst
    vmovt.i16 q5, #0
    lsl     r3, r3, #3
    strd    r5, r3, [sp]
    sub     r12, r7, #1
    lsl     r3, r2, #1
    mov     r0, r9
    mov     r1, r10
    add     r2, r1, r2
    cmp     r4, #8
    blo.w   .Lpart_\height
.Lwhole_\height:
    loops   \height, \to, 1
.Lstood_\height:
    subs    r11, r11, #1
    ble     .Lrest_\height
    ldrd    r5, r1, [sp]
    add     r9, r9, #8 * \height
    add     r10, r10, r1
.Lnext_\height:
    mov     r0, r9
    mov     r1, r10
    add     r2, r1, r3, asr #1
    b       .Lwhole_\height
.Lrest_\height:
    blt     .Lall_\height
    ldr     r4, [sp, #8]
    cmp     r4, #0
    beq     .Lall_\height
    ldrd    r5, r1, [sp]
    mul     r1, r1, r4
    .if     \height == 4
    add     r9, r9, r4, lsl #2
    .else
    add     r9, r9, r4, lsl #3
    .endif
    add     r10, r10, r1, lsr #3
    b       .Lnext_\height
.Lall_\height:
    add     sp, sp, #12
    vpop    {d8-d15}
    pop     {r4-r11, pc}
.Lpart_\height:
    loops   \height, \to, 0
    end     \name
    .endm

    stand   stand_4, 4, q1
    stand   stand_8, 8, q3

/* Eight columns of four rows of the image. */
    .macro  stand_inside
    vldrb.u16 q0, [r7, q4]
    vldrb.u16 q2, [r7, q5]
    vldrb.u16 q1, [r7, q6]
    vldrb.u16 q3, [r7, q7]
    add     r7, r7, r10
    vsli.16 q0, q2, #8
    vsli.16 q1, q3, #8
    vst20.16 {q0, q1}, [r0]
    vst21.16 {q0, q1}, [r0]!
    .endm

/* void stand_4_inside(const struct upright *at, const int8_t *from)
 *
 * stand_4() where all rows that windows see are inside the image; at least eight columns. The fourth row of the last group is
 * the third again where nothing sees it. */
    begin   stand_4_inside
    push    {r4-r11, lr}
    vpush   {d8-d15}
    ldm     r0, {r2-r8}             /* bytes of a row, c, columns, first, groups, rows, group */
    ldr     r9, [r0, #32]
    movs    r0, #0
    vidup.u16 q4, r0, #1
    vmul.i16 q4, q4, r3
    vadd.i16 q5, q4, r2
    vadd.i16 q6, q5, r2
    vadd.i16 q7, q6, r2
    lsl     r10, r3, #3
    lsl     r2, r2, #1
    and     r5, r7, #1
    lsr     r11, r4, #3
    ands    r4, r4, #7              /* columns that the last eight share with those before */
    ite     ne
    rsbne   r4, r4, #8
    moveq   r4, #0
    mul     r3, r3, r4
.Linside_group:
    mov     r0, r9
    mov     r7, r1
    dls     lr, r11
    subs    r6, r6, #1
    bne     .Linside
    cbz     r5, .Linside
    vmov    q7, q6
.Linside:
    stand_inside
    le      lr, .Linside
    cbz     r4, .Linside_next
    subs    r7, r7, r3
    sub     r0, r0, r4, lsl #2
    stand_inside
.Linside_next:
    add     r9, r9, r8
    add     r1, r1, r2
    cmp     r6, #0
    bne     .Linside_group
    vpop    {d8-d15}
    pop     {r4-r11, pc}
    end     stand_4_inside

/* int32_t stand_taps(const struct unpack *to, const int8_t *w)
 *
 * taps = w[place], or 0 where that is negative, then the same one byte further up. Of flipped weights places count from the
 * last one on. */
    begin   stand_taps
    push    {r4-r8, lr}
    mov     r2, r1
    ldm     r0, {r0, r1, r3, r4}
    cmp     r4, #0
    ite     eq
    moveq   r8, #1
    movne   r8, #255
    vdup.8  q2, r8
    movs    r5, #0
    movs    r6, #0
    add     r7, r3, r1, lsl #4
    dls     lr, r1
.Ltap:
    vldrb.u8 q0, [r0], #16
    vcmp.s8 ge, q0, zr
    vmlas.u8 q0, q2, r4
    vpst
    vldrbt.u8 q1, [r2, q0]
    vaddva.s8 r6, q1
    vstrb.8 q1, [r3], #16
    vshlc   q1, r5, #8
    vstrb.8 q1, [r7], #16
    le      lr, .Ltap
    mov     r0, r6
    pop     {r4-r8, pc}
    end     stand_taps

/* void columns_3x3(const struct sight *at, int32_t bias, int32_t *sums)
 *
 * All rows of windows, two at a time: columns are four bytes, so that a vector holds a window, and the one below. */
    begin   columns_3x3
    push    {r4-r11, lr}
    vpush   {d8-d13}
    mov     r8, r1
    mov     r9, r2
    ldm     r0, {r5, r6, r7, r11, r12}      /* columns, taps, fours, rows, group */
    vldrb.u8 q4, [r6]
    vldrb.u8 q5, [r6, #16]
.Ltwo_rows:
    mov     r1, r5
    mov     r10, r9
    add     r5, r5, r12
    cmp     r11, #1
    it      ne
    addne   r10, r9, r7, lsl #4
    dls     lr, r7
.Lfour:
    vldrb.u8 q0, [r1], #16
    vldrb.u8 q1, [r1, #-12]
    vldrb.u8 q2, [r1, #-8]
    vldrb.u8 q3, [r1, #-4]
    vmladav.s8 r0, q0, q5
    vmladav.s8 r2, q1, q5
    vmladav.s8 r4, q2, q5
    vmladav.s8 r6, q3, q5
    vmov    q6[2], q6[0], r0, r4
    vmladav.s8 r0, q0, q4
    vmov    q6[3], q6[1], r2, r6
    vmladav.s8 r2, q1, q4
    vadd.i32 q6, q6, r8
    vmladav.s8 r4, q2, q4
    vstrw.32 q6, [r10], #16
    vmladav.s8 r6, q3, q4
    vmov    q6[2], q6[0], r0, r4
    vmov    q6[3], q6[1], r2, r6
    vadd.i32 q6, q6, r8
    vstrw.32 q6, [r9], #16
    le      lr, .Lfour
    mov     r9, r10
    subs    r11, r11, #2
    bgt     .Ltwo_rows
    vpop    {d8-d13}
    pop     {r4-r11, pc}
    end     columns_3x3

/* The same of windows that lie two columns apart, row by row. */
    begin   columns_3x3_stride2
    push    {r4-r11, lr}
    mov     r3, r1
    mov     r9, r2
    ldm     r0, {r5, r6, r7, r11, r12}
    vldrb.u8 q3, [r6]
.Lrow2:
    mov     r1, r5
    add     r5, r5, r12
    dls     lr, r7
.Lfour2:
    vldrb.u8 q0, [r1], #32
    vldrb.u8 q1, [r1, #-24]
    vmladav.s8 r0, q0, q3
    vldrb.u8 q0, [r1, #-16]
    vmladav.s8 r2, q1, q3
    vldrb.u8 q1, [r1, #-8]
    vmladav.s8 r4, q0, q3
    vmladav.s8 r6, q1, q3
    vmov    q2[2], q2[0], r0, r4
    vmov    q2[3], q2[1], r2, r6
    vadd.i32 q2, q2, r3
    vstrw.32 q2, [r9], #16
    le      lr, .Lfour2
    subs    r11, r11, #1
    bne     .Lrow2
    pop     {r4-r11, pc}
    end     columns_3x3_stride2

/* sum += a window of `count` vectors at `at`. */
    .macro  window sum, at, count
    .irp    i, 0, 1, 2, 3
    .if     \i < \count
    vldrb.u8 q\i, [\at, #16 * \i]
    .endif
    .endr
    .irp    i, 0, 1, 2, 3
    .if     \i < \count
    .if     \i == 0
    vmladava.s8 \sum, q0, q4
    .elseif \i == 1
    vmladava.s8 \sum, q1, q5
    .elseif \i == 2
    vmladava.s8 \sum, q2, q6
    .else
    vmladava.s8 \sum, q3, q7
    .endif
    .endif
    .endr
    .endm

/* void name(const struct sight *at, int32_t bias, int32_t *sums)
 *
 * A row of windows of each group, windows `step` bytes apart, whose columns are eight bytes. */
    .macro  columns name, count
    begin   \name
    push    {r4-r11, lr}
    vpush   {d8-d15}
    mov     r3, r1
    mov     r4, r2
    ldrd    r6, r10, [r0, #20]
    ldm     r0, {r7, r8, r9, r11, r12}      /* columns, taps, fours, rows, group */
    vldrb.u8 q4, [r8]
    vldrb.u8 q5, [r8, #16]
    vldrb.u8 q6, [r8, #32]
    .if     \count > 3
    vldrb.u8 q7, [r8, #48]
    .endif
    mov     r8, r7
    lsl     r7, r9, #1
    add     r9, r8, r6
    lsls    r6, r6, #1
.Lrow_\name:
    mov     r1, r8
    mov     r5, r9
    add     r8, r8, r12
    add     r9, r9, r12
    dls     lr, r7
.Ltwo_\name:
    mov     r0, r3
    mov     r2, r3
    window  r0, r1, \count
    add     r1, r1, r6
    window  r2, r5, \count
    add     r5, r5, r6
    strd    r0, r2, [r4], #8
    le      lr, .Ltwo_\name
    add     r4, r4, r10
    subs    r11, r11, #1
    bne     .Lrow_\name
    vpop    {d8-d15}
    pop     {r4-r11, pc}
    end     \name
    .endm

    columns columns_5x5, 3
    columns columns_7x7, 4

/* Products of `count` taps from `first` on: taps in q4-q6, four windows' sums in q0-q3. r8: x, r9: taps. */
    .macro  products first, count
    .irp    t, 0, 1, 2
    .if     \t < \count
    .if     \t == 0
    vldrw.u32 q4, [r9, #16 * \first]
    .elseif \t == 1
    vldrw.u32 q5, [r9, #16 * \first + 16]
    .else
    vldrw.u32 q6, [r9, #16 * \first + 32]
    .endif
    .endif
    .endr
    .irp    i, 0, 1, 2, 3, 4, 5
    .if     \i < \count + 3
    vldrw.u32 q7, [r8, #16 * \first + 16 * \i]
    .irp    sum, 0, 1, 2, 3
    .if     \i == \sum
    vfma.f32 q\sum, q7, q4
    .elseif \i == \sum + 1 && \count > 1
    vfma.f32 q\sum, q7, q5
    .elseif \i == \sum + 2 && \count > 2
    vfma.f32 q\sum, q7, q6
    .endif
    .endr
    .endif
    .endr
    .endm

/* Frame, by offset from sp. */
    .equ    ROWS, 0         /* of the image, then of taps */
    .equ    FOURS, 8

/* void name(const struct windows_of_four *at)
 *
 * Row after row of windows: r10 that are left, r11 what the first tap sees, negative above the image. From r5 of the image and
 * r6 of the taps on, r0 rows of either meet. */
    .macro  windows_of_four name, taps
    begin   \name
    push    {r4-r11, lr}
    vpush   {d8-d15}
    sub     sp, sp, #12
    ldm     r0!, {r1-r7}            /* x, its step, taps, their step, rows, fours, sums */
    ldm     r0, {r10-r12}
    strd    r5, r12, [sp, #ROWS]
    str     r6, [sp, #FOURS]
.Lrow_\name:
    ldrd    r12, r0, [sp, #ROWS]
    bic     r5, r11, r11, asr #31
    sub     r6, r5, r11
    subs    r0, r0, r6
    sub     r12, r12, r5
    cmp     r0, r12
    it      gt
    movgt   r0, r12
    bic     r0, r0, r0, asr #31
    mla     r5, r5, r2, r1
    mla     r6, r6, r4, r3
    ldr     r12, [sp, #FOURS]
.Lfour_\name:
    mov     r8, r5
    mov     r9, r6
    adds    r5, r5, #64
    vmov.i32 q0, #0
    vmov.i32 q1, #0
    vmov.i32 q2, #0
    vmov.i32 q3, #0
    wls     lr, r0, .Lsummed_\name
.Ltaps_\name:
    products 0, 3
    .if     \taps > 3
    products 3, 2
    .endif
    .if     \taps > 5
    products 5, 2
    .endif
    add     r8, r8, r2
    add     r9, r9, r4
    le      lr, .Ltaps_\name
.Lsummed_\name:
    vcvt.s32.f32 q0, q0
    vcvt.s32.f32 q1, q1
    vstrw.32 q0, [r7], #16
    vcvt.s32.f32 q2, q2
    vstrw.32 q1, [r7], #16
    vcvt.s32.f32 q3, q3
    vstrw.32 q2, [r7], #16
    vstrw.32 q3, [r7], #16
    subs    r12, r12, #1
    bne     .Lfour_\name
    adds    r11, r11, #1
    subs    r10, r10, #1
    bne     .Lrow_\name
    add     sp, sp, #12
    vpop    {d8-d15}
    pop     {r4-r11, pc}
    end     \name
    .endm

    windows_of_four windows_of_four_3, 3
    windows_of_four windows_of_four_5, 5
    windows_of_four windows_of_four_7, 7

/* void spread_pixels(const struct spread *to, const int8_t *from) */
    begin   spread_pixels
    push    {r4-r9, lr}
    ldm     r0, {r2-r9}             /* c, columns, rows, bytes of a row, place, its step, bytes of a row of places, zero */
.Lspread_row:
    mov     r0, r1
    mov     r12, r6
    add     r1, r1, r5
    add     r6, r6, r8
    cmp     r7, #16
    dls     lr, r3
    bne     .Lspaced
.Lspread:
    vldrb.s32 q0, [r0]
    add     r0, r0, r2
    vsub.i32 q0, q0, r9
    vcvt.f32.s32 q0, q0
    vstrw.32 q0, [r12], #16
    le      lr, .Lspread
.Lspread_next:
    subs    r4, r4, #1
    bne     .Lspread_row
    pop     {r4-r9, pc}
.Lspaced:
    vldrb.s32 q0, [r0]
    add     r0, r0, r2
    vsub.i32 q0, q0, r9
    vcvt.f32.s32 q0, q0
    vstrw.32 q0, [r12]
    add     r12, r12, r7
    le      lr, .Lspaced
    b       .Lspread_next
    end     spread_pixels

/* void spread_taps(const int8_t *w, uint32_t n, int flip, float *to)
 *
 * Two taps at a time, of flipped ones from the last on; n is odd. */
    begin   spread_taps
    push    {r4, lr}
    movs    r4, #0
    vidup.u32 q1, r4, #1
    vmul.i32 q1, q1, r1
    movs    r4, #1
    vadd.i32 q2, q1, r4
    lsrs    lr, r1, #1
    cbz     r2, .Ltaps_forth
    add     r0, r0, r1
    subs    r0, r0, #2
    vmov    q0, q1
    vmov    q1, q2
    vmov    q2, q0
    rsbs    r4, r4, #0
.Ltaps_forth:
    lsls    r4, r4, #1
    wls     lr, lr, .Ltap_last
.Ltap_two:
    vldrb.s32 q0, [r0, q1]
    vldrb.s32 q3, [r0, q2]
    add     r0, r0, r4
    vcvt.f32.s32 q0, q0
    vcvt.f32.s32 q3, q3
    vstrw.32 q0, [r3], #16
    vstrw.32 q3, [r3], #16
    le      lr, .Ltap_two
.Ltap_last:
    vldrb.s32 q0, [r0, q1]
    vcvt.f32.s32 q0, q0
    vstrw.32 q0, [r3]
    pop     {r4, pc}
    end     spread_taps

/* q0 = outputs of the next four channels before they are saturated. q1: biases, q2: multipliers, r4: zero point. */
    .macro  round_channels
    vldrw.u32 q0, [r0], #16
    vadd.i32 q0, q0, q1
    vcvt.f32.s32 q0, q0
    vmul.f32 q0, q0, q2
    vcvtn.s32.f32 q0, q0
    vqadd.s32 q0, q0, r4
    .endm

/* void put_four(const int32_t *sums, uint32_t n, struct outputs_of_four *to) */
    begin   put_four
    push    {r4, lr}
    vldrw.u32 q1, [r2]
    vldrw.u32 q2, [r2, #16]
    ldrd    r4, r12, [r2, #48]
    ldr     r3, [r2, #56]
    dls     lr, r1
.Lput_four:
    round_channels
    vqmovnb.s32 q0, q0
    vqmovnb.s16 q0, q0
    vstrb.32 q0, [r3]
    add     r3, r3, r12
    le      lr, .Lput_four
    str     r3, [r2, #56]
    pop     {r4, pc}
    end     put_four

/* void put_four_masked(const int32_t *sums, uint32_t n, struct outputs_of_four *to) */
    begin   put_four_masked
    push    {r4-r8, lr}
    vpush   {d8-d11}
    vldrw.u32 q1, [r2]
    vldrw.u32 q2, [r2, #16]
    vldrw.u32 q3, [r2, #32]
    ldrd    r4, r12, [r2, #48]
    ldrd    r3, r5, [r2, #56]
    ldr     r7, [r2, #64]
    vmov.i32 q4, #255
    mov     r8, #128
    dls     lr, r1
.Lput_four_masked:
    round_channels
    ldrb    r6, [r5]
    vadd.i32 q5, q0, r8
    vqmovnb.s32 q0, q0
    vpt.u32 cs, q4, q5
    vaddvat.u32 r6, q3
    vqmovnb.s16 q0, q0
    strb    r6, [r5]
    vstrb.32 q0, [r3]
    add     r5, r5, r7
    add     r3, r3, r12
    le      lr, .Lput_four_masked
    strd    r3, r5, [r2, #56]
    vpop    {d8-d11}
    pop     {r4-r8, pc}
    end     put_four_masked

/* void mask_four(int32_t *sums, uint32_t n, const uint8_t *mask, uint32_t stride, uint32_t bit, uint32_t *peaks) */
    begin   mask_four
    push    {r4-r6, lr}
    ldrd    r4, r5, [sp, #16]
    bits_to_signs q2, q1, r4
    vldrw.u32 q3, [r5]
    dls     lr, r1
.Lmask_four:
    ldrb    r6, [r2]
    add     r2, r2, r3
    vmul.i32 q1, q2, r6
    vpt.s32 lt, q1, zr
    vldrwt.u32 q0, [r0]
    vmaxa.s32 q3, q0
    vstrw.32 q0, [r0], #16
    le      lr, .Lmask_four
    vstrw.32 q3, [r5]
    pop     {r4-r6, pc}
    end     mask_four

/* q1 = the places of four pixels, \c bytes apart. */
    .macro  places q, c, t
    movs    \t, #0
    vidup.u32 \q, \t, #1
    vmul.i32 \q, \q, \c
    .endm

/* q0 = outputs of four sums before they are saturated. r4: m, r5: zero. */
    .macro  round_four
    vldrw.u32 q0, [r0], #16
    vcvt.f32.s32 q0, q0
    vmul.f32 q0, q0, r4
    vcvtn.s32.f32 q0, q0
    vqadd.s32 q0, q0, r5
    .endm

/* void put_run(const int32_t *sums, int8_t *y, const struct channel_run *run)
 *
 * Eight at a time, which are saturated together: two vectors of four are the lower and the upper halves of one. */
    begin   put_run
    push    {r4-r7, lr}
    mov     r6, r1
    ldm     r2, {r1, r3, r4, r5}
    mov     r2, r6
    lsrs    r6, r1, #3
    beq     .Lfew
    adr     r7, .Lfirst_and_second
    vldrh.u16 q1, [r7]
    lsl     r7, r3, #3
    vmul.i16 q1, q1, r3
    dls     lr, r6
.Lput_eight:
    vldrw.u32 q0, [r0], #16
    vldrw.u32 q2, [r0], #16
    vcvt.f32.s32 q0, q0
    vcvt.f32.s32 q2, q2
    vmul.f32 q0, q0, r4
    vmul.f32 q2, q2, r4
    vcvtn.s32.f32 q0, q0
    vcvtn.s32.f32 q2, q2
    vqmovnb.s32 q0, q0
    vqmovnt.s32 q0, q2
    vqadd.s16 q0, q0, r5
    vqmovnb.s16 q0, q0
    vstrb.16 q0, [r2, q1]
    add     r2, r2, r7
    le      lr, .Lput_eight
    ands    r1, r1, #7
    beq     .Lput_done
.Lfew:
    places  q1, r3, r6
    lsl     r3, r3, #2
    wlstp.32 lr, r1, .Lput_done
.Lput:
    round_four
    vqmovnb.s32 q0, q0
    vqmovnb.s16 q0, q0
    vstrb.32 q0, [r2, q1]
    add     r2, r2, r3
    letp    lr, .Lput
.Lput_done:
    pop     {r4-r7, pc}
    .balign 4
.Lfirst_and_second:
    .hword  0, 4, 1, 5, 2, 6, 3, 7
    end     put_run

/* void put_run_masked(const int32_t *sums, uint32_t n, int8_t *y, uint32_t c, uint32_t m, int32_t zero, uint8_t *mask,
 *                     uint32_t stride, uint32_t bit) */
    begin   put_run_masked
    push    {r4-r11, lr}
    vpush   {d8-d9}
    ldrd    r4, r5, [sp, #52]
    ldr     r11, [sp, #60]
    ldrd    r8, r9, [sp, #64]
    places  q1, r3, r6
    places  q2, r8, r6
    lsl     r3, r3, #2
    lsl     r8, r8, #2
    vdup.32 q3, r9
    mov     r9, #128
    mov     r10, #255
    mov     r6, r11
    dlstp.32 lr, r1
.Lput_masked:
    round_four
    vadd.i32 q4, q0, r9
    vqmovnb.s32 q0, q0
    vqmovnb.s16 q0, q0
    vstrb.32 q0, [r2, q1]
    vldrb.u32 q0, [r6, q2]
    vpte.u32 hi, q4, r10
    vmovt   q4, q4
    vorre   q0, q0, q3
    vstrb.32 q0, [r6, q2]
    add     r2, r2, r3
    add     r6, r6, r8
    letp    lr, .Lput_masked
    vpop    {d8-d9}
    pop     {r4-r11, pc}
    end     put_run_masked

/* uint32_t mask_run(int32_t *sums, uint32_t n, const uint8_t *mask, uint32_t stride, uint32_t bit, uint32_t step)
 *
 * Sums, `step` bytes apart, become 0 where the mask stops them. Returns the largest magnitude. */
    begin   mask_run
    push    {r4-r6, lr}
    ldrd    r5, r12, [sp, #16]
    movs    r4, #0
    places  q2, r3, r6
    places  q3, r12, r6
    lsl     r3, r3, #2
    lsl     r12, r12, #2
    rsb     r5, r5, #31
    dlstp.32 lr, r1
.Lmask:
    vldrb.u32 q1, [r2, q2]
    vldrw.u32 q0, [r0, q3]
    vshl.s32 q1, r5
    vpt.s32 ge, q1, zr
    vmovt.i32 q0, #0
    vstrw.32 q0, [r0, q3]
    vmaxav.s32 r4, q0
    add     r0, r0, r12
    add     r2, r2, r3
    letp    lr, .Lmask
    mov     r0, r4
    pop     {r4-r6, pc}
    end     mask_run

/* void put_errors_run(const int32_t *sums, uint32_t n, int8_t *q, uint32_t c, uint32_t gain, uint32_t step) */
    begin   put_errors_run
    push    {r4-r6, lr}
    ldrd    r4, r12, [sp, #16]
    places  q1, r3, r6
    places  q2, r12, r6
    lsl     r3, r3, #2
    lsl     r12, r12, #2
    dlstp.32 lr, r1
.Lerrors:
    vldrw.u32 q0, [r0, q2]
    add     r0, r0, r12
    vcvt.f32.s32 q0, q0
    vmul.f32 q0, q0, r4
    vcvtn.s32.f32 q0, q0
    vstrb.32 q0, [r2, q1]
    add     r2, r2, r3
    letp    lr, .Lerrors
    pop     {r4-r6, pc}
    end     put_errors_run

/* void gather_bytes(const int8_t *x, const uint16_t *order, uint32_t n, int8_t *to): to[i] = x[order[i]] */
    begin   gather_bytes
    push    {r4, lr}
    wlstp.16 lr, r2, .Lgathered
.Lgather:
    vldrh.u16 q0, [r1], #16
    vldrb.u16 q1, [r0, q0]
    vstrb.16 q1, [r3], #8
    letp    lr, .Lgather
.Lgathered:
    pop     {r4, pc}
    end     gather_bytes

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
