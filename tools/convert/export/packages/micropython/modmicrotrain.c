/* SPDX-License-Identifier: Apache-2.0 */
/* The module microtrain of MicroPython: microtrain.h for Python programs. examples/micropython/main.py uses it.
 *
 * Memory is two bytearrays of the caller, or comes from the heap. What goes wrong in the library raises microtrain.Error
 * with its text and its number; what is wrong with an argument raises TypeError or ValueError. */
#include <stddef.h>
#include <string.h>

#include "py/objarray.h"
#include "py/objexcept.h"
#include "py/runtime.h"

#include "models.h"

#if !MICROPY_PY_BUILTINS_FLOAT
#error "microtrain needs a MicroPython with floats."
#endif

enum { BLOCK_COUNT = 4, BLOCK_SIZE = 5, BLOCK_ERASE = 6, BLOCK_SYNC = 3 }; /* requests of ioctl */

typedef struct {
    mp_obj_base_t base;
    mp_obj_t arena, trainables;     /* bytearrays, or what else has a buffer */
    void *arena_at, *trainables_at; /* where they were when the instance was made */
    float *target;                  /* of a step in pieces */
    mp_obj_t records;               /* what has the memory for them */
    struct microtrain_sizes sizes;
    struct microtrain instance;
} model_t;

static MP_DEFINE_EXCEPTION(Error, Exception)

    static void check(int status)
{
    if (status < 0) {
        const char *text = microtrain_text(status);
        mp_obj_t args[2] = {mp_obj_new_str(text, strlen(text)), MP_OBJ_NEW_SMALL_INT(status)};
        nlr_raise(mp_obj_new_exception_args(&mp_type_Error, 2, args));
    }
}

static uint32_t natural(mp_obj_t number)
{
    mp_int_t value = mp_obj_get_int(number);
    if (value < 0 || (mp_uint_t)value > UINT32_MAX) {
        mp_raise_ValueError(MP_ERROR_TEXT("a number is out of range"));
    }
    return (uint32_t)value;
}

/* Where the bytes of a buffer are, of which there must be `bytes`. typecode: of its items; 0: any. */
static void *buffer(mp_obj_t object, size_t bytes, int typecode, mp_uint_t flags)
{
    mp_buffer_info_t found;
    mp_get_buffer_raise(object, &found, flags);
    if (typecode && found.typecode != typecode) {
        mp_raise_msg_varg(&mp_type_TypeError, MP_ERROR_TEXT("an array of '%c' is needed"), typecode);
    }
    if (found.len != bytes) {
        mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("%u bytes are needed, these are %u"), (unsigned)bytes,
                          (unsigned)found.len);
    }
    return found.buf;
}

/* ---------------------------------------------------------------- models */

/* name: None: the first. */
static const struct microtrain_model *model_of(mp_obj_t name)
{
    const struct microtrain_named *each = microtrain_models;
    if (name == mp_const_none) {
        return each->microtrain_model;
    }
    const char *wanted = mp_obj_str_get_str(name);
    while (each->microtrain_name && strcmp(each->microtrain_name, wanted) != 0) {
        each++;
    }
    if (!each->microtrain_name) {
        mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("there is no model %s"), wanted);
    }
    return each->microtrain_model;
}

/* models(): their names. */
static mp_obj_t models(void)
{
    mp_obj_t list = mp_obj_new_list(0, NULL);
    for (const struct microtrain_named *each = microtrain_models; each->microtrain_name; each++) {
        mp_obj_list_append(list, mp_obj_new_str(each->microtrain_name, strlen(each->microtrain_name)));
    }
    return list;
}
static MP_DEFINE_CONST_FUN_OBJ_0(models_obj, models);

/* memory(name=None): bytes of the arena, and of what learns. */
static mp_obj_t memory(size_t count, const mp_obj_t *args)
{
    struct microtrain_sizes sizes;
    check(microtrain_sizes(model_of(count ? args[0] : mp_const_none), &sizes));
    mp_obj_t both[2] = {mp_obj_new_int_from_uint(sizes.arena_bytes), mp_obj_new_int_from_uint(sizes.trainable_bytes)};
    return mp_obj_new_tuple(2, both);
}
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(memory_obj, 0, 1, memory);

/* version(): (major, minor, patch). */
static mp_obj_t version(void)
{
    uint32_t v = microtrain_version();
    mp_obj_t parts[3] = {MP_OBJ_NEW_SMALL_INT(v >> 16), MP_OBJ_NEW_SMALL_INT(v >> 8 & 0xff),
                         MP_OBJ_NEW_SMALL_INT(v & 0xff)};
    return mp_obj_new_tuple(3, parts);
}
static MP_DEFINE_CONST_FUN_OBJ_0(version_obj, version);

/* ---------------------------------------------------------------- an instance */

static mp_obj_t given_or_new(mp_obj_t given, size_t bytes)
{
    return given != mp_const_none ? given : mp_obj_new_bytearray_by_ref(bytes, m_new0(uint64_t, (bytes + 7) / 8));
}

/* The bytes of an instance's memory. ValueError where they are too few. */
static void *place(mp_obj_t object, size_t bytes)
{
    mp_buffer_info_t found;
    mp_get_buffer_raise(object, &found, MP_BUFFER_RW);
    if (found.len < bytes) {
        mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("%u bytes are needed, these are %u"), (unsigned)bytes,
                          (unsigned)found.len);
    }
    return found.buf;
}

/* Model(name=None, arena=None, trainables=None) */
static mp_obj_t model_new(const mp_obj_type_t *type, size_t count, size_t keywords, const mp_obj_t *args)
{
    mp_arg_check_num(count, keywords, 0, 3, false);
    const struct microtrain_model *model = model_of(count > 0 ? args[0] : mp_const_none);
    model_t *self = mp_obj_malloc(model_t, type);
    check(microtrain_sizes(model, &self->sizes));
    self->arena = given_or_new(count > 1 ? args[1] : mp_const_none, self->sizes.arena_bytes);
    self->trainables = given_or_new(count > 2 ? args[2] : mp_const_none, self->sizes.trainable_bytes);
    self->arena_at = place(self->arena, self->sizes.arena_bytes);
    self->trainables_at = place(self->trainables, self->sizes.trainable_bytes);
    self->target = m_new0(float, self->sizes.targets + 1);
    const struct microtrain_memory both = {self->arena_at, self->sizes.arena_bytes, self->trainables_at,
                                           self->sizes.trainable_bytes};
    check(microtrain_init(&self->instance, model, &both));
    return MP_OBJ_FROM_PTR(self);
}

/* An instance whose memory is where it was: a bytearray that grows can move. */
static model_t *self_of(mp_obj_t object)
{
    model_t *self = MP_OBJ_TO_PTR(object);
    if (place(self->arena, self->sizes.arena_bytes) != self->arena_at ||
        place(self->trainables, self->sizes.trainable_bytes) != self->trainables_at) {
        mp_raise_ValueError(MP_ERROR_TEXT("the memory of the model has moved"));
    }
    return self;
}

static mp_obj_t done(int status)
{
    check(status);
    return mp_const_none;
}

static mp_obj_t reset(mp_obj_t self)
{
    return done(microtrain_reset(&self_of(self)->instance));
}
static MP_DEFINE_CONST_FUN_OBJ_1(reset_obj, reset);

/* set(seed, rate) */
static mp_obj_t set(mp_obj_t self, mp_obj_t seed, mp_obj_t rate)
{
    uint32_t number = natural(seed);
    return done(microtrain_set(&self_of(self)->instance, number, (float)mp_obj_get_float(rate)));
}
static MP_DEFINE_CONST_FUN_OBJ_3(set_obj, set);

static mp_obj_t selftest(mp_obj_t self)
{
    return done(microtrain_selftest(&self_of(self)->instance));
}
static MP_DEFINE_CONST_FUN_OBJ_1(selftest_obj, selftest);

/* ---------------------------------------------------------------- input */

/* feed(input): input_bytes of a buffer. */
static mp_obj_t feed(mp_obj_t object, mp_obj_t input)
{
    model_t *self = self_of(object);
    return done(microtrain_feed(&self->instance, buffer(input, self->sizes.input_bytes, 0, MP_BUFFER_READ)));
}
static MP_DEFINE_CONST_FUN_OBJ_2(feed_obj, feed);

/* feed_row(y, row): row_bytes of a buffer. */
static mp_obj_t feed_row(mp_obj_t object, mp_obj_t y, mp_obj_t row)
{
    model_t *self = self_of(object);
    const uint8_t *bytes = buffer(row, self->sizes.row_bytes, 0, MP_BUFFER_READ);
    return done(microtrain_feed_row(&self->instance, natural(y), bytes));
}
static MP_DEFINE_CONST_FUN_OBJ_3(feed_row_obj, feed_row);

/* feed_sound(at, samples): an array('h') of any length. */
static mp_obj_t feed_sound(mp_obj_t object, mp_obj_t at, mp_obj_t samples)
{
    model_t *self = self_of(object);
    size_t bytes = mp_obj_get_int(mp_obj_len(samples)) * sizeof(int16_t);
    const int16_t *block = buffer(samples, bytes, 'h', MP_BUFFER_READ);
    return done(microtrain_feed_sound(&self->instance, natural(at), block, (uint32_t)(bytes / sizeof *block)));
}
static MP_DEFINE_CONST_FUN_OBJ_3(feed_sound_obj, feed_sound);

static mp_obj_t slide(mp_obj_t self)
{
    return done(microtrain_slide(&self_of(self)->instance));
}
static MP_DEFINE_CONST_FUN_OBJ_1(slide_obj, slide);

/* ---------------------------------------------------------------- inference and training */

typedef int answer_t(struct microtrain *m, float *scores, uint32_t *label);

static mp_obj_t answered(size_t count, const mp_obj_t *args, answer_t *answer)
{
    model_t *self = self_of(args[0]);
    uint32_t label = 0;
    float *scores = NULL;
    if (count > 1 && args[1] != mp_const_none) {
        scores = buffer(args[1], self->sizes.classes * sizeof *scores, 'f', MP_BUFFER_WRITE);
    }
    check(answer(&self->instance, scores, &label));
    return mp_obj_new_int_from_uint(label);
}

/* predict(scores=None): the class; scores: an array('f') of `classes`, which is filled. */
static mp_obj_t predict(size_t count, const mp_obj_t *args)
{
    return answered(count, args, microtrain_predict);
}
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(predict_obj, 1, 2, predict);

/* scores(scores=None): what predict says, of an inference in pieces. */
static mp_obj_t scores(size_t count, const mp_obj_t *args)
{
    return answered(count, args, microtrain_scores);
}
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(scores_obj, 1, 2, scores);

/* The numbers that the model should have said, one by one or in anything that can be walked. */
static const float *target_of(model_t *self, mp_obj_t given)
{
    if (mp_obj_is_float(given) || mp_obj_is_int(given)) {
        given = mp_obj_new_tuple(1, &given);
    }
    mp_obj_iter_buf_t buf;
    mp_obj_t each, numbers = mp_getiter(given, &buf);
    uint32_t found = 0;
    while ((each = mp_iternext(numbers)) != MP_OBJ_STOP_ITERATION) {
        float number = (float)mp_obj_get_float(each);
        if (found < self->sizes.targets) {
            self->target[found] = number;
        }
        found++;
    }
    if (found != self->sizes.targets) {
        mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("%u targets are needed, these are %u"),
                          (unsigned)self->sizes.targets, (unsigned)found);
    }
    return self->target;
}

/* Of a step in pieces the target must stay as it is. */
static void check_no_step(model_t *self)
{
    struct microtrain_state state;
    check(microtrain_state(&self->instance, &state));
    check(state.under_way ? MICROTRAIN_ERR_BUSY : MICROTRAIN_OK);
}

/* train(what): the loss; what: a class, or of a model that learns from targets, its targets. */
static mp_obj_t train(mp_obj_t object, mp_obj_t what)
{
    model_t *self = self_of(object);
    float loss = 0.0f;
    check_no_step(self);
    check(self->sizes.targets ? microtrain_train_target(&self->instance, target_of(self, what), &loss)
                              : microtrain_train(&self->instance, natural(what), &loss));
    return mp_obj_new_float((mp_float_t)loss);
}
static MP_DEFINE_CONST_FUN_OBJ_2(train_obj, train);

/* imprint(label) */
static mp_obj_t imprint(mp_obj_t self, mp_obj_t label)
{
    return done(microtrain_imprint(&self_of(self)->instance, natural(label)));
}
static MP_DEFINE_CONST_FUN_OBJ_2(imprint_obj, imprint);

/* imprint_head(): how many classes it knows. */
static mp_obj_t imprint_head(mp_obj_t self)
{
    uint32_t classes = 0;
    check(microtrain_imprint_head(&self_of(self)->instance, &classes));
    return mp_obj_new_int_from_uint(classes);
}
static MP_DEFINE_CONST_FUN_OBJ_1(imprint_head_obj, imprint_head);

/* remember(memory): as many records of old inputs as it has room for; None: no more. */
static mp_obj_t remember(mp_obj_t object, mp_obj_t memory)
{
    model_t *self = self_of(object);
    mp_buffer_info_t room = {0};
    if (memory != mp_const_none) {
        mp_get_buffer_raise(memory, &room, MP_BUFFER_WRITE);
    }
    check(microtrain_remember(&self->instance, room.buf, (uint32_t)room.len));
    self->records = memory;
    return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_2(remember_obj, remember);

/* recall(left, of): the loss of a step on a record, at left / of of the rate. */
static mp_obj_t recall(mp_obj_t object, mp_obj_t left, mp_obj_t of)
{
    model_t *self = self_of(object);
    float loss = 0.0f;
    check(microtrain_recall(&self->instance, natural(left), natural(of), &loss));
    return mp_obj_new_float((mp_float_t)loss);
}
static MP_DEFINE_CONST_FUN_OBJ_3(recall_obj, recall);

/* ---------------------------------------------------------------- the same in pieces */

static mp_obj_t recall_begin(mp_obj_t self, mp_obj_t left, mp_obj_t of)
{
    return done(microtrain_recall_begin(&self_of(self)->instance, natural(left), natural(of)));
}
static MP_DEFINE_CONST_FUN_OBJ_3(recall_begin_obj, recall_begin);

static mp_obj_t feed_row_begin(mp_obj_t object, mp_obj_t y, mp_obj_t row)
{
    model_t *self = self_of(object);
    const uint8_t *bytes = buffer(row, self->sizes.row_bytes, 0, MP_BUFFER_READ);
    return done(microtrain_feed_row_begin(&self->instance, natural(y), bytes));
}
static MP_DEFINE_CONST_FUN_OBJ_3(feed_row_begin_obj, feed_row_begin);

static mp_obj_t predict_begin(mp_obj_t self)
{
    return done(microtrain_predict_begin(&self_of(self)->instance));
}
static MP_DEFINE_CONST_FUN_OBJ_1(predict_begin_obj, predict_begin);

static mp_obj_t train_begin(mp_obj_t object, mp_obj_t what)
{
    model_t *self = self_of(object);
    check_no_step(self);
    return done(self->sizes.targets ? microtrain_train_target_begin(&self->instance, target_of(self, what))
                                    : microtrain_train_begin(&self->instance, natural(what)));
}
static MP_DEFINE_CONST_FUN_OBJ_2(train_begin_obj, train_begin);

/* step(work): None where there is more to do, else the loss; 0.0 of what has none. */
static mp_obj_t step(mp_obj_t self, mp_obj_t work)
{
    float loss = 0.0f;
    int status = microtrain_step(&self_of(self)->instance, natural(work), &loss);
    check(status);
    return status == MICROTRAIN_MORE ? mp_const_none : mp_obj_new_float((mp_float_t)loss);
}
static MP_DEFINE_CONST_FUN_OBJ_2(step_obj, step);

/* ---------------------------------------------------------------- storage */

/* A block device of the extended kind (readblocks and writeblocks with an offset, ioctl), each half of which is a slot.
 * raised: what one of its methods raised, or MP_OBJ_NULL. */
typedef struct {
    mp_obj_t device, raised;
    uint32_t block_bytes, slot_blocks;
} blocks_t;

/* What a method returns. TypeError where it is no number. */
static mp_int_t called(const blocks_t *b, qstr name, size_t count, const mp_obj_t *arguments)
{
    mp_obj_t call[2 + 3];
    mp_load_method(b->device, name, call);
    memcpy(call + 2, arguments, count * sizeof *call);
    mp_obj_t answer = mp_call_method_n_kw(count, 0, call);
    return answer == mp_const_none ? 0 : mp_obj_get_int(answer);
}

static mp_int_t request(const blocks_t *b, uint32_t what, uint32_t argument)
{
    mp_obj_t arguments[2] = {MP_OBJ_NEW_SMALL_INT((mp_int_t)what), MP_OBJ_NEW_SMALL_INT((mp_int_t)argument)};
    return called(b, MP_QSTR_ioctl, 2, arguments);
}

/* One method, and the view of what it is given. */
static mp_int_t moved_piece(const blocks_t *b, qstr name, uint32_t at, uint8_t *bytes, uint32_t size)
{
    mp_obj_t view = mp_obj_new_memoryview('B' | MP_OBJ_ARRAY_TYPECODE_FLAG_RW, size, bytes);
    mp_obj_t arguments[3] = {MP_OBJ_NEW_SMALL_INT((mp_int_t)(at / b->block_bytes)), view,
                             MP_OBJ_NEW_SMALL_INT((mp_int_t)(at % b->block_bytes))};
    mp_int_t answer = called(b, name, 3, arguments);
    ((mp_obj_array_t *)MP_OBJ_TO_PTR(view))->len = 0; /* whoever keeps it keeps nothing */
    return answer;
}

/* No exception leaves it: that would leave the library in the middle of a call. bytes: NULL: a request of ioctl. */
static int guarded(blocks_t *b, qstr name, uint32_t what, uint8_t *bytes, uint32_t size)
{
    nlr_buf_t nlr;
    if (nlr_push(&nlr) != 0) {
        b->raised = MP_OBJ_FROM_PTR(nlr.ret_val);
        return 1;
    }
    mp_int_t answer = bytes ? moved_piece(b, name, what, bytes, size) : request(b, what, size);
    nlr_pop();
    return answer != 0;
}

/* A piece of a slot, block by block. */
static int moved(blocks_t *b, qstr name, uint32_t slot, uint32_t offset, uint8_t *bytes, uint32_t size)
{
    uint32_t at = slot * b->slot_blocks * b->block_bytes + offset;
    int failed = 0;
    while (size && !failed) {
        uint32_t left = b->block_bytes - at % b->block_bytes, piece = size < left ? size : left;
        failed = guarded(b, name, at, bytes, piece);
        at += piece, bytes += piece, size -= piece;
    }
    return failed;
}

static int read_slot(void *context, uint32_t slot, uint32_t offset, void *to, uint32_t size)
{
    return moved(context, MP_QSTR_readblocks, slot, offset, to, size);
}

/* The device reads what it is given; MicroPython's buffers have no const. */
static int program_slot(void *context, uint32_t slot, uint32_t offset, const void *from, uint32_t size)
{
    return moved(context, MP_QSTR_writeblocks, slot, offset, (uint8_t *)(uintptr_t)from, size);
}

static int erase_slot(void *context, uint32_t slot)
{
    blocks_t *b = context;
    int failed = 0;
    for (uint32_t i = 0; i < b->slot_blocks && !failed; i++) {
        failed = guarded(b, MP_QSTR_ioctl, BLOCK_ERASE, NULL, slot * b->slot_blocks + i);
    }
    return failed;
}

static int sync_slots(void *context)
{
    return guarded(context, MP_QSTR_ioctl, BLOCK_SYNC, NULL, 0);
}

typedef int keep_t(struct microtrain *m, const struct microtrain_storage *storage);

/* args: the instance, the device, and the bytes that it programs at once. What the device raised is raised again. */
static int kept(size_t count, const mp_obj_t *args, keep_t *keep)
{
    model_t *self = self_of(args[0]);
    blocks_t b = {args[1], MP_OBJ_NULL, 0, 0};
    mp_int_t bytes = request(&b, BLOCK_SIZE, 0), blocks = request(&b, BLOCK_COUNT, 0);
    if (bytes <= 0 || blocks < 2 || blocks > INT32_MAX / bytes) {
        mp_raise_ValueError(MP_ERROR_TEXT("the device has no two blocks, or too many"));
    }
    b.block_bytes = (uint32_t)bytes;
    b.slot_blocks = (uint32_t)blocks / 2;
    uint32_t unit = count > 2 ? natural(args[2]) : 32;
    const struct microtrain_storage storage = {
        &b, read_slot, program_slot, erase_slot, sync_slots, b.slot_blocks * b.block_bytes, unit, 0};
    int status = keep(&self->instance, &storage);
    if (b.raised != MP_OBJ_NULL) {
        nlr_raise(b.raised);
    }
    check(status);
    return status;
}

/* save(device, progsize=32) */
static mp_obj_t save(size_t count, const mp_obj_t *args)
{
    return done(kept(count, args, microtrain_save));
}
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(save_obj, 2, 3, save);

/* load(device, progsize=32): whether there was anything. */
static mp_obj_t load(size_t count, const mp_obj_t *args)
{
    return mp_obj_new_bool(kept(count, args, microtrain_load) == MICROTRAIN_OK);
}
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(load_obj, 2, 3, load);

/* forget(device, progsize=32) */
static mp_obj_t forget(size_t count, const mp_obj_t *args)
{
    return done(kept(count, args, microtrain_forget));
}
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(forget_obj, 2, 3, forget);

/* ---------------------------------------------------------------- attributes */

/* Numbers of microtrain_sizes, by where they are. */
static const struct {
    qstr_short_t name;
    uint16_t at;
} numbers[] = {
    /* in the header's order */
    {MP_QSTR_arena_bytes, offsetof(struct microtrain_sizes, arena_bytes)},
    {MP_QSTR_trainable_bytes, offsetof(struct microtrain_sizes, trainable_bytes)},
    {MP_QSTR_slot_bytes, offsetof(struct microtrain_sizes, slot_bytes)},
    {MP_QSTR_height, offsetof(struct microtrain_sizes, height)},
    {MP_QSTR_width, offsetof(struct microtrain_sizes, width)},
    {MP_QSTR_channels, offsetof(struct microtrain_sizes, channels)},
    {MP_QSTR_row_bytes, offsetof(struct microtrain_sizes, row_bytes)},
    {MP_QSTR_input_bytes, offsetof(struct microtrain_sizes, input_bytes)},
    {MP_QSTR_classes, offsetof(struct microtrain_sizes, classes)},
    {MP_QSTR_targets, offsetof(struct microtrain_sizes, targets)},
    {MP_QSTR_sound_samples, offsetof(struct microtrain_sizes, sound_samples)},
    {MP_QSTR_hop_rows, offsetof(struct microtrain_sizes, hop_rows)},
    {MP_QSTR_hop_samples, offsetof(struct microtrain_sizes, hop_samples)},
    {MP_QSTR_record_bytes, offsetof(struct microtrain_sizes, record_bytes)},
    {MP_QSTR_memory_bytes, offsetof(struct microtrain_sizes, memory_bytes)},
};

/* How it stands: a name of microtrain_state, or MP_OBJ_NULL. */
static mp_obj_t state_of(model_t *self, qstr name)
{
    struct microtrain_state state;
    check(microtrain_state(&self->instance, &state));
    switch (name) {
    case MP_QSTR_rows_missing:
        return mp_obj_new_int_from_uint(state.rows_missing);
    case MP_QSTR_steps:
        return mp_obj_new_int_from_uint(state.steps);
    case MP_QSTR_mean_loss:
        return mp_obj_new_float((mp_float_t)state.mean_loss);
    case MP_QSTR_looks:
        return mp_obj_new_int_from_uint(state.looks);
    case MP_QSTR_diverged:
        return mp_obj_new_bool(state.diverged);
    case MP_QSTR_under_way:
        return mp_obj_new_bool(state.under_way);
    default:
        return MP_OBJ_NULL;
    }
}

/* Reads one; leaves the methods to MicroPython. */
static void attribute(mp_obj_t object, qstr name, mp_obj_t *answer)
{
    model_t *self = MP_OBJ_TO_PTR(object);
    if (answer[0] != MP_OBJ_NULL) {
        return; /* nobody can set one */
    }
    for (size_t i = 0; i < MP_ARRAY_SIZE(numbers); i++) {
        if (numbers[i].name == name) {
            uint32_t number;
            memcpy(&number, (const uint8_t *)&self->sizes + numbers[i].at, sizeof number);
            answer[0] = mp_obj_new_int_from_uint(number);
            return;
        }
    }
    answer[0] = state_of(self, name);
    if (answer[0] == MP_OBJ_NULL) {
        answer[1] = MP_OBJ_SENTINEL;
    }
}

#define METHOD(name)                                                                                                   \
    {                                                                                                                  \
        MP_ROM_QSTR(MP_QSTR_##name), MP_ROM_PTR(&name##_obj)                                                           \
    }

static const mp_rom_map_elem_t methods_table[] = {
    METHOD(reset),         METHOD(set),          METHOD(selftest),    METHOD(feed),   METHOD(feed_row),
    METHOD(feed_sound),    METHOD(slide),        METHOD(predict),     METHOD(scores), METHOD(train),
    METHOD(imprint),       METHOD(imprint_head), METHOD(train_begin), METHOD(step),   METHOD(feed_row_begin),
    METHOD(predict_begin), METHOD(save),         METHOD(load),        METHOD(forget), METHOD(remember),
    METHOD(recall),        METHOD(recall_begin),
};
static MP_DEFINE_CONST_DICT(methods, methods_table);

static MP_DEFINE_CONST_OBJ_TYPE(model_type, MP_QSTR_Model, MP_TYPE_FLAG_NONE, make_new, model_new, attr, attribute,
                                locals_dict, &methods);

static const mp_rom_map_elem_t module_table[] = {
    /* what a program imports */
    {MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR_microtrain)},
    {MP_ROM_QSTR(MP_QSTR_Model), MP_ROM_PTR(&model_type)},
    {MP_ROM_QSTR(MP_QSTR_Error), MP_ROM_PTR(&mp_type_Error)},
    METHOD(models),
    METHOD(memory),
    METHOD(version),
};
static MP_DEFINE_CONST_DICT(module_globals, module_table);

const mp_obj_module_t microtrain_user_cmodule = {
    .base.type = &mp_type_module,
    .globals = (mp_obj_dict_t *)&module_globals,
};

MP_REGISTER_MODULE(MP_QSTR_microtrain, microtrain_user_cmodule);
