/* SPDX-License-Identifier: Apache-2.0 */
/* The chip's full speed, hardware.h's PLL_HZ: RM0385 sections 3.3.2 (wait states), 4.1.4 (over-drive) and 5.2 (clocks);
 * RM0390, chapters 3, 5 and 6. */
#include "board.h"
#include "drivers.h"
#include "hardware.h"

enum { HSI_HZ = 16000000 };

static uint32_t core_hz = HSI_HZ, bus_hz = HSI_HZ;

uint32_t clock_core_hz(void)
{
    return core_hz;
}

uint32_t clock_serial_hz(void)
{
    return bus_hz;
}

static int wait_for(const volatile uint32_t *reg, uint32_t mask, uint32_t value)
{
    for (uint32_t tries = 0; tries < WAIT_TRIES; tries++) {
        if ((*reg & mask) == value) {
            return BOARD_OK;
        }
    }
    return BOARD_ERR_TIMEOUT;
}

/* The core back on the internal oscillator, PLL off: after a warm start the chip may run on it. */
static int start_from_hsi(void)
{
    RCC->CR |= RCC_CR_HSION;
    if (wait_for(&RCC->CR, RCC_CR_HSIRDY, RCC_CR_HSIRDY) != BOARD_OK) {
        return BOARD_ERR_TIMEOUT;
    }
    RCC->CFGR &= ~RCC_CFGR_SW_MASK;
    if (wait_for(&RCC->CFGR, RCC_CFGR_SWS_MASK, RCC_CFGR_SWS_HSI) != BOARD_OK) {
        return BOARD_ERR_TIMEOUT;
    }
    RCC->CR &= ~RCC_CR_PLLON;
    return wait_for(&RCC->CR, RCC_CR_PLLRDY, 0);
}

/* Over-drive, which full speed needs beside voltage scale 1; the PLL is running, but not yet used. */
static int enable_overdrive(void)
{
    PWR->CR1 |= PWR_CR1_ODEN;
    if (wait_for(&PWR->CSR1, PWR_CSR1_ODRDY, PWR_CSR1_ODRDY) != BOARD_OK) {
        return BOARD_ERR_TIMEOUT;
    }
    PWR->CR1 |= PWR_CR1_ODSWEN;
    return wait_for(&PWR->CSR1, PWR_CSR1_ODSWRDY, PWR_CSR1_ODSWRDY);
}

static int switch_to_pll(void)
{
    FLASH->ACR = FLASH_WAIT_STATES | FLASH_ACR_SPEED;
    if (wait_for(&FLASH->ACR, FLASH_ACR_LATENCY_MASK, FLASH_WAIT_STATES) != BOARD_OK ||
        wait_for(&RCC->CR, RCC_CR_PLLRDY, RCC_CR_PLLRDY) != BOARD_OK) {
        return BOARD_ERR_TIMEOUT;
    }
    /* both buses at their limits */
    RCC->CFGR = RCC_CFGR_PPRE1_DIV4 | RCC_CFGR_PPRE2_DIV2;
    RCC->CFGR |= RCC_CFGR_SW_PLL;
    return wait_for(&RCC->CFGR, RCC_CFGR_SWS_MASK, RCC_CFGR_SWS_PLL);
}

int clock_init(void)
{
    RCC->APB1ENR |= RCC_APB1ENR_PWREN;
    (void)RCC->APB1ENR; /* the clock is there after one read */
    if (start_from_hsi() != BOARD_OK) {
        return BOARD_ERR_TIMEOUT;
    }
    PWR->CR1 |= PWR_CR1_VOS_SCALE_1;
    if (HSE_BYPASS) {
        RCC->CR |= HSE_BYPASS; /* before HSEON */
    }
    RCC->CR |= RCC_CR_HSEON;
    int external = wait_for(&RCC->CR, RCC_CR_HSERDY, RCC_CR_HSERDY) == BOARD_OK;
    RCC->PLLCFGR = external ? PLL_FROM_HSE : PLL_FROM_HSI;
    RCC->CR |= RCC_CR_PLLON;
    if (enable_overdrive() != BOARD_OK || switch_to_pll() != BOARD_OK) {
        return BOARD_ERR_TIMEOUT;
    }
    core_hz = PLL_HZ;
    bus_hz = PLL_SERIAL_HZ;
    return BOARD_OK;
}
