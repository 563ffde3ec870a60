/* What a stream of bytes on the serial line means, read off docs/protocol.md and not off the firmware: the second opinion
 * that the fuzzer compares the firmware with. It looks at the whole stream, not at a byte at a time. */
#ifndef DECODER_H
#define DECODER_H

#include <stddef.h>
#include <stdint.h>

enum { DECODER_LINE_MAX = 127, DECODER_PAYLOAD_MAX = 512 };

/* Each is answered once. */
enum meaning {
    MEANS_NOTHING, /* the end of the bytes */
    MEANS_LINE,
    MEANS_BAD_LINE,
    MEANS_FRAME,
    MEANS_BAD_HEADER,
    MEANS_BAD_PAYLOAD,
    MEANS_LONG_FRAME,
    MEANS_TIMEOUT, /* the bytes end within a frame, and then the line is silent */
};

struct decoder {
    const uint8_t *data;
    size_t size, at;                 /* the next byte to look at */
    size_t end;                      /* bytes that must have arrived before the last meaning is clear */
    char line[DECODER_LINE_MAX + 1]; /* so far, or whole after MEANS_LINE */
    size_t line_size;
    int line_bad;
    uint8_t frame_type; /* after MEANS_FRAME */
};

/* More bytes, after those of before have been decoded to their end and the line was silent. A line may go on. */
void decoder_feed(struct decoder *d, const uint8_t *data, size_t size);

enum meaning decoder_next(struct decoder *d);

/* CRC-16 of the ten bytes of a header and CRC-32 of a payload, bit by bit. */
uint16_t decoder_crc16(const uint8_t *header);
uint32_t decoder_crc32(const uint8_t *payload, size_t size);

#endif
