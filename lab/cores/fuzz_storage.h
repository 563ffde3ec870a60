/* SPDX-License-Identifier: Apache-2.0 */
/* Random saves and loads, in a storage of random sizes and with its troubles. What a load may find follows from what was
 * saved. */
#ifndef FUZZ_STORAGE_H
#define FUZZ_STORAGE_H

#include "fuzz_flash.h"

enum { HEADER_BYTES = 32, KEPT_MOST = 8, SEEN_BITS = 24 };

uint32_t microtrain_crc32(uint32_t crc, const uint8_t *data, size_t size); /* the engine's */

/* What a load may find: one of these, or nothing, or anything that ever was saved. */
static struct {
    uint32_t known[KEPT_MOST], count;
    int none, any;
    int foreign; /* what another model or version has saved: the status of a load */
    int small;   /* a slot holds no save */
} kept;
static uint8_t ever[1 << SEEN_BITS >> 3]; /* saved, by the last bits of its digest */

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
    new_flash(bytes, unit);
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
    uint32_t kind = draw(4), header[HEADER_BYTES / 4]; /* magic, version, model, erases, unit, bytes, forgotten, CRC */
    memcpy(header, slot, sizeof header);
    header[1] += kind == 0;
    header[2] ^= kind == 1;
    header[4] ^= kind == 2 ? 12u : 0u;
    header[5] += kind == 3 ? storage.program_bytes : 0u;
    header[7] = microtrain_crc32(0, (const uint8_t *)header, 28);
    memcpy(slot, header, sizeof header);
    memcpy(chips, slots, sizeof slots);
    kept.foreign = kind == 1 ? MICROTRAIN_ERR_OTHER_MODEL : MICROTRAIN_ERR_FORMAT;
}

/* Bits of the slots change by themselves: any save may be gone, and none may be another. In headers alone they hide no save
 * that is there for certain. */
static void rot(void)
{
    int headers = !kept.none && draw(2);
    for (uint32_t n = 1 + draw(9); n && !kept.foreign; n--) {
        rot_bit(headers ? HEADER_BYTES : storage.slot_bytes);
        kept.any |= !headers;
        kept.none |= !headers;
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
    unread = 0;
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
    } else if (trouble == FAILS && unread) {
        kept.any = 1; /* it did not know which is the newest */
    }
}

/* Returns the status. */
static int load(struct expected *x)
{
    struct microtrain_storage given = storage_of(&x->instance);
    uint32_t before = digest(x);
    int status = microtrain_load(&x->instance, &given), misread = trouble == READS_WRONG;
    expect_stored("load", status, kept.count || kept.any || misread ? MICROTRAIN_OK : MICROTRAIN_NONE,
                  kept.none || misread ? MICROTRAIN_NONE : MICROTRAIN_OK);
    uint32_t found = digest(x);
    if (status == MICROTRAIN_OK) {
        expect("what is loaded was saved last", kept.foreign || may_be_found(found), 1, 1);
        worked[LOADED]++;
    } else if (status != MICROTRAIN_ERR_STORAGE || sizes.trainable_bytes <= sizes.arena_bytes) {
        expect("what a load leaves", found == before, 1, 1);
    }
    if (trouble != NO_TROUBLE) {
        return status;
    }
    if (!kept.foreign && status == MICROTRAIN_OK) {
        expect("what is loaded stays", synced(), 1, 1);
        may_be_saved(found, 1);
    } else if (status == MICROTRAIN_NONE) {
        kept.count = 0;
        kept.any = 0;
    }
    return status;
}

/* A load, and what it leaves of an instance that is let in. */
static void load_back(struct expected *x)
{
    int status = load(x);
    if (status == MICROTRAIN_OK || status == MICROTRAIN_ERR_STORAGE) {
        x->slides = status == MICROTRAIN_OK ? STAYS : MAYBE;
        x->order = status == MICROTRAIN_OK ? PURE : UNKNOWN;
        x->heard = 0;
        look(x); /* what a load leaves of what was under way */
    }
}

/* How many changes a save or a forget makes; last_erase: which of them is its last erase, or 0. All is then as before. */
static uint32_t changes_of(struct expected *x, int forgets)
{
    static uint8_t slots_before[2][SLOT_MOST], chips_before[2][SLOT_MOST];
    struct microtrain_storage given = storage_of(&x->instance);
    memcpy(slots_before, slots, sizeof slots);
    memcpy(chips_before, chips, sizeof chips);
    changes = last_erase = 0;
    int status = forgets ? microtrain_forget(&x->instance, &given) : microtrain_save(&x->instance, &given);
    expect("save or forget", status, MICROTRAIN_OK, MICROTRAIN_OK);
    memcpy(slots, slots_before, sizeof slots);
    memcpy(chips, chips_before, sizeof chips);
    return changes;
}

/* A save or a forget whose power is cut: in any of its changes, or in an erase, upon which most hangs. */
static void cut(struct expected *x, int forgets)
{
    uint32_t all = changes_of(x, forgets);
    cut_at = last_erase && draw(2) ? last_erase : 1 + draw(all);
    trouble = CUT;
    is_cut = 0;
    changes = 0;
    (forgets ? forget : save)(x);
    expect("the power", is_cut, 1, 1);
    cut_at = 0;
}

/* Some saves, the last in a storage that may fail. Then the power goes, mostly in the midst of a save or a forget, and what a
 * load finds is looked at. Chance alone seldom comes to that, as most calls of a storage are reads. */
static void lose_power(struct expected *x)
{
    trouble = NO_TROUBLE;
    for (uint32_t n = 1 + draw(6); n; n--) {
        learn(x);
        save(x);
    }
    learn(x);
    if (draw(4) == 0) {
        trouble = FAILS;
        often = 1 + draw(60);
        save(x);
        trouble = NO_TROUBLE;
        learn(x);
    }
    if (draw(4)) {
        cut(x, draw(2) != 0);
        trouble = NO_TROUBLE;
        learn(x);
    }
    power_goes();
    load_back(x);
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
    int wanted = let_in(x);
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
    if (draw(8) == 0 || is_cut) {
        power_goes();
    }
    trouble = draw(2) ? NO_TROUBLE : (enum trouble)draw(TROUBLES);
    often = 1 + draw(draw(2) ? 60 : 600);
    is_cut = 0;
    uint32_t kind = draw(10);
    if (wanted != MICROTRAIN_OK && (kind < 4 || !x->made)) {
        struct microtrain_storage given = storage_of(NULL);
        int status = kind & 1 ? microtrain_save(&x->instance, &given) : microtrain_forget(&x->instance, &given);
        expect("save or forget", status, wanted, wanted);
    } else if (kind < 3 && wanted == MICROTRAIN_OK) {
        save(x);
    } else if (kind < 4 && wanted == MICROTRAIN_OK) {
        forget(x);
    } else if (kind < 6 && wanted == MICROTRAIN_OK && !kept.foreign && !kept.small) {
        lose_power(x);
    } else {
        load_back(x);
    }
    x->records = 0;
    if (x->made) {
        count_records(x);
    }
}

#endif
