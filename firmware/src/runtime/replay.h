/* SPDX-License-Identifier: Apache-2.0 */
/* The replay buffer: records of old images (model_keep), which training steps are taken on between new images, so that
 * classes shown one after the other are not forgotten. Only in builds whose model was converted with --replay.
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

enum { REPLAY_DEFAULT = 4 }; /* replayed steps behind each new one */

/* No records, no class seen. */
void replay_clear(void);

/* Records in the buffer, 0..MODEL_RECORDS. */
uint32_t replay_held(void);

/* After model_front: record the image, or not, as the reservoir decides. label < MODEL_CLASSES. */
void replay_keep(uint32_t label, uint32_t seed, uint32_t step);

/* In place of model_front: any of the records, all equally likely. Returns its label. Needs replay_held() > 0. */
uint32_t replay_recall(uint32_t seed, uint32_t step);

#endif
