/* SPDX-License-Identifier: Apache-2.0 */
/* The text commands that send an image and use it. */
#include <string.h>

#include "handlers.h"
#include "reply.h"
#include "text.h"

enum { PART_MAX = 48 }; /* bytes of an image row in one `row` line */

static uint32_t rows_missing(const struct microtrain *m)
{
    struct microtrain_state state;
    (void)microtrain_state(m, &state);
    return state.rows_missing;
}

static int fail_step(const struct microtrain *m, int status)
{
    if (status == MICROTRAIN_ERR_LABEL) {
        return reply_error("argument", "label is not a class of the model");
    }
#if MODEL_TARGETS > 0
    if (status == MICROTRAIN_ERR_TASK) {
        return reply_error("target", "numbers of it are missing: `target 0 HEX` first");
    }
#endif
    reply_text("err image rows missing");
    reply_u32(rows_missing(m));
    reply_end();
    return 0;
}

int command_image(struct protocol *p)
{
    p->transfer.active = 0;
    microtrain_drop_input(&p->learner);
    return reply_ok("ok image");
}

int command_row(struct microtrain *m, const struct words *w)
{
    uint8_t pixels[PART_MAX];
    uint32_t y, x;
    size_t digits = strlen(w->word[3]);
    if (!parse_u32(w->word[1], &y) || !parse_u32(w->word[2], &x) || digits % 2 || digits > 2 * PART_MAX) {
        return reply_error("argument", "row takes Y, X and up to 48 bytes in hex, two digits each");
    }
    for (size_t i = 0; i < digits / 2; i++) {
        int byte = parse_hex_byte(w->word[3] + 2 * i);
        if (byte < 0) {
            return reply_error("argument", "row takes Y, X and up to 48 bytes in hex, two digits each");
        }
        pixels[i] = (uint8_t)byte;
    }
    switch (microtrain_feed_part(m, y, x, pixels, (uint32_t)(digits / 2))) {
    case MICROTRAIN_OK:
        return reply_ok_u32("ok row", y);
    case MICROTRAIN_ERR_INPUT:
        return reply_error("argument", "bytes do not follow those before them; start the row at 0");
    case MICROTRAIN_ERR_ORDER:
        return reply_error("argument", "rows come in order, from 0 on; `infer` tells how many are missing");
    default:
        return reply_error("argument", "bytes are outside the image");
    }
}

int command_pattern(struct microtrain *m, const char *number)
{
    uint32_t n;
    if (!parse_u32(number, &n)) {
        return reply_error("argument", "pattern takes a number, 0..4294967295");
    }
    microtrain_feed_pattern(m, n);
    return reply_ok("ok pattern");
}

int command_infer(struct microtrain *m)
{
    uint32_t predicted;
    int status = microtrain_predict(m, NULL, &predicted);
    if (status != MICROTRAIN_OK) {
        return fail_step(m, status);
    }
    reply_text("logits");
    const float *logits = microtrain_logits(m);
    for (uint32_t k = 0; k < MODEL_CLASSES; k++) {
        uint32_t bits;
        memcpy(&bits, &logits[k], sizeof bits);
        reply_text(" ");
        reply_hex(bits, 8);
    }
    reply_end();
    reply_pair("class", predicted);
    return reply_ok_u32("ok infer", predicted);
}

#if MODEL_HOP > 0
int command_slide(struct microtrain *m)
{
    if (microtrain_slide(m) != MICROTRAIN_OK) {
        return reply_error("argument",
                           "there is no window to move on: `infer` first, and nothing that learns behind it");
    }
    return reply_ok_u32("ok slide", rows_missing(m));
}
#endif

void command_unsaved(int status)
{
    if (status != MICROTRAIN_OK) {
        reply_text("unsaved: the flash ");
        reply_line(command_reason(status));
    }
}

/* In front of the answer, which the host waits for: it sends nothing while the flash is being erased. */
void command_trained(struct protocol *p)
{
    struct microtrain *m = &p->learner;
    int status = microtrain_settle(m);
    if (status != MICROTRAIN_ERR_DIVERGED) {
        command_unsaved(status);
        return;
    }
    struct microtrain_state state;
    struct microtrain_counts counts;
    (void)microtrain_state(m, &state);
    microtrain_counts(m, &counts);
    reply_text("diverged: back to step");
    reply_u32(state.steps);
    reply_text(" at rate");
    reply_f32(counts.rate);
    reply_end();
}

int command_train(struct protocol *p, const char *word)
{
    struct microtrain *m = &p->learner;
    uint32_t label, predicted;
    float loss;
    int status = parse_u32(word, &label) ? microtrain_learn(m, label, &predicted, &loss) : MICROTRAIN_ERR_LABEL;
    if (status != MICROTRAIN_OK) {
        return fail_step(m, status);
    }
    command_trained(p);
    reply_text("ok train");
    reply_u32(label);
    reply_u32(predicted);
    reply_f32(loss);
    reply_end();
    return 1;
}

int command_rehearse(struct protocol *p, const char *word)
{
    struct microtrain *m = &p->learner;
    uint32_t count;
    if (!parse_u32(word, &count) || count < 1 || count > REPLAY_MAX) {
        return reply_error("argument", "rehearse takes a number of steps, 1..100");
    }
    if (microtrain_rehearse(m, count) != MICROTRAIN_OK) {
        return reply_error("argument", "there are no records to rehearse");
    }
    command_trained(p);
    return reply_ok_u32("ok rehearse", count);
}

#if MODEL_IMPRINT > 0
static uint32_t looks(const struct microtrain *m)
{
    struct microtrain_state state;
    (void)microtrain_state(m, &state);
    return state.looks;
}

static int make_head(struct microtrain *m)
{
    uint32_t classes, seen = looks(m);
    if (microtrain_imprint_head(m, &classes) != MICROTRAIN_OK) {
        return reply_error("argument", "nothing was seen since the last training step: `imprint L` first");
    }
    reply_text("ok imprint head");
    reply_u32(seen);
    reply_u32(classes);
    reply_end();
    return 1;
}

int command_imprint(struct microtrain *m, const char *word)
{
    uint32_t label, predicted;
    if (strcmp(word, "head") == 0) {
        return make_head(m);
    }
    int status = parse_u32(word, &label) ? microtrain_look(m, label, &predicted) : MICROTRAIN_ERR_LABEL;
    if (status == MICROTRAIN_ERR_FULL) {
        return reply_error("argument", "the statistics are full: `imprint head` makes the head of them");
    }
    if (status != MICROTRAIN_OK) {
        return fail_step(m, status);
    }
    reply_text("ok imprint");
    reply_u32(label);
    reply_u32(predicted);
    reply_u32(looks(m));
    reply_end();
    return 1;
}
#endif

#if MODEL_TARGETS > 0
int command_target(struct microtrain *m, const struct words *w)
{
    uint32_t i, bits;
    float number;
    if (!parse_u32(w->word[1], &i) || !parse_hex32(w->word[2], &bits)) {
        return reply_error("argument", "target takes a place, 0 or more, and a float32 as 8 hex digits");
    }
    memcpy(&number, &bits, sizeof number);
    if (microtrain_put_target(m, i, number) != MICROTRAIN_OK) {
        return reply_error("argument", "numbers of a target are finite and come in order, from 0 on");
    }
    reply_text("ok target");
    reply_u32(i);
    reply_text(" ");
    reply_hex(bits, 8);
    reply_end();
    return 1;
}
#else

int command_eval(struct microtrain *m, const char *word)
{
    uint32_t label, predicted;
    int status = parse_u32(word, &label) ? microtrain_evaluate(m, label, &predicted) : MICROTRAIN_ERR_LABEL;
    if (status != MICROTRAIN_OK) {
        return fail_step(m, status);
    }
    struct microtrain_counts counts;
    microtrain_counts(m, &counts);
    reply_text("ok eval");
    reply_u32(label);
    reply_u32(predicted);
    reply_u32(counts.correct);
    reply_u32(counts.evaluated);
    reply_end();
    return 1;
}
#endif
