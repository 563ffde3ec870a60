/* SPDX-License-Identifier: Apache-2.0 */
/* Where generated code puts its constant tables: on the chip in the flash sectors kept for weights (section .weights,
 * see firmware/ld), on a host wherever the compiler likes.
 *
 *     MODEL_WEIGHTS int8_t block0_w[] = {...};          const is part of the macro
 */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#if defined(MICROTRAIN_LIBRARY)
#ifndef MICROTRAIN_TABLES
#define MICROTRAIN_TABLES /* a section for them, where the program wants them elsewhere */
#endif
#define MODEL_WEIGHTS MICROTRAIN_TABLES __attribute__((aligned(4))) const
#elif defined(__arm__)
#define MODEL_WEIGHTS __attribute__((section(".weights"), aligned(4))) const
#else
#define MODEL_WEIGHTS __attribute__((aligned(4))) const
#endif

#endif
