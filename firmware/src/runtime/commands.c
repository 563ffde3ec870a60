/* SPDX-License-Identifier: Apache-2.0 */
/* The text commands of docs/protocol.md. A command answers by itself and returns 1 after `ok`, 0 after `err`. */
#include <string.h>

#include "board.h"
#include "commands.h"
#include "model_api.h"
#include "protocol.h"
#include "replay.h"
#include "reply.h"
#include "sha256.h"
#include "text.h"

enum {
    RATE_MAX = 1000, /* largest factor on the learning rates */
    BAUD_MIN = 9600,
    BAUD_MAX = 3000000,
};

/* What a command needs that a push may have taken: whole trainables; these and the memory in which a push is staged. */
enum { NOTHING, TRAINABLES, ARENA };

struct entry {
    const char *name, *help;
    uint8_t arguments_min, arguments_max, needs;
};

static const struct entry table[COMMANDS] = {
    [HELP] = {"help", "help: this list", 0, 0, NOTHING},
    [PING] = {"ping", "ping: answer `ok pong`", 0, 0, NOTHING},
    [INFO] = {"info", "info: board, model, sizes", 0, 0, NOTHING},
    [IMAGE] = {"image", "image: forget the rows received so far", 0, 0, NOTHING},
    [ROW] = {"row", "row Y X HEX: up to 48 bytes of image row Y from byte X on", 3, 3, ARENA},
    [PATTERN] = {"pattern", "pattern N: fill the image with test pattern N", 1, 1, ARENA},
    [INFER] = {"infer", "infer: logits (hex float32) and class of the image", 0, 0, ARENA},
    [TRAIN] = {"train", "train L: one training step with label L", 1, 1, ARENA},
    [EVAL] = {"eval", "eval L: inference, counted against label L", 1, 1, ARENA},
    [STATS] = {"stats", "stats [clear]: counters; clear: zero those of evaluation and loss", 0, 1, NOTHING},
    [RATE] = {"rate", "rate F: multiply the scheme's learning rates by F, 0..1000", 1, 1, NOTHING},
    [SEED] = {"seed", "seed N: seed of the stochastic rounding", 1, 1, NOTHING},
    [REPLAY] = {"replay", "replay K|clear: steps on old records behind each new one, 0..100; clear: forget them", 1, 1,
                NOTHING},
    [REHEARSE] = {"rehearse", "rehearse N: steps on old records alone, 1..100", 1, 1, ARENA},
    [SHA] = {"sha", "sha: SHA-256 of the trainables", 0, 0, TRAINABLES},
    [SELFTEST] = {"selftest", "selftest: kernels, flash of the model, memory; the image is lost", 0, 0, ARENA},
    [PULL] = {"pull", "pull: send the trainables as DATA frames", 0, 0, TRAINABLES},
    [PUSH] = {"push", "push BYTES CRC ID: replace the trainables by those in the WEIGHTS frames that follow", 3, 3,
              NOTHING},
    [RESET] = {"reset", "reset: trainables, step counter and statistics as after conversion", 0, 0, NOTHING},
    [SAVE] = {"save", "save: checkpoint to flash", 0, 0, TRAINABLES},
    [AUTOSAVE] = {"autosave", "autosave N: checkpoint after every N training steps, 0: none", 1, 1, NOTHING},
    [GUARD] = {"guard", "guard 0|1: 1: back to the last checkpoint, at half the rate, where training diverges", 1, 1,
               NOTHING},
    [FORGET] = {"forget", "forget: erase all checkpoints; the trainables stay", 0, 0, NOTHING},
    [REBOOT] = {"reboot", "reboot: save what is new since the last checkpoint, then restart", 0, 0, NOTHING},
    [BAUD] = {"baud", "baud N: change the rate, 9600..3000000; needs a line at the new rate within 2 s", 1, 1, NOTHING},
    [LED] = {"led", "led 0|1: LED off or on", 1, 1, NOTHING},
#if MICROTRAIN_CAMERA
    [CAMERA] = {"camera", "camera: set the camera up again", 0, 0, NOTHING},
    [CAPTURE] = {"capture", "capture: a picture for `infer`, `train` or `eval`", 0, 0, ARENA},
    [SHOOT] = {"shoot", "shoot [L]: a picture and what the mode says, with label L or that of the first button", 0, 1,
               ARENA},
    [MODE] = {"mode", "mode infer|train|evaluate: what a shot does", 1, 1, NOTHING},
    [LABEL] = {"label", "label A [B]: classes that the two buttons stand for", 1, 2, NOTHING},
#endif
};

/* Split at spaces, in place. count is WORDS_MAX + 1 where there are too many. */
static void split(char *line, struct words *w)
{
    w->count = 0;
    for (;;) {
        while (*line == ' ') {
            *line++ = '\0';
        }
        if (!*line || w->count > WORDS_MAX) {
            return;
        }
        if (w->count < WORDS_MAX) {
            w->word[w->count] = line;
        }
        w->count++;
        while (*line && *line != ' ') {
            line++;
        }
    }
}

static int run_help(void)
{
    for (uint32_t i = 0; i < COMMANDS; i++) {
        reply_line(table[i].help);
    }
    return reply_ok("ok");
}

static void reply_word(const char *key, const char *value)
{
    reply_text(key);
    reply_text(" ");
    reply_line(value);
}

static int run_info(const struct protocol *p)
{
    reply_word("board", board_name());
    reply_word("model", model_info.name);
    reply_text("id ");
    reply_hex(model_info.id, 8);
    reply_end();
    char shape[3 * TEXT_U32_MAX + 3];
    size_t n = text_u32(shape, model_info.height);
    shape[n++] = 'x';
    n += text_u32(shape + n, model_info.width);
    shape[n++] = 'x';
    n += text_u32(shape + n, model_info.channels);
    shape[n] = '\0';
    reply_word("input", shape);
    reply_pair("classes", model_info.classes);
    reply_pair("arena", model_info.arena_bytes);
    reply_pair("trainable", model_info.trainable_bytes);
    reply_pair("frame", FRAME_PAYLOAD_MAX);
    reply_pair("baud", p->baud);
    reply_pair("records", MODEL_RECORDS);
    reply_pair("api", MODEL_API_VERSION);
    return reply_ok("ok");
}

static int run_image(struct protocol *p)
{
    p->transfer.active = 0;
    session_forget_image(&p->session);
    return reply_ok("ok image");
}

static int run_stats(struct protocol *p, const struct words *w)
{
    struct session *s = &p->session;
    if (w->count == 2) {
        if (strcmp(w->word[1], "clear") != 0) {
            return reply_error("argument", "stats takes nothing or `clear`");
        }
        session_clear_stats(s);
        return reply_ok("ok");
    }
    reply_pair("steps", s->step);
    reply_pair("seed", s->seed);
#if MODEL_RECORDS > 0
    reply_pair("replays", s->replays);
    reply_pair("records_held", replay_held());
#endif
    reply_pair("evaluated", s->evaluated);
    reply_pair("correct", s->correct);
    reply_text("loss");
    reply_f32(session_mean_loss(s));
    reply_end();
    reply_pair("frames_ok", p->frames_ok);
    reply_pair("frames_bad", p->frames_bad);
    reply_pair("bytes_lost", board_serial_lost());
    reply_pair("infer_cycles", s->infer_cycles);
    reply_pair("step_cycles", s->step_cycles);
    reply_pair("uptime_ms", board_millis());
    reply_pair("saves", p->checkpoint.saves);
    reply_pair("rollbacks", s->guard.rollbacks);
    reply_pair("erases_a", p->checkpoint.erases[0]);
    reply_pair("erases_b", p->checkpoint.erases[1]);
    reply_pair("saves_left", checkpoint_saves_left(&p->checkpoint));
    return reply_ok("ok");
}

static int run_rate(struct session *s, const char *word)
{
    float rate;
    if (!parse_f32(word, &rate) || rate > (float)RATE_MAX) {
        return reply_error("argument", "rate takes a decimal number, 0..1000");
    }
    s->rate = rate;
    reply_text("ok rate ");
    reply_line(word);
    return 1;
}

static int run_seed(struct session *s, const char *word)
{
    if (!parse_u32(word, &s->seed)) {
        return reply_error("argument", "seed takes a number, 0..4294967295");
    }
    return reply_ok_u32("ok seed", s->seed);
}

static int run_replay(struct session *s, const char *word)
{
#if MODEL_RECORDS > 0
    uint32_t count;
    if (strcmp(word, "clear") == 0) {
        replay_clear();
        return reply_ok("ok replay clear");
    }
    if (!parse_u32(word, &count) || count > REPLAY_MAX) {
        return reply_error("argument", "replay takes a number of steps, 0..100, or `clear`");
    }
    s->replays = count;
    return reply_ok_u32("ok replay", count);
#else
    (void)s;
    (void)word;
    return reply_error("argument", "this firmware has no replay buffer: convert with --replay");
#endif
}

static int run_sha(void)
{
    uint8_t digest[SHA256_BYTES];
    sha256(model_trainables, model_info.trainable_bytes, digest);
    reply_text("ok sha ");
    for (uint32_t i = 0; i < SHA256_BYTES; i++) {
        reply_hex(digest[i], 2);
    }
    reply_end();
    return 1;
}

static int run_pull(void)
{
    uint32_t crc = transfer_pull();
    reply_text("ok pull");
    reply_u32(model_info.trainable_bytes);
    reply_text(" ");
    reply_hex(crc, 8);
    reply_end();
    return 1;
}

static int run_push(struct protocol *p, const struct words *w)
{
    uint32_t bytes, crc, id;
    if (!parse_u32(w->word[1], &bytes) || !parse_hex32(w->word[2], &crc) || !parse_hex32(w->word[3], &id)) {
        return reply_error("argument", "push takes a number of bytes, a CRC-32 and a model id, both in hex");
    }
    switch (transfer_start(&p->transfer, bytes, crc, id)) {
    case TRANSFER_OK:
        session_forget_image(&p->session);
        return reply_ok("ok push");
    case TRANSFER_ERR_SIZE:
        return reply_error("push", "size is not that of the trainables");
    default:
        return reply_error("push", "made for another model");
    }
}

static int run_reset(struct protocol *p)
{
    p->transfer.active = 0;
    p->transfer.incomplete = 0;
    session_reset(&p->session);
    return reply_ok("ok reset");
}

static int run_baud(struct protocol *p, const char *word)
{
    uint32_t baud;
    if (!parse_u32(word, &baud) || baud < BAUD_MIN || baud > BAUD_MAX) {
        return reply_error("argument", "baud takes a rate, 9600..3000000");
    }
    p->next_baud = baud;
    return reply_ok_u32("ok baud", baud);
}

static int run_led(struct protocol *p, const char *word)
{
    uint32_t on;
    if (!parse_u32(word, &on) || on > 1) {
        return reply_error("argument", "led takes 0 or 1");
    }
#if MICROTRAIN_CAMERA
    light_off(&p->demo.light);
#else
    (void)p;
#endif
    board_led((int)on);
    return reply_ok("ok led");
}

static int fail_save(int status)
{
    return reply_error("flash", checkpoint_reason(status));
}

static int run_save(struct protocol *p)
{
    int status = checkpoint_save(&p->checkpoint, &p->session);
    return status == CHECKPOINT_OK ? reply_ok_u32("ok save", p->checkpoint.saves) : fail_save(status);
}

static int run_autosave(struct session *s, const char *word)
{
    if (!parse_u32(word, &s->autosave)) {
        return reply_error("argument", "autosave takes a number of steps, 0..4294967295");
    }
    return reply_ok_u32("ok autosave", s->autosave);
}

static int run_guard(struct session *s, const char *word)
{
    uint32_t on;
    if (!parse_u32(word, &on) || on > 1) {
        return reply_error("argument", "guard takes 0 or 1");
    }
    guard_start(&s->guard, on);
    return reply_ok_u32("ok guard", on);
}

static int run_forget(struct protocol *p)
{
    int status = checkpoint_forget(&p->checkpoint);
    return status == CHECKPOINT_OK ? reply_ok("ok forget") : fail_save(status);
}

/* A checkpoint that cannot be written does not keep a device from restarting: it says so first. */
_Noreturn static void run_reboot(struct protocol *p)
{
    if (p->session.step != p->checkpoint.saved_step && !p->transfer.incomplete) {
        int status = checkpoint_save(&p->checkpoint, &p->session);
        command_unsaved(status);
    }
    reply_line("ok reboot");
    board_reset();
}

static int run_setting(struct protocol *p, enum command command, const struct words *w)
{
    switch (command) {
    case RATE:
        return run_rate(&p->session, w->word[1]);
    case SEED:
        return run_seed(&p->session, w->word[1]);
    case REPLAY:
        return run_replay(&p->session, w->word[1]);
    case AUTOSAVE:
        return run_autosave(&p->session, w->word[1]);
    case GUARD:
        return run_guard(&p->session, w->word[1]);
    case BAUD:
        return run_baud(p, w->word[1]);
    default:
        return run_led(p, w->word[1]);
    }
}

static int run(struct protocol *p, enum command command, const struct words *w)
{
    switch (command) {
    case HELP:
        return run_help();
    case PING:
        return reply_ok("ok pong");
    case INFO:
        return run_info(p);
    case IMAGE:
        return run_image(p);
    case STATS:
        return run_stats(p, w);
    case SHA:
        return run_sha();
    case SELFTEST:
        return command_selftest(&p->session);
    case PULL:
        return run_pull();
    case PUSH:
        return run_push(p, w);
    case RESET:
        return run_reset(p);
    case SAVE:
        return run_save(p);
    case FORGET:
        return run_forget(p);
    case REBOOT:
        run_reboot(p);
#if MICROTRAIN_CAMERA
    case CAMERA:
    case CAPTURE:
    case SHOOT:
    case MODE:
    case LABEL:
        return command_demo(p, command, w);
#endif
    default:
        return table[command].needs == ARENA ? command_step(p, command, w) : run_setting(p, command, w);
    }
}

int command_may_use(const struct protocol *p, int arena)
{
    if (arena && p->transfer.active) {
        return reply_error("busy", "a push is under way; `image` ends it");
    }
    if (p->transfer.incomplete) {
        return reply_error("push", "trainables are incomplete: push again, or `reset`");
    }
    return 1;
}

int command_run(struct protocol *p, char *line)
{
    struct words w;
    uint32_t command = 0;
    split(line, &w);
    if (w.count == 0) {
        return reply_error("command", "line is empty");
    }
    while (command < COMMANDS && strcmp(w.word[0], table[command].name) != 0) {
        command++;
    }
    if (command == COMMANDS) {
        return reply_error("command", "unknown; `help` lists the commands");
    }
    const struct entry *entry = &table[command];
    if (w.count - 1 < entry->arguments_min || w.count - 1 > entry->arguments_max) {
        return reply_error("argument", entry->help);
    }
    if (entry->needs != NOTHING && !command_may_use(p, entry->needs == ARENA)) {
        return 0;
    }
    return run(p, (enum command)command, &w);
}
