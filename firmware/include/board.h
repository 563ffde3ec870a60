/* SPDX-License-Identifier: Apache-2.0 */
/* What a board gives to the runtime. Knows nothing of models. See CONTRIBUTING.md, "Add a board". */
#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>
#include <stdint.h>

enum {
    BOARD_OK = 0,
    BOARD_ERR_TIMEOUT = -1,  /* the hardware did not answer in time */
    BOARD_ERR_RANGE = -2,    /* an argument the hardware cannot do */
    BOARD_ERR_FLASH = -3,    /* the flash reports an error */
    BOARD_ERR_EXTERNAL = -4, /* the flash beside the chip does not answer */
};

enum { BOARD_BAUD_DEFAULT = 115200 };

/* Clocks, caches, FPU mode, serial line at BOARD_BAUD_DEFAULT, LED, button. Returns a BOARD_ code. */
int board_init(void);

const char *board_name(void);

/* Serial line. Reading never blocks: bytes arrive by interrupt in a ring of BOARD_RX_RING bytes; a byte that finds the
 * ring full is lost and counted. */
enum { BOARD_RX_RING = 1024 };
size_t board_serial_read(uint8_t *data, size_t size); /* returns the bytes read, 0 when none is waiting */
int board_serial_write(const uint8_t *data, size_t size);
int board_serial_baud(uint32_t baud); /* waits until the last byte has left, then switches */
uint32_t board_serial_lost(void);     /* bytes lost since the start: overruns, noise, full ring */

/* Sleep until an interrupt (a received byte, the millisecond tick) has come. */
void board_wait(void);

/* Nothing hangs: a watchdog resets the board when this, board_wait or board_serial_write has not been called for 6 s. */
void board_alive(void);

/* Why the board started, in a word: "power", "pin", "software" or "watchdog". */
const char *board_start_cause(void);

/* Flash for checkpoints: slots that are erased as a whole, to 0xff, and written in words at multiples of 4, each once and
 * then perhaps once more with 0, which clears it. The core may stand still meanwhile, up to 4 s for an erase: bytes that arrive then are lost and counted. */
enum { BOARD_SLOTS = 2 };
/* 0: a model's weights may lie there, and nobody asks for slots (convert --no-checkpoints). */
#ifndef MICROTRAIN_CHECKPOINTS
#define MICROTRAIN_CHECKPOINTS 1
#endif
const uint8_t *board_slot(uint32_t slot); /* to read it, 8-byte aligned */
uint32_t board_slot_bytes(uint32_t slot); /* a multiple of 32 */
int board_slot_erase(uint32_t slot);
int board_slot_write(uint32_t slot, uint32_t offset, const void *words, uint32_t size);

uint32_t board_millis(void); /* since board_init, wraps */
uint32_t board_cycles(void); /* core clock cycles, wraps */

void board_led(int on);
int board_button(void); /* 1 while the user button is pressed */

/* The last crash since power-on, kept over resets (ARMv7-M ARM, sections B1.5.6 and B3.2.15). */
struct board_crash {
    uint32_t count;     /* of crashes since power-on */
    uint32_t exception; /* number: 2 NMI, 3 HardFault, 4 MemManage, 5 BusFault, 6 UsageFault */
    uint32_t cfsr, hfsr, sp;
    uint32_t pc, lr; /* 0 where the stack could not be read */
};

/* NULL where there was none. */
const struct board_crash *board_crash(void);

_Noreturn void board_reset(void);

#endif
