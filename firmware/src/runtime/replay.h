/* SPDX-License-Identifier: Apache-2.0 */
/* The replay buffer: records of old images (model_keep), which training steps are taken on between new images, so that
 * classes shown one after the other are not forgotten. Only where the model was converted with --replay.
 *
 * The classes share the records evenly, and a class's own images are a fair draw of all it was shown ("class-balancing
 * reservoir", Chrysakis and Moens 2020): while another class has two records more, a new image takes one of the
 * largest class's, later the place of one of its own, with the probability that it is among those drawn. What is
 * drawn is a function of (seed, step, labels) alone, as all random numbers are (kernels/numeric.h).
 */
#ifndef REPLAY_H
#define REPLAY_H

#include <stdint.h>

#include "instance.h"

struct session;

#ifdef MICROTRAIN_LIBRARY
enum { REPLAY_DEFAULT = 0 }; /* the caller takes them */

/* A buffer in the caller's memory: counters of the classes, labels of the records, records. records: that there is room for;
 * 0: there is none. */
struct replay {
    uint32_t records, held;
    uint32_t *seen;
    uint16_t *stored, *label;
    uint8_t *record;
};

/* Bytes of a buffer for so many records. */
uint32_t replay_bytes(const struct microtrain_model *model, uint32_t records);

/* A buffer in so many bytes, 4-byte aligned, empty; NULL: none. It has room for a record of each class at least. */
void replay_give(struct session *s, void *memory, uint32_t bytes);
#else
enum { REPLAY_DEFAULT = 4 }; /* replayed steps behind each new one */
#endif

/* No records, no class seen. */
void replay_clear(struct session *s);

/* Records in the buffer. */
uint32_t replay_held(const struct session *s);

/* After the front of the model: record the image, or not, as the reservoir decides. */
void replay_keep(struct session *s, uint32_t label, uint32_t seed, uint32_t step);

/* In place of that front: one of the records. Returns its label. Needs replay_held() > 0.
 *
 * As long as none comes in, so many steps as there are records take each of them once, in an order that is drawn anew
 * every time (all equally likely on their own would leave out a third). */
uint32_t replay_recall(struct session *s, uint32_t seed, uint32_t step);

#endif
