/* SPDX-License-Identifier: Apache-2.0 */
/* I2C1 on the Arduino header: SCL PB8 (D15), SDA PB9 (D14): UM1907, Arduino connectors. RM0385 chapter 30. 100 kHz from
 * APB1's 54 MHz. A register of a device is one byte of address and one of data; between the two halves of a read is a
 * repeated start, as Linux's drivers of OmniVision's sensors have it, and as Renode's sensor expects. */
#include "board.h"
#include "camera_drivers.h"
#include "camera_registers.h"

enum { SCL = 8, SDA = 9, AF4 = 4 };
enum { WAIT_MS = 10 }; /* a byte takes 0.09 ms */

/* 54 MHz / 14 gives steps of 0.259 us: SCL low 20 of them, high 16, data set up 5 and held 2. */
#define TIMING_100_KHZ                                                                                                 \
    (I2C_TIMINGR_PRESC(13u) | I2C_TIMINGR_SCLDEL(4u) | I2C_TIMINGR_SDADEL(2u) | I2C_TIMINGR_SCLH(15u) |                \
     I2C_TIMINGR_SCLL(19u))

static void set_pin(uint32_t pin)
{
    uint32_t shift = 4 * (pin - 8);
    GPIOB->AFRH = (GPIOB->AFRH & ~(15u << shift)) | (uint32_t)AF4 << shift;
    GPIOB->OTYPER |= BIT(pin);
    GPIOB->PUPDR = (GPIOB->PUPDR & ~(3u << 2 * pin)) | GPIO_PULL_UP << 2 * pin;
    GPIOB->MODER = (GPIOB->MODER & ~(3u << 2 * pin)) | GPIO_MODE_ALTERNATE << 2 * pin;
}

void i2c_init(void)
{
    RCC->AHB1ENR |= RCC_AHB1ENR_GPIOBEN;
    RCC->APB1ENR |= RCC_APB1ENR_I2C1EN;
    (void)RCC->APB1ENR; /* the clocks are there after one read */
    set_pin(SCL);
    set_pin(SDA);
    I2C1->CR1 = 0;
    I2C1->TIMINGR = TIMING_100_KHZ;
    I2C1->CR1 = I2C_CR1_PE;
}

/* Until one of the flags is up (level 1), or all are down (level 0). */
static int wait_for(uint32_t flags, int level)
{
    uint32_t start = board_millis();
    while (((I2C1->ISR & flags) != 0) != level) {
        if (board_millis() - start > WAIT_MS) {
            return BOARD_ERR_TIMEOUT;
        }
    }
    return BOARD_OK;
}

/* Ends the transfer: the stop has been sent. BOARD_ERR_TIMEOUT where it has not, or the device has refused a byte. */
static int finish(void)
{
    int status = wait_for(I2C_ISR_STOPF, 1);
    int refused = (I2C1->ISR & I2C_ISR_NACKF) != 0;
    I2C1->ICR = I2C_ISR_STOPF | I2C_ISR_NACKF; /* the same bits clear the flags */
    return refused ? BOARD_ERR_TIMEOUT : status;
}

/* end: I2C_CR2_AUTOEND for a stop behind the last byte, 0 where a repeated start follows. */
static void start(uint32_t address, uint32_t size, uint32_t direction, uint32_t end)
{
    I2C1->CR2 = address << 1 | direction | I2C_CR2_NBYTES(size) | end | I2C_CR2_START;
}

/* On a free bus. BOARD_ERR_TIMEOUT also where the device refuses: the stop has then been sent. */
static int send(uint32_t address, const uint8_t *bytes, uint32_t size, uint32_t end)
{
    if (wait_for(I2C_ISR_BUSY, 0) != BOARD_OK) {
        return BOARD_ERR_TIMEOUT;
    }
    start(address, size, 0, end);
    for (uint32_t i = 0; i < size; i++) {
        if (wait_for(I2C_ISR_TXIS | I2C_ISR_NACKF, 1) != BOARD_OK) {
            return BOARD_ERR_TIMEOUT;
        }
        if (I2C1->ISR & I2C_ISR_NACKF) {
            return finish();
        }
        I2C1->TXDR = bytes[i];
    }
    return end ? finish() : wait_for(I2C_ISR_TC, 1);
}

int i2c_write(uint32_t address, uint8_t reg, uint8_t value)
{
    const uint8_t bytes[2] = {reg, value};
    return send(address, bytes, sizeof bytes, I2C_CR2_AUTOEND);
}

int i2c_read(uint32_t address, uint8_t reg, uint8_t *value)
{
    if (send(address, &reg, 1, 0) != BOARD_OK) {
        return BOARD_ERR_TIMEOUT;
    }
    start(address, 1, I2C_CR2_RD_WRN, I2C_CR2_AUTOEND);
    int status = wait_for(I2C_ISR_RXNE | I2C_ISR_NACKF, 1);
    if (status == BOARD_OK && I2C1->ISR & I2C_ISR_RXNE) {
        *value = (uint8_t)I2C1->RXDR;
    }
    int end = finish();
    return status != BOARD_OK ? status : end;
}
