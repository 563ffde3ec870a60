/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of kernels on a Cortex-M55 under QEMU (kernel_m55.py): what is to be called lies in the mailbox. The debugger
 * stops the core at `stop`, fills the mailbox, and lets it go on. */
    .syntax unified
    .thumb
    .section .text.start, "ax", %progbits
    .global start, stop
    .type   start, %function
    .type   stop, %function
start:
    ldr     r0, =0xE000ED88         /* CPACR: coprocessors 10 and 11, FPU and Helium */
    ldr     r1, [r0]
    orr     r1, r1, #0xF00000
    str     r1, [r0]
    dsb
    isb
    vmrs    r0, fpscr
    orr     r0, r0, #0x02000000     /* default NaN, as board_init() sets it */
    vmsr    fpscr, r0
stop:
    nop
    ldr     r11, =mailbox
    ldr     sp, [r11, #48]
    vldr    s0, [r11, #20]
    vldr    s1, [r11, #24]
    vldr    s2, [r11, #28]
    vldr    s3, [r11, #32]
    ldr     r4, =0x11111111         /* registers that a callee keeps */
    mov     r5, r4
    mov     r6, r4
    mov     r7, r4
    mov     r8, r4
    mov     r9, r4
    mov     r10, r4
    vdup.32 q4, r4
    vdup.32 q5, r4
    vdup.32 q6, r4
    vdup.32 q7, r4
    ldr     r12, [r11]
    ldr     r0, [r11, #4]
    ldr     r1, [r11, #8]
    ldr     r2, [r11, #12]
    ldr     r3, [r11, #16]
    blx     r12
    ldr     r3, =mailbox
    str     r0, [r3, #36]
    vstr    s0, [r3, #40]
    eor     r4, r4, r5              /* 0 where all are as they were */
    ldr     r12, =0x11111111
    .irp    reg, r5, r6, r7, r8, r9, r10
    eor     r2, r12, \reg
    orr     r4, r4, r2
    .endr
    eor     r2, r11, r3
    orr     r4, r4, r2
    .irp    q, q4, q5, q6, q7
    vmov    r1, r2, \q[2], \q[0]
    eor     r1, r1, r12
    eor     r2, r2, r12
    orr     r4, r4, r1
    orr     r4, r4, r2
    vmov    r1, r2, \q[3], \q[1]
    eor     r1, r1, r12
    eor     r2, r2, r12
    orr     r4, r4, r1
    orr     r4, r4, r2
    .endr
    ldr     r2, [r3, #48]
    mov     r1, sp
    eor     r1, r1, r2
    orr     r4, r4, r1
    str     r4, [r3, #44]
    b       stop
    .ltorg

    .equ    mailbox, 0x20000000
    .global mailbox
