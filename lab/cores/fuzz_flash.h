/* SPDX-License-Identifier: Apache-2.0 */
/* Two slots of flash whose functions fail, are cut off, or go wrong without a word, and call the library in their midst. What
 * is not on the chip yet when the power goes is there in pieces. */
#ifndef FUZZ_FLASH_H
#define FUZZ_FLASH_H

#include <stdlib.h>
#include <string.h>

#include "fuzz_rules.h"

enum { SLOT_MOST = 1 << 16 };

/* What goes wrong while a call runs: now and then a function fails; one fails, and so do all behind it; a bit of what is
 * read, or of what is programmed, is another, and nobody says so. */
enum trouble { NO_TROUBLE, FAILS, CUT, READS_WRONG, PROGRAMS_WRONG, TROUBLES };

static uint8_t slots[2][SLOT_MOST]; /* as they read */
static uint8_t chips[2][SLOT_MOST]; /* what of it is on the chip for certain */
static int buffers;                 /* what comes between two syncs may be on it or not */
static struct microtrain_storage storage;
static enum trouble trouble;
static uint32_t often;   /* a trouble comes in one of so many calls */
static uint32_t changes; /* programs, erases and syncs of a call so far */
static uint32_t last_erase,
    cut_at; /* of the changes: the last erase; that in which the power is cut, 0: chance decides */
static int is_cut;
static int unread; /* reads that were not what is there */

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

static int fails(void)
{
    int now = trouble != NO_TROUBLE && (is_cut || (cut_at ? changes == cut_at : draw(often) == 0));
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
    unread += failed;
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
    changes++;
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
    last_erase = ++changes;
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
    changes++;
    call_back(context);
    if ((trouble == FAILS || trouble == CUT) && fails()) {
        return 1;
    }
    memcpy(chips, slots, sizeof slots);
    return 0;
}

/* Whether all is on the chip. */
static int synced(void)
{
    return memcmp(chips, slots, sizeof slots) == 0;
}

/* Without power: of what is not on the chip for certain, each unit may be. */
static void power_goes(void)
{
    for (uint32_t slot = 0; slot < 2; slot++) {
        for (uint32_t at = 0; at < storage.slot_bytes; at += storage.program_bytes) {
            int stays = buffers && draw(2);
            memcpy((stays ? slots : chips)[slot] + at, (stays ? chips : slots)[slot] + at, storage.program_bytes);
        }
    }
}

/* The storage as a call on this instance is given it. */
static struct microtrain_storage storage_of(struct microtrain *m)
{
    struct microtrain_storage given = storage;
    given.context = m;
    return given;
}

/* Slots that hold bytes each, in units. */
static void new_flash(uint32_t bytes, uint32_t unit)
{
    must(bytes <= SLOT_MOST);
    memset(slots, 0xff, sizeof slots);
    memset(chips, 0xff, sizeof chips);
    buffers = draw(2) != 0;
    storage =
        (struct microtrain_storage){NULL, read_slot, program_slot, erase_slot, sync_slot, bytes, unit, (int)draw(2)};
}

/* A bit in the first bytes of a slot becomes another by itself. */
static void rot_bit(uint32_t bytes)
{
    uint32_t slot = draw(2), at = draw(bytes);
    uint8_t bit = (uint8_t)(1u << draw(8));
    slots[slot][at] ^= bit;
    chips[slot][at] ^= bit;
}

#endif
