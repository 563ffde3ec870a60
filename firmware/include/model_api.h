/* SPDX-License-Identifier: Apache-2.0 */
/* What generated code (model.c) promises to the runtime. One model is linked into a firmware. */
#ifndef MODEL_API_H
#define MODEL_API_H

#include <stdint.h>

#include "kernels/numeric.h"

/* Raised with every change of this file or of the kernels' signatures; model.c refuses to compile against another. */
#define MODEL_API_VERSION 4

/* A constant table. */
struct model_part {
    const void *bytes;
    uint32_t size;
};

struct model_info {
    const char *name;
    uint32_t id; /* first 4 bytes, little-endian, of the SHA-256 that plan.json calls model_id */
    uint16_t height, width, channels, classes;
    uint32_t arena_bytes;
    uint32_t trainable_bytes, init_bytes; /* multiples of 4 */
    const float *input_gain;              /* [channels] stored = sat8(rint(pixel * gain + offset)), pixel 0..255 */
    const float *input_offset;
    float lr_weight, lr_bias, lr_head; /* the scheme's learning rates */
    const struct model_part *parts;    /* all tables in flash, the state before any training last */
    uint32_t part_count;
    uint32_t parts_crc; /* CRC-32 of their bytes one behind the other, computed at conversion */
};

#ifndef MICROTRAIN_LIBRARY /* there model_table.h says it, with a memory */

#include "model_linked.h"

extern const struct model_info model_info;

/* The state before any training, in flash: its first model_info.init_bytes; the rest is 0. */
extern const uint8_t model_trainables_init[];

/* An image comes in row by row, from the top: model_start, then `height` times the stored pixels, int8
 * [width][channels], to where model_row points and model_take_row. Nothing that learning changes is touched. */
void model_start(void);
int8_t *model_row(void);
void model_take_row(void);

/* The image to logits, once all its rows are in. train != 0 also saves what model_backward needs. */
void model_forward(int train);

/* The forward pass in two parts, only where model.h says that MODEL_RECORDS > 0: what the first makes of an image uses
 * nothing that learns, and a record holds all that the second needs of it. Between them model_keep copies it out;
 * model_recall puts it back, in place of the first part and of the image's rows. uint8 [MODEL_RECORD_BYTES] */
void model_front(void);
void model_keep(uint8_t *record);
void model_recall(const uint8_t *record);
void model_rest(int train);

/* Only where model.h says that MODEL_IMPRINT > 0: statistics of the features that the head reads, and the head of them
 * (kernels/imprint.h). They lie in the arena where no inference comes, and model_backward destroys them. Add the features
 * of the last model_forward(0); solve writes the head and returns the classes that it knows. */
void model_imprint_clear(void);
void model_imprint_add(uint32_t label);
uint32_t model_imprint_solve(void);

/* Only where model.h says MODEL_SOUND: the front end that makes rows of sound (kernels/log_mel.h). model_listen begins a
 * sample; model_hear takes little-endian int16 up to the end of the next frame and returns how many it took; model_heard
 * makes the row of a complete one, uint8 [width][channels], and else returns NULL. Until the last row they use the arena. */
void model_listen(void);
uint32_t model_hear(const uint8_t *samples, uint32_t count);
const uint8_t *model_heard(void);

/* Only where model.h says that MODEL_HOP > 0: what follows in the arena from window to window (kernels/hop.h), where no
 * inference comes; model_backward destroys it. In place of model_start, once all rows of a window were in and an inference
 * has run: the next row is the one behind those that stay, all but MODEL_HOP. Where there is a front end too, MODEL_HEARD is
 * how many samples these were made of, and MODEL_ALL_HEARD how many a whole window is made of. */
void model_slide(void);

/* float [classes] of the last model_forward; valid until the next one or model_backward. */
const float *model_logits(void);

/* Only where model.h says that MODEL_TARGETS > 0: what a sample should have given, float [MODEL_TARGETS]. It stands in the
 * place of a label, and model_backward reads it. */
extern float model_target[];

/* Loss, backward pass and update for the image of the last model_forward(1). Returns the loss. label < classes. */
float model_backward(uint32_t label, const struct sgd *sgd);

#endif
#endif
