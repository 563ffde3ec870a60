/* SPDX-License-Identifier: Apache-2.0 */
#include "sha256.h"

#include <string.h>

enum { BLOCK = 64 };

/* FIPS 180-4, section 4.2.2 */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t rotate(uint32_t x, uint32_t n)
{
    return x >> n | x << (32u - n);
}

/* Word t of the message schedule, kept in a ring of the last 16. */
static inline uint32_t schedule(uint32_t w[16], const uint8_t *block, uint32_t t)
{
    if (t < 16) {
        const uint8_t *b = block + 4 * t;
        w[t] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    } else {
        uint32_t x = w[(t + 1) & 15u], y = w[(t + 14) & 15u];
        uint32_t low = rotate(x, 7) ^ rotate(x, 18) ^ x >> 3, high = rotate(y, 17) ^ rotate(y, 19) ^ y >> 10;
        w[t & 15u] += low + w[(t + 9) & 15u] + high;
    }
    return w[t & 15u];
}

/* Section 6.2.2, with its names. */
static void compress(uint32_t state[8], const uint8_t block[BLOCK])
{
    uint32_t w[16];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (uint32_t t = 0; t < 64; t++) {
        uint32_t choice = (e & f) ^ (~e & g), majority = (a & b) ^ (a & c) ^ (b & c);
        uint32_t t1 = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + choice + K[t] + schedule(w, block, t);
        uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + majority;
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
    for (uint32_t i = 0; i < 8; i++) {
        state[i] += sums[i];
    }
}

/* The last bytes, the bit 1, zeros and the length in bits (section 5.1.1). */
static void finish(uint32_t state[8], const uint8_t *tail, size_t rest, size_t size)
{
    uint8_t block[BLOCK] = {0};
    memcpy(block, tail, rest);
    block[rest] = 0x80;
    if (rest >= BLOCK - 8) {
        compress(state, block);
        memset(block, 0, sizeof block);
    }
    uint64_t bits = (uint64_t)size * 8u;
    for (uint32_t i = 0; i < 8; i++) {
        block[BLOCK - 1 - i] = (uint8_t)(bits >> (8 * i));
    }
    compress(state, block);
}

void sha256(const uint8_t *data, size_t size, uint8_t *digest)
{
    uint32_t state[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    size_t rest = size;
    for (; rest >= BLOCK; rest -= BLOCK) {
        compress(state, data);
        data += BLOCK;
    }
    finish(state, data, rest, size);
    for (uint32_t i = 0; i < SHA256_BYTES; i++) {
        digest[i] = (uint8_t)(state[i / 4] >> (24u - 8u * (i % 4)));
    }
}
