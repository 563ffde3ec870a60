/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of commands that are not in commands.c, which says what calls them. Each answers by itself and returns 1 after
 * `ok`, 0 after `err`. */
#ifndef HANDLERS_H
#define HANDLERS_H

#include "commands.h"

enum { REPLAY_MAX = 100 }; /* replayed steps in one go */

/* commands_step.c */
COLD int command_image(struct protocol *p);
COLD int command_row(struct microtrain *m, const struct words *w);
COLD int command_pattern(struct microtrain *m, const char *word);
COLD int command_infer(struct microtrain *m);
#if MODEL_HOP > 0
COLD int command_slide(struct microtrain *m);
#endif
COLD int command_train(struct protocol *p, const char *word);
#if MODEL_TARGETS > 0
COLD int command_target(struct microtrain *m, const struct words *w);
#else
COLD int command_eval(struct microtrain *m, const char *word);
#endif
#if MODEL_IMPRINT > 0
COLD int command_imprint(struct microtrain *m, const char *word);
#endif
COLD int command_rehearse(struct protocol *p, const char *word);

#if MODEL_FLEET_BYTES > 0
/* commands_fleet.c */
COLD int command_join(struct protocol *p, const struct words *w);
COLD int command_share(struct protocol *p, const struct words *w);
#endif

/* commands_selftest.c: one data line per part, then `ok selftest` or `err selftest ...`. */
COLD int command_selftest(struct microtrain *m);

/* Why the flash was not saved to, or not erased. */
COLD const char *command_reason(int status);

/* The line `unsaved: REASON` where a checkpoint that nobody asked for could not be written. */
COLD void command_unsaved(int status);

#endif
