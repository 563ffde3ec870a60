/* SPDX-License-Identifier: Apache-2.0 */
/* memcpy, memmove and memset of the C library: newlib-nano's go byte by byte, and the rows of streamed layers move
 * often. Eight words at a time where both ends are aligned, else word by word.
 */
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

/* Registers: r0 is returned, r1 from, r2 bytes left, r12 to. */
    .macro  copy_upwards name
    mov     r12, r0
    orr     r3, r0, r1
    tst     r3, #3
    bne     .Lwords_\name
    subs    r2, r2, #32
    blo     .Lrest_\name
    push    {r4-r10}
.Lblocks_\name:
    ldm     r1!, {r3-r10}
    stm     r12!, {r3-r10}
    subs    r2, r2, #32
    bhs     .Lblocks_\name
    pop     {r4-r10}
.Lrest_\name:
    add     r2, r2, #32
.Lwords_\name:
    subs    r2, r2, #4
    blo     .Lbytes_\name
.Lword_\name:
    ldr     r3, [r1], #4
    str     r3, [r12], #4
    subs    r2, r2, #4
    bhs     .Lword_\name
.Lbytes_\name:
    adds    r2, r2, #4
    beq     .Ldone_\name
.Lbyte_\name:
    ldrb    r3, [r1], #1
    strb    r3, [r12], #1
    subs    r2, r2, #1
    bne     .Lbyte_\name
.Ldone_\name:
    bx      lr
    .endm

/* void *memcpy(void *to, const void *from, size_t n) */
    begin   memcpy
    copy_upwards memcpy
    end     memcpy

/* void *memmove(void *to, const void *from, size_t n) */
    begin   memmove
    sub     r3, r0, r1
    cmp     r3, r2
    blo     .Ldownwards         /* `to` lies inside what is copied */
    copy_upwards memmove
.Ldownwards:
    add     r1, r1, r2
    add     r12, r0, r2
    subs    r2, r2, #4
    blo     .Lbytes_down
.Lword_down:
    ldr     r3, [r1, #-4]!
    str     r3, [r12, #-4]!
    subs    r2, r2, #4
    bhs     .Lword_down
.Lbytes_down:
    adds    r2, r2, #4
    beq     .Ldone_memmove
.Lbyte_down:
    ldrb    r3, [r1, #-1]!
    strb    r3, [r12, #-1]!
    subs    r2, r2, #1
    bne     .Lbyte_down
    bx      lr
    end     memmove

/* void *memset(void *to, int value, size_t n) */
    begin   memset
    uxtb    r1, r1
    orr     r1, r1, r1, lsl #8
    orr     r1, r1, r1, lsl #16
    mov     r12, r0
    tst     r0, #3
    bne     .Lset_words
    subs    r2, r2, #32
    blo     .Lset_rest
    push    {r4-r9}
    mov     r3, r1
    mov     r4, r1
    mov     r5, r1
    mov     r6, r1
    mov     r7, r1
    mov     r8, r1
    mov     r9, r1
.Lset_block:
    stm     r12!, {r1, r3-r9}
    subs    r2, r2, #32
    bhs     .Lset_block
    pop     {r4-r9}
.Lset_rest:
    add     r2, r2, #32
.Lset_words:
    subs    r2, r2, #4
    blo     .Lset_bytes
.Lset_word:
    str     r1, [r12], #4
    subs    r2, r2, #4
    bhs     .Lset_word
.Lset_bytes:
    adds    r2, r2, #4
    beq     .Lset_done
.Lset_byte:
    strb    r1, [r12], #1
    subs    r2, r2, #1
    bne     .Lset_byte
.Lset_done:
    bx      lr
    end     memset
