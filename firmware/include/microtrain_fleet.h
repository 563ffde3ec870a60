/* SPDX-License-Identifier: Apache-2.0 */
/* A board of a fleet: what it says of its learning, in a hundredth of the bytes.
 *
 * Deep Gradient Compression (Lin et al., 2018, arXiv:1712.01887) with a sign and one size a tensor (Sattler et al., 2019,
 * arXiv:1903.02891), in whole numbers: the bits are those of `microtrain fleet`, whose server reads the updates.
 *
 *     #include "garden.h"
 *
 *     static uint8_t base[GARDEN_TRAINABLE_BYTES], last[GARDEN_TRAINABLE_BYTES];       or in flash
 *     static uint32_t held[GARDEN_HELD_BYTES / 4], velocity[GARDEN_HELD_BYTES / 4];    zeros at first
 *
 *     along = microtrain_fleet_along(&garden_shared, &memory);              memory.base is what the fleet has now
 *     microtrain_fleet_begin(&garden_shared, &memory, along, learned);
 *     microtrain_train(...) as often as there are samples
 *     microtrain_fleet_update(&garden_shared, &memory, learned, along, &how, body, &bytes);
 *
 * `learned` is what microtrain_init was given as trainables. What is not said stays in `held` and `velocity` for the next
 * round, so they must be kept with the rest of what was learned. `base` becomes `last` then.
 *
 * All memory is the caller's. Every function returns MICROTRAIN_OK, or an error and then has changed nothing. None may be
 * called between a begin and the last microtrain_step of an instance. All are reentrant, for different memory, and interrupts
 * may call any; none waits or touches hardware. Time is said in passes over the values: docs/embed.md has numbers.
 */
#ifndef MICROTRAIN_FLEET_H
#define MICROTRAIN_FLEET_H

#include <stdint.h>

#include "microtrain.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What of a model is shared: NAME_shared in the header that export-library wrote. Its members are private. */
enum { SHARED_WEIGHT, SHARED_BIAS, SHARED_HEAD };
struct microtrain_shared_part {
    uint32_t offset, fraction; /* bytes from the start of the trainables: values, and their fraction bits */
    uint32_t held;             /* bytes from the start of what is held back */
    uint32_t size;             /* values */
    uint8_t kind, bits;        /* of what they are; fraction bits of a weight */
    uint8_t shift;             /* by which its values are as much worth as those of the others */
};
struct microtrain_shared {
    const struct microtrain_shared_part *parts;
    uint32_t count, values; /* parts; values in all */
    uint32_t held_bytes;
};

/* base: trainable_bytes, what the fleet has at the start of a round. last: the same of the board's last round; NULL in its
 * first. Both may be in flash, at any multiple of 4. held: held_bytes, 4-byte aligned. velocity: the same; NULL without
 * momentum. */
struct microtrain_fleet_memory {
    const void *base, *last;
    void *held, *velocity;
};

/* room: bytes that the update may have, at least 1 for 8 tensors. momentum: in 1/256, 0..255; a fleet of the gateway's has
 * 192. */
struct microtrain_fleet_rule {
    uint32_t room, momentum;
};

/* Whether the fleet has moved where the board would: 1 or 0, 0 in its first round. It is asked once a round, and both calls
 * below are told the answer. ERR_ARGUMENT, ERR_ALIGNMENT, ERR_DIVERGED (of base or last). Time: a few passes. */
int microtrain_fleet_along(const struct microtrain_shared *shared, const struct microtrain_fleet_memory *memory);

/* Start of a round: `learned` becomes the base, with what the board holds back where the fleet goes along with it. It may be
 * the base itself. A round that was cut short begins so again, and ends in the same bits. Errors as above. Time: a few
 * passes. */
int microtrain_fleet_begin(const struct microtrain_shared *shared, const struct microtrain_fleet_memory *memory,
                           int along, void *learned);

/* End of a round: the update's body, which is at most room bytes, and how many it has. ERR_ARGUMENT, ERR_ALIGNMENT,
 * ERR_DIVERGED (of base or learned), ERR_MEMORY (less room than an update that says nothing takes). Time: some tens of
 * passes, as a size is searched by halves. */
int microtrain_fleet_update(const struct microtrain_shared *shared, const struct microtrain_fleet_memory *memory,
                            const void *learned, int along, const struct microtrain_fleet_rule *rule, void *body,
                            uint32_t *bytes);

/* The body of the board's last update, which did not arrive, joins again what is held back. ERR_ALIGNMENT, ERR_ARGUMENT also
 * where it is no such body. Time: two passes over the body. */
int microtrain_fleet_take_back(const struct microtrain_shared *shared, void *held, const void *body, uint32_t bytes);

/* A mask of secure aggregation (Bonawitz et al., 2017): of the board alone, or one that it shares with another board, which
 * adds what this one takes away. How two boards agree on a seed that nobody else knows is the caller's. */
enum { MICROTRAIN_SEED_BYTES = 32, MICROTRAIN_MASK_VALUES = 17 };
struct microtrain_mask {
    uint8_t seed[MICROTRAIN_SEED_BYTES];
    uint32_t minus; /* 1: it is taken away */
};

/* A whole update under masks, block by block: what has changed of `learned` since base, times the board's samples, and
 * all masks, modulo 2^64. block: from 0 on, of MICROTRAIN_MASK_VALUES values, the last one of what is left of
 * shared->values. to: its values; sent, each is little-endian. The values of a block are unchanged behind an error. Each
 * seed is good for one update. ERR_ARGUMENT (also no such block), ERR_DIVERGED. Time: grows with `count` and with the
 * number of tensors, for each block. */
int microtrain_fleet_masked(const struct microtrain_shared *shared, const void *base, const void *learned,
                            uint32_t samples, const struct microtrain_mask *masks, uint32_t count, uint32_t block,
                            uint64_t to[MICROTRAIN_MASK_VALUES]);

#ifdef __cplusplus
}
#endif

#endif
