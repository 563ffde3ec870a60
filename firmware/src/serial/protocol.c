/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol.h"

#include <string.h>

#include "application.h"
#include "board.h"
#include "commands.h"
#include "reply.h"

/* Where the trainables come from. */
static void say_checkpoint(const struct microtrain *m)
{
    struct microtrain_saves saves;
    microtrain_saves(m, &saves);
    switch (saves.status) {
    case MICROTRAIN_OK:
        reply_text("checkpoint");
        reply_u32(saves.number);
        reply_text(" of step");
        reply_u32(saves.step);
        break;
    case MICROTRAIN_NONE:
        reply_text("checkpoint none");
        break;
    case MICROTRAIN_ERR_OTHER_MODEL:
        reply_text("checkpoint refused: it is of model ");
        reply_hex(saves.model_id, 8);
        reply_text("; `forget` erases it");
        break;
    default:
        reply_text("checkpoint refused: its layout is version");
        reply_u32(saves.version);
        reply_text("; `forget` erases it");
        break;
    }
    reply_end();
}

/* Why the device has started, and how it last failed. */
static void say_start(void)
{
    const struct board_crash *crash = board_crash();
    reply_text("start ");
    reply_line(board_start_cause());
    if (crash) {
        reply_text("crashed");
        reply_u32(crash->count);
        reply_text(" times, last: exception");
        reply_u32(crash->exception);
        reply_text(" pc ");
        reply_hex(crash->pc, 8);
        reply_text(" lr ");
        reply_hex(crash->lr, 8);
        reply_text(" sp ");
        reply_hex(crash->sp, 8);
        reply_text(" cfsr ");
        reply_hex(crash->cfsr, 8);
        reply_text(" hfsr ");
        reply_hex(crash->hfsr, 8);
        reply_end();
    }
}

#if MICROTRAIN_EXTERNAL
int protocol_can_start(void)
{
    return microtrain_outside_fits();
}
#endif

void protocol_start(struct protocol *p)
{
    memset(p, 0, sizeof *p);
    receiver_init(&p->receiver);
    p->baud = BOARD_BAUD_DEFAULT;
    (void)microtrain_init(&p->learner, MICROTRAIN_LINKED, MICROTRAIN_LINKED);
    reply_text("microtrain ");
    reply_text(board_name());
    reply_text(" ");
    reply_text(microtrain_name());
    reply_text(" ");
    reply_hex(microtrain_id(), 8);
    reply_end();
    say_start();
    (void)microtrain_load(&p->learner, MICROTRAIN_LINKED); /* the next line says how it went */
    say_checkpoint(&p->learner);
    application_start(p);
    reply_line("ready");
}

/* The host sends nothing until the answer has come. */
void microtrain_erasing(void)
{
    reply_line("busy erasing flash, up to 4 s");
}

static void frame_error(struct protocol *p, const char *sentence)
{
    p->frames_bad++;
    (void)reply_error("frame", sentence);
}

/* `ok row Y SEQ`, `ok weights OFFSET SEQ` */
static void frame_ok(struct protocol *p, const char *what)
{
    p->frames_ok++;
    reply_text(what);
    reply_u32(p->receiver.frame.position);
    reply_u32(p->receiver.frame.sequence);
    reply_end();
}

enum { ROWS_MOST = FRAME_PAYLOAD_MAX / IMAGE_ROW_BYTES }; /* in a frame */

/* Rows in a frame. 0: it holds no whole ones. */
static uint32_t rows_of(const struct frame *frame)
{
    if (ROWS_MOST == 1) {
        return frame->size == IMAGE_ROW_BYTES;
    }
    return frame->size % IMAGE_ROW_BYTES == 0 ? frame->size / IMAGE_ROW_BYTES : 0;
}

/* Row i of the frame. Returns microtrain_feed_row's status. What runs below it is the deepest of all, so it is apart: it
 * ends in that call, and the loop around it keeps little. */
__attribute__((noinline)) static int feed_row(struct protocol *p, uint32_t i)
{
    const uint8_t *row = receiver_payload(&p->receiver) + i * IMAGE_ROW_BYTES;
    return microtrain_feed_row(&p->learner, p->receiver.frame.position + i, row);
}

/* The rows of a frame, one at least, until one is refused. Returns the last one's status. */
static int feed_rows(struct protocol *p)
{
    int status = MICROTRAIN_OK;
    if (ROWS_MOST == 1) {
        return microtrain_feed_row(&p->learner, p->receiver.frame.position, receiver_payload(&p->receiver));
    }
    for (uint32_t i = 0; status == MICROTRAIN_OK && i < rows_of(&p->receiver.frame); i++) {
        status = feed_row(p, i);
    }
    return status;
}

static void take_row(struct protocol *p)
{
    const struct frame *frame = &p->receiver.frame;
    if (!command_may_use(p, 1)) {
        p->frames_bad++;
    } else if (rows_of(frame) == 0) {
        frame_error(p, "length is not that of whole image rows");
    } else {
        switch (feed_rows(p)) {
        case MICROTRAIN_OK:
            frame_ok(p, "ok row");
            break;
        case MICROTRAIN_ERR_ORDER:
            frame_error(p, "row is not the next one; rows come in order, from 0 on");
            break;
        default:
            frame_error(p, "row is outside the image");
            break;
        }
    }
}

#ifdef MODEL_SOUND
static void take_sound(struct protocol *p)
{
    const struct frame *frame = &p->receiver.frame;
    if (!command_may_use(p, 1)) {
        p->frames_bad++;
    } else if (frame->size == 0 || frame->size % 2 != 0) {
        frame_error(p, "sound is samples of two bytes");
    } else {
        const uint8_t *samples = receiver_payload(&p->receiver);
        switch (microtrain_feed_sound_bytes(&p->learner, frame->position, samples, frame->size / 2u)) {
        case MICROTRAIN_OK:
            frame_ok(p, "ok sound");
            break;
        case MICROTRAIN_ERR_ORDER:
            frame_error(p, "sound does not follow what was heard; it comes in order, from 0 on");
            break;
        default:
            frame_error(p, "sound goes on behind the last row");
            break;
        }
    }
}
#endif

static void take_weights(struct protocol *p)
{
    switch (transfer_take(&p->transfer, &p->receiver.frame, receiver_payload(&p->receiver))) {
    case TRANSFER_OK:
        frame_ok(p, "ok weights");
        break;
    case TRANSFER_DONE:
        p->frames_ok++;
        reply_line("ok push done");
        break;
    case TRANSFER_ERR_NONE:
        frame_error(p, "no push is under way");
        break;
    case TRANSFER_ERR_CRC:
        p->frames_bad++;
        (void)reply_error("push", p->transfer.incomplete ? "CRC of all bytes is wrong; push again, or `reset`"
                                                         : "CRC of all bytes is wrong; the trainables are unchanged");
        break;
    default:
        frame_error(p, "weights are outside the trainables or leave a gap");
        break;
    }
}

static void take_frame(struct protocol *p)
{
    switch (p->receiver.frame.type) {
    case FRAME_ROW:
        take_row(p);
        break;
    case FRAME_WEIGHTS:
        take_weights(p);
        break;
#ifdef MODEL_SOUND
    case FRAME_SOUND:
        take_sound(p);
        break;
#endif
    default:
        frame_error(p, "type is none that a host sends");
        break;
    }
}

/* A line that makes sense proves a new baud rate; then another rate may be tried. */
static void take_line(struct protocol *p)
{
    if (!command_run(p, p->receiver.line)) {
        return;
    }
    p->old_baud = 0;
    if (p->next_baud && board_serial_baud(p->next_baud) == BOARD_OK) {
        p->old_baud = p->baud;
        p->baud = p->next_baud;
        p->baud_since_ms = board_millis();
    }
    p->next_baud = 0;
}

static void watch_baud(struct protocol *p)
{
    if (p->old_baud && board_millis() - p->baud_since_ms >= BAUD_TRIAL_MS) {
        (void)board_serial_baud(p->old_baud); /* it worked before */
        p->baud = p->old_baud;
        p->old_baud = 0;
    }
}

static void answer(struct protocol *p, enum received what)
{
    switch (what) {
    case RECEIVED_LINE:
        take_line(p);
        break;
    case RECEIVED_BAD_LINE:
        (void)reply_error("command", "line holds unprintable characters");
        break;
    case RECEIVED_LONG_LINE:
        (void)reply_error("command", "line is longer than 127 characters");
        break;
    case RECEIVED_FRAME:
        take_frame(p);
        break;
    case RECEIVED_BAD_HEADER:
        frame_error(p, "header CRC is wrong");
        break;
    case RECEIVED_BAD_PAYLOAD:
        frame_error(p, "payload CRC is wrong");
        break;
    case RECEIVED_LONG_FRAME:
        frame_error(p, "length is over the limit that `info` names");
        break;
    case RECEIVED_FRAME_TIMEOUT:
        frame_error(p, "timeout");
        break;
    case RECEIVED_NOTHING:
        break;
    }
}

void protocol_attend(struct protocol *p)
{
#if MODEL_RECORDS > 0
    p->heard_ms = board_millis();
#else
    (void)p;
#endif
}

#if MODEL_RECORDS > 0
/* A push that is under way, or has failed, comes first. */
static void use_silence(struct protocol *p)
{
    int free = !p->transfer.active && !p->transfer.incomplete;
    if (free && board_millis() - p->heard_ms >= IDLE_MS && microtrain_idle(&p->learner)) {
        command_trained(p);
    }
}
#endif

void protocol_poll(struct protocol *p)
{
    enum received what;
    while ((what = receiver_next(&p->receiver)) != RECEIVED_NOTHING) {
        answer(p, what);
        protocol_attend(p);
    }
    watch_baud(p);
#if MODEL_RECORDS > 0
    use_silence(p);
#endif
}
