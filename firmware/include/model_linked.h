/* SPDX-License-Identifier: Apache-2.0 */
/* What generated code defines by name of the one model in a firmware, for whoever is linked with it. */
#ifndef MODEL_LINKED_H
#define MODEL_LINKED_H

#include <stdint.h>

/* All tensors of an inference or a training step. Nothing in it outlives a step; from model_start to model_forward it
 * holds the image, or what has been made of its rows so far. 8-byte aligned. */
extern uint8_t model_arena[];

/* Everything that learning changes: weights, fraction bits, biases, head. 8-byte aligned. */
extern uint8_t model_trainables[];

/* Only where model.h says MODEL_EXTERNAL, that weights lie in flash beside the chip: the id of the model whose they are, read
 * from there. */
extern const uint32_t model_outside;

/* Only where model.h says that MODEL_FLEET_ROOM > 0, bytes of an update that the board makes itself: what of the trainables
 * a fleet shares. Behind the trainables lie MODEL_FLEET_BYTES that are kept with them (src/serial/commands_fleet.c). */
struct microtrain_shared;
extern const struct microtrain_shared model_shared;

#endif
