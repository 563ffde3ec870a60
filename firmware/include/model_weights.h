/* SPDX-License-Identifier: Apache-2.0 */
/* Where generated code puts its constant tables: on the chip in the flash sectors kept for weights (section .weights,
 * see firmware/ld), on a host wherever the compiler likes.
 *
 *     MODEL_WEIGHTS int8_t block0_w[] = {...};          const is part of the macro
 *     MODEL_WEIGHTS_OUTSIDE int8_t block1_w[] = {...};  in flash beside the chip (section .external), a cache line its own
 */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#if defined(MICROTRAIN_LIBRARY)
#ifndef MICROTRAIN_TABLES
#define MICROTRAIN_TABLES /* a section for them, where the program wants them elsewhere */
#endif
#define MODEL_WEIGHTS MICROTRAIN_TABLES __attribute__((aligned(4))) const
#ifndef MICROTRAIN_TABLES_OUTSIDE
#define MICROTRAIN_TABLES_OUTSIDE MICROTRAIN_TABLES /* the same, for those that the converter put beside the chip */
#endif
#define MODEL_WEIGHTS_OUTSIDE MICROTRAIN_TABLES_OUTSIDE __attribute__((aligned(32))) const
#elif defined(__arm__)
#define MODEL_WEIGHTS __attribute__((section(".weights"), aligned(4))) const
#define MODEL_WEIGHTS_OUTSIDE __attribute__((section(".external"), aligned(32))) const
#else
#define MODEL_WEIGHTS __attribute__((aligned(4))) const
#define MODEL_WEIGHTS_OUTSIDE MODEL_WEIGHTS
#endif

#endif
