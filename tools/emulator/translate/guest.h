/* What translated code is made of (source.py): registers, memory and single instructions of the guest. Each
 * function of the guest is one of C; the macros below use the names that it declares. */
#ifndef EMULATOR_GUEST_H
#define EMULATOR_GUEST_H

#include "../accesses.h"
#include "translation.h"

#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---------------------------------------------------------------- blocks */

/* Leave before a block for which there is no time left. */
#define BLOCK(number, address, count, size)                                                                            \
    if (UNLIKELY(left < (count))) {                                                                                    \
        at = (address);                                                                                                \
        goto out_of_time;                                                                                              \
    }                                                                                                                  \
    left -= (count);                                                                                                   \
    runs[number] += counting;                                                                                          \
    FETCH(address, size)

/* Where a call may begin or end. */
#define BLOCK_ENTERED(number, address, count, size)                                                                    \
    if (UNLIKELY(g->watching && left >= (count))) {                                                                    \
        n->thread = g->end - (uint64_t)left;                                                                           \
        watch_calls(n, (address), lr, sp);                                                                             \
        counting = (uint64_t)counts(n);                                                                                \
    }                                                                                                                  \
    BLOCK(number, address, count, size)

/* Unicorn goes on before this instruction: it sees to what only it knows. */
#define HAND_OVER() goto hand_over

#define GO(address)                                                                                                    \
    do {                                                                                                               \
        at = (address);                                                                                                \
        goto leave;                                                                                                    \
    } while (0)

/* Where a register may jump to; the other addresses are faults, or return from exceptions. */
#define IS_THUMB(address) (((address)&1u) != 0u && (address) < 0xF0000000u)

/* ---------------------------------------------------------------- memory */

#ifdef WITH_CACHES
#define CACHES 1u
#define FETCH(address, size)                                                                                           \
    n->block = (address);                                                                                              \
    fetch(n, (address), (size));
#define ACCESS(address, size, write) data_access(n, (address), (size), (write))
#else
#define CACHES 0u
#define FETCH(address, size)
#define ACCESS(address, size, write) (void)0
#endif

static __attribute__((noinline)) uint8_t *straddling(uint8_t *const *pages, uint32_t address, uint32_t bytes)
{
    uint8_t *page = pages[address / PAGE_BYTES];
    return page == NULL || pages[(address + bytes - 1u) / PAGE_BYTES] == NULL ? NULL : page + address % PAGE_BYTES;
}

/* The host's view of these bytes, or NULL where some of them are not plain memory. */
static inline uint8_t *view(uint8_t *const *pages, uint32_t address, uint32_t bytes)
{
    uint8_t *page = pages[address / PAGE_BYTES];
    if (UNLIKELY((address & (bytes - 1u)) != 0u)) {
        return straddling(pages, address, bytes);
    }
    return page == NULL ? NULL : page + address % PAGE_BYTES;
}

#define LOAD(kind, d, a, cast)                                                                                         \
    {                                                                                                                  \
        const uint8_t *p_ = view(readable, (a), sizeof(kind));                                                         \
        kind v_;                                                                                                       \
        if (UNLIKELY(p_ == NULL)) {                                                                                    \
            HAND_OVER();                                                                                               \
        }                                                                                                              \
        memcpy(&v_, p_, sizeof v_);                                                                                    \
        ACCESS(a, sizeof v_, 0);                                                                                       \
        d = cast v_;                                                                                                   \
    }

#define STORE(kind, s, a)                                                                                              \
    {                                                                                                                  \
        uint8_t *p_ = view(writable, (a), sizeof(kind));                                                               \
        kind v_ = (kind)(s);                                                                                           \
        if (UNLIKELY(p_ == NULL)) {                                                                                    \
            HAND_OVER();                                                                                               \
        }                                                                                                              \
        memcpy(p_, &v_, sizeof v_);                                                                                    \
        ACCESS(a, sizeof v_, 1);                                                                                       \
    }

#define LITERAL(d, a, value)                                                                                           \
    {                                                                                                                  \
        ACCESS(a, 4, 0);                                                                                               \
        d = (value);                                                                                                   \
    }

/* Of several words the address is a multiple of four, or Unicorn says what happens. */
#define WORDS_LOAD(count, a)                                                                                           \
    const uint8_t *p_ =                                                                                                \
        ((a)&3u) != 0u || readable[((a) + 4u * (count)-1u) / PAGE_BYTES] == NULL ? NULL : view(readable, (a), 4u);     \
    if (UNLIKELY(p_ == NULL)) {                                                                                        \
        HAND_OVER();                                                                                                   \
    }

#define WORDS_STORE(count, a)                                                                                          \
    uint8_t *p_ =                                                                                                      \
        ((a)&3u) != 0u || writable[((a) + 4u * (count)-1u) / PAGE_BYTES] == NULL ? NULL : view(writable, (a), 4u);     \
    if (UNLIKELY(p_ == NULL)) {                                                                                        \
        HAND_OVER();                                                                                                   \
    }

#define LOAD_WORD(d, p, offset, a)                                                                                     \
    memcpy(&d, (p) + (offset), 4);                                                                                     \
    ACCESS((a) + (offset), 4, 0);

#define STORE_WORD(s, p, offset, a)                                                                                    \
    memcpy((p) + (offset), &s, 4);                                                                                     \
    ACCESS((a) + (offset), 4, 1);

/* ---------------------------------------------------------------- integers */

static inline int32_t low_half(uint32_t x)
{
    return (int16_t)x;
}

static inline int32_t high_half(uint32_t x)
{
    return (int32_t)x >> 16;
}

static inline uint32_t lsl_by(uint32_t x, uint32_t by)
{
    return (by & 0xffu) < 32u ? x << (by & 0xffu) : 0u;
}

static inline uint32_t lsr_by(uint32_t x, uint32_t by)
{
    return (by & 0xffu) < 32u ? x >> (by & 0xffu) : 0u;
}

static inline uint32_t asr_by(uint32_t x, uint32_t by)
{
    return (uint32_t)((int32_t)x >> ((by & 0xffu) < 32u ? (by & 0xffu) : 31u));
}

static inline uint32_t ror_by(uint32_t x, uint32_t by)
{
    return x >> (by & 31u) | x << (-by & 31u);
}

/* The bit that falls out; none does where nothing moves. */
static inline uint32_t lsl_carry(uint32_t x, uint32_t by, uint32_t carry)
{
    by &= 0xffu;
    return by == 0u ? carry : by > 32u ? 0u : x >> (32u - by) & 1u;
}

static inline uint32_t lsr_carry(uint32_t x, uint32_t by, uint32_t carry)
{
    by &= 0xffu;
    return by == 0u ? carry : by > 32u ? 0u : x >> (by - 1u) & 1u;
}

static inline uint32_t asr_carry(uint32_t x, uint32_t by, uint32_t carry)
{
    by &= 0xffu;
    return by == 0u ? carry : (uint32_t)((int32_t)x >> (by > 32u ? 31u : by - 1u)) & 1u;
}

static inline uint32_t ror_carry(uint32_t x, uint32_t by, uint32_t carry)
{
    return (by & 0xffu) == 0u ? carry : x >> ((by - 1u) & 31u) & 1u;
}

/* The two words of a product or a sum. */
#define SPLIT(low, high, value)                                                                                        \
    {                                                                                                                  \
        uint64_t w_ = (value);                                                                                         \
        low = (uint32_t)w_;                                                                                            \
        high = (uint32_t)(w_ >> 32);                                                                                   \
    }

static inline uint64_t joined(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

static inline uint64_t product(uint32_t a, uint32_t b)
{
    return (uint64_t)((int64_t)(int32_t)a * (int32_t)b);
}

static inline uint32_t rbit(uint32_t x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}

static inline uint32_t sdiv(uint32_t a, uint32_t b)
{
    return b == 0u ? 0u : b == 0xffffffffu ? 0u - a : (uint32_t)((int32_t)a / (int32_t)b);
}

static inline uint32_t saturated(int64_t x, uint32_t *q)
{
    if (UNLIKELY(x != (int32_t)x)) {
        *q = 1u;
        return x < 0 ? 0x80000000u : 0x7fffffffu;
    }
    return (uint32_t)x;
}

static inline uint32_t ssat(uint32_t bits, int32_t x, uint32_t *q)
{
    int32_t most = (int32_t)(0x7fffffffu >> (32u - bits)), least = -most - 1;
    int32_t y = x > most ? most : x < least ? least : x;
    *q |= (uint32_t)(y != x);
    return (uint32_t)y;
}

static inline uint32_t usat(uint32_t bits, int32_t x, uint32_t *q)
{
    int32_t most = (int32_t)((1u << bits) - 1u);
    int32_t y = x > most ? most : x < 0 ? 0 : x;
    *q |= (uint32_t)(y != x);
    return (uint32_t)y;
}

/* x + c, which may wrap: the sum keeps its lower word, and Q remembers. */
static inline uint32_t accumulated(int64_t x, uint32_t c, uint32_t *q)
{
    int64_t sum = x + (int32_t)c;
    *q |= (uint32_t)(sum != (int32_t)sum);
    return (uint32_t)sum;
}

static inline uint32_t dual(uint32_t a, uint32_t b, uint32_t c, uint32_t *q)
{
    int64_t products = (int64_t)(low_half(a) * low_half(b)) + high_half(a) * high_half(b);
    return accumulated(products, c, q);
}

static inline uint32_t smmla(uint32_t a, uint32_t b, uint32_t c, uint32_t half)
{
    int64_t product = (int64_t)(int32_t)a * (int32_t)b;
    return (uint32_t)((((uint64_t)c << 32) + (uint64_t)product + half) >> 32);
}

static inline uint32_t smmls(uint32_t a, uint32_t b, uint32_t c, uint32_t half)
{
    int64_t product = (int64_t)(int32_t)a * (int32_t)b;
    return (uint32_t)((((uint64_t)c << 32) - (uint64_t)product + half) >> 32);
}

static inline uint32_t sxtb16(uint32_t x)
{
    return ((uint32_t)(int8_t)x & 0xffffu) | (uint32_t)(int8_t)(x >> 16) << 16;
}

static inline uint32_t halves_added(uint32_t a, uint32_t b)
{
    return ((a + b) & 0xffffu) | ((a & 0xffff0000u) + (b & 0xffff0000u));
}

/* ---------------------------------------------------------------- single precision: to nearest, NaN is the default one, nothing is flushed */

static inline float real_of(uint32_t x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline uint32_t bits_of(float x)
{
    uint32_t y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline int is_nan(uint32_t x)
{
    return (x & 0x7fffffffu) > 0x7f800000u;
}

static inline int is_signalling(uint32_t x)
{
    return is_nan(x) && (x & 0x400000u) == 0u;
}

enum { DEFAULT_NAN = 0x7fc00000 };

#define VFP_OPERATION(name, operator)                                                                                  \
    static inline uint32_t name(uint32_t a, uint32_t b)                                                                \
    {                                                                                                                  \
        float y = real_of(a) operator real_of(b);                                                                      \
        return UNLIKELY(y != y) ? DEFAULT_NAN : bits_of(y);                                                            \
    }

VFP_OPERATION(vfp_sum, +)
VFP_OPERATION(vfp_difference, -)
VFP_OPERATION(vfp_product, *)
VFP_OPERATION(vfp_quotient, /)

static inline uint32_t vfp_root(uint32_t a)
{
    float y = __builtin_sqrtf(real_of(a));
    return UNLIKELY(y != y) ? DEFAULT_NAN : bits_of(y);
}

/* Of a number and a quiet NaN it is the number (FPMaxNum). */
static inline uint32_t vfp_greater(uint32_t a, uint32_t b)
{
    if (UNLIKELY(is_nan(a) || is_nan(b))) {
        return is_signalling(a) || is_signalling(b) || (is_nan(a) && is_nan(b)) ? DEFAULT_NAN : is_nan(a) ? b : a;
    }
    float x = real_of(a), y = real_of(b);
    return x == y ? a & b : x > y ? a : b;
}

static inline uint32_t vfp_lesser(uint32_t a, uint32_t b)
{
    if (UNLIKELY(is_nan(a) || is_nan(b))) {
        return is_signalling(a) || is_signalling(b) || (is_nan(a) && is_nan(b)) ? DEFAULT_NAN : is_nan(a) ? b : a;
    }
    float x = real_of(a), y = real_of(b);
    return x == y ? a | b : x < y ? a : b;
}

/* N, Z, C and V as FPSCR has them. */
static inline uint32_t vfp_compared(uint32_t a, uint32_t b)
{
    float x = real_of(a), y = real_of(b);
    return x == y ? 0x60000000u : x < y ? 0x80000000u : x > y ? 0x20000000u : 0x30000000u;
}

static inline uint32_t vfp_scaled(int32_t x, uint32_t fraction_bits)
{
    return bits_of((float)x / (float)(1ull << fraction_bits));
}

static inline uint32_t vfp_truncated(uint32_t a)
{
    float x = real_of(a);
    return x != x ? 0u : x >= 2147483648.0f ? 0x7fffffffu : x < -2147483648.0f ? 0x80000000u : (uint32_t)(int32_t)x;
}

static inline uint32_t vfp_truncated_unsigned(uint32_t a)
{
    float x = real_of(a);
    return x >= 4294967296.0f ? 0xffffffffu : x > 0.0f ? (uint32_t)x : 0u;
}

static inline uint32_t vfp_rounded(uint32_t a)
{
    float x = real_of(a);
    return x != x                ? 0u
           : x >= 2147483648.0f  ? 0x7fffffffu
           : x <= -2147483648.0f ? 0x80000000u
                                 : (uint32_t)(int32_t)__builtin_lrintf(x);
}

static inline uint32_t vfp_integral(uint32_t a)
{
    float x = real_of(a);
    if ((a & 0x7fffffffu) >= 0x4b000000u) { /* from 2^23 on all are whole */
        return is_nan(a) ? DEFAULT_NAN : a;
    }
    return bits_of((float)(int32_t)__builtin_lrintf(x)) | (a & 0x80000000u);
}

#endif
