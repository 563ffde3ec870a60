/* SPDX-License-Identifier: Apache-2.0 */
/* microtrain.h in a firmware that holds one model on one board, and what only such a firmware has.
 *
 *     static struct microtrain learner;
 *
 *     microtrain_init(&learner, MICROTRAIN_LINKED, MICROTRAIN_LINKED);
 *     microtrain_load(&learner, MICROTRAIN_LINKED);
 *     microtrain_feed_row(&learner, y, pixels);
 *     microtrain_learn(&learner, label, &predicted, &loss);
 *     microtrain_settle(&learner);
 *
 * The model, its memory and the flash (board.h) are linked by name, so that the compiler knows every address, and
 * memory_report follows every call. There is one learner and one caller, outside of interrupts: ERR_BUSY, ERR_INSTANCE,
 * ERR_MEMORY and ERR_ALIGNMENT do not occur, and the FPU is as board_init has left it. Rows that are in already
 * may come again and are passed over, since a host may send them so. The pieces of microtrain_step, microtrain_version,
 * _text, _sizes, _feed and _train_target are the library's alone.
 */
#ifndef MICROTRAIN_BOARD_H
#define MICROTRAIN_BOARD_H

#include <stddef.h>
#include <stdint.h>

#include "model.h"
#include "model_linked.h"

/* What model.h does not say, a model has not got. */
#ifndef MODEL_RECORDS
#define MODEL_RECORDS 0 /* no replay buffer */
#endif
#ifndef MODEL_IMPRINT
#define MODEL_IMPRINT 0 /* no statistics of features */
#endif
#ifndef MODEL_HOP
#define MODEL_HOP 0 /* each window comes whole */
#endif
#ifndef MODEL_TARGETS
#define MODEL_TARGETS 0 /* it learns from labels */
#endif
#ifndef MODEL_FLEET_BYTES
#define MODEL_FLEET_BYTES 0
#endif
#ifdef MODEL_SOUND
#define MODEL_LISTENS 1
#else
#define MODEL_LISTENS 0
#endif
#ifdef MODEL_GATE
#define MODEL_SKIPS 1
#else
#define MODEL_SKIPS 0
#endif

enum {
    IMAGE_ROWS = MODEL_HEIGHT,
    IMAGE_ROW_BYTES = MODEL_WIDTH * MODEL_CHANNELS, /* pixels 0..255 in channel order */
};

/* The one learner is smaller than those of the library, which carry their model and memory along. Its words are private. */
enum {
    MICROTRAIN_WORDS = 26 + MODEL_LISTENS + (MODEL_HOP > 0) + 3 * (MODEL_RECORDS > 0) + (MODEL_IMPRINT > 0) +
                       (MODEL_TARGETS > 0) + (MODEL_FLEET_BYTES > 0) + MODEL_SKIPS
};
struct microtrain {
    uint32_t words[MICROTRAIN_WORDS];
};

#include "microtrain.h"

#define MICROTRAIN_LINKED NULL /* in the place of a model, its memory and a storage */

enum { MICROTRAIN_ERR_ERASE = -22 }; /* of microtrain_forget: a slot of the flash cannot be erased */

/* ---- the model */

const char *microtrain_name(void);
uint32_t microtrain_id(void);  /* first 4 bytes of what plan.json calls model_id */
uint32_t microtrain_api(void); /* version of what generated code promises */

/* ---- the input */

/* size bytes of the next row y from byte x on; they follow one another, x = 0 starts the row over. ERR_ARGUMENT (outside the
 * image), ERR_ORDER (not the row that is next), ERR_INPUT (bytes in front of these are missing). */
int microtrain_feed_part(struct microtrain *m, uint32_t y, uint32_t x, const uint8_t *pixels, uint32_t size);

/* The whole input: byte i is hash32(n + i * 0x9e3779b9) & 255. */
void microtrain_feed_pattern(struct microtrain *m, uint32_t n);

/* Only where model.h says MODEL_SOUND: microtrain_feed_sound of little-endian int16 [count], at any place. */
int microtrain_feed_sound_bytes(struct microtrain *m, uint32_t at, const uint8_t *samples, uint32_t count);

/* Rows that are in are forgotten. */
void microtrain_drop_input(struct microtrain *m);

/* model_arena or model_trainables have been written to: the input and the statistics of features are gone. */
void microtrain_drop_arena(struct microtrain *m);

/* ---- what is said of it */

/* float [classes] of the last prediction, where they lie: until the next call. */
const float *microtrain_logits(const struct microtrain *m);

/* An inference that is counted against its label. Errors as of predict and train. */
int microtrain_evaluate(struct microtrain *m, uint32_t label, uint32_t *predicted);

/* e^x, the same bits on every core. */
float microtrain_exp(float x);

/* ---- learning */

/* microtrain_train, and what the input was taken for before the step; microtrain_imprint, and what it was taken for. Where
 * the model learns from targets, the label is 0 and the target is used up: ERR_TASK where numbers of it are missing. */
int microtrain_learn(struct microtrain *m, uint32_t label, uint32_t *predicted, float *loss);
int microtrain_look(struct microtrain *m, uint32_t label, uint32_t *predicted);

/* Only where MODEL_TARGETS > 0: number i of the next step's target. They come in order, 0 starts over. ERR_ARGUMENT (not
 * that, or not finite). */
int microtrain_put_target(struct microtrain *m, uint32_t i, float number);

/* The two of microtrain_set, one by one. */
void microtrain_seed(struct microtrain *m, uint32_t seed);
void microtrain_rate(struct microtrain *m, float rate);

/* What is to be done behind steps: a save where one is due; where training has diverged, back to the last save, or to the
 * conversion, at half the rate: ERR_DIVERGED. Errors as of save. */
int microtrain_settle(struct microtrain *m);

void microtrain_guard(struct microtrain *m, uint32_t on); /* 1: microtrain_settle looks for divergence, as at first */
void microtrain_autosave(struct microtrain *m, uint32_t steps); /* from one save to the next; 0, as at first: none */

/* ---- records of old inputs, only where MODEL_RECORDS > 0 */

/* Steps on records alone, one behind the other. Rows that are in are lost. ERR_EMPTY where there are none, or no buffer. */
int microtrain_rehearse(struct microtrain *m, uint32_t steps);

void microtrain_replay(struct microtrain *m, uint32_t steps); /* that follow each step on a new input; 4 at first */
void microtrain_drop_records(struct microtrain *m);
void microtrain_keep(struct microtrain *m, uint32_t on); /* 1: inputs may become records, as at first */

/* Steps on records that microtrain_idle may take, at a rate that falls to 0; it takes one and returns 1, or returns 0. */
void microtrain_allow_idle(struct microtrain *m, uint32_t steps);
int microtrain_idle(struct microtrain *m);

/* ---- how it stands */

struct microtrain_counts {
    uint32_t seed;
    float rate;
    uint32_t replays, records, idle;    /* 0 without a buffer */
    uint32_t evaluated, correct;        /* by microtrain_evaluate */
    uint32_t infer_cycles, step_cycles; /* core cycles of the last one, its rows included */
    uint32_t rollbacks;                 /* by microtrain_settle, since the start */
#ifdef MODEL_GATE
    uint32_t skipped; /* steps whose loss was below MODEL_GATE: nothing was learned */
#endif
};
void microtrain_counts(const struct microtrain *m, struct microtrain_counts *counts);
void microtrain_clear_counts(struct microtrain *m); /* evaluated, correct, skipped, and the mean loss */

/* ---- what is saved */

/* The firmware defines it: it is called before the flash is erased, which takes up to 4 s. */
void microtrain_erasing(void);

struct microtrain_saves {
    int status;                 /* OK, NONE, or why nothing is loaded or saved: ERR_OTHER_MODEL, ERR_FORMAT */
    uint32_t model_id, version; /* of what the flash holds then */
    uint32_t number;            /* of the last save: counts all saves, wraps */
    uint32_t step;              /* microtrain_state.steps at it */
    uint32_t erases[2];         /* of each slot */
    uint32_t left;              /* saves until a slot has been erased as often as it is good for */
};
void microtrain_saves(const struct microtrain *m, struct microtrain_saves *saves);
int microtrain_unsaved(const struct microtrain *m); /* 1: there were steps since the last save */

/* Only where MODEL_FLEET_BYTES > 0. The trainables of the last save, in flash, NULL where there is none; and a save of these
 * once more, with what is kept behind the present ones. Errors as of save. */
const uint8_t *microtrain_saved(const struct microtrain *m);
int microtrain_save_again(struct microtrain *m);

/* ---- flash beside the chip */

/* Only where the build says MICROTRAIN_EXTERNAL: 1 where the weights there are of this model. The two flashes may be of two uploads. */
int microtrain_outside_fits(void);

/* ---- the self-test */

/* microtrain_selftest in parts. */
struct microtrain_tested {
    int kernels;        /* OK, ERR_KERNEL, or MICROTRAIN_NONE: the arena is too small for them */
    const char *kernel; /* which is wrong or was not tried */
    int tables;         /* OK or ERR_TABLES */
    uint32_t crc, converted_crc;
    int arena;           /* OK or ERR_ARENA */
    uint32_t wrong_word; /* offset in the arena of the first that does not hold its value */
};
void microtrain_test(struct microtrain *m, struct microtrain_tested *tested);

#endif
