/* SPDX-License-Identifier: Apache-2.0 */
/* Random saves and loads. The storage has random sizes; its functions fail, are cut off, or go wrong without a word, and
 * call the library in their midst. What a load may find follows from what was saved. */
#ifndef FUZZ_STORAGE_H
#define FUZZ_STORAGE_H

#include <stdlib.h>
#include <string.h>

#include "fuzz_rules.h"

enum { SLOT_MOST = 1 << 16, KEPT_MOST = 8, SEEN_BITS = 24 };

uint32_t microtrain_crc32(uint32_t crc, const uint8_t *data, size_t size); /* the engine's */

/* What goes wrong while a call runs: now and then a function fails; one fails, and so do all behind it; a bit of what is
 * read, or of what is programmed, is another, and nobody says so. */
enum trouble { NO_TROUBLE, FAILS, CUT, READS_WRONG, PROGRAMS_WRONG, TROUBLES };

static uint8_t slots[2][SLOT_MOST];
static struct microtrain_storage storage;
static enum trouble trouble;
static uint32_t often; /* a trouble comes in one of so many calls */
static int is_cut;

/* What a load may find: one of these, or nothing, or anything that ever was saved. */
static struct {
    uint32_t known[KEPT_MOST], count;
    int none, any;
    int foreign; /* what another model or version has saved: the status of a load */
    int small;   /* a slot holds no save */
} kept;
static uint8_t ever[1 << SEEN_BITS >> 3]; /* saved, by the last bits of its digest */

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

static int fails(void)
{
    int now = trouble != NO_TROUBLE && (is_cut || draw(often) == 0);
    is_cut = trouble == CUT && now;
    return now;
}

/* The instance whose call runs lets nobody in. */
static void call_back(struct microtrain *m)
{
    struct microtrain_state now;
    if (m && draw(64) == 0) {
        expect("train amid a call", microtrain_train(m, 0, NULL), MICROTRAIN_ERR_BUSY, MICROTRAIN_ERR_BUSY);
        expect("state amid a call", microtrain_state(m, &now), MICROTRAIN_OK, MICROTRAIN_OK);
    }
}

static int read_slot(void *context, uint32_t slot, uint32_t offset, void *to, uint32_t size)
{
    must(slot < 2 && offset <= storage.slot_bytes && size <= storage.slot_bytes - offset);
    must(offset % 4 == 0 && size % 4 == 0);
    call_back(context);
    memcpy(to, slots[slot] + offset, size);
    int failed = trouble != PROGRAMS_WRONG && fails();
    if (failed && size) {
        ((uint8_t *)to)[draw(size)] ^= (uint8_t)(1u << draw(8));
    }
    return failed && trouble != READS_WRONG;
}

static int program_slot(void *context, uint32_t slot, uint32_t offset, const void *from, uint32_t size)
{
    const uint8_t *bytes = from;
    must(slot < 2 && offset <= storage.slot_bytes && size <= storage.slot_bytes - offset);
    must(offset % storage.program_bytes == 0 && size % storage.program_bytes == 0);
    call_back(context);
    for (uint32_t i = 0; i < size && trouble != READS_WRONG; i++) {
        must(slots[slot][offset + i] == 0xff || (storage.clears && bytes[i] == 0)); /* nothing is programmed twice */
    }
    if (is_cut) {
        return 1;
    }
    int failed = trouble != READS_WRONG && fails();
    memcpy(slots[slot] + offset, from, failed && trouble != PROGRAMS_WRONG ? draw(size + 1) : size);
    if (failed && trouble == PROGRAMS_WRONG) {
        slots[slot][offset + draw(size)] &= (uint8_t) ~(1u << draw(8));
    }
    return failed && trouble != PROGRAMS_WRONG;
}

/* One that is cut short leaves the last bytes, the first ones, or pieces of what was there. */
static int erase_slot(void *context, uint32_t slot)
{
    must(slot < 2);
    call_back(context);
    if (is_cut) {
        return 1;
    }
    int failed = (trouble == FAILS || trouble == CUT) && fails();
    uint32_t at = failed ? draw(storage.slot_bytes + 1) : 0, how = draw(3);
    for (uint32_t i = 0; i < storage.slot_bytes; i++) {
        int stays = how == 0 ? i < at : how == 1 ? i >= at : i / 16 % 2 == at % 2;
        slots[slot][i] = failed && stays ? slots[slot][i] : 0xff;
    }
    return failed;
}

static int sync_slot(void *context)
{
    call_back(context);
    return (trouble == FAILS || trouble == CUT) && fails();
}

/* The storage as a call on this instance is given it. */
static struct microtrain_storage storage_of(struct microtrain *m)
{
    struct microtrain_storage given = storage;
    given.context = m;
    return given;
}

/* Blank slots of other sizes, that hold one save at least, or now and then none. */
static void new_storage(void)
{
    uint32_t unit = 4u << draw(7), least = sizes.slot_bytes + 4 * unit;
    uint32_t bytes = (least + draw(2 * least)) / unit * unit;
    memset(&kept, 0, sizeof kept);
    kept.none = 1;
    if (draw(16) == 0 && sizes.slot_bytes > 1024) {
        kept.small = 1;
        bytes = (512 + draw(sizes.slot_bytes - 512)) / unit * unit;
    }
    must(bytes <= SLOT_MOST);
    memset(slots, 0xff, sizeof slots);
    storage =
        (struct microtrain_storage){NULL, read_slot, program_slot, erase_slot, sync_slot, bytes, unit, (int)draw(2)};
}

/* A storage with what another model, another version, or this one with another storage has written. */
static void foreign_storage(struct microtrain *m)
{
    do {
        new_storage();
    } while (kept.small);
    trouble = NO_TROUBLE;
    struct microtrain_storage given = storage_of(m);
    expect("first save", microtrain_save(m, &given), MICROTRAIN_OK, MICROTRAIN_OK);
    uint8_t *slot = slots[slots[0][0] == 0xff];
    uint32_t kind = draw(4), header[8]; /* magic, version, model, erases, unit, bytes, forgotten, CRC */
    memcpy(header, slot, sizeof header);
    header[1] += kind == 0;
    header[2] ^= kind == 1;
    header[4] ^= kind == 2 ? 12u : 0u;
    header[5] += kind == 3 ? storage.program_bytes : 0u;
    header[7] = microtrain_crc32(0, (const uint8_t *)header, 28);
    memcpy(slot, header, sizeof header);
    kept.foreign = kind == 1 ? MICROTRAIN_ERR_OTHER_MODEL : MICROTRAIN_ERR_FORMAT;
}

/* Bits of the slots change by themselves: any save may be gone, and none may be another. */
static void rot(void)
{
    for (uint32_t n = 1 + draw(9); n && !kept.foreign; n--) {
        slots[draw(2)][draw(storage.slot_bytes)] ^= (uint8_t)(1u << draw(8));
        kept.any = kept.none = 1;
    }
}

/* Of what was learned, and in how many steps. */
static uint32_t digest(const struct expected *x)
{
    struct microtrain_state now = {0};
    (void)microtrain_state(&x->instance, &now);
    uint32_t crc = microtrain_crc32(0, (const uint8_t *)&now.steps, sizeof now.steps);
    return microtrain_crc32(crc, (const uint8_t *)x->learned, sizes.trainable_bytes);
}

static uint8_t *ever_of(uint32_t saved)
{
    return &ever[(saved & ((1u << SEEN_BITS) - 1)) >> 3];
}

/* This may be what is saved from now on. alone: and nothing else may. */
static void may_be_saved(uint32_t saved, int alone)
{
    *ever_of(saved) |= (uint8_t)(1u << (saved & 7));
    if (alone) {
        kept.count = 0;
        kept.none = kept.any = 0;
    }
    kept.any |= kept.count == KEPT_MOST;
    if (kept.count < KEPT_MOST) {
        kept.known[kept.count++] = saved;
    }
}

/* Whether this was saved and may be what a load finds. */
static int may_be_found(uint32_t saved)
{
    for (uint32_t i = 0; i < kept.count; i++) {
        if (kept.known[i] == saved) {
            return 1;
        }
    }
    return (kept.any || trouble == READS_WRONG) && *ever_of(saved) >> (saved & 7) & 1;
}

/* What a call that is let in must return; or: another status that it may. */
static void expect_stored(const char *call, int status, int wanted, int or)
{
    if (trouble == NO_TROUBLE || status != MICROTRAIN_ERR_STORAGE) {
        int misread = kept.foreign && trouble == READS_WRONG && status >= 0;
        expect(call, status, misread ? status : kept.foreign ? kept.foreign : wanted, kept.foreign ? kept.foreign : or);
    }
}

static void save(struct expected *x)
{
    struct microtrain_storage given = storage_of(&x->instance);
    uint32_t saved = digest(x);
    int wanted = kept.small ? MICROTRAIN_ERR_SLOT : MICROTRAIN_OK, status = microtrain_save(&x->instance, &given);
    expect_stored("save", status, wanted, wanted);
    expect("what a save leaves", digest(x) == saved, 1, 1);
    if (kept.foreign && trouble != NO_TROUBLE) {
        new_storage(); /* whatever is in it now */
    } else if (status == MICROTRAIN_OK) {
        may_be_saved(saved, trouble != READS_WRONG);
        worked[SAVED]++;
    } else if (status == MICROTRAIN_ERR_STORAGE) {
        may_be_saved(saved, 0);
    }
    kept.any |= trouble == READS_WRONG;
    kept.none |= trouble == READS_WRONG;
}

static void forget(struct expected *x)
{
    struct microtrain_storage given = storage_of(&x->instance);
    uint32_t learned = digest(x);
    int status = microtrain_forget(&x->instance, &given);
    if (status != MICROTRAIN_ERR_STORAGE || trouble == NO_TROUBLE) {
        expect("forget", status, MICROTRAIN_OK, MICROTRAIN_OK);
    }
    expect("what a forget leaves", digest(x) == learned, 1, 1);
    kept.none = 1;
    if (status == MICROTRAIN_OK) {
        kept.count = 0;
        kept.any = kept.foreign = 0;
    } else if (kept.foreign) {
        new_storage();
    }
}

/* Returns the status. */
static int load(struct expected *x)
{
    struct microtrain_storage given = storage_of(&x->instance);
    uint32_t before = digest(x);
    int status = microtrain_load(&x->instance, &given), none = kept.none || trouble == READS_WRONG;
    expect_stored("load", status, kept.count || kept.any ? MICROTRAIN_OK : MICROTRAIN_NONE,
                  none ? MICROTRAIN_NONE : MICROTRAIN_OK);
    uint32_t found = digest(x);
    if (status == MICROTRAIN_OK) {
        expect("what is loaded was saved last", kept.foreign || may_be_found(found), 1, 1);
        worked[LOADED]++;
    } else if (status != MICROTRAIN_ERR_STORAGE || sizes.trainable_bytes <= sizes.arena_bytes) {
        expect("what a load leaves", found == before, 1, 1);
    }
    if (trouble == NO_TROUBLE && !kept.foreign && status == MICROTRAIN_OK) {
        may_be_saved(found, 1);
    } else if (trouble == NO_TROUBLE && status == MICROTRAIN_NONE) {
        kept.count = 0;
        kept.any = 0;
    }
    return status;
}

/* A storage that is none, and what is said of it. let_in: what the instance says to a save */
static void bad_storage(struct microtrain *m, int let_in)
{
    static const uint32_t units[] = {0, 1, 2, 3, 6, 12, 24, 512, 0x80000000u};
    struct microtrain_storage given = storage_of(m);
    int wanted = MICROTRAIN_ERR_ARGUMENT;
    uint32_t kind = draw(8);
    given.read = kind == 0 ? NULL : given.read;
    given.program = kind == 1 ? NULL : given.program;
    given.erase = kind == 2 ? NULL : given.erase;
    given.sync = kind == 3 ? NULL : given.sync;
    if (kind > 4) {
        wanted = MICROTRAIN_ERR_SLOT;
        given.program_bytes = kind == 5 ? units[draw(sizeof units / sizeof units[0])] : given.program_bytes;
        given.slot_bytes = kind == 6 ? given.program_bytes * draw(2) : given.slot_bytes;
        given.slot_bytes += kind == 7 ? 1 + draw(given.program_bytes - 1) : 0;
    }
    const struct microtrain_storage *to = kind == 4 ? NULL : &given;
    int saved = let_in == MICROTRAIN_OK ? wanted : let_in, loaded = let_in == MICROTRAIN_ERR_BUSY ? wanted : saved;
    expect("save to no storage", microtrain_save(m, to), saved, saved);
    expect("forget no storage", microtrain_forget(m, to), saved, saved);
    expect("load from no storage", microtrain_load(m, to), loaded, loaded);
}

/* A save, a load or a forget, in a storage that may be another, with what may go wrong. */
static void keep(struct expected *x)
{
    int wanted = let_in(x), status;
    if (draw(8) == 0) {
        bad_storage(&x->instance, wanted);
        return;
    }
    if (draw(32) == 0) {
        new_storage();
    } else if (draw(32) == 0 && wanted == MICROTRAIN_OK) {
        foreign_storage(&x->instance);
    } else if (draw(16) == 0) {
        rot();
    }
    trouble = draw(2) ? NO_TROUBLE : (enum trouble)draw(TROUBLES);
    often = 1 + draw(draw(2) ? 60 : 600);
    is_cut = 0;
    uint32_t kind = draw(8);
    if (wanted != MICROTRAIN_OK && (kind < 4 || !x->made)) {
        struct microtrain_storage given = storage_of(NULL);
        status = kind & 1 ? microtrain_save(&x->instance, &given) : microtrain_forget(&x->instance, &given);
        expect("save or forget", status, wanted, wanted);
    } else if (kind < 3 && wanted == MICROTRAIN_OK) {
        save(x);
    } else if (kind < 4 && wanted == MICROTRAIN_OK) {
        forget(x);
    } else {
        status = load(x);
        if (status == MICROTRAIN_OK || status == MICROTRAIN_ERR_STORAGE) {
            x->slides = status == MICROTRAIN_OK ? STAYS : MAYBE;
            x->order = status == MICROTRAIN_OK ? PURE : UNKNOWN;
            x->heard = 0;
            look(x); /* what a load leaves of what was under way */
        }
    }
    x->records = 0;
    if (x->made) {
        count_records(x);
    }
}

#endif
