/* The C library functions that compiled code calls. newlib-nano's go byte by byte; these move words where both ends
 * are aligned, and leave the linker no reason to take anything else from the library. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* or the compiler would turn the loops below into calls of the functions they are in */
#define KEEP_LOOPS __attribute__((optimize("no-tree-loop-distribute-patterns")))

enum { WORD = sizeof(uint32_t) };

/* Reading any object as words is what the aliasing rule forbids; the attribute lifts it. */
typedef uint32_t __attribute__((may_alias)) word_t;

static inline int aligned(uintptr_t address)
{
    return address % WORD == 0;
}

/* Upwards: right also where `to` lies below `from` and they overlap. */
KEEP_LOOPS static void copy_up(uint8_t *to, const uint8_t *from, size_t size)
{
    if (aligned((uintptr_t)to | (uintptr_t)from)) {
        for (; size >= WORD; size -= WORD, to += WORD, from += WORD) {
            *(word_t *)(void *)to = *(const word_t *)(const void *)from;
        }
    }
    for (; size > 0; size--) {
        *to++ = *from++;
    }
}

KEEP_LOOPS void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    copy_up(to, from, size);
    return to;
}

KEEP_LOOPS void *memmove(void *to, const void *from, size_t size)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    if ((uintptr_t)out <= (uintptr_t)in) {
        copy_up(out, in, size);
    } else {
        for (size_t i = size; i > 0; i--) {
            out[i - 1] = in[i - 1];
        }
    }
    return to;
}

KEEP_LOOPS void *memset(void *to, int value, size_t size)
{
    uint8_t *out = to;
    for (; size > 0 && !aligned((uintptr_t)out); size--) {
        *out++ = (uint8_t)value;
    }
    uint32_t word = (uint8_t)value * 0x01010101u;
    for (; size >= WORD; size -= WORD, out += WORD) {
        *(word_t *)(void *)out = word;
    }
    for (; size > 0; size--) {
        *out++ = (uint8_t)value;
    }
    return to;
}

KEEP_LOOPS int memcmp(const void *a, const void *b, size_t size)
{
    const uint8_t *left = a, *right = b;
    for (size_t i = 0; i < size; i++) {
        if (left[i] != right[i]) {
            return left[i] - right[i];
        }
    }
    return 0;
}

KEEP_LOOPS size_t strlen(const char *text)
{
    size_t n = 0;
    while (text[n]) {
        n++;
    }
    return n;
}

KEEP_LOOPS int strcmp(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return (uint8_t)*a - (uint8_t)*b;
}
