/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the serial stream apart into lines and frames (docs/protocol.md), whatever stands between them. */
#ifndef RECEIVER_H
#define RECEIVER_H

#include <stddef.h>
#include <stdint.h>

#include "microtrain_board.h"

enum {
    LINE_MAX_CHARS = 127,
    FRAME_HEADER_BYTES = 12, /* the CRC-16 of the first ten included */
    FRAME_PAYLOAD_MAX = IMAGE_ROW_BYTES > 512 ? IMAGE_ROW_BYTES : 512,
    FRAME_CRC_BYTES = 4,
    FRAME_TIMEOUT_MS = 500, /* a frame that stops arriving this long is dropped */
};

enum frame_type { FRAME_ROW = 1, FRAME_WEIGHTS = 2, FRAME_DATA = 3, FRAME_SOUND = 4 };

/* What has arrived. */
enum received {
    RECEIVED_NOTHING,
    RECEIVED_LINE,          /* line: at least one character, zero-terminated */
    RECEIVED_BAD_LINE,      /* a line with unprintable characters */
    RECEIVED_LONG_LINE,     /* a line of more than LINE_MAX_CHARS */
    RECEIVED_FRAME,         /* frame and payload */
    RECEIVED_BAD_HEADER,    /* header CRC wrong; the bytes behind the A5 are looked at again */
    RECEIVED_BAD_PAYLOAD,   /* payload CRC wrong */
    RECEIVED_LONG_FRAME,    /* longer than FRAME_PAYLOAD_MAX, passed over */
    RECEIVED_FRAME_TIMEOUT, /* the rest of a frame did not come */
};

struct frame {
    uint8_t type, sequence;
    uint16_t size;     /* bytes of payload */
    uint32_t position; /* first image row, byte offset, or number of the first sample of sound */
};

struct receiver {
    char line[LINE_MAX_CHARS + 1];
    uint16_t line_size; /* beyond LINE_MAX_CHARS: too long */
    uint8_t line_bad;

    uint8_t bytes[FRAME_PAYLOAD_MAX + FRAME_CRC_BYTES]; /* header while it comes in, then payload and its CRC */
    uint8_t in_payload;
    uint32_t count;                   /* bytes of the frame's header or payload so far */
    uint32_t replay_from, replay_end; /* bytes[from..end) are to be looked at again */
    struct frame frame;
    uint32_t last_ms; /* when the last byte came */
};

void receiver_init(struct receiver *r);

/* Read from the board's serial line until something is complete. Never waits. */
enum received receiver_next(struct receiver *r);

/* The payload of the last RECEIVED_FRAME, frame.size bytes, until the next receiver_next. */
const uint8_t *receiver_payload(const struct receiver *r);

#endif
