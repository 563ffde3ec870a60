/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a board on an STM32 promise one another. board.h is what the rest of the firmware sees. */
#ifndef DRIVERS_H
#define DRIVERS_H

#include <stddef.h>
#include <stdint.h>

/* Every wait for the hardware looks this often at most: 0.1 s or more at any core clock. */
enum { WAIT_TRIES = 2000000 };

/* The chip's full speed from the board's own clock, or from the internal oscillator where that does not start. Returns
 * a BOARD_ code; after BOARD_ERR_TIMEOUT the core runs at 16 MHz. */
int clock_init(void);
uint32_t clock_core_hz(void);
uint32_t clock_serial_hz(void); /* of the USART */

/* Instruction and data cache, invalidated and switched on. */
void cache_enable(void);

/* Drop what the data cache holds of flash that has changed behind it. */
void cache_forget(const uint8_t *start, uint32_t size);

/* The USART of the ST-LINK's virtual COM port at baud, receiving by interrupt. Returns a BOARD_ code. */
int usart_init(uint32_t baud);
int usart_baud(uint32_t baud);
size_t usart_read(uint8_t *data, size_t size);
int usart_write(const uint8_t *data, size_t size);
int usart_flush(void); /* waits until the last byte has left */
int usart_empty(void); /* 1 when no received byte waits */
uint32_t usart_lost(void);

/* Millisecond tick and cycle counter. */
void time_init(void);
uint32_t time_millis(void);
uint32_t time_cycles(void);
void time_passed(uint32_t cycles); /* count core cycles in which no tick could be taken */

/* The checkpoint slots, a flash sector each (firmware/ld). */
const uint8_t *flash_slot(uint32_t slot);
uint32_t flash_slot_bytes(uint32_t slot);
int flash_erase(uint32_t slot);
int flash_write(uint32_t slot, uint32_t offset, const uint8_t *words, uint32_t size);

/* A reset after 6 s or more without a feed. */
void watchdog_init(void);
void watchdog_feed(void);
const char *watchdog_start_cause(void);

/* Makes flash beside the chip readable as memory; only where a model's weights lie there. Returns a BOARD_ code. */
int external_flash_init(void);

/* The board's LED and its user button. */
void pins_init(void);
void pins_led(int on);
int pins_button(void);

/* Own handlers for MemManage, BusFault and UsageFault; division by zero faults. */
void fault_init(void);

_Noreturn void system_reset(void);

#endif
