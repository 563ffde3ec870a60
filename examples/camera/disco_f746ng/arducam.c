/* SPDX-License-Identifier: Apache-2.0 */
/* camera.h on the ArduCAM Mini 2MP Plus: an OV2640 and a picture memory with a register interface, the ArduChip, on SPI2.
 * Source: ArduCAM, "ArduCAM-M-2MP Plus hardware application note", register tables and SPI timing. */
#include "board.h"
#include "camera.h"
#include "camera_drivers.h"

enum {
    TEST = 0x00,
    FIFO_CONTROL = 0x04,
    RESET = 0x07,
    BURST_READ = 0x3c, /* the picture, byte by byte, as long as the chip stays selected */
    STATUS = 0x41,
    FIFO_SIZE = 0x42, /* low byte; 0x43 and 0x44 follow */
    WRITE = 0x80,     /* with the register's number: write it */
};
enum {
    FIFO_CLEAR = 1 << 0, /* the flag that a picture is complete */
    FIFO_START = 1 << 1,
    RESET_ON = 1 << 7,
    STATUS_DONE = 1 << 3,
};
enum {
    POWER_UP_MS = 500,
    RESET_MS = 100,
    SETTLE_MS = 500,   /* some frames, for exposure and white balance */
    PICTURE_MS = 2000, /* two frames at the slowest rate, with room */
    PICTURE_BYTES = CAMERA_ROW_BYTES * CAMERA_HEIGHT,
};

static uint32_t sensor_id;

static void pause_ms(uint32_t ms)
{
    for (uint32_t start = board_millis(); board_millis() - start < ms;) {
        board_wait();
    }
}

/* One register: the number, then the value, in or out. */
static int access(uint8_t reg, uint8_t out, uint8_t *in)
{
    uint8_t unused;
    spi_select();
    int status = spi_exchange(reg, &unused);
    if (status == BOARD_OK) {
        status = spi_exchange(out, in);
    }
    spi_release();
    return status == BOARD_OK ? CAMERA_OK : CAMERA_ERR_SPI;
}

static int chip_write(uint8_t reg, uint8_t value)
{
    uint8_t unused;
    return access(reg | WRITE, value, &unused);
}

static int chip_read(uint8_t reg, uint8_t *value)
{
    return access(reg, 0, value);
}

/* Whether the test register keeps what is written to it: also where no camera is there. */
static int test_chip(void)
{
    for (uint32_t value = 0x55; value <= 0xaa; value += 0x55) {
        uint8_t found;
        if (chip_write(TEST, (uint8_t)value) != CAMERA_OK || chip_read(TEST, &found) != CAMERA_OK || found != value) {
            return CAMERA_ERR_SPI;
        }
    }
    return CAMERA_OK;
}

/* After power-on it takes its time before it answers. */
static int wait_for_chip(void)
{
    for (uint32_t start = board_millis(); board_millis() - start < POWER_UP_MS;) {
        if (test_chip() == CAMERA_OK) {
            return CAMERA_OK;
        }
        board_wait();
    }
    return CAMERA_ERR_SPI;
}

static int reset_chip(void)
{
    if (chip_write(RESET, RESET_ON) != CAMERA_OK) {
        return CAMERA_ERR_SPI;
    }
    pause_ms(RESET_MS);
    int status = chip_write(RESET, 0);
    pause_ms(RESET_MS);
    return status;
}

int camera_open(void)
{
    sensor_id = 0;
    spi_init();
    i2c_init();
    if (wait_for_chip() != CAMERA_OK || reset_chip() != CAMERA_OK) {
        return CAMERA_ERR_SPI;
    }
    int status = ov2640_open(&sensor_id);
    if (status >= CAMERA_OK) {
        pause_ms(SETTLE_MS);
    }
    return status;
}

uint32_t camera_id(void)
{
    return sensor_id;
}

static int wait_for_picture(void)
{
    for (uint32_t start = board_millis(); board_millis() - start < PICTURE_MS;) {
        uint8_t flags;
        if (chip_read(STATUS, &flags) != CAMERA_OK) {
            return CAMERA_ERR_SPI;
        }
        if (flags & STATUS_DONE) {
            return CAMERA_OK;
        }
        board_wait();
    }
    return CAMERA_ERR_TIMEOUT;
}

/* The picture may be followed by a few bytes more, which are left in the memory. */
static int check_size(void)
{
    uint32_t size = 0;
    for (uint32_t i = 0; i < 3; i++) {
        uint8_t byte;
        if (chip_read((uint8_t)(FIFO_SIZE + i), &byte) != CAMERA_OK) {
            return CAMERA_ERR_SPI;
        }
        size |= (uint32_t)byte << 8 * i;
    }
    return size >= PICTURE_BYTES ? CAMERA_OK : CAMERA_ERR_SIZE;
}

int camera_capture(void)
{
    camera_release();
    if (test_chip() != CAMERA_OK || chip_write(FIFO_CONTROL, FIFO_CLEAR) != CAMERA_OK ||
        chip_write(FIFO_CONTROL, FIFO_START) != CAMERA_OK) {
        return CAMERA_ERR_SPI;
    }
    int status = wait_for_picture();
    if (status == CAMERA_OK) {
        status = check_size();
    }
    if (status != CAMERA_OK) {
        return status;
    }
    uint8_t unused;
    spi_select();
    if (spi_exchange(BURST_READ, &unused) != BOARD_OK) {
        spi_release();
        return CAMERA_ERR_SPI;
    }
    return CAMERA_OK;
}

int camera_row(uint8_t *pixels)
{
    for (uint32_t i = 0; i < CAMERA_ROW_BYTES; i++) {
        if (spi_exchange(0, &pixels[i]) != BOARD_OK) {
            spi_release();
            return CAMERA_ERR_SPI;
        }
    }
    return CAMERA_OK;
}

void camera_release(void)
{
    spi_release();
}

const char *camera_reason(int status)
{
    switch (status) {
    case CAMERA_ERR_SPI:
        return "no camera answers on SPI: check its power, CS on D10, MOSI D11, MISO D12, SCK D13";
    case CAMERA_ERR_BUS:
        return "no sensor answers on I2C at 30: check SDA on D14 and SCL on D15";
    case CAMERA_ERR_SENSOR:
        return "the sensor is no OV2640: this firmware knows the ArduCAM Mini 2MP Plus only";
    case CAMERA_ERR_TIMEOUT:
        return "the picture did not become complete within 2 s: switch the camera off and on";
    case CAMERA_ERR_SIZE:
        return "the picture is too short: switch the camera off and on";
    default:
        return "the camera works";
    }
}
