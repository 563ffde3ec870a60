/* SPDX-License-Identifier: Apache-2.0 */
/* What a model's conversion chose for the kernels, from the compiler's command line; for C and assembly. */
#ifndef KERNELS_CHOICES_H
#define KERNELS_CHOICES_H

/* 1 where integer multipliers need not be what a float makes of sums: negative words are integers everywhere. */
#ifndef MICROTRAIN_FIXED
#define MICROTRAIN_FIXED 0
#endif

/* 1 where sums are rounded as TensorFlow Lite's reference kernels round them: struct conv2d has a second table. */
#ifndef MICROTRAIN_TFLITE
#define MICROTRAIN_TFLITE 0
#endif

/* The functions of run_windows() that are linked: bit 0 for way 1. Without them windows are summed tap by tap: the same
 * results, later. model.h says in MODEL_WINDOWS which its layers use. */
#ifndef MICROTRAIN_WINDOWS
#define MICROTRAIN_WINDOWS 0xfff
#endif

#endif
