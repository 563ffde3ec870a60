/* SPDX-License-Identifier: Apache-2.0 */
/* Trainables as whole numbers, as the boards of a fleet share them (tools/base/parts.py). */
#ifndef VALUES_H
#define VALUES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "microtrain_fleet.h"

#define COLD __attribute__((cold))
#define HEAD_LIMIT 0x40000000 /* 2^30 */

enum { HEAD_BITS = 20 }; /* a value of the head is in 2^-20 */

typedef struct microtrain_shared_part part;

COLD static inline int32_t limit_of(const part *p)
{
    return p->kind == SHARED_HEAD ? HEAD_LIMIT : p->kind == SHARED_BIAS ? 32767 : 127 * (1 << p->bits);
}

COLD static inline int32_t fraction_of(const part *p, const uint8_t *block, uint32_t i)
{
    if (p->bits == 8) {
        return (int8_t)block[p->fraction + i];
    }
    uint32_t nibble = (uint32_t)block[p->fraction + i / 2] >> 4 * (i & 1u) & 15u;
    return (int32_t)(nibble ^ 8u) - 8;
}

/* Value i of a part in units of its last bit. */
COLD static inline int32_t value_of(const part *p, const uint8_t *block, uint32_t i)
{
    if (p->kind == SHARED_WEIGHT) {
        int32_t value = (int8_t)block[p->offset + i] * (1 << p->bits);
        return p->bits ? value + fraction_of(p, block, i) : value;
    }
    if (p->kind == SHARED_BIAS) {
        int16_t value;
        memcpy(&value, block + p->offset + 2 * i, sizeof value);
        return value;
    }
    float value;
    memcpy(&value, block + p->offset + 4 * i, sizeof value);
    return (int32_t)rintf(value * (float)(1 << HEAD_BITS));
}

/* 0 where value i is one of a head and no number, or beyond its limit. */
COLD static inline int sound_at(const part *p, const uint8_t *block, uint32_t i)
{
    float value = 0.0f, most = (float)(HEAD_LIMIT >> HEAD_BITS);
    if (p->kind == SHARED_HEAD) {
        memcpy(&value, block + p->offset + 4 * i, sizeof value);
    }
    return value >= -most && value <= most;
}

#endif
