/* SPDX-License-Identifier: Apache-2.0 */
/* What an application gives to the runtime: what a firmware does beside the serial protocol. One is linked in, by name and
 * not by function pointers, so that memory_report can follow every call. src/application.c is the plain firmware's;
 * examples/camera has one with commands of its own. */
#ifndef APPLICATION_H
#define APPLICATION_H

struct protocol; /* protocol.h */
struct words;    /* commands.h */

/* Once, when all else has started: its lines of the boot banner. */
void application_start(struct protocol *p);

/* Between two looks at the serial line: every millisecond or so, unless a command is running. Never waits. */
void application_poll(struct protocol *p);

/* A command that the runtime does not know. Answers it and returns 1 after `ok`, 0 after `err`; or returns
 * COMMAND_UNKNOWN and says nothing. */
int application_command(struct protocol *p, const struct words *w);

/* Its lines of `help`. */
void application_help(void);

/* `led 0` and `led 1`: the LED is the application's. */
void application_led(int on);

#endif
