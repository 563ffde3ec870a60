/* SPDX-License-Identifier: Apache-2.0 */
/* What generated code promises to the library: a model as a table, its memory passed to each function. In a firmware
 * model_api.h says the same of the one model there is. */
#ifndef MODEL_TABLE_H
#define MODEL_TABLE_H

#include <stdint.h>

#include "kernels/numeric.h"
#include "kernels/pace.h"
#include "microtrain.h"
#include "model_api.h"
#include "model_weights.h"

/* Of one instance. */
struct model_memory {
    uint8_t *arena;      /* 8-byte aligned */
    uint8_t *trainables; /* 4-byte aligned */
    uint32_t rows;       /* that are in, where the image is whole in memory */
    const float *target; /* where the model learns from targets: of the step, float [targets] */
    struct pace *pace;   /* of a step in pieces (kernels/pace.h); NULL: kernels run to their end */
};

/* One run of the steps. train, label and sgd are given; loss is what the step of the loss makes. */
struct model_pass {
    int train;
    uint32_t label;
    struct sgd sgd;
    float loss;
};

struct microtrain_model {
    struct model_info info;
    const uint8_t *init;           /* the trainables' first init_bytes before any training */
    uint32_t targets;              /* numbers of a target; 0: it learns from labels */
    uint32_t guesses;              /* classes whose guessing costs as much as the model's (guard.h); 0: its own */
    uint32_t forward_steps, steps; /* of an inference; of a training step, an inference's included */
    void (*start)(struct model_memory *memory);
    int8_t *(*row)(struct model_memory *memory);
    void (*take_row)(struct model_memory *memory);
    const float *(*logits)(struct model_memory *memory);
    void (*step)(struct model_memory *memory, uint32_t number, struct model_pass *pass);
    uint32_t record_step, record_bytes; /* steps of the front, what it makes as a record; 0: converted without */
    void (*keep)(struct model_memory *memory, uint8_t *record);         /* behind the front */
    void (*recall)(struct model_memory *memory, const uint8_t *record); /* in its place */
    void (*imprint_clear)(struct model_memory *memory); /* NULL: converted without statistics of features */
    void (*imprint_add)(struct model_memory *memory, uint32_t label);
    uint32_t (*imprint_solve)(struct model_memory *memory);
    uint32_t sound_samples; /* of an input; 0: converted without a front end, and what follows is NULL */
    void (*listen)(struct model_memory *memory);
    uint32_t (*hear)(struct model_memory *memory, const uint8_t *samples, uint32_t count);
    const uint8_t *(*heard)(struct model_memory *memory);
    const int8_t *input_table; /* [input_tables][256] of what is stored for a pixel, of all channels or of each */
    uint32_t input_tables;     /* 0: it is stored by gain and offset */
    uint32_t hop;              /* rows by which a window moves; 0: each comes whole, and what follows is NULL */
    uint32_t heard_on;         /* samples of a moved window that are in */
    void (*slide)(struct model_memory *memory);
};

/* Steps from one on, up to another. */
static inline void model_run(const struct microtrain_model *model, struct model_memory *memory, uint32_t from,
                             uint32_t to, struct model_pass *pass)
{
    for (uint32_t i = from; i < to; i++) {
        model->step(memory, i, pass);
    }
}

/* All steps of the forward pass, its two parts before and behind what a record holds, and all steps of the backward pass, as
 * model_api.h has them. */
static inline void model_forward(const struct microtrain_model *model, struct model_memory *memory, int train)
{
    struct model_pass pass = {.train = train};
    model_run(model, memory, 0, model->forward_steps, &pass);
}

static inline void model_front(const struct microtrain_model *model, struct model_memory *memory)
{
    struct model_pass pass = {0};
    model_run(model, memory, 0, model->record_step, &pass);
}

static inline void model_rest(const struct microtrain_model *model, struct model_memory *memory, int train)
{
    struct model_pass pass = {.train = train};
    model_run(model, memory, model->record_step, model->forward_steps, &pass);
}

static inline float model_backward(const struct microtrain_model *model, struct model_memory *memory, uint32_t label,
                                   const struct sgd *sgd)
{
    struct model_pass pass = {.train = 1, .label = label, .sgd = *sgd};
    model_run(model, memory, model->forward_steps, model->steps, &pass);
    return pass.loss;
}

#endif
