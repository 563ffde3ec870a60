/* SPDX-License-Identifier: Apache-2.0 */
/* The board's SDRAM, MT48LC4M32B2B5-6A with 16 of its 32 data lines wired, on bank 1 of the FMC: UM1907, section on the
 * SDRAM; RM0385 section 13.7; Micron, MT48LC4M32B2 data sheet, -6A. Its clock is half of the core's 216 MHz. */
#include <stddef.h>

#include "board.h"
#include "camera_drivers.h"
#include "camera_registers.h"

enum { AF12 = 12, PORTS = 8, CAS_LATENCY = 3, POWER_UP_MS = 1, REFRESHES = 8 };
enum { COMMAND_TRIES = 20000 }; /* looks at the busy flag; a command takes some tens of cycles */
enum { MODE_SINGLE_WRITES = 1 << 9, MODE_BURST_1 = 0 };

/* 4096 rows in 64 ms at 108 MHz, less the 20 cycles that RM0385 wants as a margin. */
enum { REFRESH_CYCLES = 108 * 64000 / 4096 - 20 };

static const uint16_t pins[PORTS] = {
    [2] = 0x0008, /* PC3: SDCKE0 */
    [3] = 0xc703, /* PD: D2 D3 D13-D15 D0 D1 */
    [4] = 0xff83, /* PE: NBL0 NBL1 D4-D12 */
    [5] = 0xf83f, /* PF: A0-A5 SDNRAS A6-A9 */
    [6] = 0x8133, /* PG: A10 A11 BA0 BA1 SDCLK SDNCAS */
    [7] = 0x0028, /* PH: SDNE0 SDNWE */
};

void pins_alternate(uint32_t port, uint32_t chosen, uint32_t function)
{
    struct gpio_registers *gpio = GPIO_PORT(port);
    RCC->AHB1ENR |= BIT(port);
    (void)RCC->AHB1ENR; /* the clock is there after one read */
    for (uint32_t pin = 0; pin < 16; pin++) {
        if (chosen >> pin & 1u) {
            volatile uint32_t *alternate = pin < 8 ? &gpio->AFRL : &gpio->AFRH;
            uint32_t shift = 4 * (pin % 8);
            *alternate = (*alternate & ~(15u << shift)) | function << shift;
            gpio->OSPEEDR |= GPIO_SPEED_FASTEST << 2 * pin;
            gpio->MODER = (gpio->MODER & ~(3u << 2 * pin)) | GPIO_MODE_ALTERNATE << 2 * pin;
        }
    }
}

static int command(uint32_t what)
{
    FMC_SDRAM->SDCMR = what | FMC_SDCMR_CTB1;
    for (uint32_t tries = 0; tries < COMMAND_TRIES; tries++) {
        if (!(FMC_SDRAM->SDSR & FMC_SDSR_BUSY)) {
            return BOARD_OK;
        }
    }
    return BOARD_ERR_TIMEOUT;
}

/* The order that the memory wants after power-on. */
static int start(void)
{
    int status = command(FMC_SDCMR_CLOCK_ON);
    for (uint32_t begin = board_millis(); board_millis() - begin <= POWER_UP_MS;) {
    }
    if (status == BOARD_OK) {
        status = command(FMC_SDCMR_PRECHARGE_ALL);
    }
    if (status == BOARD_OK) {
        status = command(FMC_SDCMR_REFRESH | FMC_SDCMR_NRFS((uint32_t)REFRESHES));
    }
    if (status == BOARD_OK) {
        status = command(FMC_SDCMR_LOAD_MODE |
                         FMC_SDCMR_MRD((uint32_t)(MODE_SINGLE_WRITES | CAS_LATENCY << 4 | MODE_BURST_1)));
    }
    return status;
}

static volatile uint16_t *memory(void)
{
    return (volatile uint16_t *)0xc0000000u;
}

/* Two places far apart keep different values: no memory keeps neither. */
static int holds(void)
{
    enum { FAR = 1 << 21 };
    memory()[0] = 0x5aa5;
    memory()[FAR] = 0xa55a;
    return memory()[0] == 0x5aa5 && memory()[FAR] == 0xa55a;
}

volatile uint16_t *sdram_open(void)
{
    for (uint32_t port = 0; port < PORTS; port++) {
        pins_alternate(port, pins[port], AF12);
    }
    RCC->AHB3ENR |= RCC_AHB3ENR_FMCEN;
    (void)RCC->AHB3ENR; /* the clock is there after one read */
    FMC_SDRAM->SDCR1 = FMC_SDCR_NR_12 | FMC_SDCR_MWID_16 | FMC_SDCR_NB_4 | FMC_SDCR_CAS((uint32_t)CAS_LATENCY) |
                       FMC_SDCR_SDCLK_HALF | FMC_SDCR_RBURST;
    FMC_SDRAM->SDTR1 = FMC_SDTR_TMRD(2u) | FMC_SDTR_TXSR(8u) | FMC_SDTR_TRAS(5u) | FMC_SDTR_TRC(7u) | FMC_SDTR_TWR(3u) |
                       FMC_SDTR_TRP(2u) | FMC_SDTR_TRCD(2u); /* cycles of 9.26 ns */
    if (start() != BOARD_OK) {
        return NULL;
    }
    FMC_SDRAM->SDRTR = FMC_SDRTR_COUNT((uint32_t)REFRESH_CYCLES);
    return holds() ? memory() : NULL;
}
