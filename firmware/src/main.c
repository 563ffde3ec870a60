/* SPDX-License-Identifier: Apache-2.0 */
/* The firmware: answer the serial line, sleep, repeat. */
#include "application.h"
#include "board.h"
#include "protocol.h"
#include "reply.h"

enum { RESTART_MS = 1000 };

static struct protocol protocol;

/* Nothing works without the board: leave the reason on the line for a while, then try again. */
_Noreturn static void restart(void)
{
    for (uint32_t start = board_millis(); board_millis() - start < RESTART_MS;) {
        board_wait();
    }
    board_reset();
}

int main(void)
{
    if (board_init() != BOARD_OK) {
        reply_line("fault the board did not start: no clock, or the FPU is not in its default mode");
        restart();
    }
    protocol_start(&protocol);
    for (;;) {
        protocol_poll(&protocol);
        application_poll(&protocol);
        board_wait();
    }
}
