/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers to text and back, without printf, strtod or double. */
#ifndef TEXT_H
#define TEXT_H

#include <stddef.h>
#include <stdint.h>

enum {
    TEXT_U32_MAX = 10, /* characters of the longest uint32 */
    TEXT_F32_MAX = 16, /* of the longest fixed-point float: "-4294967295.9999" */
};

/* Writers: they end nothing with a zero and return the number of characters. */
size_t text_u32(char *out, uint32_t value);
size_t text_hex(char *out, uint32_t value, uint32_t digits); /* lower case, leading zeros */

/* As printf("%.4f"), correctly rounded (half to even); from 2^32 on "inf", "nan" for what is no number. */
size_t text_f32(char *out, float value);

/* Readers of a zero-terminated word. They return 1, or 0 and leave *value alone where the word is anything else. */
int parse_u32(const char *word, uint32_t *value);   /* decimal, 0..4294967295 */
int parse_hex32(const char *word, uint32_t *value); /* 1 to 8 hex digits */
int parse_f32(const char *word, float *value);      /* up to 9 digits with at most one point: 12, 0.5, .25 */

/* Two hex digits to a byte; -1 where they are none. */
int parse_hex_byte(const char *digits);

#endif
