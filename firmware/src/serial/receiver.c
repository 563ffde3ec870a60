/* SPDX-License-Identifier: Apache-2.0 */
#include "receiver.h"

#include <string.h>

#include "board.h"
#include "crc.h"

enum { SYNC_0 = 0xa5, SYNC_1 = 0x5a };

void receiver_init(struct receiver *r)
{
    memset(r, 0, sizeof *r);
}

const uint8_t *receiver_payload(const struct receiver *r)
{
    return r->bytes;
}

/* The next byte: one that is to be looked at again, or a new one. Returns 0 when there is none. */
static int next_byte(struct receiver *r, uint8_t *byte)
{
    if (r->replay_from < r->replay_end) {
        *byte = r->bytes[r->replay_from++];
        return 1;
    }
    if (board_serial_read(byte, 1) == 0) {
        return 0;
    }
    r->last_ms = board_millis();
    return 1;
}

/* No frame starts at bytes[0]: drop that byte and look at the count - 1 behind it again, before whatever was to be
 * looked at again already. All of it are bytes of one header, at most FRAME_HEADER_BYTES. */
static void drop_first(struct receiver *r)
{
    uint32_t later = r->replay_end - r->replay_from;
    memmove(r->bytes + r->count, r->bytes + r->replay_from, later);
    r->replay_from = 1;
    r->replay_end = r->count + later;
    r->count = 0;
    r->line_bad = 1;
    r->line_size = (uint16_t)(r->line_size + (r->line_size == 0)); /* not an empty line, which is no error */
}

static enum received end_line(struct receiver *r)
{
    uint32_t size = r->line_size;
    uint8_t bad = r->line_bad;
    r->line_size = 0;
    r->line_bad = 0;
    if (size == 0) {
        return RECEIVED_NOTHING;
    }
    if (bad || size > LINE_MAX_CHARS) {
        return bad ? RECEIVED_BAD_LINE : RECEIVED_LONG_LINE;
    }
    r->line[size] = '\0';
    return RECEIVED_LINE;
}

static enum received take_text(struct receiver *r, uint8_t byte)
{
    if (byte == '\n' || byte == '\r') {
        return end_line(r);
    }
    if (byte < 0x20 || byte > 0x7e) {
        r->line_bad = 1;
    }
    if (r->line_size < LINE_MAX_CHARS) {
        r->line[r->line_size] = (char)byte;
    }
    r->line_size = (uint16_t)(r->line_size + (r->line_size <= LINE_MAX_CHARS));
    return RECEIVED_NOTHING;
}

static uint32_t load(const uint8_t *bytes, uint32_t size)
{
    uint32_t value = 0;
    for (uint32_t i = size; i > 0; i--) {
        value = value << 8 | bytes[i - 1];
    }
    return value;
}

static enum received take_header(struct receiver *r, uint8_t byte)
{
    r->bytes[r->count++] = byte;
    if (r->count == 2 && byte != SYNC_1) {
        drop_first(r);
        return RECEIVED_NOTHING;
    }
    if (r->count < FRAME_HEADER_BYTES) {
        return RECEIVED_NOTHING;
    }
    if (load(r->bytes + 10, 2) != crc16(r->bytes, 10)) {
        drop_first(r);
        return RECEIVED_BAD_HEADER;
    }
    r->frame.type = r->bytes[2];
    r->frame.sequence = r->bytes[3];
    r->frame.position = load(r->bytes + 4, 4);
    r->frame.size = (uint16_t)load(r->bytes + 8, 2);
    r->in_payload = 1;
    r->count = 0;
    return RECEIVED_NOTHING;
}

/* Read what there is of payload and CRC. A payload over the limit is passed over, so that it is not taken for text.
 * A header consumes every byte that was to be looked at again, so here all bytes are new. */
static enum received take_payload(struct receiver *r)
{
    uint32_t total = (uint32_t)r->frame.size + FRAME_CRC_BYTES;
    int keep = r->frame.size <= FRAME_PAYLOAD_MAX;
    uint32_t want = total - r->count;
    uint32_t room = keep || want < FRAME_PAYLOAD_MAX ? want : FRAME_PAYLOAD_MAX;
    size_t n = board_serial_read(r->bytes + (keep ? r->count : 0), room);
    if (n == 0) {
        return RECEIVED_NOTHING;
    }
    r->last_ms = board_millis();
    r->count += (uint32_t)n;
    if (r->count < total) {
        return RECEIVED_NOTHING;
    }
    r->in_payload = 0;
    r->count = 0;
    if (!keep) {
        return RECEIVED_LONG_FRAME;
    }
    uint32_t sent = load(r->bytes + r->frame.size, FRAME_CRC_BYTES);
    return sent == crc32(0, r->bytes, r->frame.size) ? RECEIVED_FRAME : RECEIVED_BAD_PAYLOAD;
}

/* Called when no byte is waiting. */
static enum received give_up(struct receiver *r)
{
    int in_frame = r->in_payload || r->count > 0;
    if (!in_frame || board_millis() - r->last_ms < FRAME_TIMEOUT_MS) {
        return RECEIVED_NOTHING;
    }
    r->in_payload = 0;
    r->count = 0;
    return RECEIVED_FRAME_TIMEOUT;
}

enum received receiver_next(struct receiver *r)
{
    for (;;) {
        enum received what;
        uint8_t byte;
        if (r->in_payload) {
            uint32_t before = r->count;
            what = take_payload(r);
            if (what == RECEIVED_NOTHING && r->count == before) {
                return give_up(r);
            }
        } else if (!next_byte(r, &byte)) {
            return give_up(r);
        } else if (r->count > 0 || byte == SYNC_0) {
            what = take_header(r, byte);
        } else {
            what = take_text(r, byte);
        }
        if (what != RECEIVED_NOTHING) {
            return what;
        }
    }
}
