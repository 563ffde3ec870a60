/* SPDX-License-Identifier: Apache-2.0 */
/* Updates of a board in a fleet. Contract: microtrain_fleet.h; the same in Python: tools/fleet/dgc.py. */
#include <stddef.h>
#include <string.h>

#include "microtrain_fleet.h"
#include "values.h"

/* Nearly all the time is spent in choosing what to send; gcc makes all else small rather than fast. */
#define HOT __attribute__((hot))

enum {
    MOMENTUM_BITS = 8,
    SIZE_BITS = 8, /* of a size: 2^(its upper bits) * (1 + its lower bits / 2^STEP_BITS) */
    STEP_BITS = 3,
    COUNT_BITS = 32,
    DOT_BITS = 60,  /* of a sum of products */
    RANK_BITS = 31, /* the worth of a value, then its place from behind */
};

static uint32_t bit_length(uint32_t x)
{
    return x ? 32u - (uint32_t)__builtin_clz(x) : 0;
}

static uint32_t magnitude(int32_t x)
{
    return x < 0 ? 0u - (uint32_t)x : (uint32_t)x;
}

static int32_t clamp(int64_t x, int64_t most)
{
    return (int32_t)(x > most ? most : x < -most ? -most : x);
}

/* ---------------------------------------------------------------- values */

static int sound(const struct microtrain_shared *s, const uint8_t *block)
{
    for (const part *p = s->parts; p != s->parts + s->count; p++) {
        for (uint32_t i = 0; i < p->size; i++) {
            if (!sound_at(p, block, i)) {
                return 0;
            }
        }
    }
    return 1;
}

/* What is held back of a value is at most twice its limit, and what 16 or 32 bits hold. */
COLD static int32_t held_limit(const part *p)
{
    int32_t twice = p->kind == SHARED_WEIGHT ? 2 * limit_of(p) : INT32_MAX;
    return p->kind == SHARED_HEAD ? INT32_MAX : twice < 32767 ? twice : 32767;
}

COLD static void put_value(const part *p, uint8_t *block, uint32_t i, int32_t value)
{
    if (p->kind == SHARED_WEIGHT) {
        int32_t whole = (value + (1 << p->bits >> 1)) >> p->bits, left = value - whole * (1 << p->bits);
        block[p->offset + i] = (uint8_t)whole;
        if (p->bits == 8) {
            block[p->fraction + i] = (uint8_t)left;
        } else if (p->bits) {
            uint8_t *pair = block + p->fraction + i / 2;
            uint32_t at = 4 * (i & 1u);
            *pair = (uint8_t)((*pair & (0xf0u >> at)) | ((uint32_t)left & 15u) << at);
        }
    } else if (p->kind == SHARED_BIAS) {
        int16_t stored = (int16_t)value;
        memcpy(block + p->offset + 2 * i, &stored, sizeof stored);
    } else {
#ifdef __ARM_FEATURE_MVE
        __asm__("" : "+r"(value)); /* binutils before 2.41 take a vcvt in an IT block of -Os for MVE's vcvtn */
#endif
        float stored = (float)value * (1.0f / (float)(1 << HEAD_BITS));
        memcpy(block + p->offset + 4 * i, &stored, sizeof stored);
    }
}

static int32_t held_of(const part *p, const void *held, uint32_t i)
{
    const uint8_t *own = (const uint8_t *)held + p->held;
    return p->kind == SHARED_HEAD ? ((const int32_t *)(const void *)own)[i] : ((const int16_t *)(const void *)own)[i];
}

COLD static void hold(const part *p, void *held, uint32_t i, int64_t value)
{
    uint8_t *own = (uint8_t *)held + p->held;
    if (p->kind == SHARED_HEAD) {
        ((int32_t *)(void *)own)[i] = clamp(value, held_limit(p));
    } else {
        ((int16_t *)(void *)own)[i] = (int16_t)clamp(value, held_limit(p));
    }
}

/* ---------------------------------------------------------------- whether the fleet goes along */

/* x * 2^(up - down), without what is behind the point. */
static int32_t scaled(int32_t x, uint32_t up, uint32_t down)
{
    return up >= down ? (int32_t)((uint32_t)x << (up - down)) : down - up > 31 ? x >> 31 : x >> (down - up);
}

/* Bits by which a number of `length` bits is longer than it may be. */
static uint32_t excess(uint32_t length, uint32_t most)
{
    return length > most ? length - most : 0;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* A product of two numbers below 2^63, as two halves. */
struct wide {
    uint64_t high, low;
};

static struct wide product(uint64_t a, uint64_t b)
{
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t low = a0 * b0, middle = a1 * b0 + (low >> 32), other = a0 * b1 + (uint32_t)middle;
    return (struct wide){a1 * b1 + (middle >> 32) + (other >> 32), other << 32 | (uint32_t)low};
}

/* By what a value of the fleet has moved. */
COLD static int32_t move_of(const part *p, const struct microtrain_fleet_memory *m, uint32_t i)
{
    return clamp((int64_t)value_of(p, m->base, i) - value_of(p, m->last, i), INT32_MAX);
}

/* Whether the cosine of what is held back and the fleet's last move is at least 1/8; where it has not moved, nothing is
 * compared. Sums take 60 bits, so 8 times one has 63. */
COLD static int goes_along(const struct microtrain_shared *s, const struct microtrain_fleet_memory *m)
{
    uint32_t width = (DOT_BITS - bit_length(s->values)) / 2, longest[2] = {0, 0};
    for (const part *p = s->parts; p != s->parts + s->count; p++) {
        uint32_t most[2] = {0, 0};
        for (uint32_t i = 0; i < p->size; i++) {
            int32_t move = move_of(p, m, i);
            if (move) {
                most[0] = larger(most[0], magnitude(held_of(p, m->held, i)));
                most[1] = larger(most[1], magnitude(move));
            }
        }
        for (uint32_t k = 0; k < 2; k++) {
            longest[k] = larger(longest[k], most[k] ? bit_length(most[k]) + p->shift : 0);
        }
    }
    uint32_t down[2] = {excess(longest[0], width), excess(longest[1], width)};
    int64_t dot = 0, own = 0, all = 0;
    for (const part *p = s->parts; p != s->parts + s->count; p++) {
        for (uint32_t i = 0; i < p->size; i++) {
            int32_t move = move_of(p, m, i);
            if (move) {
                int64_t a = scaled(held_of(p, m->held, i), p->shift, down[0]), b = scaled(move, p->shift, down[1]);
                dot += a * b;
                own += a * a;
                all += b * b;
            }
        }
    }
    if (dot <= 0) {
        return 0;
    }
    struct wide left = product(8 * (uint64_t)dot, 8 * (uint64_t)dot), right = product((uint64_t)own, (uint64_t)all);
    return left.high > right.high || (left.high == right.high && left.low >= right.low);
}

/* Where the board starts from. */
COLD static int32_t start_of(const part *p, const struct microtrain_fleet_memory *m, uint32_t i, int along)
{
    int32_t value = value_of(p, m->base, i);
    return along ? clamp((int64_t)value + held_of(p, m->held, i), limit_of(p)) : value;
}

/* ---------------------------------------------------------------- what is sent */

/* Bits that are written, the highest of each byte first. */
struct writer {
    uint8_t *to;
    uint32_t bits;
};

COLD static void put_bits(struct writer *w, uint32_t value, uint32_t count)
{
    while (count--) {
        uint8_t *byte = w->to + w->bits / 8;
        uint32_t at = 7 - w->bits++ % 8;
        *byte = (uint8_t)((*byte & (0xff00u >> (7 - at))) | (value >> count & 1u) << at);
    }
}

COLD static void put_ones(struct writer *w, uint32_t count)
{
    while (count--) {
        put_bits(w, 1, 1);
    }
}

/* Bits of a gap that stand as they are. */
COLD static uint32_t rice(uint32_t size, uint32_t count)
{
    uint32_t length = bit_length(11 * size / (16 * count));
    return length ? length - 1 : 0;
}

/* Which values are sent: those whose rank is above a threshold. */
struct choice {
    uint32_t above;
    uint32_t down, place_bits, last; /* of a rank: bits that go, bits of a place; the last place */
};

static int chosen(const struct choice *c, const part *p, uint32_t first, uint32_t i, int32_t held)
{
    uint32_t x = magnitude(held), worth;
    if (p->shift >= c->down) {
        worth = x << (p->shift - c->down);
    } else {
        worth = c->down - p->shift > 31 ? 0 : x >> (c->down - p->shift);
    }
    return (worth << c->place_bits | (c->last - first - i)) > c->above;
}

static struct choice all_of(const struct microtrain_shared *s, const void *held)
{
    uint32_t longest = 0;
    for (const part *p = s->parts; p != s->parts + s->count; p++) {
        uint32_t most = 0;
        for (uint32_t i = 0; i < p->size; i++) {
            most = larger(most, magnitude(held_of(p, held, i)));
        }
        longest = larger(longest, most ? bit_length(most) + p->shift : 0);
    }
    uint32_t place_bits = bit_length(s->values - 1);
    return (struct choice){(1u << place_bits) - 1, excess(longest, RANK_BITS - place_bits), place_bits, s->values - 1};
}

/* What is chosen of a part: how many, and the sum of their sizes. */
struct found {
    uint32_t count;
    uint64_t sum;
};

HOT static struct found count_of(const struct choice *c, const part *p, uint32_t first, const void *held)
{
    struct found f = {0, 0};
    for (uint32_t i = 0; i < p->size; i++) {
        int32_t value = held_of(p, held, i);
        if (chosen(c, p, first, i, value)) {
            f.count++;
            f.sum += magnitude(value);
        }
    }
    return f;
}

/* Bits of a body. */
HOT static uint32_t length_of(const struct microtrain_shared *s, const struct choice *c, const void *held)
{
    uint32_t bits = 0, first = 0;
    for (const part *p = s->parts; p != s->parts + s->count; first += p++->size) {
        uint32_t count = count_of(c, p, first, held).count;
        bits += 2 * bit_length(count + 1) - 1;
        if (count == 0) {
            continue;
        }
        uint32_t width = rice(p->size, count), gap = 0;
        bits += SIZE_BITS + count * (width + 2);
        for (uint32_t i = 0; i < p->size; i++, gap++) {
            if (chosen(c, p, first, i, held_of(p, held, i))) {
                bits += gap >> width;
                gap = UINT32_MAX; /* the next is 0 */
            }
        }
    }
    return bits;
}

/* The lowest rank above which the values have room. */
HOT static struct choice choose(const struct microtrain_shared *s, const void *held, uint32_t room)
{
    struct choice c = all_of(s, held);
    uint32_t low = c.above, high = (1u << RANK_BITS) - 1;
    while (low < high) {
        c.above = low + (high - low) / 2;
        if (length_of(s, &c, held) <= 8 * room) {
            high = c.above;
        } else {
            low = c.above + 1;
        }
    }
    c.above = high;
    return c;
}

/* a / b, below 2^32. */
COLD static uint32_t quotient(uint64_t a, uint32_t b)
{
    uint32_t found = 0;
    for (uint32_t bit = 32; bit-- > 0;) {
        uint64_t times = (uint64_t)b << bit;
        if (times <= a) {
            a -= times;
            found |= 1u << bit;
        }
    }
    return found;
}

/* The code of the largest size that is not above a mean of 1 or more. */
COLD static uint32_t size_code(uint32_t mean)
{
    uint32_t shift = bit_length(mean) - 1, top = 1u << STEP_BITS;
    uint32_t step = shift >= STEP_BITS ? mean >> (shift - STEP_BITS) : mean << (STEP_BITS - shift);
    return shift << STEP_BITS | (step - top);
}

COLD static uint32_t size_of(uint32_t code)
{
    uint32_t shift = code >> STEP_BITS, step = 1u << STEP_BITS | (code & ((1u << STEP_BITS) - 1));
    return shift >= STEP_BITS ? step << (shift - STEP_BITS) : step >> (STEP_BITS - shift);
}

/* The chosen values of a part, which lose what is said of them, and their velocity. */
COLD static void say_part(struct writer *w, const struct choice *c, const part *p, uint32_t first,
                          const struct microtrain_fleet_memory *m)
{
    struct found f = count_of(c, p, first, m->held);
    uint32_t digits = bit_length(f.count + 1);
    put_bits(w, 0, digits - 1);
    put_bits(w, f.count + 1, digits);
    if (f.count == 0) {
        return;
    }
    uint32_t code = size_code(quotient(f.sum, f.count)), width = rice(p->size, f.count), gap = 0;
    put_bits(w, code, SIZE_BITS);
    for (uint32_t i = 0; i < p->size; i++, gap++) {
        int32_t value = held_of(p, m->held, i);
        if (!chosen(c, p, first, i, value)) {
            continue;
        }
        put_ones(w, gap >> width);
        put_bits(w, 0, 1);
        put_bits(w, gap, width);
        put_bits(w, value < 0, 1);
        int64_t said = size_of(code);
        hold(p, m->held, i, value - (value < 0 ? -said : said));
        if (m->velocity) {
            hold(p, m->velocity, i, 0);
        }
        gap = UINT32_MAX; /* the next is 0 */
    }
}

/* The round's change joins the velocity, and that what is held back. */
COLD static void gather(const struct microtrain_shared *s, const struct microtrain_fleet_memory *m,
                        const uint8_t *learned, int along, uint32_t momentum)
{
    for (const part *p = s->parts; p != s->parts + s->count; p++) {
        for (uint32_t i = 0; i < p->size; i++) {
            int64_t velocity = (int64_t)value_of(p, learned, i) - start_of(p, m, i, along);
            if (m->velocity) {
                int64_t before = (int64_t)held_of(p, m->velocity, i) * momentum;
                velocity += (before + (1 << MOMENTUM_BITS >> 1)) >> MOMENTUM_BITS;
                hold(p, m->velocity, i, velocity);
            }
            hold(p, m->held, i, held_of(p, m->held, i) + (int64_t)clamp(velocity, held_limit(p)));
        }
    }
}

/* ---------------------------------------------------------------- bodies that are read */

struct reader {
    const uint8_t *from;
    uint32_t bits, at; /* all; those that were read. at > bits: it ended too early */
};

COLD static uint32_t take_bits(struct reader *r, uint32_t count)
{
    uint32_t value = 0;
    for (; count; count--, r->at++) {
        value = value << 1 | (r->at < r->bits ? (uint32_t)r->from[r->at / 8] >> (7 - r->at % 8) & 1u : 0u);
    }
    return value;
}

/* How many others come before this bit, which is read too. */
COLD static uint32_t take_until(struct reader *r, uint32_t bit)
{
    uint32_t from = r->at;
    while (r->at < r->bits) {
        if (take_bits(r, 1) == bit) {
            return r->at - 1 - from;
        }
    }
    r->at = r->bits + 1;
    return 0;
}

/* One part of a body; what it says joins what is held back, where `held` is not NULL. Returns 0 where it is none. */
COLD static int hear_part(struct reader *r, const part *p, void *held)
{
    uint32_t digits = take_until(r, 1);
    uint32_t count = digits < COUNT_BITS ? (1u << digits | take_bits(r, digits)) - 1 : UINT32_MAX;
    if (count > p->size || r->at > r->bits) {
        return 0;
    }
    uint32_t width = count ? rice(p->size, count) : 0, place = 0;
    uint32_t size = count ? size_of(take_bits(r, SIZE_BITS)) : 0;
    if (size > 2 * (uint32_t)limit_of(p)) {
        return 0;
    }
    for (uint32_t n = 0; n < count; n++, place++) {
        uint32_t ones = take_until(r, 0);
        if (ones > p->size >> width) {
            return 0;
        }
        place += ones << width | take_bits(r, width);
        uint32_t minus = take_bits(r, 1);
        if (place >= p->size || r->at > r->bits) {
            return 0;
        }
        if (held) {
            hold(p, held, place, held_of(p, held, place) + (minus ? -(int64_t)size : (int64_t)size));
        }
    }
    return 1;
}

COLD static int hear(const struct microtrain_shared *s, const void *body, uint32_t bytes, void *held)
{
    struct reader r = {body, 8 * bytes, 0};
    for (const part *p = s->parts; p != s->parts + s->count; p++) {
        if (!hear_part(&r, p, held)) {
            return 0;
        }
    }
    return r.at <= r.bits && r.bits - r.at < 8 && take_bits(&r, r.bits - r.at) == 0;
}

/* ---------------------------------------------------------------- the functions */

static int misaligned(const void *p)
{
    return (uintptr_t)p % 4 != 0;
}

COLD static int status_of(const struct microtrain_shared *s, const struct microtrain_fleet_memory *m,
                          const void *learned)
{
    if (!s || !s->values || !m || !m->base || !m->held || !learned) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    if (misaligned(m->base) || misaligned(m->last) || misaligned(m->held) || misaligned(m->velocity) ||
        misaligned(learned)) {
        return MICROTRAIN_ERR_ALIGNMENT;
    }
    return sound(s, m->base) && (!m->last || sound(s, m->last)) ? MICROTRAIN_OK : MICROTRAIN_ERR_DIVERGED;
}

COLD int microtrain_fleet_along(const struct microtrain_shared *shared, const struct microtrain_fleet_memory *memory)
{
    int status = status_of(shared, memory, memory ? memory->base : NULL);
    return status != MICROTRAIN_OK ? status : memory->last && goes_along(shared, memory);
}

COLD int microtrain_fleet_begin(const struct microtrain_shared *shared, const struct microtrain_fleet_memory *memory,
                                int along, void *learned)
{
    int status = status_of(shared, memory, learned);
    if (status != MICROTRAIN_OK) {
        return status;
    }
    for (const part *p = shared->parts; p != shared->parts + shared->count; p++) {
        for (uint32_t i = 0; i < p->size; i++) {
            put_value(p, learned, i, start_of(p, memory, i, along));
        }
    }
    return MICROTRAIN_OK;
}

COLD int microtrain_fleet_update(const struct microtrain_shared *shared, const struct microtrain_fleet_memory *memory,
                                 const void *learned, int along, const struct microtrain_fleet_rule *rule, void *body,
                                 uint32_t *bytes)
{
    int status = rule && body && bytes ? status_of(shared, memory, learned) : MICROTRAIN_ERR_ARGUMENT;
    if (status != MICROTRAIN_OK) {
        return status;
    }
    if (rule->momentum > 255 || (rule->momentum && !memory->velocity) || rule->room > UINT32_MAX / 8) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    if (rule->room < (shared->count + 7) / 8) {
        return MICROTRAIN_ERR_MEMORY;
    }
    if (!sound(shared, learned)) {
        return MICROTRAIN_ERR_DIVERGED;
    }
    gather(shared, memory, learned, along, rule->momentum);
    struct choice choice = choose(shared, memory->held, rule->room);
    struct writer w = {body, 0};
    uint32_t first = 0;
    for (const part *p = shared->parts; p != shared->parts + shared->count; first += p++->size) {
        say_part(&w, &choice, p, first, memory);
    }
    *bytes = (w.bits + 7) / 8;
    return MICROTRAIN_OK;
}

COLD int microtrain_fleet_take_back(const struct microtrain_shared *shared, void *held, const void *body,
                                    uint32_t bytes)
{
    if (!shared || !shared->values || !held || !body || bytes > UINT32_MAX / 8) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    if (misaligned(held)) {
        return MICROTRAIN_ERR_ALIGNMENT;
    }
    if (!hear(shared, body, bytes, NULL)) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    (void)hear(shared, body, bytes, held);
    return MICROTRAIN_OK;
}
