/* SPDX-License-Identifier: Apache-2.0 */
/* The 16 MB of flash beside the chip, an N25Q128A on QUADSPI, as memory that is read like any other: RM0385 chapter 14, data
 * sheet of the N25Q128A (its commands, and its table of dummy cycles by clock), pins UM1907. Linked only where a
 * model's weights lie there (MICROTRAIN_EXTERNAL).
 *
 * Before the first command the MPU shuts the window: a Cortex-M7 reads ahead wherever memory is normal, and such a read
 * would come between two commands. Behind the flash's 16 MB the window stays shut. */
#include "board.h"
#include "drivers.h"
#include "hardware.h"

enum {
    RESET_ENABLE = 0x66,
    RESET_MEMORY = 0x99,
    READ_ID = 0x9f,
    QUAD_IO_FAST_READ = 0xeb,
    DUMMY_CYCLES = 10, /* of QUAD_IO_FAST_READ up to 108 MHz; what the flash counts after a reset */
};
enum { N25Q128A = 0x18ba20, ID_MASK = 0xffffff }; /* Micron, 3 V, 16 MB; the MT25QL128 of later boards is the same */
enum { ID_TRIES = 10000 };                        /* a flash that was erasing is back within */
enum { FLASH_LOG2 = 24, WINDOW_LOG2 = 28 };

static void pin(struct gpio_registers *port, uint32_t number, uint32_t function)
{
    volatile uint32_t *select = number < 8 ? &port->AFRL : &port->AFRH;
    uint32_t shift = number % 8 * 4;
    *select = (*select & ~(15u << shift)) | function << shift;
    port->OSPEEDR |= GPIO_SPEED_FASTEST << 2 * number;
    port->MODER = (port->MODER & ~(3u << 2 * number)) | GPIO_MODE_ALTERNATE << 2 * number;
}

static void connect(void)
{
    RCC->AHB1ENR |= RCC_AHB1ENR_GPIOBEN | RCC_AHB1ENR_GPIODEN | RCC_AHB1ENR_GPIOEEN;
    RCC->AHB3ENR |= RCC_AHB3ENR_QSPIEN;
    (void)RCC->AHB3ENR; /* the clocks are there after one read */
    pin(GPIOB, 2, 9);   /* CLK */
    pin(GPIOB, 6, 10);  /* NCS */
    pin(GPIOD, 11, 9);  /* IO0 */
    pin(GPIOD, 12, 9);  /* IO1 */
    pin(GPIOE, 2, 9);   /* IO2 */
    pin(GPIOD, 13, 9);  /* IO3 */
}

/* What the MPU says of the first 2^log2 bytes of the window. ARMv7-M ARM, section B3.5. */
static void mpu_region(uint32_t number, uint32_t log2, uint32_t attributes)
{
    MPU->RNR = number;
    MPU->RBAR = EXTERNAL_START;
    MPU->RASR = MPU_RASR_XN | attributes | (log2 - 1) << 1 | MPU_RASR_ENABLE;
    MPU->CTRL = MPU_CTRL_ENABLE | MPU_CTRL_PRIVDEFENA;
    data_barrier();
    instruction_barrier();
}

static int wait_for(uint32_t flag, uint32_t value)
{
    for (uint32_t tries = 0; tries < WAIT_TRIES; tries++) {
        if ((QUADSPI->SR & flag) == value) {
            return BOARD_OK;
        }
    }
    return BOARD_ERR_TIMEOUT;
}

/* QUADSPI is busy until the command is over and what came of it has been read from DR; before that its registers take
 * nothing. */
static int wait_until_idle(void)
{
    return wait_for(QUADSPI_SR_BUSY, 0);
}

/* One command in indirect mode: what of CCR is not the instruction. */
static int command(uint32_t instruction, uint32_t how)
{
    if (wait_until_idle() != BOARD_OK) {
        return BOARD_ERR_TIMEOUT;
    }
    QUADSPI->FCR = QUADSPI_SR_TCF;
    QUADSPI->CCR = how | instruction;
    return wait_for(QUADSPI_SR_TCF, QUADSPI_SR_TCF);
}

/* The flash as it is after power-on, whichever lines another program has left it to listen on. Four lines first: on one,
 * two clocks are no command. */
static int reset_flash(void)
{
    static const uint32_t lines[] = {QUADSPI_CCR_IMODE_4_LINES, QUADSPI_CCR_IMODE_1_LINE};
    for (uint32_t i = 0; i < 2; i++) {
        if (command(RESET_ENABLE, lines[i]) != BOARD_OK || command(RESET_MEMORY, lines[i]) != BOARD_OK) {
            return BOARD_ERR_TIMEOUT;
        }
    }
    return BOARD_OK;
}

static int find_flash(void)
{
    QUADSPI->DLR = 4 - 1;
    for (uint32_t tries = 0; tries < ID_TRIES; tries++) {
        if (reset_flash() != BOARD_OK || command(READ_ID, QUADSPI_CCR_IMODE_1_LINE | QUADSPI_CCR_DMODE_1_LINE |
                                                              QUADSPI_CCR_FMODE_READ) != BOARD_OK) {
            return BOARD_ERR_TIMEOUT;
        }
        if ((QUADSPI->DR & ID_MASK) == N25Q128A) {
            return wait_until_idle();
        }
    }
    return BOARD_ERR_EXTERNAL;
}

/* 27 MHz to find the flash, then 108 MHz. Its chip select is high for 3 cycles: 28 ns of the 20 that it needs behind a
 * read, 111 of the 50 behind another command. */
int external_flash_init(void)
{
    mpu_region(0, WINDOW_LOG2, 0);
    connect();
    QUADSPI->DCR = QUADSPI_DCR_FSIZE(FLASH_LOG2 - 1) | QUADSPI_DCR_CSHT(3 - 1);
    QUADSPI->CR = QUADSPI_CR_PRESCALER(8 - 1) | QUADSPI_CR_EN;
    int status = find_flash();
    if (status != BOARD_OK) {
        return BOARD_ERR_EXTERNAL;
    }
    QUADSPI->CR = QUADSPI_CR_PRESCALER(2 - 1) | QUADSPI_CR_SSHIFT | QUADSPI_CR_EN;
    QUADSPI->CCR = QUADSPI_CCR_FMODE_MAPPED | QUADSPI_CCR_DMODE_4_LINES | QUADSPI_CCR_DCYC(DUMMY_CYCLES) |
                   QUADSPI_CCR_ADSIZE_24 | QUADSPI_CCR_ADMODE_4_LINES | QUADSPI_CCR_IMODE_1_LINE | QUAD_IO_FAST_READ;
    mpu_region(1, FLASH_LOG2, MPU_RASR_READ_ONLY | MPU_RASR_WRITE_THROUGH);
    return BOARD_OK;
}
