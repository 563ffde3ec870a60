/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files with the text commands share. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include <stdint.h>

#include "protocol.h"

enum { WORDS_MAX = 5 };

enum command {
    HELP,
    PING,
    INFO,
    IMAGE,
    ROW,
    PATTERN,
    INFER,
    TRAIN,
    EVAL,
    STATS,
    RATE,
    SEED,
    REPLAY,
    REHEARSE,
    SHA,
    SELFTEST,
    PULL,
    PUSH,
    RESET,
    SAVE,
    AUTOSAVE,
    GUARD,
    FORGET,
    REBOOT,
    BAUD,
    LED,
#if MICROTRAIN_CAMERA
    CAMERA,
    CAPTURE,
    SHOOT,
    MODE,
    LABEL,
#endif
    COMMANDS
};

struct words {
    uint32_t count;
    char *word[WORDS_MAX]; /* word[0] is the command */
};

/* ROW, PATTERN, INFER, TRAIN, REHEARSE or EVAL. Returns 1 after `ok`, 0 after `err`. */
int command_step(struct protocol *p, enum command command, const struct words *w);

/* `selftest`: a data line a part, then `ok selftest` or `err selftest ...`. */
int command_selftest(struct session *s);

#if MICROTRAIN_CAMERA
/* CAMERA, CAPTURE, SHOOT, MODE or LABEL. Returns 1 after `ok`, 0 after `err`. */
int command_demo(struct protocol *p, enum command command, const struct words *w);
#endif

/* After training steps: a checkpoint where one is due; back to the last one, with a line `diverged: ...`, where the guard
 * says so. */
void command_trained(struct protocol *p);

/* The line `unsaved: REASON` where a checkpoint that nobody asked for could not be written. */
void command_unsaved(int status);

#endif
