/* SPDX-License-Identifier: Apache-2.0 */
/* A training session: the image that is being received, the trainables' history, statistics. What returns a status returns
 * one of microtrain.h.
 *
 * The rows of an image go into the model one by one, from the top, and the first layers run as they come. Each inference
 * or training step consumes the image; the trainables do not change before its last row is in.
 */
#ifndef SESSION_H
#define SESSION_H

#include <stdint.h>

#include "guard.h"
#include "instance.h"
#include "replay.h"

#ifdef MICROTRAIN_LIBRARY
#define MODEL_IMPRINT 1 /* a model's table says whether it has any */
#define MODEL_SOUND     /* and a front end */
#define MODEL_HOP 1     /* and windows that overlap */
#else
_Static_assert(IMAGE_ROWS <= 65535, "the firmware takes images of up to 65535 rows: convert with a smaller --input");
_Static_assert(IMAGE_ROW_BYTES <= 1024, "a row of the image must fit a serial frame: convert with a smaller --input");
#endif

struct session {
#ifdef MICROTRAIN_LIBRARY
    const struct microtrain_model *model;
    struct model_memory memory;
    struct replay replay;
#endif
    uint32_t row;      /* that is next, 0..the image's rows */
    uint32_t part_end; /* bytes of it so far, where it comes in parts */
#ifdef MODEL_SOUND
    uint32_t heard; /* sound samples of the image so far */
#endif
#if MODEL_HOP > 0
    uint32_t slides; /* 1: an inference has run, and its rows can go on; 2: so can its sound */
#endif
    uint32_t image_cycles; /* core cycles that went into the rows */

    uint32_t seed;     /* of the stochastic rounding */
    uint32_t step;     /* training steps since the last reset, replayed ones and imprinted heads included */
    float rate;        /* factor on the scheme's learning rates */
    uint32_t replays;  /* steps on old records behind each training step */
    uint32_t autosave; /* training steps from one checkpoint to the next, 0: none by themselves */
    struct guard guard;

#if MODEL_RECORDS > 0 && !defined(MICROTRAIN_LIBRARY)
    uint32_t keeping;         /* images that come may become records */
    uint32_t idle, idle_most; /* steps on records that session_idle may still take, of how many */
#endif
#if MODEL_IMPRINT > 0
    uint32_t seen; /* samples in the statistics of features */
#endif
#if MODEL_TARGETS > 0
    uint32_t targets; /* numbers of the target that are in */
#endif
    uint32_t evaluated, correct; /* by session_eval */
    uint32_t losses;             /* training steps on new images whose losses are summed in loss_sum */
    float loss_sum;
#ifdef MODEL_GATE
    uint32_t skipped; /* steps that ended at their loss, replayed ones included */
#endif
    uint32_t infer_cycles, step_cycles; /* core cycles of the last one */
};

/* Trainables as after conversion, seed 1, rate 1, REPLAY_DEFAULT replayed steps, the guard on, images that come become
 * records, no image. */
void session_init(struct session *s);

/* Trainables, step counter and statistics as after conversion; seed, rate, replays and guard stay. Records stay too,
 * except in a library, which never goes back by itself. */
void session_reset(struct session *s);

/* An empty replay buffer, and no more steps on it while nothing comes. */
#if MODEL_RECORDS > 0 && !defined(MICROTRAIN_LIBRARY)
void session_forget_records(struct session *s);
#else
static inline void session_forget_records(struct session *s)
{
    (void)s;
}
#endif

void session_clear_stats(struct session *s);

/* 0 before the first step */
static inline float session_mean_loss(const struct session *s)
{
    return s->losses ? s->loss_sum / (float)s->losses : 0.0f;
}

void session_forget_image(struct session *s);

/* A whole row y: IMAGE_ROW_BYTES raw pixels. Row 0 starts a new image; a row that is in already is passed over. ERR_ARGUMENT
 * (no such row), ERR_ORDER. */
int session_put_row(struct session *s, uint32_t y, const uint8_t *pixels);

/* size bytes of the next row y from byte x on: see microtrain_board.h. */
int session_put_part(struct session *s, uint32_t y, uint32_t x, const uint8_t *pixels, uint32_t size);

/* The whole image: byte i is hash32(n + i * 0x9e3779b9) & 255. */
void session_put_pattern(struct session *s, uint32_t n);

static inline uint32_t session_rows_missing(const struct session *s)
{
    return ROWS(s) - s->row;
}

#ifdef MODEL_SOUND
/* Sound in place of rows: little-endian int16 [count], from sample `at` on. They follow one another, in blocks of any size;
 * 0 starts a new image, and a block that is in already is passed over. Beyond the last row: ERR_ARGUMENT. */
int session_put_sound(struct session *s, uint32_t at, const uint8_t *samples, uint32_t count);
#endif

#if MODEL_HOP > 0
/* The window moves by MODEL_HOP rows, which are missing now; sound goes on where it was heard to. Only behind an inference
 * on a whole image, with nothing but inferences and looks since: ERR_ORDER. */
int session_slide(struct session *s);

/* What `slides` will be behind an inference on the image that is in. */
uint32_t session_can_slide(const struct session *s);
#endif

/* Inference; *predicted is the first class with the largest logit. */
int session_infer(struct session *s, uint32_t *predicted);

/* Inference, counted against its label. */
int session_eval(struct session *s, uint32_t label, uint32_t *predicted);

#if MODEL_TARGETS > 0
/* Number i of the target of the next training step: see microtrain_board.h. */
int session_put_target(struct session *s, uint32_t i, float number);
#endif

/* One training step; *predicted is the class before the update. Where there is a replay buffer (MODEL_RECORDS > 0), it
 * may take a record of the image if `keeping`, and `replays` steps on records follow; step_cycles counts them too. Where
 * MODEL_TARGETS > 0 it uses the target up, and the label is 0. */
int session_train(struct session *s, uint32_t label, uint32_t *predicted, float *loss);

#ifdef MICROTRAIN_LIBRARY
/* A row of the image by the caller's hand: place, then model->take_row, then took. It is the row that is next, or row 0. */
void session_place_row(struct session *s, uint32_t y, const uint8_t *pixels);
void session_took_row(struct session *s);

/* The first class with the largest logit of the last inference. */
uint32_t session_best(struct session *s);

/* A training step by the caller's hand: begin, then model->step for each of model->steps, then end. Behind
 * model->record_step of them keep makes a record of the input, as the reservoir decides. */
int session_begin(struct session *s, uint32_t label, struct model_pass *pass);
void session_keep(struct session *s, uint32_t label);
void session_end(struct session *s, const struct model_pass *pass);

/* The same on a record, from step model->record_step on, with a factor on the rate. ERR_EMPTY. */
int session_recall_begin(struct session *s, float factor, struct model_pass *pass);
void session_recall_end(struct session *s, const struct model_pass *pass);
#endif

#if MODEL_IMPRINT > 0
/* One look: an inference whose features join the statistics of their class (kernels/imprint.h). These are in the arena,
 * and begin anew after a training step and after session_take_arena. The image may become a record, as in training. */
int session_imprint(struct session *s, uint32_t label, uint32_t *predicted);

/* The head of all that was seen, in place of the present one. It counts as a step. *classes: how many it knows. The
 * statistics stay. */
int session_imprint_head(struct session *s, uint32_t *classes);

/* The arena or the trainables are others from now on: the image and the statistics of features are gone. */
void session_take_arena(struct session *s);
#else
static inline void session_take_arena(struct session *s)
{
    session_forget_image(s);
}
#endif

#ifndef MICROTRAIN_LIBRARY
/* Training steps on records alone. Rows received so far are lost. ERR_EMPTY. */
int session_rehearse(struct session *s, uint32_t count);
#endif

#if MODEL_RECORDS > 0 && !defined(MICROTRAIN_LIBRARY)
/* Allow so many steps on records while there is nothing else to do; the rate falls to 0 with the last. 0: none. */
void session_allow_idle(struct session *s, uint32_t steps);

/* One of them, unless none is left, there are no records, or an image is on its way. Returns 1 where it was taken. */
int session_idle(struct session *s);
#endif

#endif
