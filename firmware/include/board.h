/* What a board gives to the runtime. Knows nothing of models. See CONTRIBUTING.md, "Add a board". */
#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>
#include <stdint.h>

enum {
    BOARD_OK = 0,
    BOARD_ERR_TIMEOUT = -1, /* the hardware did not answer in time */
    BOARD_ERR_RANGE = -2,   /* an argument the hardware cannot do */
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

uint32_t board_millis(void); /* since board_init, wraps */
uint32_t board_cycles(void); /* core clock cycles, wraps */

void board_led(int on);
int board_button(void); /* 1 while the user button is pressed */

_Noreturn void board_reset(void);

#endif
