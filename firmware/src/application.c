/* SPDX-License-Identifier: Apache-2.0 */
/* The application of the plain firmware: nothing beside the serial protocol. */
#include "application.h"

#include "board.h"
#include "commands.h"

void application_start(struct protocol *p)
{
    (void)p;
}

void application_poll(struct protocol *p)
{
    (void)p;
}

int application_command(struct protocol *p, const struct words *w)
{
    (void)p;
    (void)w;
    return COMMAND_UNKNOWN;
}

void application_help(void) {}

void application_led(int on)
{
    board_led(on);
}
