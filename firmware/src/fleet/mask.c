/* SPDX-License-Identifier: Apache-2.0 */
/* Masked updates of a board in a fleet. Contract: microtrain_fleet.h; the same in Python: tools/fleet/masks.py. */
#include <stddef.h>
#include <string.h>

#include "microtrain_fleet.h"
#include "values.h"

enum {
    LANES = 25, /* of Keccak's state, 64 bits each */
    ROUNDS = 24,
    BLOCK = MICROTRAIN_MASK_VALUES, /* values of a block: SHAKE-256 gives so many lanes at once */
};

static uint64_t rotated(uint64_t x, uint32_t by)
{
    return by ? x << by | x >> (64 - by) : x;
}

/* Keccak-f[1600]: FIPS 202, section 3.2. Lane x, y of the state is s[5 * y + x]. */
static void keccak(uint64_t s[LANES])
{
    uint32_t lfsr = 1; /* of the round constants: section 3.2.5 */
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t c[5], moved;
        for (uint32_t x = 0; x < 5; x++) {
            c[x] = s[x] ^ s[x + 5] ^ s[x + 10] ^ s[x + 15] ^ s[x + 20];
        }
        for (uint32_t x = 0; x < 5; x++) {
            uint64_t d = c[(x + 4) % 5] ^ rotated(c[(x + 1) % 5], 1);
            for (uint32_t y = 0; y < LANES; y += 5) {
                s[y + x] ^= d;
            }
        }
        moved = s[1];
        for (uint32_t t = 0, x = 1, y = 0; t < ROUNDS; t++) { /* rho and pi: along the path of 3.2.2 */
            uint32_t next = (2 * x + 3 * y) % 5;
            x = y;
            y = next;
            uint64_t held = s[5 * y + x];
            s[5 * y + x] = rotated(moved, (t + 1) * (t + 2) / 2 % 64);
            moved = held;
        }
        for (uint32_t y = 0; y < LANES; y += 5) {
            memcpy(c, s + y, sizeof c);
            for (uint32_t x = 0; x < 5; x++) {
                s[y + x] = c[x] ^ (~c[(x + 1) % 5] & c[(x + 2) % 5]);
            }
        }
        for (uint32_t bit = 0; bit < 7; bit++) {
            s[0] ^= (uint64_t)(lfsr & 1u) << ((1u << bit) - 1);
            lfsr = lfsr << 1 ^ (lfsr >> 7) * 0x171u;
        }
    }
}

static void put_bytes(uint64_t *s, uint32_t at, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, at++) {
        s[at / 8] ^= (uint64_t)bytes[i] << 8 * (at % 8);
    }
}

/* Block n of a mask in the first lanes of s: SHAKE-256 (FIPS 202, section 6.2) of a word, the seed and n. */
static void mask_block(uint64_t s[LANES], const uint8_t *seed, uint32_t n)
{
    static const char word[] = "microtrain mask";
    const uint8_t number[] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24), 0x1f};
    uint32_t length = sizeof word - 1;
    memset(s, 0, LANES * sizeof s[0]);
    put_bytes(s, 0, (const uint8_t *)word, length);
    put_bytes(s, length, seed, MICROTRAIN_SEED_BYTES);
    put_bytes(s, length + MICROTRAIN_SEED_BYTES, number, sizeof number);
    s[BLOCK - 1] ^= 1ull << 63;
    keccak(s);
}

/* The part that value n of all is in; *first becomes its first value. */
static const part *part_at(const struct microtrain_shared *shared, uint32_t n, uint32_t *first)
{
    const part *p = shared->parts;
    for (*first = 0; n - *first >= p->size; p++) {
        *first += p->size;
    }
    return p;
}

COLD int microtrain_fleet_masked(const struct microtrain_shared *shared, const void *base, const void *learned,
                                 uint32_t samples, const struct microtrain_mask *masks, uint32_t count, uint32_t block,
                                 uint64_t to[MICROTRAIN_MASK_VALUES])
{
    if (!shared || !shared->values || !base || !learned || !masks || !to || block > (shared->values - 1) / BLOCK) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    uint32_t begin = block * BLOCK, n = shared->values - begin < BLOCK ? shared->values - begin : (uint32_t)BLOCK;
    for (uint32_t i = 0, first; i < n; i++) {
        const part *p = part_at(shared, begin + i, &first);
        if (!sound_at(p, base, begin + i - first) || !sound_at(p, learned, begin + i - first)) {
            return MICROTRAIN_ERR_DIVERGED;
        }
    }
    for (uint32_t i = 0, first; i < n; i++) {
        const part *p = part_at(shared, begin + i, &first);
        int64_t change = (int64_t)value_of(p, learned, begin + i - first) - value_of(p, base, begin + i - first);
        to[i] = (uint64_t)change * samples;
    }
    for (uint32_t k = 0; k < count; k++) {
        uint64_t s[LANES];
        mask_block(s, masks[k].seed, block);
        for (uint32_t i = 0; i < n; i++) {
            to[i] += masks[k].minus ? 0u - s[i] : s[i];
        }
    }
    return MICROTRAIN_OK;
}
