#include "fuzz_board.h"

#include <stdlib.h>
#include <string.h>

#include "board.h"

struct fuzz_board fuzz_board;

static const uint32_t slot_bytes[BOARD_SLOTS] = {1024, 2048};

int board_init(void)
{
    return BOARD_OK;
}

const char *board_name(void)
{
    return "fuzz";
}

size_t board_serial_read(uint8_t *data, size_t size)
{
    struct fuzz_board *b = &fuzz_board;
    size_t n = size < b->chunk ? size : b->chunk;
    n = n < b->waiting ? n : b->waiting;
    memcpy(data, b->input, n);
    b->input += n;
    b->waiting -= n;
    return n;
}

int board_serial_write(const uint8_t *data, size_t size)
{
    if (size > FUZZ_OUTPUT_BYTES - fuzz_board.sent) {
        abort(); /* more than any answer: it does not stop talking */
    }
    memcpy(fuzz_board.output + fuzz_board.sent, data, size);
    fuzz_board.sent += size;
    return BOARD_OK;
}

int board_serial_baud(uint32_t baud)
{
    return baud < 9600 || baud > 3000000 ? BOARD_ERR_RANGE : BOARD_OK;
}

void board_wait(void) {}

static uint8_t *slot_start(uint32_t slot)
{
    return fuzz_board.flash + (slot ? slot_bytes[0] : 0);
}

const uint8_t *board_slot(uint32_t slot)
{
    return slot_start(slot);
}

uint32_t board_slot_bytes(uint32_t slot)
{
    return slot_bytes[slot];
}

int board_slot_erase(uint32_t slot)
{
    memset(slot_start(slot), 0xff, slot_bytes[slot]);
    return BOARD_OK;
}

int board_slot_write(uint32_t slot, uint32_t offset, const void *words, uint32_t size)
{
    if (offset % 4 || size % 4 || offset > slot_bytes[slot] || size > slot_bytes[slot] - offset) {
        abort(); /* outside the slot */
    }
    for (uint32_t i = 0; i < size; i++) {
        slot_start(slot)[offset + i] &= ((const uint8_t *)words)[i];
    }
    return BOARD_OK;
}

uint32_t board_millis(void)
{
    return fuzz_board.now_ms;
}

uint32_t board_cycles(void)
{
    return 0;
}

_Noreturn void board_reset(void)
{
    longjmp(fuzz_board.restart, 1);
}
