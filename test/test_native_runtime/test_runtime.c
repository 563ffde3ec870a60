/* SPDX-License-Identifier: Apache-2.0 */
/* Check sums, SHA-256, text and the session, by themselves: `pio test -e native`. */
#include "../check.h"

#include <stdlib.h>
#include <string.h>

#include "crc.h"
#include "model_api.h"
#include "runtime/session.h"
#include "sha256.h"
#include "text.h"

static const uint8_t digits[] = "123456789";

static void crc16_is_ccitt_false(void)
{
    CHECK(crc16(digits, 9) == 0x29b1);
    CHECK(crc16(digits, 0) == 0xffff);
    CHECK(crc16(digits, 8) != crc16(digits, 9));
}

static void crc32_is_zlibs_and_continues(void)
{
    CHECK(crc32(0, digits, 9) == 0xcbf43926u);
    CHECK(crc32(crc32(0, digits, 4), digits + 4, 5) == 0xcbf43926u);
    CHECK(crc32(0, digits, 0) == 0);
}

static int sha_is(const uint8_t *data, size_t size, const char *hex)
{
    uint8_t digest[SHA256_BYTES];
    sha256(data, size, digest);
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        if (parse_hex_byte(hex + 2 * i) != digest[i]) {
            return 0;
        }
    }
    return 1;
}

/* FIPS 180-2, appendix B, and lengths around the padding's borders */
static void sha256_of_known_texts(void)
{
    static uint8_t text[1000];
    memset(text, 'a', sizeof text);
    CHECK(sha_is(text, 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    CHECK(sha_is((const uint8_t *)"abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    CHECK(sha_is(text, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"));
    CHECK(sha_is(text, 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"));
    CHECK(sha_is(text, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"));
    CHECK(sha_is(text, 1000, "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3"));
    CHECK(!sha_is(text, 999, "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3"));
}

static int f32_is(float value, const char *expected)
{
    char text[TEXT_F32_MAX + 1];
    text[text_f32(text, value)] = '\0';
    return strcmp(text, expected) == 0;
}

static void floats_as_text(void)
{
    CHECK(f32_is(0.0f, "0.0000"));
    CHECK(f32_is(-1.5f, "-1.5000"));
    CHECK(f32_is(0.00005f, "0.0000")); /* the float lies just below the half */
    CHECK(f32_is(0.99999f, "1.0000"));
    CHECK(f32_is(1e9f, "1000000000.0000"));
    CHECK(f32_is(1e10f, "inf"));
    CHECK(f32_is(-1e38f, "-inf"));
    CHECK(f32_is(1e-40f, "0.0000"));
}

/* Against the C library, which may use double here. */
static void floats_as_printf_writes_them(void)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 200000; i++) {
        bits = hash32(i);
        float value;
        memcpy(&value, &bits, sizeof value);
        char expected[64];
        if (!(value < 4294967040.0f && value > -4294967040.0f)) {
            continue;
        }
        (void)snprintf(expected, sizeof expected, "%.4f", (double)value);
        CHECK(f32_is(value, expected));
        value = (float)(bits % 100000u) / 8192.0f; /* exact halves among them */
        (void)snprintf(expected, sizeof expected, "%.4f", (double)value);
        CHECK(f32_is(value, expected));
    }
}

static void integers_as_text(void)
{
    char text[16];
    CHECK(text_u32(text, 4294967295u) == 10 && memcmp(text, "4294967295", 10) == 0);
    CHECK(text_u32(text, 0) == 1 && text[0] == '0');
    CHECK(text_hex(text, 0xbeefu, 8) == 8 && memcmp(text, "0000beef", 8) == 0);
}

static void words_as_numbers(void)
{
    uint32_t n = 7;
    CHECK(parse_u32("4294967295", &n) && n == 4294967295u);
    CHECK(!parse_u32("4294967296", &n) && !parse_u32("", &n) && !parse_u32("1x", &n) && !parse_u32("-1", &n));
    CHECK(n == 4294967295u);
    CHECK(parse_hex32("00C0ffee", &n) && n == 0x00c0ffeeu);
    CHECK(!parse_hex32("123456789", &n) && !parse_hex32("", &n) && !parse_hex32("g", &n) && !parse_hex32("@", &n));
    CHECK(parse_hex_byte("a5") == 0xa5 && parse_hex_byte("5") == -1 && parse_hex_byte("x5") == -1);
}

static void words_as_floats(void)
{
    float f = 7.0f;
    CHECK(parse_f32("0.5", &f) && !(f < 0.5f) && !(f > 0.5f));
    CHECK(parse_f32(".25", &f) && !(f < 0.25f) && !(f > 0.25f));
    CHECK(parse_f32("1000.000000", &f) && !(f < 1000.0f) && !(f > 1000.0f));
    CHECK(parse_f32("3.", &f) && !(f < 3.0f) && !(f > 3.0f));
    CHECK(!parse_f32("", &f) && !parse_f32(".", &f) && !parse_f32("1.2.3", &f) && !parse_f32("-1", &f));
    CHECK(!parse_f32("1e3", &f) && !parse_f32("nan", &f) && !parse_f32("99999999999", &f));
    CHECK(!(f < 3.0f) && !(f > 3.0f));
}

static struct session s;

static void image_needs_every_row(void)
{
    uint8_t row[8] = {0};
    uint32_t predicted;
    session_init(&s);
    CHECK(session_rows_missing(&s) == model_info.height);
    for (uint32_t y = 0; y + 1 < model_info.height; y++) {
        CHECK(session_put_row(&s, y, row) == MICROTRAIN_OK);
    }
    CHECK(session_infer(&s, &predicted) == MICROTRAIN_ERR_INPUT);
    CHECK(session_put_row(&s, model_info.height, row) == MICROTRAIN_ERR_ARGUMENT);
    CHECK(session_put_row(&s, model_info.height - 1u, row) == MICROTRAIN_OK);
    CHECK(session_infer(&s, &predicted) == MICROTRAIN_OK);
    CHECK(session_infer(&s, &predicted) == MICROTRAIN_ERR_INPUT); /* consumed */
}

static void rows_come_in_order(void)
{
    uint8_t row[8] = {0};
    session_init(&s);
    CHECK(session_put_row(&s, 1, row) == MICROTRAIN_ERR_ORDER);
    CHECK(session_put_row(&s, 0, row) == MICROTRAIN_OK);
    CHECK(session_put_row(&s, 1, row) == MICROTRAIN_OK);
    CHECK(session_put_row(&s, 1, row) == MICROTRAIN_OK); /* sent again */
    CHECK(session_put_row(&s, 3, row) == MICROTRAIN_ERR_ORDER);
    CHECK(session_rows_missing(&s) == model_info.height - 2u);
    CHECK(session_put_row(&s, 0, row) == MICROTRAIN_OK); /* another image */
    CHECK(session_rows_missing(&s) == model_info.height - 1u);
}

static void row_in_parts_has_no_gaps(void)
{
    uint8_t part[8] = {0, 255, 128, 1, 2, 3, 4, 5};
    session_init(&s);
    CHECK(session_put_part(&s, 0, 4, part, 4) == MICROTRAIN_ERR_INPUT);
    CHECK(session_put_part(&s, 0, 0, part, 4) == MICROTRAIN_OK);
    CHECK(session_put_part(&s, 1, 4, part, 4) == MICROTRAIN_ERR_ORDER);
    CHECK(session_put_part(&s, 0, 4, part, 5) == MICROTRAIN_ERR_ARGUMENT);
    CHECK(session_rows_missing(&s) == model_info.height);
    CHECK(session_put_part(&s, 0, 4, part, 4) == MICROTRAIN_OK);
    CHECK(session_rows_missing(&s) == model_info.height - 1u);
    const int8_t *stored = model_row() - MODEL_WIDTH * MODEL_CHANNELS;
    CHECK(stored[0] == -128 && stored[1] == 127 && stored[2] == 0);
    CHECK(session_put_part(&s, 2, 0, part, 4) == MICROTRAIN_ERR_ORDER);
    CHECK(session_put_part(&s, 0, 0, part, 4) == MICROTRAIN_OK); /* starts over */
    CHECK(session_rows_missing(&s) == model_info.height);
}

static void step_learns_and_reset_forgets(void)
{
    uint32_t predicted;
    float loss;
    session_init(&s);
    CHECK(memcmp(model_trainables, model_trainables_init, model_info.trainable_bytes) == 0);
    session_put_pattern(&s, 3);
    const int8_t *stored = model_row() - MODEL_HEIGHT * MODEL_WIDTH * MODEL_CHANNELS;
    CHECK(stored[5] == (int)(hash32(3u + 5u * 0x9e3779b9u) & 255u) - 128);
    CHECK(session_train(&s, model_info.classes, &predicted, &loss) == MICROTRAIN_ERR_LABEL);
    CHECK(session_train(&s, 1, &predicted, &loss) == MICROTRAIN_OK);
    CHECK(s.step == 1 && s.losses == 1);
    CHECK(memcmp(model_trainables, model_trainables_init, model_info.trainable_bytes) != 0);
    session_reset(&s);
    CHECK(s.step == 0 && s.losses == 0);
    CHECK(memcmp(model_trainables, model_trainables_init, model_info.trainable_bytes) == 0);
}

int main(void)
{
    RUN(crc16_is_ccitt_false);
    RUN(crc32_is_zlibs_and_continues);
    RUN(sha256_of_known_texts);
    RUN(floats_as_text);
    RUN(floats_as_printf_writes_them);
    RUN(integers_as_text);
    RUN(words_as_numbers);
    RUN(words_as_floats);
    RUN(image_needs_every_row);
    RUN(rows_come_in_order);
    RUN(row_in_parts_has_no_gaps);
    RUN(step_learns_and_reset_forgets);
    return 0;
}
