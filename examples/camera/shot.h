/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the demo share. */
#ifndef SHOT_H
#define SHOT_H

#include "demo.h"
#include "protocol.h"

enum {
    SHOT_OK = 0,
    SHOT_ERR_BUSY = 1, /* a push is under way or has failed; negative codes are the camera's */
    SHOT_ERR_LABEL = 2,
    SHOT_NONE = 3, /* none has been taken yet */
};

/* A picture into the model's rows. CAMERA_ codes; opens the camera where that has not worked before. */
int shot_capture(struct demo *d, struct microtrain *m);

/* A picture, and what the mode says with it. SHOT_ or CAMERA_ code. */
int shot_take(struct demo *d, struct protocol *p, uint32_t label);

/* From now on shots do what the mode says. */
void shot_mode(struct demo *d, struct protocol *p, enum demo_mode mode);

/* Mode and result: "infer 3 97", "look 1 3 12", "train 1 3 12 2.1203", "evaluate 1 1 88 17 20". */
void shot_say(const struct demo *d, const struct protocol *p);

/* The panel beside the picture: mode, last shot, counts. */
void shot_show(const struct demo *d, const struct protocol *p);

const char *shot_reason(int status);

/* A probability in percent; 0 for what is no number. Of a class, by the softmax of the last inference's logits. */
uint32_t shot_percent(float probability);
uint32_t shot_percent_of(const struct microtrain *m, uint32_t class);

extern const char *const shot_mode_names[MODES];

#endif
