/* SPDX-License-Identifier: Apache-2.0 */
/* SPI2 on the Arduino header: SCK PI1 (D13), MISO PB14 (D12), MOSI PB15 (D11), chip select PA8 (D10): UM1907, Arduino
 * connectors. RM0385 chapter 32. Mode 0, 8 bits, 54 MHz / 8 = 6.75 MHz.
 *
 * PI1 also drives LED LD1. It is the clock while the chip is selected and the LED's output otherwise: a chip that is not
 * selected does not listen to its clock. The LED then glows while bytes come in. */
#include "board.h"
#include "camera_drivers.h"
#include "camera_registers.h"

enum { SCK = 1, MISO = 14, MOSI = 15, SELECT = 8, AF5 = 5 };
enum { BYTE_TRIES = 10000 }; /* looks at a flag; a byte takes 256 core cycles */

static void set_mode(struct gpio_registers *port, uint32_t pin, uint32_t mode)
{
    port->MODER = (port->MODER & ~(3u << 2 * pin)) | mode << 2 * pin;
}

void spi_init(void)
{
    RCC->AHB1ENR |= RCC_AHB1ENR_GPIOAEN | RCC_AHB1ENR_GPIOBEN | RCC_AHB1ENR_GPIOIEN;
    RCC->APB1ENR |= RCC_APB1ENR_SPI2EN;
    (void)RCC->APB1ENR; /* the clocks are there after one read */
    GPIOA->BSRR = BIT(SELECT);
    set_mode(GPIOA, SELECT, GPIO_MODE_OUTPUT);
    GPIOI->AFRL = (GPIOI->AFRL & ~(15u << 4 * SCK)) | (uint32_t)AF5 << 4 * SCK;
    GPIOB->AFRH = (GPIOB->AFRH & ~(255u << 4 * (MISO - 8))) | (uint32_t)(AF5 | AF5 << 4) << 4 * (MISO - 8);
    GPIOB->PUPDR = (GPIOB->PUPDR & ~(3u << 2 * MISO)) | GPIO_PULL_UP << 2 * MISO; /* no camera reads as ff */
    GPIOI->OSPEEDR = (GPIOI->OSPEEDR & ~(3u << 2 * SCK)) | GPIO_SPEED_25_MHZ << 2 * SCK;
    GPIOB->OSPEEDR = (GPIOB->OSPEEDR & ~(3u << 2 * MOSI)) | GPIO_SPEED_25_MHZ << 2 * MOSI;
    set_mode(GPIOB, MISO, GPIO_MODE_ALTERNATE);
    set_mode(GPIOB, MOSI, GPIO_MODE_ALTERNATE);
    SPI2->CR1 = 0;
    SPI2->CR2 = SPI_CR2_DS_8BIT | SPI_CR2_FRXTH;
    SPI2->CR1 = SPI_CR1_MSTR | SPI_CR1_SSM | SPI_CR1_SSI | SPI_CR1_BR_DIV8 | SPI_CR1_SPE;
}

void spi_select(void)
{
    set_mode(GPIOI, SCK, GPIO_MODE_ALTERNATE);
    GPIOA->BSRR = BIT(SELECT + 16);
}

void spi_release(void)
{
    for (uint32_t tries = 0; SPI2->SR & SPI_SR_BSY && tries < BYTE_TRIES; tries++) {
    }
    GPIOA->BSRR = BIT(SELECT);
    set_mode(GPIOI, SCK, GPIO_MODE_OUTPUT);
}

static int wait_for(uint32_t flag)
{
    for (uint32_t tries = 0; tries < BYTE_TRIES; tries++) {
        if (SPI2->SR & flag) {
            return BOARD_OK;
        }
    }
    return BOARD_ERR_TIMEOUT;
}

int spi_exchange(uint8_t out, uint8_t *in)
{
    volatile uint8_t *data = (volatile uint8_t *)&SPI2->DR; /* a wider access would send two bytes */
    if (wait_for(SPI_SR_TXE) != BOARD_OK) {
        return BOARD_ERR_TIMEOUT;
    }
    *data = out;
    if (wait_for(SPI_SR_RXNE) != BOARD_OK) {
        return BOARD_ERR_TIMEOUT;
    }
    *in = *data;
    return BOARD_OK;
}
