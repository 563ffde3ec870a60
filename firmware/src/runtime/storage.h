/* SPDX-License-Identifier: Apache-2.0 */
/* How checkpoints reach their slots: the board's flash, or in the library (MICROTRAIN_LIBRARY) the caller's functions. */
#ifndef STORAGE_H
#define STORAGE_H

#include <stdint.h>
#include <string.h>

#include "checkpoint.h"
#include "crc.h"

#ifdef MICROTRAIN_LIBRARY

enum { READ_BYTES = 64 }; /* of a slot that are looked at at once */

#define HAS_SLOTS 1
#define CHECKPOINT_INFO(c) (&(c)->model->info)
#define KEPT_BYTES(c) (CHECKPOINT_INFO(c)->trainable_bytes)
#define PROGRAM_BYTES(c) ((c)->storage->program_bytes)
#define READ_FAILED(c) (*(c)->failed)
#define BUSY_ERASING()
/* Without words that can be cleared, the slot with the newest record goes last, or that which says what is forgotten. */
#define FORGET_SLOT(c, turn) (((c)->slot + ((c)->offset != 0) + (turn)) % BOARD_SLOTS)

static uint32_t slot_bytes(const struct checkpoint *c, uint32_t slot)
{
    (void)slot;
    return c->storage->slot_bytes;
}

/* What cannot be read is 0, which is neither a header nor blank, and is remembered in c->failed. */
static void slot_read(const struct checkpoint *c, uint32_t slot, uint32_t offset, void *to, uint32_t size)
{
    if (c->storage->read(c->storage->context, slot, offset, to, size) != 0) {
        memset(to, 0, size);
        *c->failed = 1;
    }
}

/* Bytes in memory, or in a slot where memory is NULL. */
struct place {
    const uint8_t *memory;
    uint32_t slot, offset;
};

static struct place place_in_memory(const uint8_t *memory)
{
    return (struct place){.memory = memory};
}

static struct place place_in_slot(uint32_t slot, uint32_t offset)
{
    return (struct place){.slot = slot, .offset = offset};
}

static uint32_t place_crc(const struct checkpoint *c, uint32_t crc, struct place at, uint32_t size)
{
    uint8_t bytes[READ_BYTES];
    if (at.memory) {
        return crc32(crc, at.memory, size);
    }
    for (uint32_t part; size; size -= part, at.offset += part) {
        part = size < sizeof bytes ? size : (uint32_t)sizeof bytes;
        slot_read(c, at.slot, at.offset, bytes, part);
        crc = crc32(crc, bytes, part);
    }
    return crc;
}

static int slot_program(const struct checkpoint *c, uint32_t slot, uint32_t offset, const void *from, uint32_t size)
{
    const struct microtrain_storage *storage = c->storage;
    uint8_t last[PROGRAM_BYTES_MAX];
    uint32_t rest = size % storage->program_bytes, whole = size - rest;
    memset(last, 0xff, sizeof last);
    memcpy(last, (const uint8_t *)from + whole, rest);
    if (whole && storage->program(storage->context, slot, offset, from, whole) != 0) {
        return BOARD_ERR_FLASH;
    }
    if (rest && storage->program(storage->context, slot, offset + whole, last, storage->program_bytes) != 0) {
        return BOARD_ERR_FLASH;
    }
    return storage->sync(storage->context) == 0 ? BOARD_OK : BOARD_ERR_FLASH;
}

/* Clears the word at offset, where the storage can. Returns 0 where it cannot. */
static int slot_clear(const struct checkpoint *c, uint32_t slot, uint32_t offset)
{
    static const uint8_t cleared[PROGRAM_BYTES_MAX];
    if (c->storage->clears) {
        (void)slot_program(c, slot, offset, cleared, c->storage->program_bytes);
    }
    return c->storage->clears;
}

static int slot_erase(const struct checkpoint *c, uint32_t slot)
{
    const struct microtrain_storage *storage = c->storage;
    int status = storage->erase(storage->context, slot);
    status = status == 0 ? storage->sync(storage->context) : status;
    return status == 0 ? BOARD_OK : BOARD_ERR_FLASH;
}

#else

#define HAS_SLOTS MICROTRAIN_CHECKPOINTS
#define CHECKPOINT_INFO(c) ((void)(c), &model_info)
#define KEPT_BYTES(c) (CHECKPOINT_INFO(c)->trainable_bytes + MODEL_FLEET_BYTES)
#define PROGRAM_BYTES(c) ((void)(c), 4u)
#define READ_FAILED(c) ((void)(c), 0)
#define BUSY_ERASING() microtrain_erasing()
#define FORGET_SLOT(c, turn) (turn)

static inline uint32_t slot_bytes(const struct checkpoint *c, uint32_t slot)
{
    (void)c;
    return board_slot_bytes(slot);
}

static inline void slot_read(const struct checkpoint *c, uint32_t slot, uint32_t offset, void *to, uint32_t size)
{
    (void)c;
    memcpy(to, board_slot(slot) + offset, size);
}

/* All slots can be read as memory. */
struct place {
    const uint8_t *memory;
};

static inline struct place place_in_memory(const uint8_t *memory)
{
    return (struct place){.memory = memory};
}

static inline struct place place_in_slot(uint32_t slot, uint32_t offset)
{
    return (struct place){.memory = board_slot(slot) + offset};
}

static inline uint32_t place_crc(const struct checkpoint *c, uint32_t crc, struct place at, uint32_t size)
{
    (void)c;
    return crc32(crc, at.memory, size);
}

static inline int slot_program(const struct checkpoint *c, uint32_t slot, uint32_t offset, const void *from,
                               uint32_t size)
{
    (void)c;
    return board_slot_write(slot, offset, from, size);
}

static inline int slot_clear(const struct checkpoint *c, uint32_t slot, uint32_t offset)
{
    static const uint32_t cleared = 0;
    (void)c;
    (void)board_slot_write(slot, offset, &cleared, sizeof cleared);
    return 1;
}

static inline int slot_erase(const struct checkpoint *c, uint32_t slot)
{
    (void)c;
    return board_slot_erase(slot);
}

#endif
#endif
