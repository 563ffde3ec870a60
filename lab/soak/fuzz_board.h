/* board.h for the fuzzer: a serial line in memory, flash of a few kilobytes, and a clock that stands still but for pauses. */
#ifndef FUZZ_BOARD_H
#define FUZZ_BOARD_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

enum { FUZZ_FLASH_BYTES = 3072, FUZZ_OUTPUT_BYTES = 1 << 16 };

struct fuzz_board {
    const uint8_t *input; /* what has arrived and nobody has read */
    size_t waiting;
    size_t chunk; /* most bytes that one read returns */
    uint32_t now_ms;
    uint8_t output[FUZZ_OUTPUT_BYTES];
    size_t sent;
    uint8_t flash[FUZZ_FLASH_BYTES];
    jmp_buf restart; /* where board_reset goes */
};

extern struct fuzz_board fuzz_board;

#endif
