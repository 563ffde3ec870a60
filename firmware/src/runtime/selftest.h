/* SPDX-License-Identifier: Apache-2.0 */
/* The device looks at itself: kernels, flash and memory. Nothing that learning changes is touched. */
#ifndef SELFTEST_H
#define SELFTEST_H

#include <stdint.h>

#include "session.h"

enum {
    SELFTEST_OK = MICROTRAIN_OK,
    SELFTEST_ERR_KERNEL = MICROTRAIN_ERR_KERNEL, /* a kernel does not compute what it should */
    SELFTEST_ERR_FLASH = MICROTRAIN_ERR_TABLES,  /* the model's tables are not what was converted */
    SELFTEST_ERR_MEMORY = MICROTRAIN_ERR_ARENA,  /* a bit of the arena does not hold its value */
    SELFTEST_NO_ROOM = MICROTRAIN_NONE,          /* the arena is smaller than what the kernels need: not tried */
};

enum { SELFTEST_DENSE, SELFTEST_DEPTHWISE, SELFTEST_INPUT_GRADIENT, SELFTEST_UPDATE, SELFTEST_KERNELS };

/* A dense and a depthwise convolution, the gradient to the dense one's input and the update of its weights, of built-in
 * vectors, in the arena, whose contents are lost. *failed: the first that is wrong or has no room. */
int selftest_kernels(const struct session *s, uint32_t *failed);

/* CRC-32 of the model's tables in flash against model_info.parts_crc. *found: the CRC as it is. */
int selftest_flash(const struct session *s, uint32_t *found);

/* March C- (van de Goor 1991) over the arena in words, with two backgrounds: stuck bits, and most ways in which a word
 * changes another one. Contents are lost. *bad: the offset of the first word that fails. */
int selftest_memory(const struct session *s, uint32_t *bad);

#endif
