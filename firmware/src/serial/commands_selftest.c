/* SPDX-License-Identifier: Apache-2.0 */
/* The command `selftest`. */
#include "handlers.h"
#include "reply.h"

static void say_kernels(const struct microtrain_tested *t)
{
    reply_text("kernels ");
    if (t->kernels == MICROTRAIN_ERR_KERNEL) {
        reply_text("wrong: ");
        reply_line(t->kernel);
    } else {
        reply_line(t->kernels == MICROTRAIN_OK ? "ok" : "not tried: the arena is too small for them");
    }
}

static void say_flash(const struct microtrain_tested *t)
{
    reply_text("weights ");
    reply_hex(t->crc, 8);
    if (t->tables == MICROTRAIN_OK) {
        reply_line(" ok");
    } else {
        reply_text(" wrong: converted with ");
        reply_hex(t->converted_crc, 8);
        reply_end();
    }
}

static void say_memory(const struct microtrain_tested *t)
{
    reply_text("memory");
    reply_u32(t->arena == MICROTRAIN_OK ? MODEL_ARENA_BYTES : t->wrong_word);
    reply_line(t->arena == MICROTRAIN_OK ? " bytes ok" : " wrong: the word at this offset of the arena");
}

int command_selftest(struct microtrain *m)
{
    struct microtrain_tested tested;
    microtrain_test(m, &tested);
    say_kernels(&tested);
    say_flash(&tested);
    say_memory(&tested);
    if (tested.kernels < 0 || tested.tables < 0 || tested.arena < 0) {
        return reply_error("selftest", "the device cannot be relied on: the lines above say what is wrong");
    }
    return reply_ok("ok selftest");
}
