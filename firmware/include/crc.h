/* SPDX-License-Identifier: Apache-2.0 */
/* Check sums. */
#ifndef CRC_H
#define CRC_H

#include <stddef.h>
#include <stdint.h>

/* CRC-16/CCITT-FALSE: polynomial 0x1021, start 0xffff, not reflected. Of "123456789": 0x29b1. */
uint16_t crc16(const uint8_t *data, size_t size);

/* CRC-32 of IEEE 802.3, as zlib computes it. Start with crc 0; crc32(crc32(0, a), b) is the CRC of a then b.
 * Of "123456789": 0xcbf43926. */
uint32_t crc32(uint32_t crc, const uint8_t *data, size_t size);

#endif
