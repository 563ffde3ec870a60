#include "decoder.h"

enum { HEADER = 12, CHECK = 4 };

uint16_t decoder_crc16(const uint8_t *header)
{
    unsigned crc = 0xffff;
    for (size_t bit = 0; bit < 80; bit++) {
        unsigned in = header[bit / 8] >> (7 - bit % 8) & 1u;
        crc = ((crc >> 15) ^ in) & 1u ? (crc << 1 ^ 0x1021) & 0xffff : crc << 1 & 0xffff;
    }
    return (uint16_t)crc;
}

uint32_t decoder_crc32(const uint8_t *payload, size_t size)
{
    uint32_t crc = 0xffffffffu;
    for (size_t bit = 0; bit < 8 * size; bit++) {
        uint32_t in = payload[bit / 8] >> bit % 8 & 1u;
        crc = (crc ^ in) & 1u ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}

void decoder_feed(struct decoder *d, const uint8_t *data, size_t size)
{
    d->data = data;
    d->size = size;
    d->at = d->end = 0;
}

/* The rest of the bytes is a frame that never ends. */
static enum meaning unfinished(struct decoder *d)
{
    d->at = d->end = d->size;
    return MEANS_TIMEOUT;
}

/* An A5 that starts no frame: the line it stands in is spoiled, and the byte behind it is looked at next. */
static void spoil(struct decoder *d)
{
    d->line_bad = 1;
    d->at++;
}

static enum meaning decode_frame(struct decoder *d)
{
    const uint8_t *frame = d->data + d->at;
    size_t left = d->size - d->at, payload = left < HEADER ? 0 : frame[8] + 256u * frame[9];
    if (left < 2 || (frame[1] == 0x5a && left < HEADER)) {
        return unfinished(d);
    }
    if (frame[1] != 0x5a) {
        spoil(d);
        return MEANS_NOTHING;
    }
    if (decoder_crc16(frame) != frame[10] + 256u * frame[11]) {
        size_t end = d->at + HEADER;
        d->end = end > d->end ? end : d->end;
        spoil(d);
        return MEANS_BAD_HEADER;
    }
    if (left < HEADER + payload + CHECK) {
        return unfinished(d);
    }
    d->frame_type = frame[2];
    d->at += HEADER + payload + CHECK;
    d->end = d->at;
    if (payload > DECODER_PAYLOAD_MAX) {
        return MEANS_LONG_FRAME;
    }
    uint32_t crc = decoder_crc32(frame + HEADER, payload);
    for (size_t i = 0; i < CHECK; i++) {
        if (frame[HEADER + payload + i] != (crc >> 8 * i & 255)) {
            return MEANS_BAD_PAYLOAD;
        }
    }
    return MEANS_FRAME;
}

/* Returns MEANS_NOTHING within a line, and for an empty one. */
static enum meaning decode_text(struct decoder *d)
{
    uint8_t byte = d->data[d->at++];
    d->end = d->at > d->end ? d->at : d->end;
    if (byte != '\n' && byte != '\r') {
        d->line_bad |= byte < ' ' || byte > '~';
        if (d->line_size < DECODER_LINE_MAX) {
            d->line[d->line_size] = (char)byte;
        }
        d->line_size++;
        return MEANS_NOTHING;
    }
    int bad = d->line_bad || d->line_size > DECODER_LINE_MAX, empty = d->line_size == 0 && !d->line_bad;
    d->line[bad ? 0 : d->line_size] = '\0';
    d->line_size = 0;
    d->line_bad = 0;
    return empty ? MEANS_NOTHING : bad ? MEANS_BAD_LINE : MEANS_LINE;
}

enum meaning decoder_next(struct decoder *d)
{
    enum meaning what = MEANS_NOTHING;
    while (what == MEANS_NOTHING && d->at < d->size) {
        what = d->data[d->at] == 0xa5 ? decode_frame(d) : decode_text(d);
    }
    return what;
}
