/* SPDX-License-Identifier: Apache-2.0 */
/* microtrain: a model that goes on learning, called from your own firmware. C11; C++ may include it.
 *
 *     #include "garden.h"                    what `microtrain export-library` wrote of your model
 *
 *     static struct microtrain device;
 *     static uint64_t arena[GARDEN_ARENA_BYTES / 8 + 1], learned[GARDEN_TRAINABLE_BYTES / 8 + 1];
 *
 *     const struct microtrain_memory memory = {arena, sizeof arena, learned, sizeof learned};
 *     microtrain_init(&device, &garden, &memory);
 *     microtrain_feed(&device, pixels);
 *     microtrain_train(&device, label, &loss);
 *
 * Memory is the caller's: nothing is allocated, nothing is global, nothing is printed. Any number of models, and of
 * instances of each, live in one program.
 *
 * What is reentrant: all functions, for different instances. Calls for one instance must not overlap: one that comes while
 * another runs, from an interrupt or another task, changes nothing and returns MICROTRAIN_ERR_BUSY. Tasks on a core without
 * atomic instructions (RV32IMC, Cortex-M0) need a lock of theirs. Interrupts may call any function; none waits, none touches
 * hardware but the rounding mode of the FPU, which is put back. The caller's storage functions are what they are.
 *
 * Time: of feeding and predicting it depends on the model alone, never on the data; docs/embed.md has numbers. Training
 * takes that much at most, and less where the errors of a layer are alike in all pixels, or 0.
 * Each function says its own. Behind an error it is less.
 * Stack: about 1 KB on a Cortex-M4F, proven by `make cores`, and what the caller's storage functions take.
 *
 * Every function but those that say otherwise returns MICROTRAIN_OK or a negative error and then has changed nothing. Those
 * that take an instance also return ERR_ARGUMENT where it is NULL, ERR_INSTANCE where it was not made, and ERR_BUSY.
 * Trained bits are the same on every core and compiler. Do not compile with -ffast-math.
 */
#ifndef MICROTRAIN_H
#define MICROTRAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MICROTRAIN_VERSION 0x000100u /* 0xMMmmpp: major, minor, patch */

enum microtrain_status {
    MICROTRAIN_OK = 0,
    MICROTRAIN_NONE = 1, /* nothing has been saved */
    MICROTRAIN_MORE = 2, /* what was begun is not done: call microtrain_step again */
    MICROTRAIN_ERR_ARGUMENT = -1,
    MICROTRAIN_ERR_INSTANCE = -2,
    MICROTRAIN_ERR_MEMORY = -3,
    MICROTRAIN_ERR_ALIGNMENT = -4,
    MICROTRAIN_ERR_BUSY = -5,
    MICROTRAIN_ERR_INPUT = -6,
    MICROTRAIN_ERR_ORDER = -7,
    MICROTRAIN_ERR_LABEL = -8,
    MICROTRAIN_ERR_NO_STATISTICS = -9,
    MICROTRAIN_ERR_EMPTY = -10,
    MICROTRAIN_ERR_FULL = -11,
    MICROTRAIN_ERR_OTHER_MODEL = -12,
    MICROTRAIN_ERR_FORMAT = -13,
    MICROTRAIN_ERR_SLOT = -14,
    MICROTRAIN_ERR_STORAGE = -15,
    MICROTRAIN_ERR_KERNEL = -16,
    MICROTRAIN_ERR_TABLES = -17,
    MICROTRAIN_ERR_ARENA = -18,
    MICROTRAIN_ERR_TASK = -19,
    MICROTRAIN_ERR_DIVERGED = -20,
    MICROTRAIN_ERR_NO_RECORDS = -21
};

/* A converted model; the header that export-library wrote declares it. In flash. */
struct microtrain_model;

/* One learner. Its words are private; it must stay where it is. 8-byte aligned, zero or anything before microtrain_init. */
#ifdef MICROTRAIN_LIBRARY
enum { MICROTRAIN_WORDS = 36 };
struct microtrain {
    uint64_t words[MICROTRAIN_WORDS];
};
#else
struct microtrain; /* microtrain_board.h has that of a firmware with one model */
#endif

/* What a model needs and is. */
struct microtrain_sizes {
    uint32_t arena_bytes;     /* scratch: no call needs what is in it, but for the input being fed and statistics */
    uint32_t trainable_bytes; /* all that learning changes */
    uint32_t slot_bytes;      /* of the smallest slot that holds one save, where program_bytes is 32 or less */
    uint32_t height, width, channels; /* of the input: uint8 [height][width][channels] */
    uint32_t row_bytes, input_bytes;
    uint32_t classes;       /* scores that an inference gives: classes, outputs of a regression, labels */
    uint32_t targets;       /* numbers that microtrain_train_target takes; 0: the model learns from labels */
    uint32_t sound_samples; /* of which an input can be made by microtrain_feed_sound; 0: no front end */
    uint32_t hop_rows;      /* by which microtrain_slide moves the input; 0: converted without --hop */
    uint32_t hop_samples;   /* the same of sound; 0: no front end */
    uint32_t record_bytes;  /* of each record of microtrain_remember; 0: the model has none */
    uint32_t memory_bytes;  /* that it takes at least: of a record for each class */
};

/* The caller's memory, which the instance keeps using. The two may lie in different regions: the arena in the fastest, the
 * trainables wherever there is room. */
struct microtrain_memory {
    void *arena; /* 8-byte aligned */
    uint32_t arena_bytes;
    void *trainables; /* 8-byte aligned */
    uint32_t trainable_bytes;
};

/* Two slots of flash, or of anything that keeps bytes, for what was learned. Functions return 0, or anything else where it
 * did not work. A slot is erased as a whole, to 0xff; then each unit of it is programmed once. Offsets and sizes of read are
 * multiples of 4; the memory that they are given may lie at any address. */
struct microtrain_storage {
    void *context; /* given to each function */
    int (*read)(void *context, uint32_t slot, uint32_t offset, void *to, uint32_t size);
    int (*program)(void *context, uint32_t slot, uint32_t offset, const void *from, uint32_t size);
    int (*erase)(void *context, uint32_t slot);
    int (*sync)(void *context); /* returns when all that was programmed or erased is on the chip; load calls it too */
    uint32_t slot_bytes;        /* of each slot: a multiple of program_bytes */
    uint32_t program_bytes;     /* a unit, of which offsets and sizes of program are multiples: 4, 8, ... 256 */
    int clears; /* 1: a unit that was programmed may be programmed once more with zeros, as most NOR flash can */
};

/* How it stands. */
struct microtrain_state {
    uint32_t rows_missing; /* of the input; as many as it has: none is being fed */
    uint32_t steps;        /* training steps since the last reset */
    float mean_loss;       /* since the last reset; 0 before the first step */
    uint32_t looks;        /* samples in the statistics of features */
    int diverged;          /* 1: losses are far above guessing, or no number; load the last save and lower the rate */
    int under_way;         /* 1: between a begin and the last microtrain_step */
    uint32_t records;      /* of old inputs */
};

/* Version of the library: MICROTRAIN_VERSION of the header that it was compiled with. No errors. Time: constant. */
uint32_t microtrain_version(void);

/* A status in words, for a log; never NULL, whatever the number. Time: constant. */
const char *microtrain_text(int status);

/* What a model needs and is. ERR_ARGUMENT where one is NULL. Time: constant. */
int microtrain_sizes(const struct microtrain_model *model, struct microtrain_sizes *sizes);

/* Make an instance: the state after conversion, seed 1, rate 1. Also starts over one that is in use.
 * ERR_ARGUMENT (NULL, or memory that overlaps), ERR_MEMORY (too small), ERR_ALIGNMENT. Time: a pass over the trainables. No
 * call for the instance may run: this one does not notice. */
int microtrain_init(struct microtrain *m, const struct microtrain_model *model, const struct microtrain_memory *memory);

/* Forget all training, statistics, and what is under way; seed and rate stay. Time: a pass over the trainables and the
 * statistics. */
int microtrain_reset(struct microtrain *m);

/* seed: of the stochastic rounding; equal seeds and inputs give equal bits. rate: factor on the rates of the conversion,
 * finite and >= 0, else ERR_ARGUMENT. Time: constant. */
int microtrain_set(struct microtrain *m, uint32_t seed, float rate);

/* Row y of the input, row_bytes of raw values 0..255 in channel order. Row 0 begins an input, the others follow in order;
 * the first layers run at once, so each row takes a part of an inference's time. What learns does not change.
 * ERR_ARGUMENT (NULL, no such row), ERR_ORDER (not the row that is next). Time: less than that of an inference. */
int microtrain_feed_row(struct microtrain *m, uint32_t y, const uint8_t *row);

/* The whole input: all rows, input_bytes. ERR_ARGUMENT (NULL). Time: that of its rows, less than an inference with its
 * input. */
int microtrain_feed(struct microtrain *m, const uint8_t *input);

/* Sound in the place of rows, for a model that was converted with --frontend: `count` samples from sample `at` of the input
 * on, in blocks of any size, in order; 0 starts an input, and what is in already is passed over. Behind a row of
 * microtrain_feed_row it starts anew. A row is made where it is complete. ERR_ARGUMENT (NULL, or no front end, or beyond
 * sound_samples), ERR_ORDER. Time: a pass over the samples, and for each row that they complete a transform and that
 * row's. */
int microtrain_feed_sound(struct microtrain *m, uint32_t at, const int16_t *samples, uint32_t count);

/* Inference on the input, which is used up. scores: float [classes], larger is likelier, not normalised; of a regression
 * the outputs, in the units that the model was trained on; of labels that hold or not, above 0 where one does; of an open
 * set less than 0, the farther the less, and the first that of what is none of the classes. label: the
 * first class with the largest; either may be NULL. ERR_INPUT where rows are missing. Time: that of an inference, less what
 * its rows took. */
int microtrain_predict(struct microtrain *m, float *scores, uint32_t *label);

/* Behind a prediction, for a model that was converted with --hop: the input moves on by hop_rows, and only its last rows are
 * missing, from row `height - hop_rows` on, or from sample `sound_samples - hop_samples` on. The scores are those of the
 * whole input fed anew, in a fraction of the time. It runs in one piece. ERR_ARGUMENT (converted without), ERR_ORDER where
 * no prediction has been made of a whole input, or the model has learned, tested itself or been fed since. Time: less than
 * that of an inference; the model's header bounds it. */
int microtrain_slide(struct microtrain *m);

/* One training step on the input, which is used up. loss: before the update; may be NULL. Of a model that was converted
 * with --gate, a step whose loss is below NAME_GATE ends there and learns nothing, in the time of an inference. ERR_INPUT,
 * ERR_LABEL, ERR_TASK (the model learns from targets). Time: that of a training step. */
int microtrain_train(struct microtrain *m, uint32_t label, float *loss);

/* The same for a model that was converted with --task regression or multilabel. target: float [targets], what the outputs
 * should have been, in their units; or 1 for each label that holds and 0 for the others. ERR_ARGUMENT (NULL, or not
 * finite), ERR_INPUT, ERR_TASK (the model learns from labels). Time: that of a training step. */
int microtrain_train_target(struct microtrain *m, const float *target, float *loss);

/* Memory for records of old inputs, for a model that was converted with --replay: what the frozen layers made of an input,
 * which may be less than the input itself. From now on an input that is learned from or looked at may become a
 * record. The classes share the room evenly, and the records of a class are a fair draw of its inputs. There is room for
 * (bytes - memory_bytes) / record_bytes + classes of them, as microtrain_sizes says; the model's header has a macro for it.
 * What was there is forgotten, as it is by microtrain_reset and without power. memory: 8-byte aligned, kept in use; NULL: no
 * records from now on. ERR_NO_RECORDS (converted without), ERR_ALIGNMENT, ERR_MEMORY (less than memory_bytes), ERR_ARGUMENT
 * (it overlaps the memory of microtrain_init). Time: a few instructions for each class. */
int microtrain_remember(struct microtrain *m, void *memory, uint32_t bytes);

/* A training step on one of the records, each in its turn, at left / of of the rate: for (left = n; left; left--) is a
 * rehearsal with a rate that falls to 0. What is being fed is lost. loss: before the update; may be NULL.
 * ERR_NO_RECORDS, ERR_ARGUMENT (left is more than of, or of is 0), ERR_EMPTY (there is no record). Time: less than that of
 * a training step, and a look through the records: the model's header bounds it. */
int microtrain_recall(struct microtrain *m, uint32_t left, uint32_t of, float *loss);

/* The same in pieces, for a control loop on the same core: begin a row, an inference or a training step, then call
 * microtrain_step until it does not return MICROTRAIN_MORE. The bits are those of the functions above, however it is cut.
 * Between the pieces the instance takes no other call but state, reset, load and init: ERR_BUSY.
 *
 * work: how much a piece does, in units of about an instruction of a Cortex-M4F. Kernels stop between units of a few rows or
 * channels, and a piece does one of them at least, so it may be as long as the longest unit. The model's header bounds the
 * instructions of a piece on a Cortex-M3, M4F, M7, M33, M55, an RV32IMC and an RV32IMAFC, and has the number for a bound:
 * docs/embed.md. A piece that makes a record, and microtrain_recall_begin, look through all records, and have a bound that
 * grows with them.
 * loss: set by the last piece of a training step; may be NULL. A record of an input is made by a piece of its own.
 *
 * begin: errors as of the functions above, and then nothing is under way. step: ERR_ORDER without a begin.
 * Time: each is a piece. */
int microtrain_feed_row_begin(struct microtrain *m, uint32_t y, const uint8_t *row);
int microtrain_predict_begin(struct microtrain *m);
int microtrain_train_begin(struct microtrain *m, uint32_t label);
int microtrain_train_target_begin(struct microtrain *m, const float *target); /* which must stay until the last piece */
int microtrain_recall_begin(struct microtrain *m, uint32_t left, uint32_t of);
int microtrain_step(struct microtrain *m, uint32_t work, float *loss);

/* What microtrain_predict says, once an inference in pieces is done: ERR_ORDER where that was not the last call. Time: a pass
 * over the scores. */
int microtrain_scores(struct microtrain *m, float *scores, uint32_t *label);

/* One look at the input, which is used up: its features join the statistics of the label's class. Training ends them.
 * ERR_NO_STATISTICS (converted without), ERR_INPUT, ERR_LABEL, ERR_FULL. Time: that of an inference and a pass over the
 * statistics. */
int microtrain_imprint(struct microtrain *m, uint32_t label);

/* A head made of all looks, in place of the present one; counts as a step. classes: how many it knows; may be NULL.
 * ERR_NO_STATISTICS, ERR_EMPTY before the first look. Time: of the model alone, a factorisation of the statistics. */
int microtrain_imprint_head(struct microtrain *m, uint32_t *classes);

/* Save what was learned. A power cut at any moment leaves the last save or this one. Time: the storage's, which has no
 * bound here; a slot is erased when it is full. ERR_ARGUMENT (NULL, or a function of it), ERR_SLOT (too small),
 * ERR_OTHER_MODEL and ERR_FORMAT (the slots hold what another model or version saved, or a storage with another
 * program_bytes or larger slots; microtrain_forget erases it),
 * ERR_STORAGE (a function failed, or what was written does not read back: the last save stays). */
int microtrain_save(struct microtrain *m, const struct microtrain_storage *storage);

/* Load the newest save, and the seed, the rate and the counts with it. MICROTRAIN_NONE where there is none: nothing
 * changes. Errors as of save. Time: the storage's, and a few passes over the trainables. What is being fed, statistics,
 * and what is under way are lost, behind ERR_STORAGE too. Only where the arena is smaller than the trainables can ERR_STORAGE
 * cost what was learned: the state is then that of a reset. */
int microtrain_load(struct microtrain *m, const struct microtrain_storage *storage);

/* Erase both slots, whatever they hold; what is in memory stays. A power cut leaves the newest save or none. ERR_ARGUMENT,
 * ERR_SLOT, ERR_STORAGE (a function failed; where a read did, and an erase too, an older save may be what is left). Time: the
 * storage's. */
int microtrain_forget(struct microtrain *m, const struct microtrain_storage *storage);

/* Kernels against built-in vectors, the model's tables against their CRC, each word of the arena. An input that was being
 * fed, and statistics, are lost. Kernels are left out where the arena is too small for the vectors. ERR_KERNEL, ERR_TABLES,
 * ERR_ARENA. Time: a pass over the model's tables, a few over the arena, and the vectors'. */
int microtrain_selftest(struct microtrain *m);

/* How it stands, also between pieces and while a call runs, when the numbers may be of its midst; never ERR_BUSY.
 * ERR_ARGUMENT (NULL). Time: constant. */
int microtrain_state(const struct microtrain *m, struct microtrain_state *state);

#ifdef __cplusplus
}
#endif

#endif
