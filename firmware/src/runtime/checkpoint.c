/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint.h"

#include <stddef.h>
#include <string.h>

#include "crc.h"
#include "storage.h"

#define SLOT_MAGIC 0x4c53544du   /* "MTSL" */
#define RECORD_MAGIC 0x5243544du /* "MTCR"; another VERSION takes another: a damaged header does not tell them apart */

enum { VERSION = 1, ALIGNMENT = 32 };

/* At the start of a slot, cleared right before its erase and written right after it: only a slot with a whole one is
 * written to. Its layout stays with all versions. crc: of all before it. The library alone says, and a firmware leaves
 * ERASED: unit and bytes of the storage that the slot was laid out for; the last save that checkpoint_forget has ended. */
struct slot_header {
    uint32_t magic, version, model_id, erases, unit, bytes, forgotten, crc;
};

/* In front of the trainables. crc: of all before it and of the trainables. model_id: ERASED in records of older firmware,
 * which only the slot's header tells from those of another model. */
struct record {
    uint32_t magic, number; /* of the save, from 1 on; wraps */
    uint32_t erases[BOARD_SLOTS];
    uint32_t seed, step, replays, autosave;
    float rate, loss_sum;
    uint32_t evaluated, correct, losses;
    uint32_t guard, model_id, crc;
};
#define HEADER_BYTES(c) round_up(sizeof(struct slot_header), PROGRAM_BYTES(c))
#define RECORD_BYTES(c) round_up(sizeof(struct record), PROGRAM_BYTES(c))
#ifdef MICROTRAIN_LIBRARY
#define FITS(c, h) fits((c)->storage, h)
#define ANY_IS_NEWER(c) ((c)->offset == 0 && (c)->saves == 0)
#else
#define FITS(c, h) 1
#define ANY_IS_NEWER(c) ((c)->offset == 0)
#endif
_Static_assert(sizeof(struct slot_header) == ALIGNMENT, "records must begin at multiples of ALIGNMENT");
_Static_assert(sizeof(struct record) % 4 == 0, "a record is written in words");

static uint32_t round_up(uint32_t bytes, uint32_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Bytes from one record to the next. */
static uint32_t stride(const struct checkpoint *c)
{
    uint32_t unit = PROGRAM_BYTES(c) > ALIGNMENT ? PROGRAM_BYTES(c) : (uint32_t)ALIGNMENT;
    return round_up(RECORD_BYTES(c) + KEPT_BYTES(c), unit);
}

static uint32_t capacity(const struct checkpoint *c, uint32_t slot)
{
    return (slot_bytes(c, slot) - HEADER_BYTES(c)) / stride(c);
}

static uint32_t record_offset(const struct checkpoint *c, uint32_t index)
{
    return HEADER_BYTES(c) + index * stride(c);
}

static struct record read_record(const struct checkpoint *c, uint32_t slot, uint32_t offset)
{
    struct record r;
    slot_read(c, slot, offset, &r, sizeof r);
    return r;
}

static uint32_t crc_of(const struct checkpoint *c, const struct record *r, struct place trainables)
{
    uint32_t crc = crc32(0, (const uint8_t *)r, offsetof(struct record, crc));
    return place_crc(c, crc, trainables, KEPT_BYTES(c));
}

static uint32_t read_word(const struct checkpoint *c, uint32_t slot, uint32_t offset)
{
    uint32_t word;
    slot_read(c, slot, offset, &word, sizeof word);
    return word;
}

static int blank(const struct checkpoint *c, uint32_t slot, uint32_t offset, uint32_t size)
{
    for (uint32_t i = 0; i < size; i += 4) {
        if (read_word(c, slot, offset + i) != ERASED) {
            return 0;
        }
    }
    return 1;
}

/* Returns 0 where it is damaged, or the slot was not erased to the end. */
static int read_header(const struct checkpoint *c, uint32_t slot, struct slot_header *h)
{
    slot_read(c, slot, 0, h, sizeof *h);
    return h->magic == SLOT_MAGIC && h->crc == crc32(0, (const uint8_t *)h, offsetof(struct slot_header, crc));
}

#ifdef MICROTRAIN_LIBRARY
/* Whether records are where this storage looks for them. Of a slot that has grown it sees them all. */
static int fits(const struct microtrain_storage *storage, const struct slot_header *h)
{
    return h->unit == ERASED || (h->unit == storage->program_bytes && h->bytes <= storage->slot_bytes);
}
#endif

/* Whose records a slot holds, by its header. */
enum owner { NOBODY, THIS_MODEL, ANOTHER };

static enum owner owner(const struct checkpoint *c, uint32_t slot)
{
    struct slot_header h;
    if (!read_header(c, slot, &h)) {
        return NOBODY;
    }
    return h.version == VERSION && h.model_id == CHECKPOINT_INFO(c)->id && FITS(c, &h) ? THIS_MODEL : ANOTHER;
}

/* Places in the slot to look for records of this model. Without a header each record speaks for itself, since a damaged one
 * and an erase that was cut short look the same: what the latter leaves is older than the newest record elsewhere, or is
 * itself the newest (checkpoint_forget). */
static uint32_t places(const struct checkpoint *c, uint32_t slot)
{
    return owner(c, slot) == ANOTHER ? 0 : capacity(c, slot);
}

static int whole(const struct checkpoint *c, uint32_t slot, uint32_t offset)
{
    struct record r = read_record(c, slot, offset);
    struct place trainables = place_in_slot(slot, offset + RECORD_BYTES(c));
    return r.magic == RECORD_MAGIC && r.crc == crc_of(c, &r, trainables) &&
           (r.model_id == CHECKPOINT_INFO(c)->id || (r.model_id == ERASED && owner(c, slot) == THIS_MODEL));
}

/* Numbers of saves wrap: the newer one is less than half of their range ahead (RFC 1982, section 3.2). */
static int newer(uint32_t number, uint32_t than)
{
    return number - than - 1u < 0x7fffffffu;
}

/* Find the newest whole record. Returns 0 where there is none. */
static int newest(struct checkpoint *c)
{
    for (uint32_t slot = 0; slot < BOARD_SLOTS; slot++) {
        uint32_t count = places(c, slot);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t offset = record_offset(c, i),
                     number = read_word(c, slot, offset + (uint32_t)offsetof(struct record, number));
            if ((ANY_IS_NEWER(c) || newer(number, c->saves)) && whole(c, slot, offset)) {
                c->slot = slot;
                c->offset = offset;
                c->saves = number;
            }
        }
    }
    return c->offset != 0;
}

/* How often the slots were erased, and whether what they hold is of another model or version. */
static void look_at_slots(struct checkpoint *c)
{
    struct slot_header h;
    for (uint32_t slot = 0; slot < BOARD_SLOTS; slot++) {
        if (!read_header(c, slot, &h)) {
            continue;
        }
        c->erases[slot] = h.erases;
        enum owner whose = owner(c, slot);
        if (whose == ANOTHER && !(FITS(c, &h) && blank(c, slot, HEADER_BYTES(c), ALIGNMENT))) {
            c->status = h.version == VERSION && FITS(c, &h) ? CHECKPOINT_ERR_MODEL : CHECKPOINT_ERR_VERSION;
            c->model_id = h.model_id;
            c->version = h.version;
        }
#ifdef MICROTRAIN_LIBRARY
        if (whose == THIS_MODEL && h.forgotten != ERASED && (c->saves == 0 || newer(h.forgotten, c->saves))) {
            c->saves = c->forgotten = h.forgotten;
            c->slot = (slot + 1) % BOARD_SLOTS; /* the other one may hold what is forgotten, and is erased first */
        }
#endif
    }
}

#ifdef MICROTRAIN_LIBRARY

/* The trainables of a record, which are read once more: what comes is compared with its CRC again. Where the arena has room
 * they are collected there, so that a failure loses nothing. */
static void load_trainables(const struct checkpoint *c, struct session *s, const struct record *r)
{
    uint32_t size = KEPT_BYTES(c);
    uint8_t *to = size > INFO(s)->arena_bytes ? TRAINABLES(s) : ARENA(s);
    session_take_arena(s);
    slot_read(c, c->slot, c->offset + RECORD_BYTES(c), to, size);
    if (crc_of(c, r, place_in_memory(to)) != r->crc) {
        *c->failed = 1;
    }
    if (!*c->failed && to != TRAINABLES(s)) {
        memcpy(TRAINABLES(s), to, size);
    }
}

#else

static void load_trainables(const struct checkpoint *c, struct session *s, const struct record *r)
{
    (void)r;
    memcpy(TRAINABLES(s), board_slot(c->slot) + c->offset + RECORD_BYTES(c), KEPT_BYTES(c));
}

#endif

static void restore(struct checkpoint *c, struct session *s)
{
    struct record r = read_record(c, c->slot, c->offset);
    load_trainables(c, s, &r);
    if (READ_FAILED(c)) {
        return;
    }
    s->seed = r.seed;
    s->step = r.step;
    s->rate = r.rate;
    s->replays = r.replays;
    s->autosave = r.autosave;
    guard_start(&s->guard, r.guard != 0);
    s->evaluated = r.evaluated;
    s->correct = r.correct;
    s->losses = r.losses;
    s->loss_sum = r.loss_sum;
    c->saved_step = r.step;
    for (uint32_t slot = 0; slot < BOARD_SLOTS; slot++) {
        c->erases[slot] = r.erases[slot] > c->erases[slot] ? r.erases[slot] : c->erases[slot];
    }
    c->status = CHECKPOINT_OK;
}

/* What the slots hold now. Returns 0 where there is no record to load. */
static int look(struct checkpoint *c)
{
    c->status = CHECKPOINT_NONE;
    c->slot = 0;
    c->offset = 0;
    c->saves = 0;
    c->saved_step = 0;
    if (!HAS_SLOTS) {
        return 0;
    }
    look_at_slots(c);
    return c->status == CHECKPOINT_NONE && newest(c);
}

#ifdef MICROTRAIN_LIBRARY

uint32_t checkpoint_slot_bytes(const struct model_info *info)
{
    uint32_t record = round_up(sizeof(struct record), ALIGNMENT) + info->trainable_bytes;
    return (uint32_t)sizeof(struct slot_header) + round_up(record, ALIGNMENT);
}

void checkpoint_find(struct checkpoint *c)
{
    if (look(c)) {
        struct record r = read_record(c, c->slot, c->offset);
        c->status = CHECKPOINT_OK;
        c->saved_step = r.step;
        *c->failed |= r.number != c->saves;
    }
}

void checkpoint_load(struct checkpoint *c, struct session *s)
{
    restore(c, s);
}

#else

void checkpoint_load(struct checkpoint *c, struct session *s)
{
    memset(c, 0, sizeof *c);
    if (look(c)) {
        restore(c, s);
    }
}

#endif

/* Clear the magic word of a header or record at offset, so that it does not count any more. Returns 0 where it stays. */
static int strike(const struct checkpoint *c, uint32_t slot, uint32_t offset, uint32_t magic)
{
    if (read_word(c, slot, offset) == magic && !slot_clear(c, slot, offset)) {
        return 1; /* it is not meant to be: the erase that follows does it */
    }
    return read_word(c, slot, offset) != magic;
}

static void say_layout(const struct checkpoint *c, struct slot_header *h)
{
#ifdef MICROTRAIN_LIBRARY
    h->unit = PROGRAM_BYTES(c);
    h->bytes = c->storage->slot_bytes;
    h->forgotten = c->forgotten;
#else
    (void)c;
    h->unit = h->bytes = h->forgotten = ERASED;
#endif
}

/* Erase a slot and give it its header. An erase that is cut short might leave the old one. */
static int erase(struct checkpoint *c, uint32_t slot)
{
    BUSY_ERASING();
    (void)strike(c, slot, 0, SLOT_MAGIC);
    if (slot_erase(c, slot) != BOARD_OK) {
        return CHECKPOINT_ERR_FLASH;
    }
    c->erases[slot]++;
    struct slot_header h = {
        .magic = SLOT_MAGIC, .version = VERSION, .model_id = CHECKPOINT_INFO(c)->id, .erases = c->erases[slot]};
    say_layout(c, &h);
    h.crc = crc32(0, (const uint8_t *)&h, offsetof(struct slot_header, crc));
    int status = slot_program(c, slot, 0, &h, sizeof h);
    return status == BOARD_OK ? CHECKPOINT_OK : CHECKPOINT_ERR_FLASH;
}

/* A place in the slot that nothing has been written to; 0 where there is none. */
static uint32_t free_place(const struct checkpoint *c, uint32_t slot)
{
    uint32_t count = owner(c, slot) == THIS_MODEL ? capacity(c, slot) : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (blank(c, slot, record_offset(c, i), stride(c))) {
            return record_offset(c, i);
        }
    }
    return 0;
}

/* The trainables first, then the header, whose last word is the CRC. */
static int write_record(const struct checkpoint *c, const struct session *s, uint32_t slot, uint32_t offset)
{
    struct record r = {
        .magic = RECORD_MAGIC,
        .number = c->saves + 1,
        .seed = s->seed,
        .step = s->step,
        .replays = s->replays,
        .autosave = s->autosave,
        .guard = s->guard.on,
        .model_id = CHECKPOINT_INFO(c)->id,
        .rate = s->rate,
        .loss_sum = s->loss_sum,
        .evaluated = s->evaluated,
        .correct = s->correct,
        .losses = s->losses,
    };
    memcpy(r.erases, c->erases, sizeof r.erases);
    uint32_t payload = offset + RECORD_BYTES(c), size = KEPT_BYTES(c);
#if MODEL_FLEET_BYTES > 0
    uint32_t first = size - MODEL_FLEET_BYTES;
    const uint8_t *trainables = c->again ? checkpoint_newest(c) : TRAINABLES(s), *rest = TRAINABLES(s) + first;
    r.crc = crc32(0, (const uint8_t *)&r, offsetof(struct record, crc));
    r.crc = crc32(crc32(r.crc, trainables, first), rest, MODEL_FLEET_BYTES);
    int status = slot_program(c, slot, payload, trainables, first);
    status = status == BOARD_OK ? slot_program(c, slot, payload + first, rest, MODEL_FLEET_BYTES) : status;
#else
    r.crc = crc_of(c, &r, place_in_memory(TRAINABLES(s)));
    int status = slot_program(c, slot, payload, TRAINABLES(s), size);
#endif
    status = status == BOARD_OK ? slot_program(c, slot, offset, &r, sizeof r) : status;
    return status == BOARD_OK && whole(c, slot, offset) ? CHECKPOINT_OK : CHECKPOINT_ERR_FLASH;
}

/* Write to a free place of the slot; a place that does not hold what is written is used up, and the next one tried. */
static int save_in(struct checkpoint *c, const struct session *s, uint32_t slot)
{
    uint32_t offset;
    while ((offset = free_place(c, slot)) != 0) {
        if (write_record(c, s, slot, offset) == CHECKPOINT_OK) {
            c->slot = slot;
            c->offset = offset;
            c->saves++;
            c->saved_step = s->step;
            c->status = CHECKPOINT_OK;
            return CHECKPOINT_OK;
        }
        if (blank(c, slot, offset, stride(c))) {
            return CHECKPOINT_ERR_FLASH; /* it takes nothing at all */
        }
    }
    return CHECKPOINT_ERR_FLASH;
}

int checkpoint_save(struct checkpoint *c, const struct session *s)
{
    if (c->status < 0) {
        return c->status;
    }
    if (!HAS_SLOTS || capacity(c, 0) == 0) {
        return CHECKPOINT_ERR_SIZE;
    }
    if (READ_FAILED(c)) {
        return CHECKPOINT_ERR_FLASH; /* what is not known is not erased */
    }
    /* where the newest record is; then the others, as they are; then the others, erased */
    for (uint32_t turn = 0; turn < BOARD_SLOTS; turn++) {
        if (save_in(c, s, (c->slot + turn) % BOARD_SLOTS) == CHECKPOINT_OK) {
            return CHECKPOINT_OK;
        }
    }
    for (uint32_t turn = c->status == CHECKPOINT_NONE ? 0 : 1; turn < BOARD_SLOTS && !READ_FAILED(c); turn++) {
        uint32_t slot = (c->slot + turn) % BOARD_SLOTS;
        if (erase(c, slot) == CHECKPOINT_OK && save_in(c, s, slot) == CHECKPOINT_OK) {
            return CHECKPOINT_OK;
        }
    }
    return CHECKPOINT_ERR_FLASH;
}

#if MODEL_FLEET_BYTES > 0
const uint8_t *checkpoint_newest(const struct checkpoint *c)
{
    return c->offset ? board_slot(c->slot) + c->offset + RECORD_BYTES(c) : NULL;
}
#endif

int checkpoint_autosave(struct checkpoint *c, const struct session *s)
{
    int due = s->autosave && s->step - c->saved_step >= s->autosave && guard_calm(&s->guard);
    return due ? checkpoint_save(c, s) : CHECKPOINT_OK;
}

void checkpoint_roll_back(struct checkpoint *c, struct session *s)
{
    float rate = s->rate;
    if (look(c)) {
        restore(c, s);
        session_take_arena(s);
    } else {
        session_reset(s);
    }
    s->rate = 0.5f * rate;
    guard_start(&s->guard, 1);
    s->guard.rollbacks++;
}

/* Returns 0 where another one stays. */
static int strike_all_but_the_newest(const struct checkpoint *c)
{
    for (uint32_t slot = 0; slot < BOARD_SLOTS; slot++) {
        uint32_t count = places(c, slot);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t offset = record_offset(c, i);
            if ((slot != c->slot || offset != c->offset) && !strike(c, slot, offset, RECORD_MAGIC)) {
                return 0;
            }
        }
    }
    return 1;
}

/* The newest record may outlive an erase that is cut short or fails; then no older one may. */
int checkpoint_forget(struct checkpoint *c)
{
    if (!HAS_SLOTS) {
        return CHECKPOINT_OK;
    }
    if (!strike_all_but_the_newest(c)) {
        return CHECKPOINT_ERR_FLASH;
    }
#ifdef MICROTRAIN_LIBRARY /* of what an erase leaves of the last slot, the header of the first one says that it is past */
    c->forgotten = c->saves ? c->saves : ERASED;
#endif
    int status = CHECKPOINT_OK;
    for (uint32_t turn = 0; turn < BOARD_SLOTS; turn++) {
        uint32_t slot = FORGET_SLOT(c, turn);
        status = erase(c, slot) == CHECKPOINT_OK ? status : CHECKPOINT_ERR_ERASE;
    }
    if (look(c)) { /* in a slot that could not be erased: the next start would load it */
        c->status = CHECKPOINT_OK;
        c->saved_step = read_record(c, c->slot, c->offset).step;
    }
    return status;
}

uint32_t checkpoint_saves_left(const struct checkpoint *c)
{
    uint32_t left = 0;
    for (uint32_t slot = 0; HAS_SLOTS && slot < BOARD_SLOTS; slot++) {
        uint32_t erases = c->erases[slot] < CHECKPOINT_ERASES_MAX ? c->erases[slot] : CHECKPOINT_ERASES_MAX;
        left += (CHECKPOINT_ERASES_MAX - erases) * capacity(c, slot);
    }
    return left;
}
