/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer.h"

#include <string.h>

#include "board.h"
#include "crc.h"
#include "microtrain_board.h"

/* Where a push is collected: in the arena, or right in the trainables where they are larger. */
static uint8_t *place(void)
{
    return MODEL_TRAINABLE_BYTES > MODEL_ARENA_BYTES ? model_trainables : model_arena;
}

int transfer_start(struct transfer *t, uint32_t bytes, uint32_t crc, uint32_t model_id)
{
    t->active = 0;
    if (bytes != MODEL_TRAINABLE_BYTES) {
        return TRANSFER_ERR_SIZE;
    }
    if (model_id != microtrain_id()) {
        return TRANSFER_ERR_MODEL;
    }
    t->active = 1;
    t->received = 0;
    t->crc = crc;
    return TRANSFER_OK;
}

int transfer_take(struct transfer *t, const struct frame *frame, const uint8_t *payload)
{
    uint32_t total = MODEL_TRAINABLE_BYTES, from = frame->position;
    if (!t->active) {
        return TRANSFER_ERR_NONE;
    }
    if (frame->size == 0 || from > t->received || frame->size > total - from) {
        return TRANSFER_ERR_RANGE;
    }
    uint8_t *bytes = place();
    t->incomplete = bytes == model_trainables;
    memcpy(bytes + from, payload, frame->size);
    uint32_t end = from + frame->size;
    t->received = end > t->received ? end : t->received;
    if (t->received < total) {
        return TRANSFER_OK;
    }
    t->active = 0;
    if (crc32(0, bytes, total) != t->crc) {
        return TRANSFER_ERR_CRC;
    }
    if (bytes != model_trainables) {
        memcpy(model_trainables, bytes, total);
    }
    t->incomplete = 0;
    return TRANSFER_DONE;
}

static void store(uint8_t *out, uint32_t value, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

static void send_frame(uint8_t sequence, uint32_t offset, const uint8_t *payload, uint32_t size)
{
    uint8_t header[FRAME_HEADER_BYTES] = {0xa5, 0x5a, FRAME_DATA, sequence}, check[FRAME_CRC_BYTES];
    store(header + 4, offset, 4);
    store(header + 8, size, 2);
    store(header + 10, crc16(header, 10), 2);
    store(check, crc32(0, payload, size), sizeof check);
    (void)board_serial_write(header, sizeof header);
    (void)board_serial_write(payload, size);
    (void)board_serial_write(check, sizeof check);
}

uint32_t transfer_pull(void)
{
    uint32_t total = MODEL_TRAINABLE_BYTES, size;
    uint8_t sequence = 0;
    for (uint32_t offset = 0; offset < total; offset += size) {
        size = total - offset < TRANSFER_CHUNK ? total - offset : TRANSFER_CHUNK;
        send_frame(sequence++, offset, model_trainables + offset, size);
    }
    return crc32(0, model_trainables, total);
}
