/* SPDX-License-Identifier: Apache-2.0 */
/* What no board has that is a program: bytes that get lost, a watchdog, causes of a start but its own, an LED, a button,
 * a crash that outlives a restart.
 */
#include "board.h"

#include <stddef.h>

uint32_t board_serial_lost(void)
{
    return 0;
}

void board_alive(void) {}

const char *board_start_cause(void)
{
    return "power";
}

void board_led(int on)
{
    (void)on;
}

int board_button(void)
{
    return 0;
}

const struct board_crash *board_crash(void)
{
    return NULL;
}
