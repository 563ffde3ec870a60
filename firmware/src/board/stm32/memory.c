/* SPDX-License-Identifier: Apache-2.0 */
/* C library functions that compiled code calls, beside those of memory_armv7m.S: they leave the linker no reason to
 * take anything from the library. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* or the compiler would turn the loops below into calls of the functions they are in */
#define KEEP_LOOPS __attribute__((optimize("no-tree-loop-distribute-patterns")))

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
