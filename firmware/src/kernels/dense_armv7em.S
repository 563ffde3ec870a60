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

    .syntax unified
    .thumb

    .macro  begin name
    .section .text.\name, "ax", %progbits
    .balign 4
    .global \name
    .type   \name, %function
\name:
    .endm

    .macro  end name
    .size   \name, . - \name
    .endm

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

/* void name(const int32_t *sums, const float *m, uint32_t count, int32_t zero, int8_t *y, uint32_t c)
 *
 * Registers: r0 sums, r1 m, r2 count, r3 zero, r4 y of lane 0, r5 c, r12 y of lane 3, r6-r11 values.
 * QADD, because a rounded product may be as large as an int32 can be. */
    .macro  each instruction, lanes
    .irp    lane, 0, 1, 2, 3, 4, 5
    .if     \lane < \lanes
    \instruction \lane
    .endif
    .endr
    .endm

    .macro  to_float lane
    vcvt.f32.s32 s\lane, s\lane
    .endm

    .macro  times_m lane
    vmul.f32 s\lane, s\lane, s6
    .endm

    .macro  to_int lane
    vcvtr.s32.f32 s\lane, s\lane
    .endm

    .macro  saturate first, others:vararg
    .irp    v, \first, \others
    qadd    \v, \v, r3
    .endr
    .irp    v, \first, \others
    ssat    \v, #8, \v
    .endr
    .endm

    .macro  requantize name, lanes
    begin   \name
    push    {r4-r11, lr}
    ldrd    r4, r5, [sp, #36]
    add     r12, r5, r5, lsl #1
    add     r12, r12, r4
.Lnext_\name:
    .if     \lanes == 6
    vldmia  r0!, {s0-s5}
    .else
    vldmia  r0!, {s0-s3}
    .endif
    vldmia  r1!, {s6}
    each    to_float, \lanes
    each    times_m, \lanes
    each    to_int, \lanes
    vmov    r6, r7, s0, s1
    vmov    r8, r9, s2, s3
    .if     \lanes == 6
    vmov    r10, r11, s4, s5
    saturate r6, r7, r8, r9, r10, r11
    strb    r10, [r4, r5, lsl #2]
    strb    r11, [r12, r5, lsl #1]
    .else
    saturate r6, r7, r8, r9
    .endif
    strb    r7, [r4, r5]
    strb    r8, [r4, r5, lsl #1]
    strb    r6, [r4], #1
    strb    r9, [r12], #1
    subs    r2, r2, #1
    bne     .Lnext_\name
    pop     {r4-r11, pc}
    end     \name
    .endm

    requantize requantize6, 6
    requantize requantize4, 4

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
