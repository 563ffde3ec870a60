/* SPDX-License-Identifier: Apache-2.0 */
/* Text commands (docs/protocol.md), those of the runtime and those of an application. Each has one table, a list macro:
 *
 *     #define TABLE(ROW)                                                                           \
 *         ROW(ping, reply_ok("ok pong"), 0, 0, NEEDS_NOTHING, ": answer `ok pong`")            \
 *         ROW(seed, run_seed(p, w->word[1]), 1, 1, NEEDS_NOTHING, " N: of the random numbers")
 *
 *     name     what is typed
 *     handler  expression of p and w: answers, and is 1 after `ok`, 0 after `err`
 *     0, 0     the least and the most arguments
 *     needs    what it uses that a push may have taken
 *     help     the rest of its line of `help`, from the arguments or the colon on
 *
 * Everything else is made of it, so that a row without a handler does not compile and no handler is there by default:
 *
 *     static const struct command table[] = {TABLE(COMMAND_ENTRY)};
 *     enum { TABLE(COMMAND_NUMBER) TABLE_ROWS };
 *     switch (command_find(p, table, TABLE_ROWS, w)) { TABLE(COMMAND_CASE) ... }
 */
#ifndef COMMANDS_H
#define COMMANDS_H

#include <stdint.h>

#include "protocol.h"

enum { WORDS_MAX = 5 };

/* A line, taken apart at its spaces. */
struct words {
    uint32_t count; /* WORDS_MAX + 1 where there are too many */
    char *word[WORDS_MAX];
};

/* What a push may have taken: whole trainables; these and the memory in which a push is staged. */
enum { NEEDS_NOTHING, NEEDS_TRAINABLES, NEEDS_ARENA };

/* help: its line of `help`, which begins with the name and a space or a colon. */
struct command {
    const char *help;
    uint8_t arguments_min, arguments_max, needs;
};

#define COMMAND_ENTRY(name, handler, least, most, needs, help) {#name help, least, most, needs},
#define COMMAND_NUMBER(name, ...) COMMAND_##name,
#define COMMAND_CASE(name, handler, ...)                                                                               \
    case COMMAND_##name:                                                                                               \
        return handler;

enum {
    COMMAND_UNKNOWN = -1, /* no such command */
    COMMAND_REFUSED = -2, /* answered `err`: too few or too many arguments, or a push is in the way */
};

/* Commands wait for a line of text: gcc makes them small rather than fast. */
#define COLD __attribute__((cold))

/* Which of a table's rows is the command in word[0]; COMMAND_UNKNOWN or COMMAND_REFUSED. */
COLD int command_find(const struct protocol *p, const struct command *rows, uint32_t count, const struct words *w);

/* The lines of a table in `help`. */
COLD void command_help(const struct command *rows, uint32_t count);

/* After training steps: a checkpoint where one is due; back to the last one, with a line `diverged: ...`, where the guard
 * says so. */
COLD void command_trained(struct protocol *p);

#endif
