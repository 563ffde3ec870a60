/* SPDX-License-Identifier: Apache-2.0 */
/* What only the library has: models and memory of the caller's choice, inputs at once, targets, pieces, storages of the
 * caller's. Contract: microtrain.h. */
#include "kernels/imprint.h"
#include "words.h"

#ifdef MICROTRAIN_LIBRARY

uint32_t microtrain_version(void)
{
    return MICROTRAIN_VERSION;
}

const char *microtrain_text(int status)
{
    static const char *const texts[] = {
        "ok",
        "an argument is NULL or out of its range",
        "the instance has not been made with microtrain_init",
        "the memory is smaller than microtrain_sizes says",
        "the memory is not aligned to 8 bytes",
        "another call for this instance runs, or what was begun in pieces is not done",
        "rows of the input are missing",
        "this is not the row, or not the call, that comes next",
        "there is no such class",
        "the model was converted without statistics of features",
        "nothing has been looked at yet",
        "the statistics hold as many samples as they can",
        "the storage holds what another model has learned; microtrain_forget erases it",
        "the storage holds saves of another version or of other slots; microtrain_forget erases them",
        "the slots are too small, or their sizes do not fit together",
        "the storage failed, or does not hold what is written; the last save stays",
        "a kernel does not compute what it should",
        "the model's tables are not what was converted",
        "a word of the arena does not hold its value",
        "the model learns from targets where a label was given, or from labels where a target was",
        "the head holds what is no number, or far too large: training has diverged",
        "the model was converted without records, or learns from targets",
    };
    uint32_t n = 0u - (uint32_t)status;
    if (status > 0) {
        return status == MICROTRAIN_NONE   ? "nothing has been saved"
               : status == MICROTRAIN_MORE ? "what was begun is not done"
                                           : "no such status";
    }
    return n < sizeof texts / sizeof texts[0] ? texts[n] : "no such status";
}

/* A record holds an input and its label: targets have no place in it. */
static int remembers(const struct microtrain_model *model)
{
    return model->record_bytes != 0 && model->targets == 0;
}

int microtrain_sizes(const struct microtrain_model *model, struct microtrain_sizes *sizes)
{
    if (!model || !sizes) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    const struct model_info *info = &model->info;
    *sizes = (struct microtrain_sizes){
        .arena_bytes = info->arena_bytes,
        .trainable_bytes = info->trainable_bytes,
        .slot_bytes = checkpoint_slot_bytes(info),
        .height = info->height,
        .width = info->width,
        .channels = info->channels,
        .row_bytes = (uint32_t)info->width * info->channels,
        .input_bytes = (uint32_t)info->height * info->width * info->channels,
        .classes = info->classes,
        .targets = model->targets,
        .sound_samples = model->sound_samples,
        .hop_rows = model->hop,
        .hop_samples = model->hop ? model->sound_samples - model->heard_on : 0,
        .record_bytes = remembers(model) ? replay_bytes(model, 1) - replay_bytes(model, 0) : 0,
        .memory_bytes = remembers(model) ? replay_bytes(model, info->classes) : 0,
    };
    return MICROTRAIN_OK;
}

static int aligned(const void *p)
{
    return (uintptr_t)p % 8 == 0;
}

/* Whether two pieces of memory have a byte in common. */
static int overlap(const void *p, uint32_t bytes, const void *other, uint32_t other_bytes)
{
    uintptr_t a = (uintptr_t)p, b = (uintptr_t)other;
    return a - b < other_bytes || b - a < bytes;
}

int microtrain_init(struct microtrain *m, const struct microtrain_model *model, const struct microtrain_memory *memory)
{
    if (!m || !model || !memory || !memory->arena || !memory->trainables) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    if (!aligned(m) || !aligned(memory->arena) || !aligned(memory->trainables)) {
        return MICROTRAIN_ERR_ALIGNMENT;
    }
    uint32_t arena = model->info.arena_bytes, learned = model->info.trainable_bytes;
    if (memory->arena_bytes < arena || memory->trainable_bytes < learned) {
        return MICROTRAIN_ERR_MEMORY;
    }
    if (overlap(memory->arena, arena, memory->trainables, learned) || overlap(m, sizeof *m, memory->arena, arena) ||
        overlap(m, sizeof *m, memory->trainables, learned)) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    struct instance *i = inside(m);
    i->magic = 0; /* until it is made, an interrupt finds none */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    memset(i, 0, sizeof *i);
    i->session.model = model;
    i->session.memory = (struct model_memory){.arena = memory->arena, .trainables = memory->trainables};
    i->session.guard.classes = model->guesses ? model->guesses : model->info.classes;
    session_init(&i->session);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    i->magic = MAGIC;
    return MICROTRAIN_OK;
}

int microtrain_feed(struct microtrain *m, const uint8_t *input)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
    if (!input) {
        return leave(&call, MICROTRAIN_ERR_ARGUMENT);
    }
    for (uint32_t y = 0; y < ROWS(s); y++) {
        (void)session_put_row(s, y, input + y * ROW_BYTES(s)); /* they come in order */
    }
    return leave(&call, MICROTRAIN_OK);
}

/* Whether a model learns from what it is given: a target of finite numbers, or a label where target is NULL. */
static int status_of_target(const struct microtrain_model *model, const float *target)
{
    for (uint32_t k = 0; target && k < model->targets; k++) {
        if (!(target[k] - target[k] == 0.0f)) {
            return MICROTRAIN_ERR_ARGUMENT;
        }
    }
    return (target != NULL) == (model->targets != 0) ? MICROTRAIN_OK : MICROTRAIN_ERR_TASK;
}

/* A training step on a label, or on a target where that is not NULL. */
static int train(struct microtrain *m, uint32_t label, const float *target, float *loss)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
    int status = status_of_target(s->model, target);
    if (status != MICROTRAIN_OK) {
        return leave(&call, status);
    }
    uint32_t predicted;
    float found = 0.0f;
    s->memory.target = target;
    status = session_train(s, label, &predicted, &found);
    if (status == MICROTRAIN_OK && loss) {
        *loss = found;
    }
    return leave(&call, status);
}

int microtrain_train(struct microtrain *m, uint32_t label, float *loss)
{
    return train(m, label, NULL, loss);
}

int microtrain_train_target(struct microtrain *m, const float *target, float *loss)
{
    return target ? train(m, 0, target, loss) : MICROTRAIN_ERR_ARGUMENT;
}

int microtrain_remember(struct microtrain *m, void *memory, uint32_t bytes)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
    if (!remembers(s->model)) {
        return leave(&call, MICROTRAIN_ERR_NO_RECORDS);
    }
    if (!aligned(memory)) {
        return leave(&call, MICROTRAIN_ERR_ALIGNMENT);
    }
    if (memory && bytes < replay_bytes(s->model, s->model->info.classes)) {
        return leave(&call, MICROTRAIN_ERR_MEMORY);
    }
    if (memory && (overlap(memory, bytes, m, sizeof *m) || overlap(memory, bytes, ARENA(s), INFO(s)->arena_bytes) ||
                   overlap(memory, bytes, TRAINABLES(s), INFO(s)->trainable_bytes))) {
        return leave(&call, MICROTRAIN_ERR_ARGUMENT);
    }
    replay_give(s, memory, bytes);
    return leave(&call, MICROTRAIN_OK);
}

/* A training step on a record, by the caller's hand. */
static int recall(struct session *s, uint32_t left, uint32_t of, struct model_pass *pass)
{
    if (!remembers(s->model)) {
        return MICROTRAIN_ERR_NO_RECORDS;
    }
    return left <= of && of ? session_recall_begin(s, (float)left / (float)of, pass) : MICROTRAIN_ERR_ARGUMENT;
}

int microtrain_recall(struct microtrain *m, uint32_t left, uint32_t of, float *loss)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
    struct model_pass pass;
    int status = recall(s, left, of, &pass);
    if (status != MICROTRAIN_OK) {
        return leave(&call, status);
    }
    model_run(s->model, &s->memory, s->model->record_step, s->model->steps, &pass);
    session_recall_end(s, &pass);
    if (loss) {
        *loss = pass.loss;
    }
    return leave(&call, MICROTRAIN_OK);
}

/* A job from a step on. */
static int begin_at(struct instance *i, enum job job, uint32_t step)
{
    i->job = job;
    i->next = step;
    i->kept = 0;
    i->pace = (struct pace){0};
    return MICROTRAIN_OK;
}

static int begin(struct instance *i, enum job job)
{
    return begin_at(i, job, 0);
}

/* Whether the next piece makes a record of the input, which is between the front's steps and the others then. */
static int keeps_next(const struct instance *i)
{
    const struct session *s = &i->session;
    return i->job == TRAINING && i->next == s->model->record_step && KEEPS(s) && !i->kept;
}

int microtrain_feed_row_begin(struct microtrain *m, uint32_t y, const uint8_t *row)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
    int status = status_of_row(s, y, row);
    if (status != MICROTRAIN_OK) {
        return leave(&call, status);
    }
    session_place_row(s, y, row);
    return leave(&call, begin(call.instance, ROW));
}

int microtrain_predict_begin(struct microtrain *m)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
    if (session_rows_missing(s)) {
        return leave(&call, MICROTRAIN_ERR_INPUT);
    }
    call.instance->slides = session_can_slide(s);
    session_forget_image(s);
    call.instance->pass = (struct model_pass){.train = 0};
    return leave(&call, begin(call.instance, INFERENCE));
}

static int train_begin(struct microtrain *m, uint32_t label, const float *target)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct session *s = &call.instance->session;
    int status = status_of_target(s->model, target);
    if (status != MICROTRAIN_OK) {
        return leave(&call, status);
    }
    s->memory.target = target;
    status = session_begin(s, label, &call.instance->pass);
    return leave(&call, status == MICROTRAIN_OK ? begin(call.instance, TRAINING) : status);
}

int microtrain_train_begin(struct microtrain *m, uint32_t label)
{
    return train_begin(m, label, NULL);
}

int microtrain_train_target_begin(struct microtrain *m, const float *target)
{
    return target ? train_begin(m, 0, target) : MICROTRAIN_ERR_ARGUMENT;
}

int microtrain_recall_begin(struct microtrain *m, uint32_t left, uint32_t of)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct instance *i = call.instance;
    int status = recall(&i->session, left, of, &i->pass);
    return leave(&call, status == MICROTRAIN_OK ? begin_at(i, RECALLING, i->session.model->record_step) : status);
}

/* The next of the model's steps, or a part of it, or the record between two of them: a piece never takes two, since few
 * count their work. Returns 1 where some are left. */
static int run_step(struct instance *i)
{
    const struct microtrain_model *model = i->session.model;
    if (keeps_next(i)) {
        session_keep(&i->session, i->pass.label);
        i->kept = 1;
        return 1;
    }
    model->step(&i->session.memory, i->next, &i->pass);
    i->next += !i->pace.paused;
    return i->next < (i->job == INFERENCE ? model->forward_steps : model->steps);
}

static int run_row(struct instance *i)
{
    i->session.model->take_row(&i->session.memory);
    if (!i->pace.paused) {
        session_took_row(&i->session);
    }
    return (int)i->pace.paused;
}

int microtrain_step(struct microtrain *m, uint32_t work, float *loss)
{
    struct call call = enter(m, NEEDS_NOTHING);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    struct instance *i = call.instance;
    if (!under_way(i)) {
        return leave(&call, MICROTRAIN_ERR_ORDER);
    }
    i->pace.left = work ? work : 1;
    i->pace.some = 0;
    i->pace.paused = 0;
    i->session.memory.pace = &i->pace;
    int more = i->job == ROW ? run_row(i) : run_step(i);
    i->session.memory.pace = NULL;
    if (more) {
        return leave(&call, MICROTRAIN_MORE);
    }
    if (i->job == TRAINING) {
        session_end(&i->session, &i->pass);
    } else if (i->job == RECALLING) {
        session_recall_end(&i->session, &i->pass);
    }
    if (loss && (i->job == TRAINING || i->job == RECALLING)) {
        *loss = i->pass.loss;
    }
    i->scored = i->job == INFERENCE;
    if (i->scored) {
        i->session.slides = i->slides;
    }
    i->job = NO_JOB;
    return leave(&call, MICROTRAIN_OK);
}

int microtrain_scores(struct microtrain *m, float *scores, uint32_t *label)
{
    uint32_t scored = m && inside(m)->magic == MAGIC && inside(m)->scored;
    struct call call = enter(m, NEEDS_NO_STEP);
    if (call.status != MICROTRAIN_OK) {
        return call.status;
    }
    if (!scored) {
        return leave(&call, MICROTRAIN_ERR_ORDER);
    }
    struct session *s = &call.instance->session;
    tell(s, session_best(s), scores, label);
    call.instance->scored = 1;
    return leave(&call, MICROTRAIN_OK);
}

/* Whether the storage can be one: a slot has room for its header, and for a look at what is behind. What a call before this
 * one has written, and could not get onto the chip, is there then: it is built upon. */
static int take_storage(const struct microtrain_storage *storage)
{
    if (!storage || !storage->read || !storage->program || !storage->erase || !storage->sync) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    uint32_t unit = storage->program_bytes;
    if (unit < PROGRAM_BYTES_MIN || unit > PROGRAM_BYTES_MAX || (unit & (unit - 1)) != 0) {
        return MICROTRAIN_ERR_SLOT;
    }
    uint32_t header = unit > SLOT_HEADER_BYTES ? unit : (uint32_t)SLOT_HEADER_BYTES;
    if (storage->slot_bytes % unit != 0 || storage->slot_bytes < 2 * header) {
        return MICROTRAIN_ERR_SLOT;
    }
    return storage->sync(storage->context) == 0 ? MICROTRAIN_OK : MICROTRAIN_ERR_STORAGE;
}

static struct checkpoint slots_of(struct instance *i, const struct microtrain_storage *storage)
{
    i->read_failed = 0;
    return (struct checkpoint){
        .model = i->session.model, .storage = storage, .failed = &i->read_failed, .forgotten = ERASED};
}

int microtrain_save(struct microtrain *m, const struct microtrain_storage *storage)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    int status = call.instance ? take_storage(storage) : call.status;
    if (call.status != MICROTRAIN_OK) {
        return status;
    }
    if (status == MICROTRAIN_OK) {
        struct checkpoint c = slots_of(call.instance, storage);
        checkpoint_find(&c);
        status = checkpoint_save(&c, &call.instance->session);
    }
    return leave(&call, status);
}

/* The newest save of a storage, or none. Where it could not be read to the end, see microtrain.h. */
static int load(struct instance *i, const struct microtrain_storage *storage)
{
    struct checkpoint c = slots_of(i, storage);
    checkpoint_find(&c);
    if (i->read_failed || c.offset == 0) {
        return i->read_failed ? MICROTRAIN_ERR_STORAGE : c.status;
    }
    i->job = NO_JOB;
    checkpoint_load(&c, &i->session);
    if (i->read_failed && INFO(&i->session)->trainable_bytes > INFO(&i->session)->arena_bytes) {
        session_reset(&i->session);
    }
    return i->read_failed ? MICROTRAIN_ERR_STORAGE : c.status;
}

int microtrain_load(struct microtrain *m, const struct microtrain_storage *storage)
{
    struct call call = enter(m, NEEDS_NOTHING);
    int status = call.instance ? take_storage(storage) : call.status;
    if (call.status != MICROTRAIN_OK) {
        return status;
    }
    return leave(&call, status == MICROTRAIN_OK ? load(call.instance, storage) : status);
}

int microtrain_forget(struct microtrain *m, const struct microtrain_storage *storage)
{
    struct call call = enter(m, NEEDS_NO_STEP);
    int status = call.instance ? take_storage(storage) : call.status;
    if (call.status != MICROTRAIN_OK) {
        return status;
    }
    if (status == MICROTRAIN_OK) {
        struct checkpoint c = slots_of(call.instance, storage);
        checkpoint_find(&c);
        status = checkpoint_forget(&c);
    }
    return leave(&call, status);
}

#endif
