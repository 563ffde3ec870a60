/* SPDX-License-Identifier: Apache-2.0 */
/* The trainables on their way to the host (pull) and back (push).
 *
 * A push is staged in the model's arena and copied to the trainables only when it is complete and its CRC holds. While
 * it is under way the arena holds no image. Where the arena is smaller than the trainables, the bytes go to their place
 * at once; until a push is complete the trainables then count as incomplete, and nothing computes with them.
 */
#ifndef TRANSFER_H
#define TRANSFER_H

#include <stdint.h>

#include "receiver.h"

enum {
    TRANSFER_OK = 0,
    TRANSFER_DONE = 1,       /* the last bytes came: the trainables are replaced */
    TRANSFER_ERR_SIZE = -1,  /* not the size of the trainables */
    TRANSFER_ERR_MODEL = -2, /* made for another model */
    TRANSFER_ERR_NONE = -3,  /* no push is under way */
    TRANSFER_ERR_RANGE = -4, /* empty, beyond the end, or a gap before it */
    TRANSFER_ERR_CRC = -5,   /* complete, but corrupt: the push has ended */
};

enum { TRANSFER_CHUNK = 512 }; /* bytes of trainables in a frame */

struct transfer {
    uint8_t active;
    uint8_t incomplete; /* a push began to overwrite the trainables and has not succeeded since */
    uint32_t received, crc;
};

int transfer_start(struct transfer *t, uint32_t bytes, uint32_t crc, uint32_t model_id);

/* Bytes for offset position of the trainables; those received already may come again. */
int transfer_take(struct transfer *t, const struct frame *frame, const uint8_t *payload);

/* Send all trainables as DATA frames; returns their CRC-32. */
uint32_t transfer_pull(void);

#endif
