/* SPDX-License-Identifier: Apache-2.0 */
/* The text commands of docs/protocol.md. A handler answers by itself and returns 1 after `ok`, 0 after `err`. */
#include "commands.h"

#include <string.h>

#include "application.h"
#include "board.h"
#include "handlers.h"
#include "reply.h"
#include "sha256.h"
#include "text.h"

enum {
    RATE_MAX = 1000, /* largest factor on the learning rates */
    BAUD_MIN = 9600,
    BAUD_MAX = 3000000,
};

/* clang-format off */
#if MODEL_IMPRINT > 0
#define IMPRINT(ROW) \
    ROW(imprint, command_imprint(&p->learner, w->word[1]), 1, 1, NEEDS_ARENA, \
        " L|head: look at the image once, of label L; head: make the head of all that was seen")
#else
#define IMPRINT(ROW)
#endif
#if MODEL_HOP > 0
#define HOPS(ROW) \
    ROW(slide, command_slide(&p->learner), 0, 0, NEEDS_ARENA, \
        ": behind `infer`: the window moves on, and only its new rows are missing")
#else
#define HOPS(ROW)
#endif
#if MODEL_TARGETS > 0
#define LEARN(ROW) \
    ROW(target, command_target(&p->learner, w), 2, 2, NEEDS_NOTHING, \
        " I HEX: number I of the target, a float32 in hex; 0 first") \
    ROW(train, command_train(p, "0"), 0, 0, NEEDS_ARENA, \
        ": one training step with the target")
#else
#define LEARN(ROW) \
    ROW(train, command_train(p, w->word[1]), 1, 1, NEEDS_ARENA, \
        " L: one training step with label L") \
    ROW(eval, command_eval(&p->learner, w->word[1]), 1, 1, NEEDS_ARENA, \
        " L: inference, counted against label L")
#endif
#if MODEL_RECORDS > 0
#define RECORDS(ROW) \
    ROW(keep, run_keep(&p->learner, w->word[1]), 1, 1, NEEDS_NOTHING, \
        " 0|1: 1: images that come may become records, as after boot") \
    ROW(idle, run_idle(&p->learner, w->word[1]), 1, 1, NEEDS_NOTHING, \
        " N: take N steps on old records while the line is silent, at a rate that falls to 0; 0: none")
#else
#define RECORDS(ROW)
#endif
#if MODEL_FLEET_BYTES > 0
#define FLEET(ROW) \
    ROW(join, command_join(p, w), 3, 3, NEEDS_TRAINABLES, \
        " F N G: round N of fleet F, 8 hex digits, begins from what was pushed; G: the last round whose update arrived") \
    ROW(share, command_share(p, w), 2, 2, NEEDS_TRAINABLES, \
        " B M: the round's update, of B bytes at most, with momentum M, 0..255")
#else
#define FLEET(ROW)
#endif
#define TABLE(ROW) \
    ROW(help, run_help(), 0, 0, NEEDS_NOTHING, \
        ": this list") \
    ROW(ping, reply_ok("ok pong"), 0, 0, NEEDS_NOTHING, \
        ": answer `ok pong`") \
    ROW(info, run_info(p), 0, 0, NEEDS_NOTHING, \
        ": board, model, sizes") \
    ROW(image, command_image(p), 0, 0, NEEDS_NOTHING, \
        ": forget the rows received so far") \
    ROW(row, command_row(&p->learner, w), 3, 3, NEEDS_ARENA, \
        " Y X HEX: up to 48 bytes of image row Y from byte X on") \
    ROW(pattern, command_pattern(&p->learner, w->word[1]), 1, 1, NEEDS_ARENA, \
        " N: fill the image with test pattern N") \
    ROW(infer, command_infer(&p->learner), 0, 0, NEEDS_ARENA, \
        ": logits (hex float32) and class of the image") \
    HOPS(ROW) \
    LEARN(ROW) \
    IMPRINT(ROW) \
    ROW(stats, run_stats(p, w), 0, 1, NEEDS_NOTHING, \
        " [clear]: counters; clear: zero those of evaluation and loss") \
    ROW(rate, run_rate(&p->learner, w->word[1]), 1, 1, NEEDS_NOTHING, \
        " F: multiply the scheme's learning rates by F, 0..1000") \
    ROW(seed, run_seed(&p->learner, w->word[1]), 1, 1, NEEDS_NOTHING, \
        " N: seed of the stochastic rounding") \
    ROW(replay, run_replay(&p->learner, w->word[1]), 1, 1, NEEDS_NOTHING, \
        " K|clear: steps on old records behind each new one, 0..100; clear: forget them") \
    ROW(rehearse, command_rehearse(p, w->word[1]), 1, 1, NEEDS_ARENA, \
        " N: steps on old records alone, 1..100") \
    RECORDS(ROW) \
    FLEET(ROW) \
    ROW(sha, run_sha(), 0, 0, NEEDS_TRAINABLES, \
        ": SHA-256 of the trainables") \
    ROW(selftest, command_selftest(&p->learner), 0, 0, NEEDS_ARENA, \
        ": kernels, flash of the model, memory; the image is lost") \
    ROW(pull, run_pull(), 0, 0, NEEDS_TRAINABLES, \
        ": send the trainables as DATA frames") \
    ROW(push, run_push(p, w), 3, 3, NEEDS_NOTHING, \
        " BYTES CRC ID: replace the trainables by those in the WEIGHTS frames that follow") \
    ROW(reset, run_reset(p), 0, 0, NEEDS_NOTHING, \
        ": trainables, step counter and statistics as after conversion") \
    ROW(save, run_save(p), 0, 0, NEEDS_TRAINABLES, \
        ": checkpoint to flash") \
    ROW(autosave, run_autosave(&p->learner, w->word[1]), 1, 1, NEEDS_NOTHING, \
        " N: checkpoint after every N training steps, 0: none") \
    ROW(guard, run_guard(&p->learner, w->word[1]), 1, 1, NEEDS_NOTHING, \
        " 0|1: 1: back to the last checkpoint, at half the rate, where training diverges") \
    ROW(forget, run_forget(p), 0, 0, NEEDS_NOTHING, \
        ": erase all checkpoints; the trainables stay") \
    ROW(reboot, run_reboot(p), 0, 0, NEEDS_NOTHING, \
        ": save what is new since the last checkpoint, then restart") \
    ROW(baud, run_baud(p, w->word[1]), 1, 1, NEEDS_NOTHING, \
        " N: change the rate, 9600..3000000; needs a line at the new rate within 2 s") \
    ROW(led, run_led(w->word[1]), 1, 1, NEEDS_NOTHING, \
        " 0|1: LED off or on")
/* clang-format on */

enum { TABLE(COMMAND_NUMBER) TABLE_ROWS };

static const struct command table[] = {TABLE(COMMAND_ENTRY)};

void command_help(const struct command *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        reply_line(rows[i].help);
    }
}

static int run_help(void)
{
    command_help(table, TABLE_ROWS);
    application_help();
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
    reply_word("model", microtrain_name());
    reply_text("id ");
    reply_hex(microtrain_id(), 8);
    reply_end();
    char shape[3 * TEXT_U32_MAX + 3];
    size_t n = text_u32(shape, MODEL_HEIGHT);
    shape[n++] = 'x';
    n += text_u32(shape + n, MODEL_WIDTH);
    shape[n++] = 'x';
    n += text_u32(shape + n, MODEL_CHANNELS);
    shape[n] = '\0';
    reply_word("input", shape);
    reply_pair("classes", MODEL_CLASSES);
    reply_pair("arena", MODEL_ARENA_BYTES);
    reply_pair("trainable", MODEL_TRAINABLE_BYTES);
    reply_pair("frame", FRAME_PAYLOAD_MAX);
    reply_pair("baud", p->baud);
    reply_pair("records", MODEL_RECORDS);
#if MODEL_IMPRINT > 0
    reply_pair("imprint", MODEL_IMPRINT);
#endif
#if MODEL_TARGETS > 0
    reply_word("task", MODEL_TASK);
#endif
#ifdef MODEL_KNOWN
    reply_pair("known", MODEL_KNOWN);
#endif
#ifdef MODEL_SOUND
    reply_word("sound", MODEL_SOUND);
#endif
#ifdef MODEL_UNITS
    reply_word("units", MODEL_UNITS);
#endif
#if MODEL_HOP > 0
    reply_pair("hop", MODEL_HOP);
#endif
#if MODEL_FLEET_BYTES > 0
    reply_pair("fleet", MODEL_FLEET_ROOM);
#endif
#ifdef MODEL_GATE
    reply_text("gate");
    reply_f32(MODEL_GATE);
    reply_end();
#endif
    reply_pair("api", microtrain_api());
    return reply_ok("ok");
}

/* In a frame of its own, which no step stands on. */
__attribute__((noinline)) static int run_stats(struct protocol *p, const struct words *w)
{
    struct microtrain *m = &p->learner;
    struct microtrain_state state;
    struct microtrain_counts counts;
    struct microtrain_saves saves;
    if (w->count == 2) {
        if (strcmp(w->word[1], "clear") != 0) {
            return reply_error("argument", "stats takes nothing or `clear`");
        }
        microtrain_clear_counts(m);
        return reply_ok("ok");
    }
    (void)microtrain_state(m, &state);
    microtrain_counts(m, &counts);
    microtrain_saves(m, &saves);
    reply_pair("steps", state.steps);
    reply_pair("seed", counts.seed);
#if MODEL_RECORDS > 0
    reply_pair("replays", counts.replays);
    reply_pair("records_held", counts.records);
    reply_pair("idle", counts.idle);
#endif
#if MODEL_IMPRINT > 0
    reply_pair("seen", state.looks);
#endif
#ifdef MODEL_GATE
    reply_pair("skipped", counts.skipped);
#endif
    reply_pair("evaluated", counts.evaluated);
    reply_pair("correct", counts.correct);
    reply_text("loss");
    reply_f32(state.mean_loss);
    reply_end();
    reply_pair("frames_ok", p->frames_ok);
    reply_pair("frames_bad", p->frames_bad);
    reply_pair("bytes_lost", board_serial_lost());
    reply_pair("infer_cycles", counts.infer_cycles);
    reply_pair("step_cycles", counts.step_cycles);
    reply_pair("uptime_ms", board_millis());
    reply_pair("saves", saves.number);
    reply_pair("rollbacks", counts.rollbacks);
    reply_pair("erases_a", saves.erases[0]);
    reply_pair("erases_b", saves.erases[1]);
    reply_pair("saves_left", saves.left);
    return reply_ok("ok");
}

static int run_rate(struct microtrain *m, const char *word)
{
    float rate;
    if (!parse_f32(word, &rate) || rate > (float)RATE_MAX) {
        return reply_error("argument", "rate takes a decimal number, 0..1000");
    }
    microtrain_rate(m, rate);
    reply_text("ok rate ");
    reply_line(word);
    return 1;
}

static int run_seed(struct microtrain *m, const char *word)
{
    uint32_t seed;
    if (!parse_u32(word, &seed)) {
        return reply_error("argument", "seed takes a number, 0..4294967295");
    }
    microtrain_seed(m, seed);
    return reply_ok_u32("ok seed", seed);
}

static int run_replay(struct microtrain *m, const char *word)
{
#if MODEL_RECORDS > 0
    uint32_t count;
    if (strcmp(word, "clear") == 0) {
        microtrain_drop_records(m);
        return reply_ok("ok replay clear");
    }
    if (!parse_u32(word, &count) || count > REPLAY_MAX) {
        return reply_error("argument", "replay takes a number of steps, 0..100, or `clear`");
    }
    microtrain_replay(m, count);
    return reply_ok_u32("ok replay", count);
#else
    (void)m;
    (void)word;
    return reply_error("argument", "this firmware has no replay buffer: convert with --replay");
#endif
}

#if MODEL_RECORDS > 0
static int run_keep(struct microtrain *m, const char *word)
{
    uint32_t on;
    if (!parse_u32(word, &on) || on > 1) {
        return reply_error("argument", "keep takes 0 or 1");
    }
    microtrain_keep(m, on);
    return reply_ok_u32("ok keep", on);
}

static int run_idle(struct microtrain *m, const char *word)
{
    uint32_t steps;
    if (!parse_u32(word, &steps)) {
        return reply_error("argument", "idle takes a number of steps, 0..4294967295");
    }
    microtrain_allow_idle(m, steps);
    return reply_ok_u32("ok idle", steps);
}
#endif

static int run_guard(struct microtrain *m, const char *word)
{
    uint32_t on;
    if (!parse_u32(word, &on) || on > 1) {
        return reply_error("argument", "guard takes 0 or 1");
    }
    microtrain_guard(m, on);
    return reply_ok_u32("ok guard", on);
}

static int run_sha(void)
{
    uint8_t digest[SHA256_BYTES];
    sha256(model_trainables, MODEL_TRAINABLE_BYTES, digest);
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
    reply_u32(MODEL_TRAINABLE_BYTES);
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
        microtrain_drop_arena(&p->learner);
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
    (void)microtrain_reset(&p->learner);
    return reply_ok("ok reset");
}

const char *command_reason(int status)
{
    switch (status) {
    case MICROTRAIN_ERR_OTHER_MODEL:
        return "holds what another model has learned; `forget` erases it";
    case MICROTRAIN_ERR_FORMAT:
        return "holds checkpoints of another version; `forget` erases them";
    case MICROTRAIN_ERR_SLOT:
        return "has no slot that is large enough for the trainables";
    case MICROTRAIN_ERR_ERASE:
        return "cannot be erased, it may be worn out";
    default:
        return "does not hold what is written, it may be worn out; the last checkpoint stays";
    }
}

static int fail_save(int status)
{
    return reply_error("flash", command_reason(status));
}

static int run_save(struct protocol *p)
{
    struct microtrain_saves saves;
    int status = microtrain_save(&p->learner, MICROTRAIN_LINKED);
    microtrain_saves(&p->learner, &saves);
    return status == MICROTRAIN_OK ? reply_ok_u32("ok save", saves.number) : fail_save(status);
}

static int run_autosave(struct microtrain *m, const char *word)
{
    uint32_t steps;
    if (!parse_u32(word, &steps)) {
        return reply_error("argument", "autosave takes a number of steps, 0..4294967295");
    }
    microtrain_autosave(m, steps);
    return reply_ok_u32("ok autosave", steps);
}

static int run_forget(struct protocol *p)
{
    int status = microtrain_forget(&p->learner, MICROTRAIN_LINKED);
    return status == MICROTRAIN_OK ? reply_ok("ok forget") : fail_save(status);
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

static int run_led(const char *word)
{
    uint32_t on;
    if (!parse_u32(word, &on) || on > 1) {
        return reply_error("argument", "led takes 0 or 1");
    }
    application_led((int)on);
    return reply_ok("ok led");
}

/* A checkpoint that cannot be written does not keep a device from restarting: it says so first. */
static int run_reboot(struct protocol *p)
{
    if (microtrain_unsaved(&p->learner) && !p->transfer.incomplete) {
        int status = microtrain_save(&p->learner, MICROTRAIN_LINKED);
        command_unsaved(status);
    }
    reply_line("ok reboot");
    board_reset();
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

/* 1 where a line of `help` is that of the command `word`. */
static int begins(const char *help, const char *word)
{
    while (*help != ' ' && *help != ':' && *help == *word) {
        help++;
        word++;
    }
    return *word == '\0' && (*help == ' ' || *help == ':');
}

int command_find(const struct protocol *p, const struct command *rows, uint32_t count, const struct words *w)
{
    uint32_t row = 0;
    while (row < count && !begins(rows[row].help, w->word[0])) {
        row++;
    }
    if (row == count) {
        return COMMAND_UNKNOWN;
    }
    const struct command *command = &rows[row];
    if (w->count - 1 < command->arguments_min || w->count - 1 > command->arguments_max) {
        (void)reply_error("argument", command->help);
        return COMMAND_REFUSED;
    }
    int needs = command->needs;
    return needs == NEEDS_NOTHING || command_may_use(p, needs == NEEDS_ARENA) ? (int)row : COMMAND_REFUSED;
}

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

/* 1, 0, COMMAND_UNKNOWN or COMMAND_REFUSED. */
COLD static int run(struct protocol *p, const struct words *w)
{
    int row = command_find(p, table, TABLE_ROWS, w);
    switch (row) {
        TABLE(COMMAND_CASE)
    }
    return row;
}

int command_run(struct protocol *p, char *line)
{
    struct words w;
    split(line, &w);
    if (w.count == 0) {
        return reply_error("command", "line is empty");
    }
    int answer = run(p, &w);
    if (answer == COMMAND_UNKNOWN) {
        answer = application_command(p, &w);
    }
    if (answer == COMMAND_UNKNOWN) {
        return reply_error("command", "unknown; `help` lists the commands");
    }
    return answer == 1;
}
