/* Dense micro-kernels for Armv7E-M with the DSP extension. Contract and panel layout: dense.h.
 *
 * A tile holds LANES int16 panels, word by word side by side; against them one int8 row a time is streamed, as it
 * lies in memory. SXTB16 widens bytes 0, 2 and bytes 1, 3 of a word, so a group of four values is two words a lane:
 *
 *     [lane 0 k0 k2] [lane 1 k0 k2] ...  [lane 0 k1 k3] [lane 1 k1 k3] ...
 *
 * Six lanes are as many as the registers hold beside the four words that one LDM brings:
 * 18 instructions for 24 multiply-accumulates.
 */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)

#include "assembly.inc"

/* Registers: r0 panels, r1 row, r2 four bytes of the row, r3 two of them widened, r4-r7 panel words,
 * r8-r12, lr sums. init: what the first product of a lane is added to: its sum, nothing, or the bias in `lr`
 * (six lanes) or r11 (four lanes), which is why the last lane comes last. */

    .macro  product sum, panel, init
    .ifc    \init, zero
    smuad   \sum, \panel, r3
    .else
    .ifc    \init, sum
    smlad   \sum, \panel, r3, \sum
    .else
    smlad   \sum, \panel, r3, \init
    .endif
    .endif
    .endm

/* Four values of a row against the panels; r2 is loaded. */
    .macro  group lanes, init
    ldm     r0!, {r4-r7}
    sxtb16  r3, r2
    product r8, r4, \init
    product r9, r5, \init
    product r10, r6, \init
    product r11, r7, \init
    ldm     r0!, {r4-r7}
    .if     \lanes == 6
    product r12, r4, \init
    product lr, r5, \init
    sxtb16  r3, r2, ror #8
    product r8, r6, sum
    product r9, r7, sum
    ldm     r0!, {r4-r7}
    product r10, r4, sum
    product r11, r5, sum
    product r12, r6, sum
    product lr, r7, sum
    .else
    sxtb16  r3, r2, ror #8
    product r8, r4, sum
    product r9, r5, sum
    product r10, r6, sum
    product r11, r7, sum
    .endif
    .endm

/* Frame: what a row needs, by offset from sp. */
    .equ    PANELS, 0
    .equ    STEP, 4     /* bytes from the first group of a row to the second: 1 to 4 */
    .equ    BIAS, 8
    .equ    ENTRY, 12   /* where the unrolled loop is entered */
    .equ    SUMS, 16
    .equ    SUMS_END, 20
    .equ    PANELS_END, 24
    .equ    FRAME, 28   /* 9 registers and this: a multiple of 8 */
    .equ    UNROLL, 4

/* void name(const int16_t *panels, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums
 *           [, const int32_t *bias]) */
    .macro  dot name, lanes, init
    begin   \name
    push    {r4-r11, lr}
    sub     sp, sp, #FRAME
    str     r0, [sp, #PANELS]
    add     r4, r2, #3
    lsr     r4, r4, #2              /* groups of a row */
    .if     \lanes == 6
    add     r5, r4, r4, lsl #1
    add     r0, r0, r5, lsl #4
    add     r5, r3, r3, lsl #1
    lsl     r5, r5, #3
    .else
    add     r0, r0, r4, lsl #5
    lsl     r5, r3, #4
    .endif
    str     r0, [sp, #PANELS_END]
    sub     r4, r4, #1              /* beside the first */
    sub     r2, r2, r4, lsl #2
    str     r2, [sp, #STEP]
    ldr     r6, [sp, #FRAME + 36]
    str     r6, [sp, #SUMS]
    add     r5, r5, r6
    str     r5, [sp, #SUMS_END]
    .ifnc   \init, zero
    .ifnc   \init, sum
    ldr     r6, [sp, #FRAME + 40]
    str     r6, [sp, #BIAS]
    .endif
    .endif
    adr     r6, .Ldone_\name
    cbz     r4, .Lenter_\name
    rsb     r4, r4, #0
    and     r4, r4, #UNROLL - 1     /* groups that the first round leaves out */
    mov     r5, #(.Lend_\name - .Lloop_\name) / UNROLL
    adr     r6, .Lloop_\name
    mla     r6, r4, r5, r6
.Lenter_\name:
    orr     r6, r6, #1
    str     r6, [sp, #ENTRY]
.Lrow_\name:
    ldr     r2, [r1]
    .ifc    \init, zero
    ldm     sp, {r0, r4}
    .else
    .ifc    \init, sum
    ldm     sp, {r0, r4}
    ldr     r5, [sp, #SUMS]
    .if     \lanes == 6
    ldm     r5, {r8-r12, lr}
    .else
    ldm     r5, {r8-r11}
    .endif
    .else
    ldm     sp, {r0, r4, r5}
    ldr     \init, [r5], #4
    str     r5, [sp, #BIAS]
    .endif
    .endif
    add     r1, r1, r4
    group   \lanes, \init
    ldr     pc, [sp, #ENTRY]
    .balign 4
.Lloop_\name:
    .rept   UNROLL
    ldr     r2, [r1], #4
    group   \lanes, sum
    .endr
.Lend_\name:
    ldr     r3, [sp, #PANELS_END]
    cmp     r0, r3
    bne     .Lloop_\name
.Ldone_\name:
    ldrd    r2, r3, [sp, #SUMS]
    .if     \lanes == 6
    stm     r2!, {r8-r12, lr}
    .else
    stm     r2!, {r8-r11}
    .endif
    str     r2, [sp, #SUMS]
    cmp     r2, r3
    bne     .Lrow_\name
    add     sp, sp, #FRAME
    pop     {r4-r11, pc}
    end     \name
    .endm

    dot     dot6_bias, 6, lr
    dot     dot6_zero, 6, zero
    dot     dot6_add, 6, sum
    dot     dot4_bias, 4, r11
    dot     dot4_zero, 4, zero
    dot     dot4_add, 4, sum

/* void name(int16_t *tile, const int8_t *rows, uint32_t step, uint32_t groups, uint32_t minus_zero)
 *
 * All lanes: groups of four bytes of rows that lie `step` apart. Registers: r0 tile, r1 row 0, r2 step, r3 groups,
 * r12 row 3, lr minus the zero point in both halves, r4-r9 words of the rows. */
    .macro  pack name, lanes
    begin   \name
    push    {r4-r11, lr}
    ldr     lr, [sp, #36]
    add     r12, r2, r2, lsl #1
    add     r12, r12, r1
.Lgroup_\name:
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
    bne     .Lgroup_\name
    pop     {r4-r11, pc}
    end     \name
    .endm

    pack    pack6, 6
    pack    pack4, 4

/* Two words of a tile: lanes whose values are the low halves of \a (value k) and \b (value k + 2), each times its
 * factor if scaled, then the lanes of the high halves in \high. half: b or t, where the factors are. */
    .macro  two_columns a, b, half, low, high, scaled
    .if     \scaled
    smulb\half \low, \a, r8
    smulb\half \high, \b, r9
    pkhbt   \low, \low, \high, lsl #16
    smult\half \a, \a, r8
    smult\half \b, \b, r9
    pkhbt   \high, \a, \b, lsl #16
    .else
    pkhbt   \low, \a, \b, lsl #16
    pkhtb   \high, \b, \a, asr #16
    .endif
    .endm

/* Values k and k + 2 of all lanes: rows r1 and r1 + 2 * step; then r1 is a row further. */
    .macro  half_group lanes, half, scaled
    ldr     r4, [r1]
    ldr     r6, [r1, r2, lsl #1]
    sxtb16  r5, r4, ror #8
    sxtb16  r4, r4
    sxtb16  r7, r6, ror #8
    sxtb16  r6, r6
    two_columns r4, r6, \half, r10, r12, \scaled
    two_columns r5, r7, \half, r11, lr, \scaled
    strd    r10, r11, [r0], #8
    strd    r12, lr, [r0], #8
    .if     \lanes == 6
    add     lr, r1, #4
    ldrsh   r4, [lr]
    ldrsh   r6, [lr, r2, lsl #1]
    sxtb    r10, r4
    asr     r4, r4, #8
    sxtb    r11, r6
    asr     r6, r6, #8
    .if     \scaled
    smulb\half r10, r10, r8
    smulb\half r11, r11, r9
    smulb\half r4, r4, r8
    smulb\half r6, r6, r9
    .endif
    pkhbt   r10, r10, r11, lsl #16
    pkhbt   r11, r4, r6, lsl #16
    strd    r10, r11, [r0], #8
    .endif
    add     r1, r1, r2
    .endm

/* void name(int16_t *tile, const int8_t *rows, uint32_t step, uint32_t groups, const int16_t *r)
 *
 * All lanes: value k of lane i from rows[k * step + i], scaled: times r[k]. Registers: r0 tile, r1 row, r2 step,
 * r3 groups, r8 and r9 factors of values k, k + 1 and of k + 2, k + 3. */
    .macro  columns name, lanes, scaled
    begin   \name
    push    {r4-r11, lr}
    sub     sp, sp, #4
.Lgroup_\name:
    .if     \scaled
    ldr     r4, [sp, #40]
    ldr     r8, [r4], #4
    ldr     r9, [r4], #4
    str     r4, [sp, #40]
    .endif
    half_group \lanes, b, \scaled
    half_group \lanes, t, \scaled
    add     r1, r1, r2, lsl #1
    subs    r3, r3, #1
    bne     .Lgroup_\name
    add     sp, sp, #4
    pop     {r4-r11, pc}
    end     \name
    .endm

    columns columns6, 6, 0
    columns columns4, 4, 0
    columns columns6_scaled, 6, 1
    columns columns4_scaled, 4, 1

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
