/* SPDX-License-Identifier: Apache-2.0 */
/* Square roots of whole numbers: the same bits on every core. */
#ifndef KERNELS_ROOT_H
#define KERNELS_ROOT_H

#include <stdint.h>

/* The square root of v < 2^62, rounded down. */
static uint32_t root_of(uint64_t v)
{
    uint64_t root = 0;
    for (uint64_t bit = 1ull << 60; bit; bit >>= 2) {
        uint64_t with = root + bit;
        root >>= 1;
        if (v >= with) {
            v -= with;
            root += bit;
        }
    }
    return (uint32_t)root;
}

/* 1 / sqrt(weight), weight 1 to 2^62. */
static float inverse_of(uint64_t weight)
{
    uint32_t k = 0;
    while (weight < 1ull << 60) {
        weight <<= 2;
        k++;
    }
    return 1.0f / (float)(int32_t)root_of(weight) * (float)(int32_t)(1u << k);
}

#endif
