/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <string.h>

size_t text_u32(char *out, uint32_t value)
{
    char digits[TEXT_U32_MAX];
    size_t n = 0;
    do {
        digits[n++] = (char)('0' + value % 10u);
        value /= 10u;
    } while (value);
    for (size_t i = 0; i < n; i++) {
        out[i] = digits[n - 1 - i];
    }
    return n;
}

size_t text_hex(char *out, uint32_t value, uint32_t digits)
{
    for (uint32_t i = digits; i > 0; i--) {
        out[i - 1] = "0123456789abcdef"[value & 15u];
        value >>= 4;
    }
    return digits;
}

static size_t copy_word(char *out, const char *word)
{
    size_t n = strlen(word);
    memcpy(out, word, n);
    return n;
}

/* A float is mantissa / 2^shift. Ten thousandths of it, rounded half to even, in integers; shift >= 0. */
static uint64_t ten_thousandths(uint32_t mantissa, uint32_t shift)
{
    uint64_t scaled = (uint64_t)mantissa * 10000u; /* below 2^38 */
    if (shift > 40) {
        return 0;
    }
    uint64_t quotient = scaled >> shift, rest = scaled - (quotient << shift), half = (uint64_t)1 << shift >> 1;
    int up = shift && (rest > half || (rest == half && (quotient & 1u)));
    return quotient + (uint64_t)up;
}

size_t text_f32(char *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    size_t n = 0;
    uint32_t exponent = bits >> 23 & 0xffu, fraction = bits & 0x7fffffu;
    if (bits >> 31) {
        out[n++] = '-';
    }
    if (exponent == 0xff && fraction) {
        return copy_word(out, "nan");
    }
    if (exponent >= 127 + 32) {
        return n + copy_word(out + n, "inf");
    }
    uint32_t mantissa = exponent ? fraction | 0x800000u : fraction;
    uint32_t whole, parts = 0;
    if (exponent >= 150) {
        whole = mantissa << (exponent - 150);
    } else {
        uint32_t shift = 150 - (exponent ? exponent : 1);
        uint32_t integer = shift < 24 ? mantissa >> shift : 0;
        uint64_t rest = ten_thousandths(shift < 24 ? mantissa - (integer << shift) : mantissa, shift);
        whole = integer + (rest >= 10000u);
        parts = (uint32_t)(rest >= 10000u ? rest - 10000u : rest);
    }
    n += text_u32(out + n, whole);
    out[n++] = '.';
    for (uint32_t power = 1000; power; power /= 10) {
        out[n++] = (char)('0' + parts / power % 10u);
    }
    return n;
}

int parse_u32(const char *word, uint32_t *value)
{
    uint32_t sum = 0;
    if (!*word) {
        return 0;
    }
    for (; *word; word++) {
        uint32_t digit = (uint32_t)(*word - '0');
        if (digit > 9 || sum > (UINT32_MAX - digit) / 10u) {
            return 0;
        }
        sum = sum * 10u + digit;
    }
    *value = sum;
    return 1;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

int parse_hex32(const char *word, uint32_t *value)
{
    uint32_t sum = 0;
    size_t n = 0;
    for (; word[n]; n++) {
        int digit = hex_digit(word[n]);
        if (digit < 0 || n == 8) {
            return 0;
        }
        sum = sum << 4 | (uint32_t)digit;
    }
    if (n == 0) {
        return 0;
    }
    *value = sum;
    return 1;
}

int parse_hex_byte(const char *digits)
{
    int high = hex_digit(digits[0]);
    int low = high < 0 ? -1 : hex_digit(digits[1]);
    return low < 0 ? -1 : high << 4 | low;
}

int parse_f32(const char *word, float *value)
{
    uint32_t mantissa = 0, digits = 0;
    float power = 1.0f;
    int point = 0;
    for (; *word; word++) {
        uint32_t digit = (uint32_t)(*word - '0');
        if (*word == '.' && !point) {
            point = 1;
            continue;
        }
        if (digit > 9 || mantissa > (UINT32_MAX - digit) / 10u || (point && power > 1e8f)) {
            return 0;
        }
        mantissa = mantissa * 10u + digit;
        power *= point ? 10.0f : 1.0f;
        digits++;
    }
    if (digits == 0) {
        return 0;
    }
    *value = (float)mantissa / power;
    return 1;
}
