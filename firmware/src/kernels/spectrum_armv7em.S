/* SPDX-License-Identifier: Apache-2.0 */
/* The FFT's stages for Armv7E-M with the DSP extension, a complex number a register. Contract: spectrum.c.
 *
 * A turn by -i costs nothing, as SSAX and SASX add it. A product with a twiddle is three instructions: SMLSD and SMLADX
 * make its parts, of which PKHTB takes the upper halves. */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_FP)

#include "assembly.inc"

    .equ    HALF_ROOT, 23170
    .equ    ROUND, 0x8000

/* z = z * window >> \shift, of both parts. Spoils \t. */
    .macro  windowed z, window, shift, t
    smultt  \t, \z, \window
    smulbb  \z, \z, \window
    asr     \t, \t, \shift
    asr     \z, \z, \shift
    pkhbt   \z, \z, \t, lsl #16
    .endm

/* z = half of z * w, rounded. Spoils \w and \t. */
    .macro  turned z, w, round, t
    smlsd   \t, \z, \w, \round
    smladx  \w, \z, \w, \round
    pkhtb   \z, \w, \t, asr #16
    .endm

/* The DFT of a, b, c, d, in this order in t, c, b, d: the first halved where \first is h, the others where \rest is.
 * Spoils a. */
    .macro  radix4 a, b, c, d, t, first, rest
    sadd16  \t, \a, \c
    ssub16  \a, \a, \c
    sadd16  \c, \b, \d
    ssub16  \d, \b, \d
    s\rest\()sub16 \b, \t, \c
    s\first\()add16 \t, \t, \c
    s\rest\()sax \c, \a, \d
    s\rest\()asx \d, \a, \d
    .endm

/* uint64_t spectrum_energy(const int16_t *x, uint32_t words): the sum of the squares. */
    begin   spectrum_energy
    push    {r4-r9, lr}
    mov     r2, r0
    mov     r3, r1
    movs    r0, #0
    movs    r1, #0
    subs    r3, r3, #8
    blo     1f
0:  ldm     r2!, {r4-r9, r12, lr}
    smlald  r0, r1, r4, r4
    smlald  r0, r1, r5, r5
    smlald  r0, r1, r6, r6
    smlald  r0, r1, r7, r7
    smlald  r0, r1, r8, r8
    smlald  r0, r1, r9, r9
    smlald  r0, r1, r12, r12
    smlald  r0, r1, lr, lr
    subs    r3, r3, #8
    bhs     0b
1:  adds    r3, r3, #8
    beq     3f
2:  ldr     r4, [r2], #4
    smlald  r0, r1, r4, r4
    subs    r3, r3, #1
    bne     2b
3:  pop     {r4-r9, pc}
    end     spectrum_energy

/* void spectrum_open8(const int16_t *x, const uint32_t *opening, uint32_t shift, struct complex *z, uint32_t part)
 *
 * r0: samples of the first eighth, r1: window and twiddles, r3: bytes of an eighth. On the stack: shift, what z is
 * behind the next sample, the end of the first eighth, two turns by an eighth. */
    begin   spectrum_open8
    push    {r4-r11, lr}
    ldr     r4, [sp, #36]
    sub     sp, sp, #20
    sub     r3, r3, r0
    sub     r3, r3, #4
    strd    r2, r3, [sp]
    lsl     r3, r4, #2
    add     r4, r0, r3
    movw    r5, #HALF_ROOT
    movt    r5, #-HALF_ROOT & 0xffff
    movw    r6, #-HALF_ROOT & 0xffff
    movt    r6, #-HALF_ROOT & 0xffff
    str     r4, [sp, #8]
    strd    r5, r6, [sp, #12]
0:  add     r12, r0, r3
    ldr     r2, [sp]
    ldr     r5, [r0, r3]
    ldr     r6, [r0, r3, lsl #1]
    ldr     r7, [r12, r3, lsl #1]
    ldr     r8, [r0, r3, lsl #2]
    ldr     r9, [r12, r3, lsl #2]
    add     r12, r12, r3
    ldr     r10, [r12, r3, lsl #2]
    add     r12, r12, r3
    ldr     r11, [r12, r3, lsl #2]
    ldrd    r12, r4, [r1], #8
    windowed r5, r12, r2, lr
    windowed r6, r4, r2, lr
    ldrd    r12, r4, [r1], #8
    windowed r7, r12, r2, lr
    windowed r8, r4, r2, lr
    ldrd    r12, r4, [r1], #8
    windowed r9, r12, r2, lr
    windowed r10, r4, r2, lr
    ldr     r12, [r1], #4
    windowed r11, r12, r2, lr
    ldr     r12, [r1], #4
    ldr     r4, [r0], #4
    windowed r4, r12, r2, lr
    sadd16  r12, r4, r8
    ssub16  r8, r4, r8
    sadd16  r4, r5, r9
    ssub16  r9, r5, r9
    sadd16  r5, r6, r10
    ssub16  r10, r6, r10
    sadd16  r6, r7, r11
    ssub16  r11, r7, r11
    radix4  r12, r4, r5, r6, r7, h, /* numbers 0, 2, 4, 6: r7, r5, r4, r6 */
    ldr     r2, [sp, #4]
    add     r2, r2, r0
    str     r7, [r2]
    mov     r7, #ROUND
    ldr     r12, [r1], #4
    turned  r5, r12, r7, lr
    str     r5, [r2, r3, lsl #1]
    ldr     r12, [r1], #4
    turned  r4, r12, r7, lr
    str     r4, [r2, r3, lsl #2]
    ldr     r12, [r1], #4
    turned  r6, r12, r7, lr
    ldrd    r4, r5, [sp, #12]
    sadd16  r9, r9, r9
    turned  r9, r4, r7, lr
    ldr     r4, [sp, #12]
    sadd16  r11, r11, r11
    smladx  lr, r11, r4, r7
    smlad   r11, r11, r5, r7
    pkhtb   r11, r11, lr, asr #16
    ssax    r5, r8, r10
    sasx    r8, r8, r10
    sadd16  r10, r9, r11
    ssub16  r9, r9, r11
    sadd16  r11, r5, r10 /* number 1 */
    ssub16  r5, r5, r10  /* 5 */
    ssax    r10, r8, r9  /* 3 */
    sasx    r8, r8, r9   /* 7 */
    add     r2, r2, r3
    ldrd    r4, r9, [r1], #8
    turned  r11, r4, r7, lr
    str     r11, [r2]
    turned  r10, r9, r7, lr
    str     r10, [r2, r3, lsl #1]
    ldrd    r4, r9, [r1], #8
    turned  r5, r4, r7, lr
    str     r5, [r2, r3, lsl #2]
    add     r2, r2, r3
    str     r6, [r2, r3, lsl #2]
    add     r2, r2, r3
    turned  r8, r9, r7, lr
    str     r8, [r2, r3, lsl #2]
    ldr     r12, [sp, #8]
    cmp     r0, r12
    bne     0b
    add     sp, sp, #20
    pop     {r4-r11, pc}
    end     spectrum_open8

/* void spectrum_open4(const int16_t *x, const uint32_t *opening, uint32_t shift, struct complex *z, uint32_t part)
 *
 * r12 and lr: bytes of a quarter, and of three. On the stack: the end of the first quarter. */
    begin   spectrum_open4
    push    {r4-r11, lr}
    ldr     r12, [sp, #36]
    sub     sp, sp, #4
    lsl     r12, r12, #2
    add     r4, r0, r12
    str     r4, [sp]
    add     lr, r12, r12, lsl #1
    mov     r11, #ROUND
0:  ldr     r5, [r0, r12]
    ldr     r6, [r0, r12, lsl #1]
    ldr     r7, [r0, lr]
    ldr     r4, [r0], #4
    ldrd    r8, r9, [r1], #8
    windowed r5, r8, r2, r10
    windowed r6, r9, r2, r10
    ldrd    r8, r9, [r1], #8
    windowed r7, r8, r2, r10
    windowed r4, r9, r2, r10
    radix4  r4, r5, r6, r7, r8, h,
    ldrd    r9, r4, [r1], #8
    turned  r6, r9, r11, r10
    turned  r5, r4, r11, r10
    ldr     r9, [r1], #4
    turned  r7, r9, r11, r10
    str     r6, [r3, r12]
    str     r5, [r3, r12, lsl #1]
    str     r7, [r3, lr]
    str     r8, [r3], #4
    ldr     r4, [sp]
    cmp     r0, r4
    bne     0b
    add     sp, sp, #4
    pop     {r4-r11, pc}
    end     spectrum_open4

/* void spectrum_join(struct complex *z, const struct complex *last, uint32_t quarter, const uint32_t *twiddles)
 *
 * r2 and r3: bytes of a quarter, and of three. On the stack: twiddles, the end of the first quarter, bytes of all numbers
 * but one. */
    begin   spectrum_join
    push    {r4-r11, lr}
    sub     sp, sp, #12
    lsl     r2, r2, #2
    add     r4, r0, r2
    sub     r5, r1, r0
    sub     r5, r5, #4
    str     r3, [sp]
    strd    r4, r5, [sp, #4]
    add     r3, r2, r2, lsl #1
    mov     r7, #ROUND
0:  ldr     r8, [r0]
    ldr     r9, [r0, r2]
    ldr     r10, [r0, r2, lsl #1]
    ldr     r11, [r0, r3]
    radix4  r8, r9, r10, r11, r12, h, h
    str     r10, [r0, r2]
    str     r9, [r0, r2, lsl #1]
    str     r11, [r0, r3]
    str     r12, [r0]
    add     r0, r0, r2, lsl #2
    cmp     r0, r1
    blo     0b
1:  ldr     r8, [sp]
    ldrd    r10, r11, [sp, #4]
    sub     r0, r0, r11
    cmp     r0, r10
    beq     3f
    ldm     r8!, {r4-r6}
    str     r8, [sp]
2:  ldr     r8, [r0]
    ldr     r9, [r0, r2]
    ldr     r10, [r0, r2, lsl #1]
    ldr     r11, [r0, r3]
    radix4  r8, r9, r10, r11, r12, h,
    str     r12, [r0]
    smlsd   lr, r10, r4, r7
    smladx  r8, r10, r4, r7
    pkhtb   r8, r8, lr, asr #16
    smlsd   lr, r9, r5, r7
    smladx  r9, r9, r5, r7
    pkhtb   r9, r9, lr, asr #16
    smlsd   lr, r11, r6, r7
    smladx  r11, r11, r6, r7
    pkhtb   r11, r11, lr, asr #16
    str     r8, [r0, r2]
    str     r9, [r0, r2, lsl #1]
    str     r11, [r0, r3]
    add     r0, r0, r2, lsl #2
    cmp     r0, r1
    blo     2b
    b       1b
3:  add     sp, sp, #12
    pop     {r4-r11, pc}
    end     spectrum_join

/* The powers of k and n - k, of z and its partner w: \up and \t. Spoils z, w and \c. */
    .macro  split z, w, c, s, t, up
    ldrd    \c, \s, [r2], #8
    smuadx  \t, \z, \w
    smuad   \z, \z, \z
    smuad   \w, \w, \w
    smmul   \c, \t, \c
    sub     \t, \w, \z
    smmla   \t, \t, \s, \c
    add     \z, \z, \w
    add     \w, \t, \z, asr #2
    rsb     \t, \t, \z, asr #2
    .endm

/* void spectrum_close(const struct complex *z, int32_t *power, uint32_t quarter, const uint16_t *order, const int32_t *circle)
 *
 * r0: power of the first k, r1: bytes of a quarter, r2: circle. On the stack: what order is behind r0, z, the sum of the
 * addresses of k's power and that of n - k less two quarters. */
    begin   spectrum_close
    push    {r4-r11, lr}
    sub     sp, sp, #12
    add     r12, r1, #4
    sub     r3, r3, r12
    strd    r3, r0, [sp]
    lsl     r3, r2, #2
    ldr     r2, [sp, #48]
    add     r4, r1, r1
    add     r4, r4, r3, lsl #1
    str     r4, [sp, #8]
    mov     r0, r12
    mov     r1, r3
0:  ldrd    r12, lr, [sp]
    ldr     r3, [r0, r12]
    add     r8, lr, r3, lsr #16
    uxtah   r3, lr, r3
    ldm     r3, {r4-r7}
    ldm     r8, {r8-r11}
    radix4  r4, r5, r6, r7, r3, , /* r3, r6, r5, r7 */
    radix4  r8, r9, r10, r11, r4, , /* r4, r10, r9, r11 */
    split   r3, r11, r12, lr, r8
    str     r11, [r0]
    ldr     r3, [sp, #8]
    sub     r3, r3, r0
    str     r8, [r3, r1, lsl #1]
    split   r6, r9, r12, lr, r8
    str     r9, [r0, r1]
    str     r8, [r3, r1]
    split   r5, r10, r12, lr, r8
    str     r10, [r0, r1, lsl #1]
    str     r8, [r3]
    split   r7, r4, r12, lr, r8
    sub     r3, r3, r1
    add     r12, r0, r1
    str     r4, [r12, r1, lsl #1]
    str     r8, [r3]
    cmp     r0, r3
    add     r0, r0, #4
    bne     0b
    add     sp, sp, #12
    pop     {r4-r11, pc}
    end     spectrum_close

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
