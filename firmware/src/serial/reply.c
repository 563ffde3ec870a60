/* SPDX-License-Identifier: Apache-2.0 */
#include "reply.h"

#include <string.h>

#include "board.h"
#include "text.h"

static void write(const char *text, size_t size)
{
    (void)board_serial_write((const uint8_t *)text, size);
}

void reply_text(const char *text)
{
    write(text, strlen(text));
}

void reply_u32(uint32_t value)
{
    char text[1 + TEXT_U32_MAX] = " ";
    write(text, 1 + text_u32(text + 1, value));
}

void reply_hex(uint32_t value, uint32_t digits)
{
    char text[8];
    write(text, text_hex(text, value, digits));
}

void reply_f32(float value)
{
    char text[1 + TEXT_F32_MAX] = " ";
    write(text, 1 + text_f32(text + 1, value));
}

void reply_end(void)
{
    write("\r\n", 2);
}

void reply_line(const char *text)
{
    reply_text(text);
    reply_end();
}

void reply_pair(const char *key, uint32_t value)
{
    reply_text(key);
    reply_u32(value);
    reply_end();
}

int reply_ok(const char *text)
{
    reply_line(text);
    return 1;
}

int reply_ok_u32(const char *text, uint32_t value)
{
    reply_pair(text, value);
    return 1;
}

int reply_error(const char *word, const char *sentence)
{
    reply_text("err ");
    reply_text(word);
    reply_text(" ");
    reply_line(sentence);
    return 0;
}
