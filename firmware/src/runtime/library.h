/* SPDX-License-Identifier: Apache-2.0 */
/* What every source of the library begins with: names that collide with nobody's, and floats as the numeric contract
 * wants them (numeric.h) whatever the compiler is told. */
#ifndef MICROTRAIN_LIBRARY_H
#define MICROTRAIN_LIBRARY_H

#define MICROTRAIN_LIBRARY 1

#ifndef FPU_V5 /* an FPU with the instructions of FPv5; a Cortex-M7 may say -DFPU_V5=1 */
#if defined(__ARM_ARCH) && __ARM_ARCH >= 8
#define FPU_V5 1
#else
#define FPU_V5 0
#endif
#endif

#ifndef __ASSEMBLER__

#ifdef __FAST_MATH__
#error "microtrain needs IEEE arithmetic: compile it without -ffast-math and -Ofast."
#endif

/* No fused multiply-add: a product is rounded before it is added. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__) && !defined(__STRICT_ANSI__) &&                                                                \
    (defined(__ARM_FEATURE_FMA) || defined(__FMA__) || defined(__riscv_flen) || defined(__aarch64__))
#pragma GCC optimize("fp-contract=off")
#endif

#include <math.h>

#ifndef NAN /* the smallest C library of Zephyr has neither */
#define NAN __builtin_nanf("")
#endif
#ifndef INFINITY
#define INFINITY __builtin_inff()
#endif

/* rintf() to the nearest even without a C library. The sign of a zero is lost. */
static inline float microtrain_rintf(float v)
{
    if (!(v < 8388608.0f && v > -8388608.0f)) {
        return v; /* whole, infinite, or no number */
    }
    return v < 0.0f ? (v - 8388608.0f) + 8388608.0f : (v + 8388608.0f) - 8388608.0f;
}
#define rintf microtrain_rintf

/* NAMES: `microtrain export-library` writes here what the linker sees of the engine, each with a prefix. */

#endif
#endif
