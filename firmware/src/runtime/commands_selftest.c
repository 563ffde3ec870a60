/* SPDX-License-Identifier: Apache-2.0 */
/* The command `selftest`. */
#include "handlers.h"
#include "model_api.h"
#include "reply.h"
#include "selftest.h"

static void say_kernels(int status, uint32_t failed)
{
    static const char *const names[] = {
        [SELFTEST_DENSE] = "dense convolution",
        [SELFTEST_DEPTHWISE] = "depthwise convolution",
        [SELFTEST_INPUT_GRADIENT] = "gradient to the input",
        [SELFTEST_UPDATE] = "update of the weights",
    };
    reply_text("kernels ");
    if (status == SELFTEST_ERR_KERNEL) {
        reply_text("wrong: ");
        reply_line(names[failed]);
    } else {
        reply_line(status == SELFTEST_OK ? "ok" : "not tried: the arena is too small for them");
    }
}

static void say_flash(int status, uint32_t found)
{
    reply_text("weights ");
    reply_hex(found, 8);
    if (status == SELFTEST_OK) {
        reply_line(" ok");
    } else {
        reply_text(" wrong: converted with ");
        reply_hex(model_info.parts_crc, 8);
        reply_end();
    }
}

static void say_memory(int status, uint32_t bad)
{
    reply_text("memory");
    reply_u32(status == SELFTEST_OK ? model_info.arena_bytes : bad);
    reply_line(status == SELFTEST_OK ? " bytes ok" : " wrong: the word at this offset of the arena");
}

int command_selftest(struct session *s)
{
    uint32_t failed, found, bad;
    session_take_arena(s);
    int kernels = selftest_kernels(s, &failed), flash = selftest_flash(s, &found), memory = selftest_memory(s, &bad);
    say_kernels(kernels, failed);
    say_flash(flash, found);
    say_memory(memory, bad);
    if (kernels < 0 || flash < 0 || memory < 0) {
        return reply_error("selftest", "the device cannot be relied on: the lines above say what is wrong");
    }
    return reply_ok("ok selftest");
}
