/* SPDX-License-Identifier: Apache-2.0 */
#include "crc.h"

/* Both go four bits at a time: 16-entry tables are 96 bytes of flash, and a 1 KB row takes 15 thousand instructions. */

static const uint16_t crc16_table[16] = {
    0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
    0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
};

static const uint32_t crc32_table[16] = {
    0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
};

uint16_t crc16(const uint8_t *data, size_t size)
{
    uint32_t crc = 0xffff;
    for (size_t i = 0; i < size; i++) {
        crc = (crc << 4 & 0xffffu) ^ crc16_table[crc >> 12 ^ data[i] >> 4];
        crc = (crc << 4 & 0xffffu) ^ crc16_table[crc >> 12 ^ (data[i] & 15u)];
    }
    return (uint16_t)crc;
}

uint32_t crc32(uint32_t crc, const uint8_t *data, size_t size)
{
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        crc = crc >> 4 ^ crc32_table[crc & 15u];
        crc = crc >> 4 ^ crc32_table[crc & 15u];
    }
    return ~crc;
}
