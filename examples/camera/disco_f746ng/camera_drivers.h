/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the camera and the display promise one another, beside drivers.h. */
#ifndef CAMERA_DRIVERS_H
#define CAMERA_DRIVERS_H

#include <stdint.h>

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

#endif
