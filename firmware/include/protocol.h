/* SPDX-License-Identifier: Apache-2.0 */
/* The serial protocol of docs/protocol.md: what the device answers to lines and frames. */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#include <stdint.h>

#include "microtrain_board.h"
#include "receiver.h"
#include "transfer.h"

enum {
    BAUD_TRIAL_MS = 2000, /* a new baud rate must prove itself this fast */
    IDLE_MS = 500,        /* of silence before steps are taken that nobody waits for */
};

struct protocol {
    struct receiver receiver;
    struct microtrain learner;
    struct transfer transfer;
    uint32_t frames_ok, frames_bad;
    uint32_t baud;      /* in use */
    uint32_t next_baud; /* to switch to after the answer to `baud`, else 0 */
    uint32_t old_baud;  /* to go back to while `baud` is on trial, else 0 */
    uint32_t baud_since_ms;
#if MODEL_RECORDS > 0
    uint32_t heard_ms; /* when the last line or frame came */
#endif
};

#if MICROTRAIN_EXTERNAL
int protocol_can_start(void); /* 0: flash beside the chip holds the weights of another model */
#endif

/* The session of the newest checkpoint, or a fresh one, then the boot banner. */
void protocol_start(struct protocol *p);

/* Answer everything that has arrived. Returns when nothing is left to do but wait, or after one of the steps that
 * microtrain_allow_idle allowed, where the line has been silent for IDLE_MS. */
void protocol_poll(struct protocol *p);

/* Somebody is at the device, as if the line had not been silent: no such step for IDLE_MS. */
void protocol_attend(struct protocol *p);

/* One line of text: answers with data lines and one line `ok ...` or `err ...`. Takes the line apart in
 * place. Returns 1 after `ok`, 0 after `err`. */
int command_run(struct protocol *p, char *line);

/* Whether a push lets the trainables be used, and the arena where it is needed too. Answers `err` where not. */
int command_may_use(const struct protocol *p, int arena);

#endif
