/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4). */
#ifndef SHA256_H
#define SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

/* digest[SHA256_BYTES] of size bytes. Uses 0.2 KB of stack. */
void sha256(const uint8_t *data, size_t size, uint8_t *digest);

#endif
