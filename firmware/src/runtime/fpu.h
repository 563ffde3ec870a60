/* SPDX-License-Identifier: Apache-2.0 */
/* The mode of the FPU that the numeric contract asks for, while a call runs: round to nearest even, no flushing to zero,
 * default NaN on Arm (kernels/numeric.h). The caller's own is put back. */
#ifndef FPU_H
#define FPU_H

#include <stdint.h>

#if defined(__ARM_FP) && defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M'

#define FPSCR_DN 0x02000000u      /* ARMv7-M ARM, section A2.5.3 */
#define FPSCR_LTPSIZE 0x00070000u /* Armv8-M ARM: of low-overhead loops, which fault where it is another */

static inline uint32_t fpu_enter(void)
{
    uint32_t before;
    __asm__ volatile("vmrs %0, fpscr" : "=r"(before));
    __asm__ volatile("vmsr fpscr, %0" : : "r"(FPSCR_DN | (before & FPSCR_LTPSIZE)) : "memory");
    return before;
}

static inline void fpu_leave(uint32_t before)
{
    __asm__ volatile("vmsr fpscr, %0" : : "r"(before) : "memory");
}

#elif defined(__riscv_flen)

static inline uint32_t fpu_enter(void)
{
    uintptr_t before;
    __asm__ volatile("csrrwi %0, frm, 0" : "=r"(before) : : "memory");
    return (uint32_t)before;
}

static inline void fpu_leave(uint32_t before)
{
    __asm__ volatile("csrw frm, %0" : : "r"((uintptr_t)before) : "memory");
}

#else

static inline uint32_t fpu_enter(void)
{
    return 0;
}

static inline void fpu_leave(uint32_t before)
{
    (void)before;
}

#endif
#endif
