/* What accesses do to the modelled caches. Used by native.c and by translated code (guest.h). */
#ifndef EMULATOR_ACCESSES_H
#define EMULATOR_ACCESSES_H

#include "native.h"

static inline int counts(const struct native *n)
{
    return !n->only_inside || (n->inside && !n->handlers);
}

/* Cycles of a line of the flash beside the chip: QUADSPI goes on reading where it was, and else begins a new command. */
static inline uint32_t external_fill(struct native *n, uint32_t address)
{
    uint32_t line = address & ~(LINE_BYTES - 1u), goes_on = line == n->external_next;
    n->external_next = line + LINE_BYTES;
    return n->external_line + (goes_on ? 0u : n->external_command);
}

static inline int is_external(const struct native *n, uint32_t address)
{
    return address - n->external < n->external_size;
}

/* Note what an access to a cache did; a stall belongs to the block that runs. */
static inline void note_access(struct native *n, uint32_t result, uint32_t address, uint64_t *misses)
{
    if (result == HIT) {
        return;
    }
    uint32_t fill = is_external(n, address) ? external_fill(n, address) : line_fill(address);
    if (!counts(n)) {
        return;
    }
    ++*misses;
    n->cache_use.write_backs += result == MISS_WRITE_BACK;
    int region = n->block - n->base[FLASH] < n->size[FLASH] ? FLASH : SRAM;
    uint32_t offset = n->block - n->base[region];
    if (offset < n->size[region]) {
        n->stalls[region][offset >> 1] += fill + (result == MISS_WRITE_BACK ? WRITE_BACK_CYCLES : 0u);
    }
}

static inline void fetch(struct native *n, uint32_t address, uint32_t size)
{
    for (uint32_t at = address & ~(LINE_BYTES - 1u); at < address + size && !in_dtcm(at); at += LINE_BYTES) {
        note_access(n, cache_access(&n->instruction_cache, at, 0), at, &n->cache_use.instruction_misses);
    }
}

static inline void data_line(struct native *n, uint32_t address, int write)
{
    int region = address - n->base[FLASH] < n->size[FLASH] ? FLASH : SRAM;
    int known = address - n->base[region] < n->size[region] || is_external(n, address);
    if (known && !in_dtcm(address)) {
        note_access(n, cache_access(&n->data_cache, address, write), address, &n->cache_use.data_misses);
    }
}

/* A load or store of `size` bytes, which may lie in two lines. */
static inline void data_access(struct native *n, uint32_t address, uint32_t size, int write)
{
    uint32_t last = address + size - 1u;
    data_line(n, address, write);
    if (address / LINE_BYTES != last / LINE_BYTES) {
        data_line(n, last, write);
    }
}

#endif
