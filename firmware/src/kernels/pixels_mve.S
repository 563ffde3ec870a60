/* SPDX-License-Identifier: Apache-2.0 */
/* Contract: kernels/pixels.h. Saturation behind rounding is what the clamp in front of it gives. */
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

#include "assembly.inc"

    begin   pixels_s8
    push    {r4-r9, lr}
    ldrd    r5, r6, [sp, #28]
    ldr     r7, [sp, #36]
    mov     r4, r3
    wlstp.32 lr, r2, .Lpixels_end
.Lpixel:
    vldrb.u32 q0, [r1], #4
    viwdup.u32 q1, r4, r7, #1
    vcvt.f32.u32 q0, q0
    vldrw.u32 q2, [r5, q1, uxtw #2]
    vldrw.u32 q3, [r6, q1, uxtw #2]
    vmul.f32 q0, q0, q2
    vadd.f32 q0, q0, q3
    vcvtn.s32.f32 q0, q0
    vqmovnb.s32 q0, q0
    vqmovnb.s16 q0, q0
    vstrb.32 q0, [r0], #4
    letp    lr, .Lpixel
.Lpixels_end:
    pop     {r4-r9, pc}
    end     pixels_s8

#endif

#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack, "", %progbits
#endif
