/* How often the instruction cache of cache.h misses when sections of code lie elsewhere. */
#include "cache.h"

/* A block that ran: `size` bytes from `offset` in a section. */
struct ran {
    uint32_t section, offset, size;
};

/* Lines that are missed by blocks [count], run in this order. starts: the address of each section */
uint64_t misses(const struct ran *blocks, uint64_t count, const uint32_t *starts, uint32_t sets, uint32_t ways)
{
    struct cache c = {.sets = sets, .ways = ways};
    uint64_t missed = 0;
    uint32_t last = 0; /* the line used last is not missed */
    for (uint64_t i = 0; i < count; i++) {
        uint32_t address = starts[blocks[i].section] + blocks[i].offset;
        for (uint32_t at = address & ~(LINE_BYTES - 1u); at < address + blocks[i].size; at += LINE_BYTES) {
            missed += at != last && cache_access(&c, at, 0) != HIT;
            last = at;
        }
    }
    return missed;
}
