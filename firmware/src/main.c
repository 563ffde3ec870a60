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

/* Why the board cannot start, NULL where it can. */
static const char *trouble(void)
{
    int status = board_init();
#if MICROTRAIN_EXTERNAL
    if (status == BOARD_ERR_EXTERNAL) {
        return "fault the board did not start: the flash beside its chip does not answer";
    }
    if (status == BOARD_OK && !protocol_can_start()) {
        return "fault the flash beside the chip holds another model's weights: upload again";
    }
#endif
    return status == BOARD_OK ? NULL : "fault the board did not start: no clock, or the FPU is not in its default mode";
}

int main(void)
{
    const char *why = trouble();
    if (why) {
        reply_line(why);
        restart();
    }
    protocol_start(&protocol);
    for (;;) {
        protocol_poll(&protocol);
        application_poll(&protocol);
        board_wait();
    }
}
