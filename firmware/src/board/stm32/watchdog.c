/* SPDX-License-Identifier: Apache-2.0 */
/* The independent watchdog, and what the last reset was for. RM0385 and RM0390, chapters on the IWDG and the RCC. */
#include "drivers.h"
#include "registers.h"

/* 10 s of the 32 kHz oscillator, which may run at 17 to 47 kHz: 6.8 to 19 s, more than the 4 s of the longest erase. */
enum { PRESCALER_256 = 6, RELOAD = 1250 };

static uint32_t causes;

void watchdog_init(void)
{
    causes = RCC->CSR;
    RCC->CSR |= RCC_CSR_RMVF;
    IWDG->KR = IWDG_KR_START;
    IWDG->KR = IWDG_KR_UNLOCK;
    IWDG->PR = PRESCALER_256;
    IWDG->RLR = RELOAD;
    for (uint32_t tries = 0; IWDG->SR && tries < WAIT_TRIES; tries++) {
    }
    watchdog_feed();
}

void watchdog_feed(void)
{
    IWDG->KR = IWDG_KR_FEED;
}

const char *watchdog_start_cause(void)
{
    if (causes & RCC_CSR_IWDGRSTF) {
        return "watchdog";
    }
    if (causes & RCC_CSR_SFTRSTF) {
        return "software";
    }
    return causes & RCC_CSR_PORRSTF ? "power" : "pin";
}
