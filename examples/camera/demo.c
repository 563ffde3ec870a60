/* SPDX-License-Identifier: Apache-2.0 */
/* The application: what it says at the start, and what the buttons and the LED do. */
#include "application.h"

#include "board.h"
#include "demo.h"
#include "label_button.h"
#include "protocol.h"
#include "reply.h"
#include "shot.h"
#include "teach.h"

enum {
    BOUNCE_MS = 30,  /* a level that lasts this long counts */
    LONG_MS = 1000,  /* a press of this length changes the mode */
    ANSWER_MS = 5000 /* for the second press of a factory reset */
};

static struct demo demo;

static void say_camera(int status)
{
    reply_text(status < CAMERA_OK ? "camera none: " : "camera 320x240 sensor ");
    if (status < CAMERA_OK) {
        reply_text(camera_reason(status));
    } else {
        reply_hex(camera_id(), 4);
    }
    reply_text(status == CAMERA_NO_ID ? ", which is no id: taken for an OV2640" : "");
    reply_end();
}

void application_start(struct protocol *p)
{
    struct demo *d = &demo;
    label_button_init();
    screen_open(&d->screen);
    d->shot.status = SHOT_NONE;
    d->label[1] = MODEL_CLASSES > 1;
    int status = camera_open();
    d->camera_ready = status >= CAMERA_OK;
    say_camera(status);
    teach_start(&p->learner);
    shot_show(d, p);
    if (board_button()) {
        d->question = QUESTION_HELD;
        d->button[0].level = d->button[0].down = d->button[0].used = 1;
        light_question(&d->light);
        reply_line("factory reset? let the button go, then press it within 5 s to forget everything learned");
    }
}

static void forget_everything(const struct demo *d, struct protocol *p)
{
    int status = microtrain_forget(&p->learner, MICROTRAIN_LINKED);
    p->transfer.active = p->transfer.incomplete = 0;
    (void)microtrain_init(&p->learner, MICROTRAIN_LINKED, MICROTRAIN_LINKED);
    teach_start(&p->learner);
    shot_show(d, p);
    reply_text("factory reset ");
    reply_line(status == MICROTRAIN_OK ? "done" : "of the trainables only: the flash cannot be erased");
}

static void end_question(struct demo *d)
{
    d->question = QUESTION_NONE;
    light_off(&d->light);
}

/* The steps of the factory reset: the button is let go, then pressed in time, or not. */
static void follow_question(struct demo *d, struct protocol *p)
{
    struct button *b = &d->button[0];
    if (d->question == QUESTION_HELD && !b->down) {
        d->question = QUESTION_ASKED;
        d->question_ms = board_millis();
    } else if (d->question == QUESTION_ASKED && b->down) {
        b->used = 1;
        end_question(d);
        forget_everything(d, p);
    } else if (d->question == QUESTION_ASKED && board_millis() - d->question_ms >= ANSWER_MS) {
        end_question(d);
        reply_line("factory reset not confirmed: everything learned stays");
    }
}

static void press(struct demo *d, struct protocol *p, uint32_t number)
{
    int status = shot_take(d, p, d->label[number]);
    if (status == SHOT_OK) {
        reply_text("shot ");
        shot_say(d, p);
    } else {
        reply_text("no shot: ");
        reply_line(shot_reason(status));
    }
}

static void next_mode(struct demo *d, struct protocol *p)
{
    shot_mode(d, p, (d->mode + 1) % MODES);
    reply_text("mode ");
    reply_line(shot_mode_names[d->mode]);
}

static void debounce(struct button *b, int level)
{
    uint32_t now = board_millis();
    if (level != b->level) {
        b->level = (uint8_t)level;
        b->since_ms = now;
    }
}

/* A short press takes effect when it ends, a long one while it lasts. */
static void follow_button(struct demo *d, struct protocol *p, uint32_t number, int level)
{
    struct button *b = &d->button[number];
    debounce(b, level);
    if (level) {
        protocol_attend(p);
    }
    uint32_t lasted_ms = board_millis() - b->since_ms;
    if (lasted_ms < BOUNCE_MS) {
        return;
    }
    int ended = b->down && !b->level;
    b->used = (uint8_t)(b->used && b->down);
    b->down = b->level;
    if (d->question != QUESTION_NONE || b->used) {
        return;
    }
    if (ended) {
        press(d, p, number);
    } else if (b->down && lasted_ms >= LONG_MS) {
        b->used = 1;
        next_mode(d, p);
    }
}

void application_poll(struct protocol *p)
{
    follow_button(&demo, p, 0, board_button());
    follow_button(&demo, p, 1, label_button());
    follow_question(&demo, p);
    teach_poll(&demo, p);
    light_tick(&demo.light);
}

int application_command(struct protocol *p, const struct words *w)
{
    return demo_command(&demo, p, w);
}

void application_help(void)
{
    demo_help();
}

/* A pattern ends: the LED is the command's. */
void application_led(int on)
{
    light_off(&demo.light);
    board_led(on);
}
