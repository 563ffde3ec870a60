/* What the files of this board promise one another. board.h is what the rest of the firmware sees. */
#ifndef DRIVERS_H
#define DRIVERS_H

#include <stddef.h>
#include <stdint.h>

/* Every wait for the hardware looks this often at most: 0.1 s or more at any core clock. */
enum { WAIT_TRIES = 2000000 };

/* 216 MHz from the 25 MHz crystal, or from the internal oscillator where the crystal does not start. Returns a
 * BOARD_ code; after BOARD_ERR_TIMEOUT the core runs at 16 MHz. */
int clock_init(void);
uint32_t clock_core_hz(void);
uint32_t clock_apb2_hz(void);

/* Instruction and data cache, invalidated and switched on. */
void cache_enable(void);

/* Drop what the data cache holds of memory that has changed behind it. */
void cache_forget(const uint8_t *start, uint32_t size);

/* USART1 at baud, receiving by interrupt. Returns a BOARD_ code. */
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

/* The checkpoint slots: sectors 4 and 7 (firmware/ld). */
const uint8_t *flash_slot(uint32_t slot);
uint32_t flash_slot_bytes(uint32_t slot);
int flash_erase(uint32_t slot);
int flash_write(uint32_t slot, uint32_t offset, const uint8_t *words, uint32_t size);

/* A reset after 6 s or more without a feed. */
void watchdog_init(void);
void watchdog_feed(void);
const char *watchdog_start_cause(void);

/* LED LD1 (PI1) and user button B1 (PI11). */
void pins_init(void);
void pins_led(int on);
int pins_button(void);

/* Own handlers for MemManage, BusFault and UsageFault; division by zero faults. */
void fault_init(void);

/* SPI2 and a chip on it: bytes go both ways at once. While the chip is selected LED LD1 is its clock. */
void spi_init(void);
void spi_select(void);
void spi_release(void);
int spi_exchange(uint8_t out, uint8_t *in); /* BOARD_OK or BOARD_ERR_TIMEOUT */

/* I2C1: one register of the device at a 7-bit address. BOARD_ERR_TIMEOUT where nobody answers or the bus is stuck. */
void i2c_init(void);
int i2c_write(uint32_t address, uint8_t reg, uint8_t value);
int i2c_read(uint32_t address, uint8_t reg, uint8_t *value);

/* The OV2640 image sensor, set up for pictures of CAMERA_WIDTH x CAMERA_HEIGHT in RGB565. Returns CAMERA_ codes. */
int ov2640_open(uint32_t *id);

/* Pins of a port, 0 for A, to an alternate function, as fast as they go. */
void pins_alternate(uint32_t port, uint32_t pins, uint32_t function);

/* The board's 8 MB of SDRAM. NULL where it does not hold what is written. Device memory: aligned accesses only. */
volatile uint16_t *sdram_open(void);

_Noreturn void system_reset(void);

#endif
