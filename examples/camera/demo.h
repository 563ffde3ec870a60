/* SPDX-License-Identifier: Apache-2.0 */
/* The camera demo: a camera and two buttons beside the serial line (docs/hardware.md). A shot is a picture, scaled and
 * passed row by row into the model, and one step on it. */
#ifndef DEMO_H
#define DEMO_H

#include <stdint.h>

#include "camera.h"
#include "light.h"
#include "scaler.h"
#include "screen.h"

enum demo_mode { MODE_INFER, MODE_TRAIN, MODE_EVALUATE, MODES };

enum { BUTTONS = 2 }; /* the board's own, and the second one */

/* One button, its bounces left out. */
struct button {
    uint32_t since_ms; /* of the last change of its level */
    uint8_t level;     /* as it was at the last look */
    uint8_t down;      /* as it is when the level has been the same for some time */
    uint8_t used;      /* this press has had its effect */
};

/* Factory reset: the button was held at the start, and must be pressed once more. */
enum demo_question { QUESTION_NONE, QUESTION_HELD, QUESTION_ASKED };

/* What the last shot brought. */
struct shot {
    int status; /* 0: it succeeded */
    uint32_t label, predicted;
    uint32_t percent; /* probability of the predicted class; in training that of the label, before the update */
    float loss;       /* of a training step */
    uint8_t looked;   /* in training: it was a look, no step */
};

struct demo {
    struct scaler scaler;
    uint8_t pixels[CAMERA_ROW_BYTES];
    uint8_t camera_ready;
    enum demo_mode mode;
    uint8_t taught;     /* there were shots in train mode since the last rehearsal began */
    uint8_t rehearsing; /* and it has not ended */
    uint32_t label[BUTTONS];
    struct shot shot;
    struct light light;
    struct screen screen;
    struct button button[BUTTONS];
    enum demo_question question;
    uint32_t question_ms; /* when it was asked */
};

struct protocol;
struct words;

/* The demo's own commands (demo_commands.c), as application_command and application_help have it. */
int demo_command(struct demo *d, struct protocol *p, const struct words *w);
void demo_help(void);

#endif
